import Testing

@testable import BluezKit

@Suite struct ErrorMappingTests {
    struct Example: Sendable, CustomTestStringConvertible {
        let context: BlueZErrorContext
        let name: String
        let message: String
        let isBonded: Bool
        let domain: String
        let code: Int

        init(
            _ context: BlueZErrorContext, _ name: String, _ message: String, bonded: Bool = false, cb code: CBError.Code
        ) {
            (self.context, self.name, self.message, isBonded) = (context, name, message, bonded)
            (domain, self.code) = (CBErrorDomain, code.rawValue)
        }

        init(_ context: BlueZErrorContext, _ name: String, _ message: String, bonded: Bool = false, att code: Int) {
            (self.context, self.name, self.message, isBonded) = (context, name, message, bonded)
            (domain, self.code) = (CBATTErrorDomain, code)
        }

        var testDescription: String { "\(context.rawValue) \(name) \(message)" }
    }

    static let bluez = "org.bluez.Error."
    static let bus = "org.freedesktop.DBus.Error."

    @Test(
        "ERR-1 ERR-8 O-46 a refusal by the peer is the ATT error that it sent",
        arguments: [
            Example(.attributeRead, bluez + "NotPermitted", "Read not permitted", att: 2),
            Example(.attributeWrite, bluez + "NotPermitted", "Write not permitted", att: 3),
            Example(.attributeRead, bluez + "NotPermitted", "Not paired", att: 5),
            Example(.notify, bluez + "NotPermitted", "Not paired", att: 5),
            Example(.attributeRead, bluez + "NotPermitted", "Not paired", bonded: true, att: 15),
            Example(.attributeRead, bluez + "InvalidArguments", "Invalid offset", att: 7),
            Example(.attributeWrite, bluez + "InvalidArguments", "Invalid Length", att: 13),
            Example(.attributeWrite, bluez + "NotAuthorized", "Operation Not Authorized", att: 8),
            Example(.attributeRead, bluez + "NotAuthorized", "", att: 8),
            Example(.attributeWrite, bluez + "NotSupported", "Operation is not supported", att: 6),
            Example(.notify, bluez + "ImproperlyConfigured", "", att: 0xFD),
            Example(.attributeRead, bluez + "Failed", "Operation failed with ATT error: 0x0e", att: 14),
            Example(.attributeRead, bluez + "Failed", "Operation failed with ATT error: 0x80", att: 0x80),
            Example(.attributeWrite, bluez + "Failed", "Operation failed with ATT error: 0xfc", att: 0xFC),
            Example(.attributeWrite, bluez + "Failed", "Failed to initiate write", att: 13),
            Example(.attributeWrite, bluez + "Failed", "Bad address", att: 14),
        ])
    func refusals(_ example: Example) { check(example) }

    @Test(
        "ERR-1 ERR-8 O-46 every error that the peer did not send is a CBError",
        arguments: [
            Example(.attributeRead, bluez + "NotConnected", "Not Connected", cb: .notConnected),
            Example(.attributeRead, bluez + "Failed", "Not connected", cb: .notConnected),
            Example(.notify, bluez + "Failed", "No ATT transport", cb: .notConnected),
            Example(.attributeRead, bluez + "Failed", "Operation failed", cb: .unknown),
            Example(.attributeRead, bluez + "Failed", "Operation failed with ATT error: 0x", cb: .unknown),
            Example(.attributeRead, bluez + "Failed", "Operation failed with ATT error: 0x00", cb: .unknown),
            Example(.attributeRead, bluez + "Failed", "Operation failed with ATT error: 0xzz", cb: .unknown),
            Example(.attributeRead, bluez + "Failed", "Failed to send read request", cb: .unknown),
            Example(.attributeWrite, bluez + "NotPermitted", "Write acquired", cb: .unknown),
            Example(.attributeWrite, bluez + "InProgress", "In Progress", cb: .unknown),
            Example(.attributeWrite, bluez + "InvalidArguments", "Invalid arguments", cb: .invalidParameters),
            Example(.attributeRead, bluez + "NotReady", "Resource Not Ready", cb: .notConnected),
            Example(.attributeRead, bus + "UnknownObject", "", cb: .invalidHandle),
            Example(.attributeRead, bus + "UnknownMethod", "", cb: .invalidHandle),
            Example(.attributeRead, bus + "NoReply", "", cb: .connectionTimeout),
            Example(.attributeRead, bus + "Disconnected", "", cb: .notConnected),
            Example(.attributeRead, bus + "LimitsExceeded", "", cb: .outOfSpace),
            Example(.attributeRead, "com.example.Other", "", cb: .unknown),
        ])
    func others(_ example: Example) { check(example) }

    @Test(
        "ERR-8 CN-13 each error of Connect becomes its CBError",
        arguments: [
            Example(.connect, bluez + "Failed", "le-connection-abort-by-local", cb: .connectionFailed),
            Example(.connect, bluez + "Failed", "Software caused connection abort", cb: .connectionFailed),
            Example(.connect, bluez + "Failed", "le-connection-timeout", cb: .connectionTimeout),
            Example(.connect, bluez + "Failed", "br-connection-timeout", cb: .connectionTimeout),
            Example(.connect, bluez + "Failed", "br-connection-page-timeout", cb: .connectionTimeout),
            Example(.connect, bluez + "Failed", "le-connection-abort-by-remote", cb: .peripheralDisconnected),
            Example(.connect, bluez + "Failed", "br-connection-aborted-by-remote", cb: .peripheralDisconnected),
            Example(.connect, bluez + "Failed", "br-connection-canceled", cb: .connectionFailed),
            Example(.connect, bluez + "Failed", "le-connection-key-missing", cb: .peerRemovedPairingInformation),
            Example(
                .connect, bluez + "Failed", "le-connection-concurrent-connection-limit", cb: .connectionLimitReached),
            Example(.connect, bluez + "Failed", "le-connection-adapter-not-powered", cb: .connectionFailed),
            Example(.connect, bluez + "Failed", "Input/output error", cb: .connectionFailed),
            Example(.connect, "org.bluez.Failed", "", cb: .connectionFailed),
            Example(.connect, bluez + "NotAvailable", "br-connection-profile-unavailable", cb: .connectionFailed),
            Example(.connect, bluez + "BREDR.ProfileUnavailable", "", cb: .connectionFailed),
            Example(.connect, bluez + "NotSupported", "", cb: .operationNotSupported),
            Example(.connect, bluez + "InProgress", "Operation already in progress", cb: .unknown),
            Example(.connect, bus + "UnknownObject", "", cb: .unknownDevice),
            Example(.connect, bus + "NoReply", "", cb: .connectionTimeout),
            Example(.connect, "", "", cb: .connectionFailed),
        ])
    func connecting(_ example: Example) { check(example) }

    @Test(
        "ERR-8 each error of pairing, advertising and publishing becomes its CBError",
        arguments: [
            Example(.pair, bluez + "AuthenticationTimeout", "Authentication Timeout", cb: .encryptionTimedOut),
            Example(.pair, bluez + "Failed", "Not paired", cb: .encryptionTimedOut),
            Example(.pair, bluez + "AuthenticationCanceled", "", cb: .operationCancelled),
            Example(.pair, bluez + "AuthenticationRejected", "", att: 5),
            Example(.pair, bluez + "AuthenticationFailed", "", att: 5),
            Example(.pair, bluez + "ConnectionAttemptFailed", "Page Timeout", cb: .connectionFailed),
            Example(.advertise, bluez + "Failed", "Failed to parse advertisement.", cb: .invalidParameters),
            Example(.advertise, bluez + "NotPermitted", "Maximum advertisements reached", cb: .outOfSpace),
            Example(.publish, bluez + "Failed", "No object received", cb: .invalidParameters),
            Example(.adapter, bluez + "DoesNotExist", "Does Not Exist", cb: .unknownDevice),
            Example(.adapter, bluez + "NotReady", "Resource Not Ready", cb: .unknown),
        ])
    func registering(_ example: Example) { check(example) }

    private func check(_ example: Example) {
        let error = coreBluetoothError(
            name: example.name, message: example.message, context: example.context, isBonded: example.isBonded)
        #expect((error as NSError).domain == example.domain)
        #expect((error as NSError).code == example.code)
        #expect(error is CBError == (example.domain == CBErrorDomain))
        #expect(error is CBATTError == (example.domain == CBATTErrorDomain))
    }

    @Test("each row of the error table is the first to match its own errors")
    func noRowIsHidden() {
        for (index, row) in ErrorMapping.rows.enumerated() {
            let (name, message) = (row.name.filling(), row.message.filling())
            for context in row.contexts {
                let first = ErrorMapping.rows.firstIndex {
                    $0.matches(name: name, message: message, context: context)
                }
                if row.name == "*" && context == .connect { continue }  // two rows end the table: connect has its own
                #expect(first == index, "\(context.rawValue) \(name) \(message)")
            }
        }
    }

    @Test("ERR-3 ERR-5 an error carries BlueZ's name and message, and the text of its code")
    func carriesTheCause() throws {
        let error = coreBluetoothError(
            name: "org.bluez.Error.Failed", message: "le-connection-timeout", context: .connect, isBonded: false)
        let info = (error as NSError).userInfo
        let cause = try #require(info[NSUnderlyingErrorKey] as? NSError)
        #expect(cause.domain == BluezErrorDomain)
        #expect(cause.userInfo[BluezErrorNameKey] as? String == "org.bluez.Error.Failed")
        #expect(cause.userInfo[BluezErrorMessageKey] as? String == "le-connection-timeout")
        #expect(cause.localizedDescription == "le-connection-timeout (org.bluez.Error.Failed)")
        #expect(error.localizedDescription == "The connection has timed out unexpectedly.")
        #expect((error as NSError).localizedFailureReason == "le-connection-timeout (org.bluez.Error.Failed)")
        #expect((error as? CBError)?.userInfo[NSUnderlyingErrorKey] is NSError)
    }

    @Test("an error without BlueZ's name and message has no underlying error")
    func noCause() {
        let error = coreBluetoothError(name: "", message: "", context: .connect, isBonded: false)
        #expect((error as NSError).userInfo[NSUnderlyingErrorKey] == nil)
    }

    @Test(
        "CN-9 the reason for a disconnection becomes its error",
        arguments: [
            ("org.bluez.Reason.Timeout", 6), ("org.bluez.Reason.Remote", 7), ("org.bluez.Reason.Authentication", 15),
            ("org.bluez.Reason.Local", 7), ("org.bluez.Reason.Suspend", 7), ("org.bluez.Reason.Unknown", 7),
            ("org.bluez.Reason.Later", 7), (nil, 7),
        ] as [(String?, Int)])
    func disconnecting(reason: String?, code: Int) {
        let error = disconnectError(reason: reason, message: reason.map { _ in "text" })
        #expect((error as? CBError)?.code.rawValue == code)
        let cause = (error as NSError).userInfo[NSUnderlyingErrorKey] as? NSError
        #expect(cause?.userInfo[BluezErrorNameKey] as? String == reason)
    }

    @Test("CN-9 lost keys of a bonded peer become peerRemovedPairingInformation")
    func disconnectingBonded() {
        let error = disconnectError(reason: "org.bluez.Reason.Authentication", message: "", isBonded: true)
        #expect((error as? CBError)?.code == .peerRemovedPairingInformation)
    }

    @Test(
        "ERR-9 each response of the app has exactly one translation",
        arguments: [
            (0x02, "org.bluez.Error.NotPermitted"), (0x03, "org.bluez.Error.NotPermitted"),
            (0x06, "org.bluez.Error.NotSupported"), (0x07, "org.bluez.Error.InvalidOffset"),
            (0x08, "org.bluez.Error.NotAuthorized"), (0x0D, "org.bluez.Error.InvalidValueLength"),
            (0x80, "org.bluez.Error.Failed"), (0x9F, "org.bluez.Error.Failed"),
            (0xFD, "org.bluez.Error.ImproperlyConfigured"),
        ])
    func answering(code: Int, name: String) throws {
        let answer = ErrorMapping.answer(try #require(CBATTError.Code(rawValue: code)))
        #expect(answer.name == name)
        // BlueZ takes the number of a `Failed` if there is nothing else in the text.
        if name.hasSuffix(".Failed") { #expect(answer.message == "0x" + String(code, radix: 16)) }
    }

    @Test("ERR-9 a response that BlueZ cannot express becomes an error name that it does not know")
    func unlistedAnswers() throws {
        for number in [
            0x01, 0x04, 0x05, 0x09, 0x0A, 0x0B, 0x0C, 0x0E, 0x0F, 0x10, 0x11, 0x7F, 0xA0, 0xFC, 0xFF, 300, -1,
        ] {
            let answer = ErrorMapping.answer(try #require(CBATTError.Code(rawValue: number)))
            #expect(!answer.name.hasPrefix("org.bluez."), "\(number)")
        }
    }

    @Test("`*` in a pattern matches any text")
    func patterns() {
        #expect(ErrorMapping.matches("le-connection-timeout", "*-connection-timeout"))
        #expect(!ErrorMapping.matches("le-connection-timeout", "*-page-timeout"))
        #expect(ErrorMapping.matches("", "*"))
        #expect(ErrorMapping.matches("ab", "a*b"))
        #expect(!ErrorMapping.matches("aba", "ab*ba"))
        #expect(!ErrorMapping.matches("ab", "a"))
    }
}

extension String {
    /// A text that the pattern describes.
    fileprivate func filling() -> String { replacingOccurrences(of: "*", with: contains("0x*") ? "81" : "le") }
}
