import BluezDBus

/// D-Bus errors that mean something to the library itself. What the app is told of errors is in ErrorMapping.swift.
enum BlueZErrorName {
    static let notReady = "org.bluez.Error.NotReady"
    static let notPermitted = "org.bluez.Error.NotPermitted"
    /// The message with which an attribute is refused that wants a safer link.
    static let notPaired = "Not paired"

    /// The object is gone. Which of the two names comes depends on the daemon's libdbus.
    static func meansUnknownObject(_ name: String) -> Bool {
        name == "org.freedesktop.DBus.Error.UnknownObject" || name == "org.freedesktop.DBus.Error.UnknownMethod"
    }

    /// An attribute has gone while it was used.
    static let gone = BusError.remote(
        name: "org.freedesktop.DBus.Error.UnknownObject", message: "the attribute has gone")

    /// The question did not get through, or was not answered: no answer is no "no".
    static func meansNoAnswer(_ error: BusError) -> Bool {
        let names = ["NoReply", "LimitsExceeded", "NoMemory", "Timeout"]
        return names.contains { error.name == "org.freedesktop.DBus.Error." + $0 }
    }

    /// Nobody owns `org.bluez`, and starting it failed.
    static func meansNoDaemon(_ name: String) -> Bool {
        name == "org.freedesktop.DBus.Error.ServiceUnknown" || name == "org.freedesktop.DBus.Error.NameHasNoOwner"
            || name.hasPrefix("org.freedesktop.DBus.Error.Spawn.") || name == "org.freedesktop.systemd1.NoSuchUnit"
            || name == "org.freedesktop.DBus.Error.TimedOut"
    }

    /// Somebody, perhaps this process a moment ago, holds the socket of the characteristic.
    static func meansAcquired(_ error: BusError) -> Bool {
        error.name == notPermitted && error.message == "Write acquired"
    }
}

/// What an error of `Device1.Connect` means for the attempt. BlueZ has one text for nearly every cause, so all but a
/// few are worth another attempt.
enum ConnectFailure {
    /// BlueZ has forgotten the device in the middle of an attempt. 5.66 does so when it pages in vain a device that it was
    /// not connected to before.
    static let forgotten = BusError.remote(
        name: "org.freedesktop.DBus.Error.UnknownObject", message: "forgotten while connecting")

    /// BlueZ has tried classic Bluetooth. (It says `br-connection-canceled` of any attempt that was called off.)
    /// - Parameter isRandom: Whether the device has a random address, which is of LE only.
    static func isClassic(name: String, message: String, isRandom: Bool) -> Bool {
        if message == forgotten.message { return !isRandom }
        return classify(name: name, message: message) == .transient && message.hasPrefix("br-connection-")
            && !message.hasSuffix("canceled")
    }

    static func classify(name: String, message: String) -> LinkStateMachine.Failure {
        if BlueZErrorName.meansUnknownObject(name) { return .unknownDevice }
        // BlueZ 5.81 and later give it a name; before it was a text.
        if name == "org.bluez.Error.InProgress" || message == "Operation already in progress" { return .inProgress }
        if message.hasSuffix("key-missing") || message.hasSuffix("concurrent-connection-limit") { return .final }
        if name == "org.freedesktop.DBus.Error.AccessDenied" || name == "org.bluez.Error.NotSupported" { return .final }
        return .transient
    }
}
