import DBus
import Dispatch
import Foundation

/// Writes without response: through BlueZ's socket where there is one, by `WriteValue` where there is not.
extension Session {
    func writeWithoutResponse(
        _ data: [UInt8], to characteristic: CBCharacteristic, _ entry: AttributeQueue<AttributeOperation>.Entry,
        _ device: Device, _ link: Link
    ) {
        let path = characteristic.objectPath
        if data.isEmpty {
            // BlueZ takes an empty packet for the end of the socket.
            link.releaseWriter(of: path)
            return writeByCall(data, path, entry, device)
        }
        if let writer = link.writers[path] { return send(data, by: writer, path, entry, device, link) }
        guard bus?.carriesFileDescriptors == true, !link.withoutSocket.contains(path) else {
            return writeByCall(data, path, entry, device)
        }
        guard let bus, let objectPath = ObjectPath(path) else { return }
        awaitEnd(of: entry, device, link)
        let id = entry.id
        BlueZProxy(bus: bus, path: objectPath, interface: BlueZ.characteristic).acquireWrite {
            [weak self, weak device, weak link] result in
            let writer = Self.socket(in: result)
            guard let self, let device, let link, let entry = link.running(id) else { return _ = writer?.close() }
            guard let writer else {
                link.withoutSocket.insert(path)
                return writeByCall(data, path, entry, device)
            }
            link.writers[path] = writer
            releaseWhenIdle(writer, path, device)
            send(data, by: writer, path, entry, device, link)
        }
    }

    /// The operation waits for BlueZ; but not longer than its characteristic is there.
    private func awaitEnd(of entry: AttributeQueue<AttributeOperation>.Entry, _ device: Device, _ link: Link) {
        link.answerRunning = { [weak self, weak device, weak link] result in
            guard let self, let device, let link, let failure = result.failure else { return }
            fail(entry.operation, error(failure, .attributeWrite, device))
            finish(entry.id, device, link)
        }
    }

    private static func socket(in result: Result<Message, BusError>) -> CommandSocket? {
        guard case .success(let reply) = result else { return nil }
        var reader = reply.reader
        guard let descriptor = try? reader.readFileDescriptor() else { return nil }
        return CommandSocket(descriptor: descriptor, mtuBytes: Int((try? reader.readUInt16()) ?? 23))
    }

    private func send(
        _ data: [UInt8], by writer: CommandSocket, _ path: String, _ entry: AttributeQueue<AttributeOperation>.Entry,
        _ device: Device, _ link: Link
    ) {
        if data.count > writer.capacity {
            // RW-7: never a truncated value.
            Log.warning(
                from: path,
                "dropped a write without response of \(data.count) bytes: \(writer.capacity) is the limit")
            return commandDone(entry, device, link)
        }
        switch writer.send(data) {
        case .sent: commandDone(entry, device, link)
        case .full:
            awaitEnd(of: entry, device, link)
            writer.whenWritable(on: queue) { [weak self, weak device, weak link] in
                guard let self, let device, let link, link.isRunning(entry.id) else { return }
                send(data, by: writer, path, entry, device, link)
                blueZ.flush()
            }
        case .broken:
            link.releaseWriter(of: path)
            writeByCall(data, path, entry, device)
        }
    }

    private func writeByCall(
        _ data: [UInt8], _ path: String, _ entry: AttributeQueue<AttributeOperation>.Entry, _ device: Device
    ) {
        let operation = entry.operation
        call(
            path, BlueZ.characteristic, entry, device, { $0.writeValue(data, type: "command", completion: $1) }
        ) { result in
            if let error = result.failure {
                Log.warning(
                    from: path, "BlueZ dropped a write without response: \(error.message) (\(error.name))")
            }
            operation.core.peripheral?.commandDone(link: operation.link)
        }
    }

    private func commandDone(
        _ entry: AttributeQueue<AttributeOperation>.Entry, _ device: Device, _ link: Link
    ) {
        entry.operation.core.peripheral?.commandDone(link: entry.operation.link)
        finish(entry.id, device, link)
    }

    /// The socket is exclusive: other programs may want to write as well.
    private func releaseWhenIdle(_ writer: CommandSocket, _ path: String, _ device: Device) {
        blueZ.after(.seconds(5)) { [weak self, weak device, weak writer] in
            guard let self, let device, let writer, let link = device.link, link.writers[path] === writer else {
                return
            }
            guard writer.lastUse + DispatchTimeInterval.seconds(4) < .now(), writer.isDrained else {
                return releaseWhenIdle(writer, path, device)
            }
            link.releaseWriter(of: path)
        }
    }

    /// Waits until BlueZ has read what was written, then does what comes next. Nothing tells when a socket is empty, so
    /// it is looked at again after 1, 2, 4 … 16 ms; it nearly always is at the first look.
    func awaitDrained(
        _ entry: AttributeQueue<AttributeOperation>.Entry, _ device: Device, _ link: Link, milliseconds: Int = 1
    ) {
        blueZ.after(.milliseconds(milliseconds)) { [weak self, weak device, weak link] in
            guard let self, let device, let link, link.isRunning(entry.id) else { return }
            guard link.isDrained(before: entry.operation) else {
                return awaitDrained(entry, device, link, milliseconds: min(milliseconds * 2, 16))
            }
            execute(entry, device, link)
        }
    }
}

extension Link {
    /// Whether all that was written to other sockets than the operation's own has reached BlueZ.
    func isDrained(before operation: AttributeOperation) -> Bool {
        guard !writers.isEmpty else { return true }
        var own: String?
        if case .writeWithoutResponse(let data, let characteristic) = operation.kind, !data.isEmpty {
            own = characteristic.objectPath
        }
        return writers.allSatisfy { $0.key == own || $0.value.isDrained }
    }

    func releaseWriter(of path: String) { writers.removeValue(forKey: path)?.close() }
}
