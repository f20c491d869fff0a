import Foundation
import Synchronization

/// Writes without response: which are accepted, and when there is room.
extension CBPeripheral {
    /// **BluezKit addition.** How many writes without response were dropped since the last `connect(_:options:)`:
    /// because the queue was full, the value was too long, or BlueZ refused it. What waits when the link ends does not
    /// count.
    ///
    /// Zero for an app that respects ``canSendWriteWithoutResponse`` and
    /// ``maximumWriteValueLength(for:)``, unless BlueZ refuses a write. Any thread.
    public var droppedWritesWithoutResponse: Int { shared.withLock { $0.commands.dropped } }

    func writeCommand(_ data: Data, _ characteristic: CBCharacteristic) {
        guard characteristic.properties.contains(.writeWithoutResponse) else {
            return Log.misuse(
                "\(characteristic) does not specify the \"Write Without Response\" property - "
                    + "ignoring response-less write")
        }
        let limit = maximumWriteValueLength(for: .withoutResponse)
        if mtuBytes != nil, data.count > limit {
            shared.withLock { $0.commands.drop() }
            return Log.warning("dropped a write without response of \(data.count) bytes: \(limit) is the limit")
        }
        let bytes = [UInt8](data)
        let isConnected = shared.withLock { shared in
            guard shared.state == .connected else { return Bool?.none }
            guard shared.commands.add(bytes.count) else { return false }
            return true
        }
        switch isConnected {
        case nil: Log.misuse("\(self) writeValue: can only accept commands while in the connected state")
        case false?: break  // counted, and logged when there is room again
        case true?: handOver(.writeWithoutResponse(bytes, characteristic))
        }
    }

    // MARK: From the bus queue

    /// BlueZ's socket has no room for a write that waits.
    func socketIsFull(connectionID: UInt64) {
        guard core.connectionID.load(ordering: .relaxed) == connectionID else { return }
        shared.withLock { $0.commands.socketIsFull() }
    }

    /// BlueZ has taken a write, or it was dropped.
    func commandDone(_ size: Int, connectionID: UInt64, isDropped: Bool = false) {
        guard core.connectionID.load(ordering: .relaxed) == connectionID else { return }
        guard shared.withLock({ $0.commands.remove(size, isDropped: isDropped) }) else { return }
        core.post { peripheral, delegate in
            let isTime = peripheral.shared.withLock { $0.commands.announceRoom() }
            peripheral.logDroppedCommands()
            guard isTime else { return }
            delegate?.peripheralIsReady(toSendWriteWithoutResponse: peripheral)
            peripheral.shared.withLock { $0.commands.roomAnnounced() }
        }
    }

    /// One line for all writes that the full queue has dropped, when there is room again or the link has ended.
    func logDroppedCommands() {
        let count = shared.withLock { $0.commands.takeUnlogged() }
        guard count > 0 else { return }
        Log.warning("dropped \(count) writes without response to \(self): wait for canSendWriteWithoutResponse")
    }
}
