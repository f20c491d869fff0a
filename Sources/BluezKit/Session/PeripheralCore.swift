import Foundation
import Synchronization

/// What the bus queue knows of one `CBPeripheral`. Nothing in the library holds the peripheral itself (CN-1).
// holds: constants, atomics, `peripheral` that is set before others see this; the rest is confined to the bus queue
final class PeripheralCore: @unchecked Sendable {
    let identity: DeviceIdentity
    let manager: ManagerCore
    weak var peripheral: CBPeripheral?

    /// Which of the app's connects, cancels and links is the present one. What belongs to an earlier one is neither carried
    /// out nor delivered. Changes under the peripheral's lock, while there is a peripheral.
    let link = Atomic<UInt64>(0)
    private let tokens = Atomic<UInt64>(0)

    /// A token that no other connect, cancel or link of this peripheral has. Any thread.
    func newToken() -> UInt64 { tokens.wrappingAdd(1, ordering: .relaxed).newValue }

    /// Something new begins. Any thread.
    @discardableResult
    func begin() -> UInt64 {
        let token = newToken()
        link.store(token, ordering: .relaxed)
        return token
    }

    /// The app's wish to be connected: which one, and what it asked for.
    struct Wish {
        /// Which connect; and, where it connects again by itself, which of its links.
        var link: UInt64
        var reconnects: Bool
        /// Whether it was fulfilled: the end of the link is news then.
        var wasUp = false
    }

    var wish: Wish?
    /// Whether the app was told that it is connected.
    var isUp = false
    /// The app has cancelled, so many times; it is told when the link is down.
    var goodbyes = 0
    weak var device: Device?
    /// Services that are known from an earlier process, with what was in them; nil: nothing has to be compared.
    var restoredLayouts: [String: String]?
    /// The versions of those of them that have not changed since.
    var restoredVersions: [String: Int] = [:]

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
