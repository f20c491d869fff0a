public import Foundation

/// **BluezKit addition.** The domain, `"org.bluez"`, of the `NSError` that a ``CBError`` or ``CBATTError`` has under
/// `NSUnderlyingErrorKey` if it originates in BlueZ or the bus. Its user info has ``BluezErrorNameKey`` and
/// ``BluezErrorMessageKey``; its code is 0.
public let BluezErrorDomain: String = "org.bluez"

/// **BluezKit addition.** In the user info of an error in ``BluezErrorDomain``: the D-Bus error name, or BlueZ's reason
/// for a disconnection. A `String`, such as `"org.bluez.Error.Failed"`.
public let BluezErrorNameKey: String = "BluezErrorName"

/// **BluezKit addition.** In the user info of an error in ``BluezErrorDomain``: BlueZ's message, unchanged. A `String`,
/// possibly empty.
public let BluezErrorMessageKey: String = "BluezErrorMessage"

/// **BluezKit addition.** In the user info of the error in `didFailToConnect`: the last ten attempts at most, in order.
/// An array of ``BluezConnectAttempt``.
public let BluezErrorAttemptsKey: String = "BluezErrorAttempts"

/// **BluezKit addition.** A failed attempt to connect.
public struct BluezConnectAttempt: Sendable, Equatable {
    /// When BlueZ reported the failure.
    public let date: Date
    /// The D-Bus error name, such as `"org.bluez.Error.Failed"`.
    public let name: String
    /// BlueZ's message, unchanged.
    public let message: String
}
