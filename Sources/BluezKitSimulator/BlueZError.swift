import BluezDBus

/// An error as bluetoothd returns it.
struct BlueZError: Error {
    let name: String
    let message: String

    init(_ name: String, _ message: String) { (self.name, self.message) = ("org.bluez.Error." + name, message) }

    static func failed(_ message: String) -> BlueZError { BlueZError("Failed", message) }
    static let failed = BlueZError("Failed", "Operation failed")
    static let notReady = BlueZError("NotReady", "Resource Not Ready")
    static let alreadyInProgress = BlueZError("InProgress", "Operation already in progress")
    static let inProgress = BlueZError("InProgress", "In Progress")
    static let invalidArguments = BlueZError("InvalidArguments", "Invalid arguments in method call")
    static let doesNotExist = BlueZError("DoesNotExist", "Does Not Exist")
    static let alreadyExists = BlueZError("AlreadyExists", "Already Exists")
    static let notSupported = BlueZError("NotSupported", "Operation is not supported")
    static let notConnected = BlueZError("NotConnected", "Not Connected")
    static let noLink = BlueZError("Failed", "Not connected")
    static let authenticationFailed = BlueZError("AuthenticationFailed", "Authentication Failed")
    static let authenticationCanceled = BlueZError("AuthenticationCanceled", "Authentication Canceled")
    static func notPermitted(_ message: String) -> BlueZError { BlueZError("NotPermitted", message) }

    /// The D-Bus error for an ATT error.
    init(att code: UInt8) {
        self =
            switch code {
            case 0x02: .notPermitted("Read not permitted")
            case 0x03: .notPermitted("Write not permitted")
            case 0x05, 0x0C, 0x0F: .notPermitted("Not paired")
            case 0x06: .notSupported
            case 0x07: BlueZError("InvalidArguments", "Invalid offset")
            case 0x08: BlueZError("NotAuthorized", "Operation Not Authorized")
            case 0x0D: BlueZError("InvalidArguments", "Invalid Length")
            case 0x00: .failed
            default: .failed("Operation failed with ATT error: 0x\(Hex.byte(code))")
            }
    }
}

extension ObjectServer {
    func refuse(_ call: IncomingCall, _ error: BlueZError) { refuse(call, name: error.name, message: error.message) }
}

extension PropertyChange {
    func refuse(_ error: BlueZError) { refuse(name: error.name, message: error.message) }
}
