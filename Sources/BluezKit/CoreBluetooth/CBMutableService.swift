import Foundation

/// A service of this app, for ``CBPeripheralManager/add(_:)``. Once added it must not be changed any more.
/// - SeeAlso: Apple, `CBMutableService`.
open class CBMutableService: CBService, @unchecked Sendable {  // holds: the base class keeps it all, under a lock
    /// A service without characteristics.
    /// - Parameters:
    ///   - UUID: What kind of service it is.
    ///   - isPrimary: Whether it stands for itself, rather than being included by others.
    public init(type UUID: CBUUID, primary isPrimary: Bool) {
        super.init(uuid: UUID, isPrimary: isPrimary, objectPath: "", peripheral: nil)
    }

    /// The services that it refers to. Each must have been added before.
    open override var includedServices: [CBService]? {
        get { super.includedServices }
        set { reveal(includedServices: newValue) }
    }

    /// Its characteristics. Each one's `service` is set to this service.
    open override var characteristics: [CBCharacteristic]? {
        get { super.characteristics }
        set {
            for old in reveal(characteristics: newValue) ?? [] where old.service === self { old.setService(nil) }
            for new in newValue ?? [] { new.setService(self) }
        }
    }
}
