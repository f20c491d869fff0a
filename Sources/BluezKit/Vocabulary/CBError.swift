public import Foundation

/// The domain of ``CBError``: `"CBErrorDomain"`.
public let CBErrorDomain: String = "CBErrorDomain"

/// Any error other than a refusal by the peer's attributes, which is a ``CBATTError``.
///
/// If the error originates in BlueZ, `userInfo[NSUnderlyingErrorKey]` is an `NSError` in ``BluezErrorDomain`` with its
/// error name and message.
/// - SeeAlso: Apple, `CBError`.
public struct CBError: _BridgedStoredNSError {
    /// The error as an `NSError`.
    public let _nsError: NSError

    /// Wraps an `NSError` of this domain.
    public init(_nsError error: NSError) { _nsError = error }

    /// An error with this code.
    /// - Parameters:
    ///   - code: What went wrong.
    ///   - userInfo: Replaces or extends the default description.
    public init(_ code: Code, userInfo: [String: Any] = [:]) {
        _nsError = NSError(
            domain: CBErrorDomain, code: code.rawValue,
            userInfo: [NSLocalizedDescriptionKey: code.text].merging(userInfo) { $1 })
    }

    /// ``CBErrorDomain``.
    public static var _nsErrorDomain: String { CBErrorDomain }

    /// ``CBErrorDomain``.
    public static var errorDomain: String { CBErrorDomain }

    /// The error code.
    public var code: Code { Code(rawValue: _nsError.code) ?? .unknown }

    /// Whether two errors have the same code and user info.
    public static func == (a: CBError, b: CBError) -> Bool { a._nsError.isEqual(b._nsError) }

    /// Hashes the code.
    public func hash(into hasher: inout Hasher) { hasher.combine(_nsError.code) }

    // Foundation's own implementation for such types traps on Linux.
    /// The hash of the code.
    public var hashValue: Int {
        var hasher = Hasher()
        hash(into: &hasher)
        return hasher.finalize()
    }

    /// The codes of ``CBError``.
    public enum Code: Int, _ErrorCodeProtocol, Sendable {
        /// The error that has this code.
        public typealias _ErrorType = CBError

        /// Any error without its own code.
        case unknown = 0
        /// A parameter was invalid: an option, or a descriptor of a service to add.
        case invalidParameters = 1
        /// The attribute does not exist any more.
        case invalidHandle = 2
        /// The peripheral is not connected.
        case notConnected = 3
        /// A resource is exhausted.
        case outOfSpace = 4
        /// The operation was cancelled.
        case operationCancelled = 5
        /// The link was lost: the peer went out of range or lost power.
        case connectionTimeout = 6
        /// The peer has ended the link.
        case peripheralDisconnected = 7
        /// A local service may not have this UUID, because it is reserved for the system.
        case uuidNotAllowed = 8
        /// `startAdvertising` while advertising.
        case alreadyAdvertising = 9
        /// No link could be established.
        case connectionFailed = 10
        /// The adapter's maximum number of links is reached.
        case connectionLimitReached = 11
        /// The device is unknown. The spelling is Apple's; ``unknownDevice`` is the same.
        case unkownDevice = 12
        /// This system does not support the operation.
        case operationNotSupported = 13
        /// The peer has deleted its keys for the bond. Remove the bond here as well, and pair again.
        case peerRemovedPairingInformation = 14
        /// The link could not be encrypted in time.
        case encryptionTimedOut = 15
        /// There is no room for another bond.
        case tooManyLEPairedDevices = 16
        /// watchOS only.
        case leGattExceededBackgroundNotificationLimit = 17
        /// watchOS only.
        case leGattNearBackgroundNotificationLimit = 18

        /// ``unkownDevice``, spelt correctly.
        public static var unknownDevice: Code { .unkownDevice }

        /// Apple's English text where known.
        var text: String {
            switch self {
            case .unknown: "Unknown error."
            case .invalidParameters: "One or more parameters were invalid."
            case .invalidHandle: "The specified attribute is no longer valid."
            case .notConnected: "The specified device is not connected."
            case .outOfSpace: "The system has run out of a resource that the operation needs."
            case .operationCancelled: "The operation was cancelled."
            case .connectionTimeout: "The connection has timed out unexpectedly."
            case .peripheralDisconnected: "The specified device has disconnected from us."
            case .uuidNotAllowed: "The specified UUID is not allowed for this operation."
            case .alreadyAdvertising: "Advertising has already started."
            case .connectionFailed: "The connection could not be established."
            case .connectionLimitReached: "The system has reached the maximum number of connections."
            case .unkownDevice: "The specified device is unknown."
            case .operationNotSupported: "The operation is not supported."
            case .peerRemovedPairingInformation: "Peer removed pairing information"
            case .encryptionTimedOut:
                "Failed to encrypt the connection, the connection has timed out unexpectedly."
            case .tooManyLEPairedDevices: "The system has reached the maximum number of paired devices."
            case .leGattExceededBackgroundNotificationLimit:
                "The limit of notifications in the background has been exceeded."
            case .leGattNearBackgroundNotificationLimit: "The limit of notifications in the background is near."
            }
        }
    }
}

// The codes as `catch CBError.connectionTimeout` spells them.
extension CBError {
    /// ``Code/unknown``.
    public static var unknown: Code { .unknown }
    /// ``Code/invalidParameters``.
    public static var invalidParameters: Code { .invalidParameters }
    /// ``Code/invalidHandle``.
    public static var invalidHandle: Code { .invalidHandle }
    /// ``Code/notConnected``.
    public static var notConnected: Code { .notConnected }
    /// ``Code/outOfSpace``.
    public static var outOfSpace: Code { .outOfSpace }
    /// ``Code/operationCancelled``.
    public static var operationCancelled: Code { .operationCancelled }
    /// ``Code/connectionTimeout``.
    public static var connectionTimeout: Code { .connectionTimeout }
    /// ``Code/peripheralDisconnected``.
    public static var peripheralDisconnected: Code { .peripheralDisconnected }
    /// ``Code/uuidNotAllowed``.
    public static var uuidNotAllowed: Code { .uuidNotAllowed }
    /// ``Code/alreadyAdvertising``.
    public static var alreadyAdvertising: Code { .alreadyAdvertising }
    /// ``Code/connectionFailed``.
    public static var connectionFailed: Code { .connectionFailed }
    /// ``Code/connectionLimitReached``.
    public static var connectionLimitReached: Code { .connectionLimitReached }
    /// ``Code/unkownDevice``.
    @available(*, deprecated, renamed: "unknownDevice")
    public static var unkownDevice: Code { .unkownDevice }
    /// ``Code/unkownDevice``, spelt correctly.
    public static var unknownDevice: Code { .unkownDevice }
    /// ``Code/operationNotSupported``.
    public static var operationNotSupported: Code { .operationNotSupported }
    /// ``Code/peerRemovedPairingInformation``.
    public static var peerRemovedPairingInformation: Code { .peerRemovedPairingInformation }
    /// ``Code/encryptionTimedOut``.
    public static var encryptionTimedOut: Code { .encryptionTimedOut }
    /// ``Code/tooManyLEPairedDevices``.
    public static var tooManyLEPairedDevices: Code { .tooManyLEPairedDevices }
    /// ``Code/leGattExceededBackgroundNotificationLimit``.
    public static var leGattExceededBackgroundNotificationLimit: Code { .leGattExceededBackgroundNotificationLimit }
    /// ``Code/leGattNearBackgroundNotificationLimit``.
    public static var leGattNearBackgroundNotificationLimit: Code { .leGattNearBackgroundNotificationLimit }
}
