import Foundation

/// A remote device: a peripheral or a central.
/// - SeeAlso: Apple, `CBPeer`.
open class CBPeer: NSObject, NSCopying, @unchecked Sendable {  // holds: immutable
    /// Names the device on this and on every other machine with BluezKit, from discovery on and for ever: it encodes the
    /// device's identity address. A device that hides behind changing addresses and is not bonded gets a new one with
    /// each address.
    open var identifier: UUID { storedIdentifier }

    private let storedIdentifier: UUID

    init(identifier: UUID) {
        storedIdentifier = identifier
        super.init()
    }

    /// The same object: a peer stands for one device.
    open func copy(with zone: NSZone? = nil) -> Any { self }
}
