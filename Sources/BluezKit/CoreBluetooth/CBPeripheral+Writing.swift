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

    /// BlueZ's socket for one characteristic, to which the app's threads write themselves: a write costs a system call,
    /// and no way to the bus queue and back. It is lent by the bus queue while nothing waits there, and taken back
    /// before anything else is done or the socket is closed. Used under the lock of ``Shared``.
    struct DirectWriter {
        /// By identity: the attributes of ``Shared`` hold it.
        let characteristic: ObjectIdentifier
        let socket: CommandSocket
    }

    /// Sends a value by BlueZ's socket, if that is lent and has room. Then nothing that was asked for before waits.
    /// - Returns: Whether it is sent.
    func sendAtOnce(_ data: Data, _ characteristic: CBCharacteristic) -> Bool {
        shared.withLock { shared in
            guard let writer = shared.directWriter, writer.characteristic == ObjectIdentifier(characteristic),
                !data.isEmpty, data.count <= writer.socket.capacity
            else { return false }
            switch data.withUnsafeBytes({ writer.socket.send($0) }) {
            case .sent: return true
            case .full: shared.commands.socketIsFull()
            case .broken: break
            }
            return false
        }
    }

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
            shared.beginRequest()
            return true
        }
        switch isConnected {
        case nil: Log.misuse("\(self) writeValue: can only accept commands while in the connected state")
        case false?: break  // counted, and logged when there is room again
        case true?: handOver(.writeWithoutResponse(bytes, characteristic))
        }
    }

    // MARK: From the bus queue

    /// Lends a socket to the app's threads, unless the app has asked for more than has arrived.
    /// - Returns: Whether it is lent, until ``takeBackWriter()``.
    func lend(
        _ socket: CommandSocket, for characteristic: CBCharacteristic, requestsArrived: Int, connectionID: UInt64
    ) -> Bool {
        shared.withLock { shared in
            guard core.connectionID.load(ordering: .relaxed) == connectionID, shared.state == .connected,
                shared.requests == requestsArrived,
                shared.attributes[characteristic.objectPath] === characteristic
            else { return false }
            shared.directWriter = DirectWriter(characteristic: ObjectIdentifier(characteristic), socket: socket)
            return true
        }
    }

    /// No thread of the app uses the socket when this returns.
    func takeBackWriter() { shared.withLock { $0.directWriter = nil } }

    /// BlueZ's socket has no room for a write that waits.
    func socketStaysFull(connectionID: UInt64) {
        guard core.connectionID.load(ordering: .relaxed) == connectionID else { return }
        shared.withLock { $0.commands.socketStaysFull() }
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

extension CBPeripheral.Shared {
    /// What follows reaches the bus queue after this request.
    mutating func beginRequest() {
        directWriter = nil
        requests += 1
    }
}
