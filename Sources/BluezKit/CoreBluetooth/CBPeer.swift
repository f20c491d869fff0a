public import Foundation

/// A remote device: a peripheral or a central.
/// - SeeAlso: Apple, `CBPeer`.
open class CBPeer: NSObject, NSCopying, @unchecked Sendable {  // holds: immutable
    /// Identifies the device permanently, from discovery on, and equally on each computer with BluezKit: it encodes the
    /// device's identity address. An unbonded device with a private address gets a new identifier with each address.
    open var identifier: UUID { storedIdentifier }

    private let storedIdentifier: UUID

    init(identifier: UUID) {
        storedIdentifier = identifier
        super.init()
    }

    /// The same object: a peer represents one device.
    open func copy(with zone: NSZone? = nil) -> Any { self }
}
