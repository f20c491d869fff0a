import BluezDBus

/// D-Bus errors that the library itself reacts to. ErrorMapping.swift defines what the app gets.
enum BlueZErrorName {
    static let notPermitted = "org.bluez.Error.NotPermitted"
    /// The message with which BlueZ refuses an attribute that requires a more secure link.
    static let notPaired = "Not paired"

    /// The object no longer exists. Which of the two names is used depends on the daemon's libdbus.
    static func meansUnknownObject(_ name: String) -> Bool {
        name == "org.freedesktop.DBus.Error.UnknownObject" || name == "org.freedesktop.DBus.Error.UnknownMethod"
    }

    /// An attribute was removed while it was used.
    static let gone = BusError.remote(
        name: "org.freedesktop.DBus.Error.UnknownObject", message: "the attribute was removed")

    /// The query was not delivered, or was not answered, so nothing is known.
    static func meansNoAnswer(_ error: BusError) -> Bool {
        let names = ["NoReply", "LimitsExceeded", "NoMemory", "Timeout"]
        return names.contains { error.name == "org.freedesktop.DBus.Error." + $0 }
    }

    /// BlueZ has dealt with the call. Otherwise the bus has refused it, or no answer has come.
    static func isAnswer(_ result: Result<Message, BusError>) -> Bool {
        result.failure.map { $0.name.hasPrefix("org.bluez.") || meansUnknownObject($0.name) } ?? true
    }

    /// `org.bluez` has no owner, and starting it failed.
    static func meansNoDaemon(_ name: String) -> Bool {
        name == "org.freedesktop.DBus.Error.ServiceUnknown" || name == "org.freedesktop.DBus.Error.NameHasNoOwner"
            || name.hasPrefix("org.freedesktop.DBus.Error.Spawn.") || name == "org.freedesktop.systemd1.NoSuchUnit"
            || name == "org.freedesktop.DBus.Error.TimedOut"
    }

    /// The ATT error 0x0e, with which BlueZ also fails what the end of a link leaves open.
    static func isUnlikelyError(_ error: BusError) -> Bool {
        error.name == "org.bluez.Error.Failed" && error.message == "Operation failed with ATT error: 0x0e"
    }

    /// Another client, or this process a moment ago, holds the socket of the characteristic.
    static func meansAcquired(_ error: BusError) -> Bool {
        error.name == notPermitted && ["Write acquired", "Notify acquired"].contains(error.message)
    }
}

/// Reasons of `Device1.Disconnected` that the library gives itself, where it ends a link.
enum DisconnectReason {
    static let authentication = "org.bluez.Reason.Authentication"
    static let timeout = "org.bluez.Reason.Timeout"
    static let unanswered = "org.bluezkit.Reason.Unanswered"
}

/// What an error of `Device1.Connect` means for the attempt. BlueZ uses one text for nearly every cause, so all but a
/// few justify another attempt.
enum ConnectFailure {
    /// BlueZ has forgotten the device in the middle of an attempt. 5.66 does so when it pages without success a device
    /// to which it was not connected before.
    static let forgotten = BusError.remote(
        name: "org.freedesktop.DBus.Error.UnknownObject", message: "forgotten while connecting")

    /// BlueZ tried classic Bluetooth. (It reports `br-connection-canceled` for any attempt that was cancelled.)
    /// - Parameter isRandom: Whether the device has a random address, which only LE devices have.
    static func isClassic(name: String, message: String, isRandom: Bool) -> Bool {
        // 5.84 and later have an error of their own for a device that has answered the page, and has no profile.
        if message == forgotten.message || name == "org.bluez.Error.BREDR.ProfileUnavailable" { return !isRandom }
        return classify(name: name, message: message) == .transient && message.hasPrefix("br-connection-")
            && !message.hasSuffix("canceled")
    }

    static func classify(name: String, message: String) -> LinkStateMachine.Failure {
        if BlueZErrorName.meansUnknownObject(name) { return .unknownDevice }
        // BlueZ 5.81 and later use an error name; earlier versions use a message.
        if name == "org.bluez.Error.InProgress" || message == "Operation already in progress" { return .inProgress }
        if message.hasSuffix("key-missing") || message.hasSuffix("concurrent-connection-limit") { return .final }
        if name == "org.freedesktop.DBus.Error.AccessDenied" || name == "org.bluez.Error.NotSupported" { return .final }
        return .transient
    }
}
