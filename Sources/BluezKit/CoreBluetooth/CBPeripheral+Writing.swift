import Foundation

/// Writes without response: which are accepted, and when there is room.
extension CBPeripheral {
    /// **BluezKit addition.** How many writes without response were dropped since the last `connect(_:options:)`:
    /// because the queue was full, the value was too long, or BlueZ refused it. What waits when the link ends does not
    /// count.
    ///
    /// Zero for an app that respects ``canSendWriteWithoutResponse`` and ``maximumWriteValueLength(for:)``, unless
    /// BlueZ refuses a write; so it shows in a test whether the app does. Any thread.
    public var droppedWritesWithoutResponse: Int { shared.withLock { $0.commands.dropped } }

    func writeCommand(_ data: Data, _ characteristic: CBCharacteristic) {
        guard characteristic.properties.contains(.writeWithoutResponse) else {
            return Log.misuse(
                "\(characteristic) does not specify the \"Write Without Response\" property - "
                    + "ignoring response-less write")
        }
        let (connectionID, limit, isAccepted) = shared.withLock { shared -> (ConnectionID?, limit: Int?, Bool) in
            guard shared.state == .connected, shared.knows(characteristic) else { return (nil, nil, false) }
            let limit = shared.mtuBytes.map { min($0 - 3, 512) }
            guard data.count <= limit ?? .max else {
                shared.commands.drop()
                return (shared.connectionID, limit, false)
            }
            return (shared.connectionID, nil, shared.commands.add(data.count))
        }
        guard let connectionID else { return refuse(characteristic, "writeValue") }
        if let limit {
            return Log.warning("dropped a write without response of \(data.count) bytes: \(limit) is the limit")
        }
        guard isAccepted else { return }  // counted, and logged when there is room again
        let bytes = [UInt8](data)
        let request = CentralRequest.perform(.writeWithoutResponse(bytes, characteristic.id), identity, connectionID)
        guard let progress = backend.write(request, on: connectionID), note(progress, connectionID) else { return }
        // The app hears of the room after its call.
        backend.report(.peripheral(identity, .room(connectionID)))
    }

    /// What has become of writes that waited.
    /// - Returns: Whether ``announceRoom(_:)`` is due.
    func note(_ progress: CommandProgress, _ connectionID: ConnectionID) -> Bool {
        shared.withLock { shared in
            guard shared.connectionID == connectionID, progress != CommandProgress() else { return false }
            return shared.commands.remove(
                progress.bytes, writes: progress.writes, dropped: progress.dropped,
                isSocketFull: progress.isSocketFull)
        }
    }

    /// On the delegate's queue.
    func announceRoom(_ connectionID: ConnectionID) {
        let isTime = shared.withLock { $0.connectionID == connectionID && $0.commands.announceRoom() }
        logDroppedCommands()
        guard isTime else { return }
        delegate?.peripheralIsReady(toSendWriteWithoutResponse: self)
        shared.withLock { $0.commands.roomAnnounced() }
    }

    /// One line for all writes that the full queue has dropped, when there is room again or the link has ended.
    func logDroppedCommands() {
        let count = shared.withLock { $0.commands.takeUnlogged() }
        guard count > 0 else { return }
        Log.warning("dropped \(count) writes without response to \(self): wait for canSendWriteWithoutResponse")
    }
}
