import Synchronization
import Foundation

/// Writes without response: which are accepted, and when there is room.
extension CBPeripheral {
    /// From this number of writes that BlueZ has not taken, `canSendWriteWithoutResponse` is false…
    private static let fullAt = 64
    /// …and from this number on, further ones are dropped.
    private static let dropAt = 1024

    func writeCommand(_ data: [UInt8], _ characteristic: CBCharacteristic) {
        guard characteristic.properties.contains(.writeWithoutResponse) else {
            return Log.misuse(
                "\(characteristic) does not specify the \"Write Without Response\" property - "
                    + "ignoring response-less write")
        }
        let limit = maximumWriteValueLength(for: .withoutResponse)
        if mtuBytes != nil, data.count > limit {
            return Log.warning("dropped a write without response of \(data.count) bytes: \(limit) is the limit")
        }
        enum Verdict { case send, notConnected, drop }
        let verdict: Verdict = shared.withLock { shared in
            guard shared.state == .connected else { return .notConnected }
            guard shared.commands < Self.dropAt else { return .drop }
            shared.commands += 1
            if shared.commands >= Self.fullAt { shared.isFull = true }
            return .send
        }
        switch verdict {
        case .notConnected:
            Log.misuse("\(self) writeValue: can only accept commands while in the connected state")
        case .drop:
            Log.warning(
                from: "canSendWriteWithoutResponse",
                "dropped a write without response: wait for canSendWriteWithoutResponse")
        case .send:
            let core = core
            let token = core.link.load(ordering: .relaxed)
            core.manager.central.bus.run {
                core.manager.central.perform(.writeWithoutResponse(data, characteristic), for: core, link: token)
            }
        }
    }

    /// BlueZ has taken a write, or it was dropped. On the bus queue.
    func commandDone(link token: UInt64) {
        guard core.link.load(ordering: .relaxed) == token else { return }
        let hasRoomAgain = shared.withLock { shared in
            shared.commands = max(0, shared.commands - 1)
            return shared.isFull && shared.commands == Self.fullAt / 2
        }
        guard hasRoomAgain else { return }
        core.post { peripheral, delegate in
            let isTime = peripheral.shared.withLock { shared in
                // By now as many may be waiting again: then this is called when there is room for them.
                guard shared.isFull, shared.commands < Self.fullAt else { return false }
                shared.isFull = false
                return true
            }
            if isTime { delegate?.peripheralIsReady(toSendWriteWithoutResponse: peripheral) }
        }
    }
}
