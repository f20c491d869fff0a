@_exported public import CCoreBluetooth
public import Foundation

/// The domain of ``CBATTError``: `"CBATTErrorDomain"`.
public let CBATTErrorDomain: String = "CBATTErrorDomain"

/// The error with which a peer refuses a read, a write or a subscription, or with which an app in the peripheral role
/// responds. Codes without a name, such as those of applications (0x80 to 0x9F), are delivered as received.
///
/// If the error originates in BlueZ, `userInfo[NSUnderlyingErrorKey]` is an `NSError` in ``BluezErrorDomain`` with its
/// error name and message.
/// - SeeAlso: Apple, `CBATTError`; Core Spec 5.4, Vol 3, Part F, 3.4.1.1.
public struct CBATTError: _BridgedStoredNSError {
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
            domain: CBATTErrorDomain, code: code.rawValue,
            userInfo: [NSLocalizedDescriptionKey: code.text].merging(userInfo) { $1 })
    }

    /// The codes of ``CBATTError``: named codes, and any other number by `Code(rawValue:)`, which never fails.
    public typealias Code = CBATTErrorCode

    /// ``CBATTErrorDomain``.
    public static var _nsErrorDomain: String { CBATTErrorDomain }

    /// ``CBATTErrorDomain``.
    public static var errorDomain: String { CBATTErrorDomain }

    /// The ATT error code, possibly without a name.
    public var code: Code {
        // `!`: an enum that is imported from C accepts every number.
        Code(rawValue: _nsError.code)!
    }

    /// Whether two errors have the same code and user info.
    public static func == (a: CBATTError, b: CBATTError) -> Bool { a._nsError.isEqual(b._nsError) }

    /// Hashes the code.
    public func hash(into hasher: inout Hasher) { hasher.combine(_nsError.code) }

    // Foundation's own implementation for such types traps on Linux.
    /// The hash of the code.
    public var hashValue: Int {
        var hasher = Hasher()
        hash(into: &hasher)
        return hasher.finalize()
    }
}

extension CBATTErrorCode: @retroactive _ErrorCodeProtocol {
    /// The error that has this code.
    public typealias _ErrorType = CBATTError

    /// Apple's English text where known.
    var text: String {
        switch self {
        case .success: "Success."
        case .invalidHandle: "The attribute handle is invalid."
        case .readNotPermitted: "Reading is not permitted."
        case .writeNotPermitted: "Writing is not permitted."
        case .invalidPdu: "The attribute protocol unit is invalid."
        case .insufficientAuthentication: "Authentication is insufficient."
        case .requestNotSupported: "The request is not supported."
        case .invalidOffset: "The offset is invalid."
        case .insufficientAuthorization: "Authorization is insufficient."
        case .prepareQueueFull: "The prepare queue is full."
        case .attributeNotFound: "The attribute could not be found."
        case .attributeNotLong: "The attribute is not long."
        case .insufficientEncryptionKeySize: "The encryption key size is insufficient."
        case .invalidAttributeValueLength: "The value's length is invalid."
        case .unlikelyError: "Unlikely error."
        case .insufficientEncryption: "Encryption is insufficient."
        case .unsupportedGroupType: "The group type is not supported."
        case .insufficientResources: "Resources are insufficient."
        @unknown default: "Unknown ATT error."
        }
    }
}

// The codes as `catch CBATTError.readNotPermitted` spells them.
extension CBATTError {
    /// `Code.success`: only as the result of `respond(to:withResult:)`.
    public static var success: Code { .success }
    /// 0x01: the attribute does not exist (any more).
    public static var invalidHandle: Code { .invalidHandle }
    /// 0x02: it cannot be read.
    public static var readNotPermitted: Code { .readNotPermitted }
    /// 0x03: it cannot be written.
    public static var writeNotPermitted: Code { .writeNotPermitted }
    /// 0x04: the request was malformed.
    public static var invalidPdu: Code { .invalidPdu }
    /// 0x05: the link must be paired first.
    public static var insufficientAuthentication: Code { .insufficientAuthentication }
    /// 0x06: the peer does not support the request.
    public static var requestNotSupported: Code { .requestNotSupported }
    /// 0x07: the offset is past the end of the value.
    public static var invalidOffset: Code { .invalidOffset }
    /// 0x08: the peer's user or application must authorize the access.
    public static var insufficientAuthorization: Code { .insufficientAuthorization }
    /// 0x09: too many prepared writes.
    public static var prepareQueueFull: Code { .prepareQueueFull }
    /// 0x0A: no such attribute.
    public static var attributeNotFound: Code { .attributeNotFound }
    /// 0x0B: the value cannot be read in pieces.
    public static var attributeNotLong: Code { .attributeNotLong }
    /// 0x0C: the encryption key is too short.
    public static var insufficientEncryptionKeySize: Code { .insufficientEncryptionKeySize }
    /// 0x0D: the value is too long or too short.
    public static var invalidAttributeValueLength: Code { .invalidAttributeValueLength }
    /// 0x0E: something unexpected happened at the peer.
    public static var unlikelyError: Code { .unlikelyError }
    /// 0x0F: the link must be encrypted first.
    public static var insufficientEncryption: Code { .insufficientEncryption }
    /// 0x10: the attribute type does not group others.
    public static var unsupportedGroupType: Code { .unsupportedGroupType }
    /// 0x11: the peer has insufficient resources.
    public static var insufficientResources: Code { .insufficientResources }
}
