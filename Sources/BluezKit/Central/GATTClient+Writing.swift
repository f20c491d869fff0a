import BluezDBus
import Dispatch
import Foundation

/// Writes without response: through BlueZ's socket where there is one, by `WriteValue` where there is not.
extension GATTClient {
    func writeWithoutResponse(_ data: [UInt8], to path: String, _ entry: Entry) {
        if data.isEmpty {
            // BlueZ takes an empty packet for the end of the socket.
            releaseWriter(of: path)
            return writeByCall(data, path, entry)
        }
        if let writer = writers[path] { return send(data, by: writer, path, entry) }
        guard bus.connection?.carriesFileDescriptors == true, writers.mayAsk(for: path) else {
            return writeByCall(data, path, entry)
        }
        guard let objectPath = ObjectPath(path), let proxy = proxy(objectPath, BlueZ.characteristic) else { return }
        awaitEnd(of: entry)
        let id = entry.id
        let replied: BlueZProxy.Completion = { [weak self] result in
            let writer = Self.socket(in: result)
            guard let self, let entry = running(id) else { return _ = writer?.close() }
            if result.failure == .timedOut { return timedOut() }
            guard let writer else {
                // Another program may have it for the moment.
                let isAcquired = result.failure.map(BlueZErrorName.meansAcquired) ?? false
                let time = DispatchQueue.now.later(by: bus.timing.gatt.idleWriter)
                writers.refuse(path, until: isAcquired ? time : nil)
                return writeByCall(data, path, entry)
            }
            writers.add(writer, path)
            reader.updateMTU(writer.capacity + 3)
            releaseWhenIdle(writer, path)
            send(data, by: writer, path, entry)
        }
        proxy.acquireWrite(completion: noting(replied))
    }

    /// The operation waits for BlueZ; but not longer than its characteristic is there.
    private func awaitEnd(of entry: Entry) {
        awaitAnswer { [weak self] result in
            guard let self, let failure = result.failure else { return }
            entry.operation.fail(error(failure, .attributeWrite))
            finish(entry.id)
        }
    }

    private static func socket(in result: Result<Message, BusError>) -> CommandSocket? {
        guard case .success(let reply) = result else { return nil }
        var reader = reply.reader
        guard let descriptor = try? reader.readFileDescriptor() else { return nil }
        return CommandSocket(descriptor: descriptor, mtuBytes: Int((try? reader.readUInt16()) ?? 23))
    }

    private func send(
        _ data: [UInt8], by writer: CommandSocket, _ path: String, _ entry: Entry
    ) {
        if data.count > writer.capacity {
            // RW-7: never a truncated value.
            Log.warning(
                from: path,
                "dropped a write without response of \(data.count) bytes: \(writer.capacity) is the limit")
            return commandDone(entry, data.count, isDropped: true)
        }
        switch writer.send(data) {
        case .sent:
            writers.given(data.count, bus.timing.gatt)
            commandDone(entry, data.count)
        case .full:
            entry.operation.core.socketIsFull(connectionID: entry.operation.connectionID)
            awaitEnd(of: entry)
            writer.whenWritable(on: bus.queue, bus.timing.gatt) { [weak self] in
                guard let self, isRunning(entry.id) else { return }
                send(data, by: writer, path, entry)
                bus.flush()
            }
        case .broken:
            releaseWriter(of: path)
            writeByCall(data, path, entry)
        }
    }

    private func writeByCall(_ data: [UInt8], _ path: String, _ entry: Entry) {
        let operation = entry.operation
        call(
            path, BlueZ.characteristic, entry, { $0.writeValue(data, type: "command", completion: $1) }
        ) { [weak self] result in
            if let self { writers.given(data.count, bus.timing.gatt) }
            if let error = result.failure {
                Log.warning(
                    from: path, "BlueZ dropped a write without response: \(error.message) (\(error.name))")
            }
            operation.core.commandDone(
                data.count, connectionID: operation.connectionID, isDropped: result.failure != nil)
        }
    }

    private func commandDone(_ entry: Entry, _ size: Int, isDropped: Bool = false) {
        entry.operation.core.commandDone(
            size, connectionID: entry.operation.connectionID, isDropped: isDropped)
        finish(entry.id)
    }

    /// The socket is exclusive: other programs may want to write as well.
    private func releaseWhenIdle(_ writer: CommandSocket, _ path: String) {
        bus.after(bus.timing.gatt.idleWriter) { [weak self, weak writer] in
            guard let self, let writer, writers[path] === writer else { return }
            // What waits for room is not answered when the socket is closed, however long ago it was written.
            guard writer.lastUse.later(by: bus.timing.gatt.idleWriter * 0.8) < DispatchQueue.now, writer.isDrained,
                !writer.isAwaited
            else {
                return releaseWhenIdle(writer, path)
            }
            releaseWriter(of: path)
        }
    }

    /// Waits until BlueZ has read what was written, then does what comes next. Nothing tells when a socket is empty, so
    /// it is looked at again after 1, 2, 4 … 16 ms; it nearly always is at the first look.
    func awaitDrained(_ entry: Entry, delay: Duration? = nil) {
        let delay = delay ?? bus.timing.gatt.drain.shortest
        bus.after(delay) { [weak self] in
            guard let self, isRunning(entry.id) else { return }
            guard isDrained(before: entry.operation) else {
                return awaitDrained(entry, delay: min(delay * 2, bus.timing.gatt.drain.longest))
            }
            execute(entry)
        }
    }
}

extension GATTClient {
    /// Whether all that was written to other sockets than the operation's own has reached BlueZ.
    func isDrained(before operation: AttributeOperation) -> Bool {
        var own: String?
        if case .writeWithoutResponse(let data, _) = operation.request, !data.isEmpty { own = operation.path }
        return writers.areDrained(but: own)
    }

    func releaseWriter(of path: String) { writers.close(path) }

    func updateWriters(mtuBytes: Int) { writers.updateMTU(mtuBytes) }
}
