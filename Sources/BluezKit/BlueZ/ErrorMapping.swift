import BluezDBus
import Foundation

/// What the app, or the library on its behalf, was doing when BlueZ returned an error.
enum BlueZErrorContext: String, CaseIterable, Sendable {
    case connect = "connect"
    case attributeRead = "read"
    case attributeWrite = "write"
    case notify = "subscribe"
    case pair = "pair"
    case adapter = "adapter"
    case advertise = "advertise"
    case publish = "publish"
}

/// The app's error for an error of BlueZ or the bus: a ``CBError`` or ``CBATTError`` that carries `name` and `message`
/// unchanged.
/// - Parameters:
///   - name: The D-Bus error name; empty if there is none.
///   - isBonded: Whether keys for the peer are stored. BlueZ uses one text for three refusals (see the table).
///   - attempts: The attempts that led to this error.
func coreBluetoothError(
    name: String, message: String, context: BlueZErrorContext, isBonded: Bool, attempts: [BluezConnectAttempt] = []
) -> any Error {
    let row = ErrorMapping.rows.first { $0.matches(name: name, message: message, context: context) }
    return (row?.result ?? .cb(.unknown)).error(
        name: name, message: message, isBonded: isBonded, attempts: attempts, meaning: row?.meaning)
}

/// The app's error for a link that ended without a request (CN-9).
/// - Parameters:
///   - reason: The reason that BlueZ 5.83 and later give with `Device1.Disconnected`, such as
///     `org.bluez.Reason.Timeout`; nil with earlier versions.
///   - isBonded: Whether keys for the peer are stored.
func disconnectError(reason: String?, message: String?, isBonded: Bool = false) -> any Error {
    let row = ErrorMapping.disconnectRows.first { $0.name == reason }
    return (row?.result ?? .cb(.peripheralDisconnected)).error(
        name: reason ?? "", message: message ?? "", isBonded: isBonded)
}

/// The only place where BlueZ's errors are translated. `Docs/ERRORS.md` is generated from these tables.
/// - SeeAlso: BlueZ src/error.c; src/gatt-client.c, `create_gatt_dbus_error`; src/device.c, `att_connect_cb` and
///   `btd_error_le_conn_…` (5.87).
enum ErrorMapping {
    enum Result: Sendable {
        case cb(CBError.Code)
        case att(CBATTError.Code)
        /// The first if keys for the peer are stored, otherwise the second.
        case attIfBonded(CBATTError.Code, else: CBATTError.Code)
        case cbIfBonded(CBError.Code, else: CBError.Code)
        /// The ATT code is the hexadecimal number at the end of the message.
        case attInMessage
    }

    struct Row: Sendable {
        let contexts: [BlueZErrorContext]
        /// The error name; a `*` stands for any text.
        let name: String
        /// The message; a `*` stands for any text.
        let message: String
        let result: Result
        let meaning: String

        init(
            _ contexts: [BlueZErrorContext], _ name: String, _ message: String, _ result: Result,
            _ meaning: String
        ) {
            (self.contexts, self.name, self.message, self.result) = (contexts, name, message, result)
            self.meaning = meaning
        }

        func matches(name: String, message: String, context: BlueZErrorContext) -> Bool {
            contexts.contains(context) && ErrorMapping.matches(name, self.name)
                && ErrorMapping.matches(message, self.message)
        }
    }

    private static let attributes: [BlueZErrorContext] = [.attributeRead, .attributeWrite, .notify]
    private static let others: [BlueZErrorContext] = [.connect, .pair, .adapter, .advertise, .publish]
    private static let any = BlueZErrorContext.allCases
    private static let bluez = "org.bluez.Error."
    private static let bus = "org.freedesktop.DBus.Error."

    /// The first matching row applies.
    static let rows: [Row] =
        attributeRows + connectRows + pairRows + registerRows + generalRows

    private static let attributeRows = [
        Row(attributes, bluez + "NotPermitted", "Read not permitted", .att(.readNotPermitted), "ATT error 0x02"),
        Row(attributes, bluez + "NotPermitted", "Write not permitted", .att(.writeNotPermitted), "ATT error 0x03"),
        Row(
            attributes, bluez + "NotPermitted", "Not paired",
            .attIfBonded(.insufficientEncryption, else: .insufficientAuthentication),
            "ATT error 0x05, 0x0c or 0x0f: BlueZ does not say which"),
        Row(
            attributes, bluez + "NotPermitted", "* acquired", .cb(.unknown),
            "another program uses the characteristic exclusively"),
        Row(attributes, bluez + "InvalidArguments", "Invalid offset", .att(.invalidOffset), "ATT error 0x07"),
        Row(
            attributes, bluez + "InvalidArguments", "Invalid Length", .att(.invalidAttributeValueLength),
            "ATT error 0x0d"),
        Row(
            attributes, bluez + "NotAuthorized", .att(.insufficientAuthorization),
            "ATT error 0x08, or a service that BlueZ reserves for itself"),
        Row(
            attributes, bluez + "NotSupported", .att(.requestNotSupported),
            "ATT error 0x06, or the characteristic does not have the property"),
        // `!`: an enum that is imported from C accepts every number.
        Row(attributes, bluez + "ImproperlyConfigured", .att(CBATTError.Code(rawValue: 0xFD)!), "ATT error 0xfd"),
        Row(
            attributes, bluez + "Failed", "Operation failed with ATT error: 0x*", .attInMessage,
            "any other ATT error, as received"),
        Row(
            [.attributeWrite], bluez + "Failed", "Failed to initiate write", .att(.invalidAttributeValueLength),
            "the value is too long"),
        Row(
            [.attributeWrite], bluez + "Failed", "Bad address", .att(.unlikelyError),
            "the peer repeated a reliable write incorrectly"),
        Row(attributes, bluez + "Failed", "Not connected", .cb(.notConnected), "the link has ended"),
        Row(attributes, bluez + "Failed", "No ATT transport", .cb(.notConnected), "the link has ended"),
        Row(attributes, bluez + "NotConnected", .cb(.notConnected), "the link has ended, or is ending"),
        Row(attributes, bluez + "NotReady", .cb(.notConnected), "the adapter is off"),
        Row(attributes, bus + "UnknownObject", .cb(.invalidHandle), "the peer has changed its services"),
        Row(attributes, bus + "UnknownMethod", .cb(.invalidHandle), "the peer has changed its services"),
        Row(attributes, bus + "Disconnected", .cb(.notConnected), "no connection to the bus"),
        Row(
            attributes, bus + "NoReply", .cb(.connectionTimeout),
            "no answer within 35 s, or 65 s where the peripheral may have to pair first: the link ends as well"),
        Row(attributes, bus + "ServiceUnknown", .cb(.notConnected), "bluetoothd is not running"),
        Row(attributes, bus + "NameHasNoOwner", .cb(.notConnected), "bluetoothd is not running"),
    ]

    private static let insistsOnClassic =
        "BlueZ tried classic Bluetooth, not LE: set `ControllerMode = le` in its main.conf, or start BlueZ 5.86 or later with -E"

    private static let connectRows = [
        Row([.connect], bluez + "Failed", "br-connection-page-timeout", .cb(.connectionTimeout), insistsOnClassic),
        Row(
            [.connect], bluez + "Failed", "br-connection-profile-unavailable", .cb(.connectionFailed), insistsOnClassic
        ),
        Row([.connect], bluez + "Failed", "*-connection-timeout", .cb(.connectionTimeout), "no answer from the peer"),
        Row([.connect], bluez + "Failed", "*-page-timeout", .cb(.connectionTimeout), "no answer from the peer"),
        Row(
            [.connect], bluez + "Failed", "*-connection-abort-by-remote", .cb(.peripheralDisconnected),
            "the peer ended the link immediately"),
        Row(
            [.connect], bluez + "Failed", "*-connection-aborted-by-remote", .cb(.peripheralDisconnected),
            "the peer ended the link immediately"),
        Row(
            [.connect], bluez + "Failed", "*-key-missing", .cb(.peerRemovedPairingInformation),
            "the peer has deleted its keys for the bond"),
        Row(
            [.connect], bluez + "Failed", "*-concurrent-connection-limit", .cb(.connectionLimitReached),
            "the adapter has no room for another link"),
        Row([.connect], bus + "NoReply", .cb(.connectionTimeout), "bluetoothd did not answer in time"),
        Row(
            [.connect], bus + "UnknownObject", ConnectFailure.forgotten.message, .cb(.connectionFailed),
            insistsOnClassic),
        Row([.connect, .pair], bus + "UnknownObject", .cb(.unknownDevice), "BlueZ has forgotten the device"),
        Row([.connect, .pair], bus + "UnknownMethod", .cb(.unknownDevice), "BlueZ has forgotten the device"),
    ]

    private static let pairRows = [
        Row([.pair], bluez + "Failed", "Not paired", .cb(.encryptionTimedOut), "no keys were exchanged with the peer"),
        Row([.pair], bluez + "AuthenticationTimeout", .cb(.encryptionTimedOut), "pairing took too long"),
        Row([.pair], bluez + "AuthenticationCanceled", .cb(.operationCancelled), "pairing was cancelled"),
        Row(
            [.pair], bluez + "AuthenticationRejected", .att(.insufficientAuthentication), "the peer refuses to pair"),
        Row([.pair], bluez + "AuthenticationFailed", .att(.insufficientAuthentication), "pairing failed"),
        Row([.pair], bluez + "ConnectionAttemptFailed", .cb(.connectionFailed), "there is no link on which to pair"),
    ]

    private static let registerRows = [
        Row(
            [.advertise], bluez + "Failed", "Failed to parse advertisement.", .cb(.invalidParameters),
            "the advertisement is too long or malformed"),
        Row(
            [.advertise], bluez + "NotPermitted", "Maximum advertisements reached", .cb(.outOfSpace),
            "the adapter has no room for another advertisement"),
        Row(
            [.publish], bluez + "Failed", "No valid service object found", .cb(.invalidParameters),
            "the service is malformed"),
        Row(
            [.publish], bluez + "Failed", "Failed to create entry in database", .cb(.invalidParameters),
            "BlueZ refuses the service"),
        Row([.publish], bluez + "Failed", "No object received", .cb(.invalidParameters), "the service is malformed"),
        Row([.adapter], bluez + "DoesNotExist", .cb(.unknownDevice), "BlueZ has forgotten the device"),
        Row(
            [.adapter, .advertise, .publish], bus + "UnknownMethod", .cb(.operationNotSupported),
            "bluetoothd does not support this, or it is disabled"),
    ]

    private static let generalRows = [
        Row(
            others, bluez + "NotSupported", .cb(.operationNotSupported),
            "the adapter or bluetoothd does not support this"),
        Row(
            others, bluez + "Unsupported", .cb(.operationNotSupported),
            "the adapter or bluetoothd does not support this"),
        Row(any, bluez + "InvalidArguments", .cb(.invalidParameters), "BlueZ does not accept the parameters"),
        Row(any, bus + "InvalidArgs", .cb(.invalidParameters), "the bus does not accept the parameters"),
        Row(any, bus + "InvalidSignature", .cb(.invalidParameters), "a message has unexpected types"),
        Row(any, bus + "UnknownInterface", .cb(.invalidParameters), "BlueZ does not know the interface"),
        Row(any, bus + "UnknownProperty", .cb(.invalidParameters), "BlueZ does not know the property"),
        Row(any, bus + "PropertyReadOnly", .cb(.invalidParameters), "the property cannot be set"),
        Row(any, bus + "LimitsExceeded", .cb(.outOfSpace), "a limit of the bus was exceeded"),
        Row(any, bus + "NoMemory", .cb(.outOfSpace), "out of memory"),
        Row(any, bluez + "InProgress", .cb(.unknown), "another program is doing the same at this moment"),
        Row([.connect], "*", .cb(.connectionFailed), "no link could be established"),
        Row(any, "*", .cb(.unknown), "any other error: see BlueZ's name and message"),
    ]

    /// Reasons of `Device1.Disconnected`. If BlueZ gives none, as before 5.83, it is treated as `Unknown`.
    static let disconnectRows: [(name: String, result: Result, meaning: String)] = [
        ("org.bluez.Reason.Timeout", .cb(.connectionTimeout), "the peer is out of range or has lost power"),
        ("org.bluez.Reason.Remote", .cb(.peripheralDisconnected), "the peer has ended the link"),
        (
            "org.bluez.Reason.Authentication",
            .cbIfBonded(.peerRemovedPairingInformation, else: .encryptionTimedOut), "the link could not be encrypted"
        ),
        ("org.bluez.Reason.Local", .cb(.peripheralDisconnected), "another program has ended the link"),
        ("org.bluez.Reason.Suspend", .cb(.peripheralDisconnected), "the computer is going to sleep"),
        (
            DisconnectReason.unanswered, .cb(.connectionTimeout),
            "given by BluezKit: bluetoothd has left 8 requests to this peripheral unanswered, so no link is made to it for a minute, "
                + "longer each time; `connect` waits for that"
        ),
        ("org.bluez.Reason.Unknown", .cb(.peripheralDisconnected), "the adapter gave no reason"),
    ]

    /// The responses of an app to a central's request, and the error with which BlueZ sends them (ERR-9). The central
    /// gets `onAir`; every other code is lost, and becomes 0x0e.
    /// - SeeAlso: BlueZ src/gatt-database.c, `dbus_error_to_att_ecode` (5.66).
    static let answerRows: [(codes: [CBATTError.Code], name: String, onAir: String)] = [
        ([.readNotPermitted, .writeNotPermitted], bluez + "NotPermitted", "0x02 to a read, 0x03 to a write"),
        ([.requestNotSupported], bluez + "NotSupported", "0x06"),
        ([.invalidOffset], bluez + "InvalidOffset", "0x07"),
        ([.insufficientAuthorization], bluez + "NotAuthorized", "0x08"),
        ([.invalidAttributeValueLength], bluez + "InvalidValueLength", "0x0d"),
        (
            // Core Specification Supplement, Part B, 1.2: Client Characteristic Configuration Descriptor Improperly
            // Configured.
            [CBATTError.Code(rawValue: 0xFD)].compactMap(\.self), bluez + "ImproperlyConfigured",
            "0xfd; 0x0e from BlueZ before 5.76"
        ),
    ]

    /// The error that makes BlueZ send `code` or, if BlueZ cannot express that, 0x0e.
    static func answer(_ code: CBATTError.Code) -> (name: String, message: String) {
        let number = "0x" + String(code.rawValue, radix: 16)
        // BlueZ parses the number from the text if there is nothing else in it.
        if applicationCodes.contains(code.rawValue) { return (bluez + "Failed", number) }
        if let row = answerRows.first(where: { $0.codes.contains(code) }) { return (row.name, number) }
        return (unlistedAnswer, number)
    }

    /// Codes that BlueZ considers application errors.
    static let applicationCodes = 0x80...0x9F
    /// A name that BlueZ does not know.
    static let unlistedAnswer = "org.bluezkit.Error.UnlikelyError"

    /// Whether `text` matches `pattern`, in which one `*` may stand for any text.
    static func matches(_ text: String, _ pattern: String) -> Bool {
        guard let star = pattern.firstIndex(of: "*") else { return text == pattern }
        let (start, end) = (pattern[..<star], pattern[pattern.index(after: star)...])
        return text.utf8.count >= start.utf8.count + end.utf8.count && text.hasPrefix(start) && text.hasSuffix(end)
    }
}

extension ErrorMapping.Row {
    fileprivate init(
        _ contexts: [BlueZErrorContext], _ name: String, _ result: ErrorMapping.Result, _ meaning: String
    ) {
        self.init(contexts, name, "*", result, meaning)
    }
}

extension ErrorMapping.Result {
    func error(
        name: String, message: String, isBonded: Bool, attempts: [BluezConnectAttempt] = [], meaning: String? = nil
    ) -> any Error {
        var info = Self.userInfo(name: name, message: message)
        if !info.isEmpty, let meaning { info[NSLocalizedRecoverySuggestionErrorKey] = meaning }
        if !attempts.isEmpty { info[BluezErrorAttemptsKey] = attempts }
        switch self {
        case .cb(let code): return CBError(code, userInfo: info)
        case .att(let code): return CBATTError(code, userInfo: info)
        case .attIfBonded(let bonded, let other): return CBATTError(isBonded ? bonded : other, userInfo: info)
        case .cbIfBonded(let bonded, let other): return CBError(isBonded ? bonded : other, userInfo: info)
        case .attInMessage:
            let digits = message.suffix(while: \.isHexDigit)
            guard let code = Int(digits, radix: 16).flatMap(CBATTError.Code.init(rawValue:)), code != .success else {
                return CBError(.unknown, userInfo: info)
            }
            return CBATTError(code, userInfo: info)
        }
    }

    private static func userInfo(name: String, message: String) -> [String: Any] {
        guard !(name.isEmpty && message.isEmpty) else { return [:] }
        let reason = message.isEmpty ? name : name.isEmpty ? message : "\(message) (\(name))"
        let underlying = NSError(
            domain: BluezErrorDomain, code: 0,
            userInfo: [
                NSLocalizedDescriptionKey: reason, BluezErrorNameKey: name, BluezErrorMessageKey: message,
            ])
        return [NSUnderlyingErrorKey: underlying, NSLocalizedFailureReasonErrorKey: reason]
    }
}

extension String {
    /// The longest suffix in which every character satisfies the predicate.
    fileprivate func suffix(while predicate: (Character) -> Bool) -> Substring {
        let start = lastIndex { !predicate($0) }.map(index(after:)) ?? startIndex
        return self[start...]
    }
}
