import BluezKitRestore
import Foundation
import Synchronization

/// A service of this app, for ``CBPeripheralManager/add(_:)``. It must not be changed after it has been added.
/// - SeeAlso: Apple, `CBMutableService`.
open class CBMutableService: CBService, @unchecked Sendable {  // holds: what changes is under a lock
    /// Of a restored service: whether this version of the app continues with it; lost: BlueZ has not taken it again.
    enum Claim { case none, refused, taken, lost }

    let claim = Mutex(Claim.none)
    /// Where bluetoothd has placed it, for a later process; nil: not known.
    final let placement = Mutex<Snapshot.Placement?>(nil)

    /// A service without characteristics.
    /// - Parameters:
    ///   - UUID: The type of the service.
    ///   - isPrimary: Whether it is a primary service, rather than only included by others.
    public init(type UUID: CBUUID, primary isPrimary: Bool) {
        super.init(uuid: UUID, isPrimary: isPrimary, peripheral: nil)
    }

    /// The included services. Each must have been added before.
    open override var includedServices: [CBService]? {
        get { super.includedServices }
        set { addDiscovered(includedServices: newValue) }
    }

    /// Its characteristics. Each one's `service` is set to this service.
    open override var characteristics: [CBCharacteristic]? {
        get { super.characteristics }
        set {
            for old in addDiscovered(characteristics: newValue) ?? [] where old.service === self { old.setService(nil) }
            for new in newValue ?? [] { new.setService(self) }
        }
    }
}

extension CBMutableService {
    /// BlueZ has not taken it again.
    func markLost() { claim.withLock { $0 = .lost } }

    var isLost: Bool { claim.withLock { $0 == .lost } }
}
