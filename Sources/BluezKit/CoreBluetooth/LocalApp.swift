import BluezDBus
import BluezKitRestore
import Foundation
import Synchronization

/// How a simulator ends a manager, as SIGKILL ends its process: what is preserved stays as it is, and belongs to who
/// asks for it next; no callback follows. The objects remain, and their calls have no effect.
extension CBCentralManager: LocalAppPart {
    package func die() {
        mirror.die()
        book?.die()
        backend.die()
        let peripherals = shared.withLock { shared in
            shared.scan = nil
            shared.scanToken += 1
            defer { shared.peripherals = [:] }
            return shared.peripherals.values.compactMap(\.peripheral)
        }
        for peripheral in peripherals {
            // The kernel closes them.
            peripheral.endChannels()
            peripheral.lostBluetooth(invalidates: true)
        }
        markDead()
    }
}

extension CBPeripheralManager: LocalAppPart {
    package func die() {
        mirror.die()
        book?.die()
        backend.die()
        mirror.end()
        endAdvertising()
        markDead()
    }

    package func hasHeard(ofSubscriber address: String, of uuid: String) -> Bool? {
        guard !isDead, let central = DeviceIdentity(address: address, isRandom: true)?.identifier else { return nil }
        let found = shared.withLock { $0.services }.flatMap { $0.characteristics ?? [] }.compactMap { characteristic in
            characteristic.uuid.bluezString == uuid ? characteristic as? CBMutableCharacteristic : nil
        }
        guard !found.isEmpty else { return nil }
        return !mirror.isTelling.load(ordering: .sequentiallyConsistent)
            && found.contains { $0.subscribedCentrals?.contains { $0.identifier == central } == true }
    }
}
