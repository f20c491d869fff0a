import Foundation

/// **BluezKit addition.** The domain, `"org.bluez"`, of the `NSError` that a ``CBError`` or ``CBATTError`` has under
/// `NSUnderlyingErrorKey` if it comes from BlueZ or from the bus. Its user info has ``BluezErrorNameKey`` and
/// ``BluezErrorMessageKey``; its code is 0.
public let BluezErrorDomain: String = "org.bluez"

/// **BluezKit addition.** In the user info of an error in ``BluezErrorDomain``: the D-Bus error name, or the reason for a
/// disconnection, as BlueZ gave it. A `String`, such as `"org.bluez.Error.Failed"`.
public let BluezErrorNameKey: String = "BluezErrorName"

/// **BluezKit addition.** In the user info of an error in ``BluezErrorDomain``: the text that came with it, unchanged. A
/// `String`, perhaps empty.
public let BluezErrorMessageKey: String = "BluezErrorMessage"

/// **BluezKit addition.** In the user info of the error that `didFailToConnect` brings: the
/// attempts that were made, the last one last, at most ten. An array of ``BluezConnectAttempt``.
public let BluezErrorAttemptsKey: String = "BluezErrorAttempts"

/// **BluezKit addition.** One attempt to connect, and what became of it.
public struct BluezConnectAttempt: Sendable, Equatable {
    /// When BlueZ said that it had failed.
    public let date: Date
    /// The D-Bus error name, such as `"org.bluez.Error.Failed"`.
    public let name: String
    /// The text that came with it, unchanged.
    public let message: String
}
