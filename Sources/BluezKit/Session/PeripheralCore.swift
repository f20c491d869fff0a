import Foundation
import Synchronization

/// What the bus queue knows of one `CBPeripheral`. Nothing in the library holds the peripheral itself (CN-1).
final class PeripheralCore: @unchecked Sendable {
    // holds: constants and an atomic; `peripheral` is set once before anybody else sees this; the rest is confined to
    // the bus queue
    let identity: DeviceIdentity
    let manager: ManagerCore
    weak var peripheral: CBPeripheral?

    /// Counts the app's connects and cancels. What belongs to an earlier one is not delivered any more.
    let link = Atomic<UInt64>(0)

    /// The app's wish to be connected: which one, and what it asked for.
    struct Wish {
        let link: UInt64
        let reconnects: Bool
        /// Whether it was fulfilled: the end of the link is news then.
        var wasUp = false
    }

    var wish: Wish?
    /// Whether the app was told that it is connected.
    var isUp = false
    /// The app has cancelled; it is told when the link is down.
    var goodbye: UInt64?
    weak var device: Device?
    /// Services that are known from an earlier process, with what was in them; nil: nothing has to be compared.
    var restoredLayouts: [String: String]?
    /// Those of them that have changed since.
    var staleServices: Set<String> = []

    init(identity: DeviceIdentity, manager: ManagerCore) {
        (self.identity, self.manager) = (identity, manager)
    }

    /// Posts an event that belongs to the app's present connection.
    func post(_ body: @escaping (CBPeripheral, (any CBPeripheralDelegate)?) -> Void) {
        guard let link = wish?.link else { return }
        manager.post { [self] _ in
            guard self.link.load(ordering: .relaxed) == link, let peripheral else { return }
            body(peripheral, peripheral.delegate)
        }
    }

    /// On the app's queue.
    func deliver(_ value: Data, of characteristic: CBCharacteristic, link: UInt64) {
        guard self.link.load(ordering: .relaxed) == link, let peripheral else { return }
        characteristic.setValue(value)
        peripheral.delegate?.peripheral(peripheral, didUpdateValueFor: characteristic, error: nil)
    }
}
