import BluezDBus
import Testing

@testable import BluezKit

@Suite struct ConnectFailureTests {
    private static let failed = "org.bluez.Error.Failed"
    private static let freedesktop = "org.freedesktop.DBus.Error."

    @Test(
        "CN-2 nearly every failure to connect justifies another attempt",
        arguments: [
            (failed, "le-connection-abort-by-local"), (failed, "le-connection-timeout"), (failed, ""),
            (failed, "br-connection-unknown"), (failed, "Software caused connection abort"),
            ("org.bluez.Error.NotReady", "Resource Not Ready"), ("org.bluez.Error.NotAvailable", ""),
            (freedesktop + "NoReply", "Did not receive a reply"), (freedesktop + "LimitsExceeded", ""),
            (failed, "key-missing or so"), ("org.bluez.Error.AccessDenied", ""), ("", ""),
        ])
    func transient(name: String, message: String) {
        #expect(ConnectFailure.classify(name: name, message: message) == .transient)
    }

    @Test(
        "a missing key, the limit of connections, a refusal of the bus and a lack of support are final",
        arguments: [
            (failed, "le-connection-key-missing"), (failed, "br-connection-key-missing"),
            (failed, "le-connection-concurrent-connection-limit"), (freedesktop + "AccessDenied", "Rejected send"),
            ("org.bluez.Error.NotSupported", ""),
        ])
    func final(name: String, message: String) {
        #expect(ConnectFailure.classify(name: name, message: message) == .final)
    }

    @Test("both names that D-Bus has for a missing object mean that BlueZ does not know the device")
    func unknownDevice() {
        for name in ["UnknownObject", "UnknownMethod"] {
            #expect(ConnectFailure.classify(name: Self.freedesktop + name, message: "key-missing") == .unknownDevice)
        }
        let forgotten = ConnectFailure.forgotten
        #expect(ConnectFailure.classify(name: forgotten.name, message: forgotten.message) == .unknownDevice)
    }

    @Test("an attempt that is running is known by the name of later versions and the message of earlier ones")
    func inProgress() {
        #expect(ConnectFailure.classify(name: "org.bluez.Error.InProgress", message: "") == .inProgress)
        #expect(ConnectFailure.classify(name: Self.failed, message: "Operation already in progress") == .inProgress)
    }

    @Test("an error of classic Bluetooth is known by its message, unless the attempt was cancelled or is final")
    func classic() {
        func isClassic(_ message: String, name: String = Self.failed) -> [Bool] {
            [false, true].map { ConnectFailure.isClassic(name: name, message: message, isRandom: $0) }
        }
        #expect(isClassic("br-connection-unknown") == [true, true])
        #expect(isClassic("br-connection-page-timeout") == [true, true])
        for message in [
            "br-connection-canceled", "br-connection-key-missing", "br-connection-concurrent-connection-limit",
            "le-connection-timeout", "not br-connection-unknown", "",
        ] {
            #expect(isClassic(message) == [false, false], "\(message)")
        }
        #expect(isClassic("br-connection-unknown", name: "org.bluez.Error.InProgress") == [false, false])
        #expect(isClassic("br-connection-unknown", name: "org.bluez.Error.NotSupported") == [false, false])
        // 5.84 and later, of a device that was paged and has no profile.
        let profiles = "org.bluez.Error.BREDR.ProfileUnavailable"
        #expect(isClassic("No more profiles to connect to", name: profiles) == [true, false])
    }

    @Test("only a device with a public address can have been forgotten by paging it")
    func forgotten() {
        let error = ConnectFailure.forgotten
        #expect(ConnectFailure.isClassic(name: error.name, message: error.message, isRandom: false))
        #expect(!ConnectFailure.isClassic(name: error.name, message: error.message, isRandom: true))
    }
}
