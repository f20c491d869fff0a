import BluezKitRestore
import Foundation
import Synchronization

/// A service: a group of characteristics.
///
/// A remote one is valid until its link ends or `didModifyServices` lists it. Compared by identity.
/// - SeeAlso: Apple, `CBService`; Core Spec 5.4, Vol 3, Part G, 3.1.
open class CBService: CBAttribute, @unchecked Sendable {  // holds: what changes is under `shared`'s lock
    private struct Shared: Sendable {
        weak var peripheral: CBPeripheral?
        var includedServices: [CBService]?
        var characteristics: [CBCharacteristic]?
    }

    private let shared: Mutex<Shared>
    private let storedIsPrimary: Bool
    /// A digest of its contents; empty for a local service.
    let layout: String

    init(
        uuid: CBUUID, isPrimary: Bool, id: AttributeID = .none, element: PathElement? = nil,
        peripheral: CBPeripheral?, layout: String = ""
    ) {
        shared = Mutex(Shared(peripheral: peripheral))
        self.layout = layout
        storedIsPrimary = isPrimary
        super.init(uuid: uuid, id: id, element: element)
    }

    /// The peripheral that has it; nil for a local service, and if the app has released the peripheral.
    open var peripheral: CBPeripheral? { shared.withLock { $0.peripheral } }

    /// Whether it is a primary service. A secondary service is only included by others.
    open var isPrimary: Bool { storedIsPrimary }

    /// The included services; nil until they are discovered.
    open var includedServices: [CBService]? { shared.withLock { $0.includedServices } }

    /// The characteristics discovered so far, in the order of the peripheral's table; nil until then.
    open var characteristics: [CBCharacteristic]? { shared.withLock { $0.characteristics } }

    override var fields: [String] { ["isPrimary = \(isPrimary ? "YES" : "NO")", "UUID = \(uuid)"] }

    func addDiscovered(includedServices: [CBService]?) { shared.withLock { $0.includedServices = includedServices } }

    /// - Returns: The previous values.
    @discardableResult
    func addDiscovered(characteristics: [CBCharacteristic]?) -> [CBCharacteristic]? {
        shared.withLock { shared in
            defer { shared.characteristics = characteristics }
            return shared.characteristics
        }
    }
}
