import BluezDBus

/// A GATT descriptor object.
final class RemoteDescriptor {
    unowned let characteristic: RemoteCharacteristic
    let source: GATTTable.Descriptor
    let path: ObjectPath
    var value: [UInt8]?

    init(characteristic: RemoteCharacteristic, source: GATTTable.Descriptor) {
        (self.characteristic, self.source) = (characteristic, source)
        path = characteristic.path.appending("desc" + Hex.handle(source.handle)) ?? characteristic.path
    }

    private var device: Device { characteristic.device }

    static let interface = ExportedInterface(
        "org.bluez.GattDescriptor1", of: RemoteDescriptor.self,
        properties: [
            .init("UUID", "s") { .string($0.source.uuid) },
            .init("Characteristic", "o") { .path($0.characteristic.path) },
            .init("Value", "ay", flushes: true) { $0.value.map { .bytes($0) } },
        ],
        methods: [
            .init("ReadValue", takes: [.init("options", "a{sv}")], gives: [.init("value", "ay")]) {
                descriptor, call, server in descriptor.readValue(call, server)
            },
            .init("WriteValue", takes: [.init("value", "ay"), .init("options", "a{sv}")]) {
                descriptor, call, server in descriptor.writeValue(call, server)
            },
        ])

    private func readValue(_ call: IncomingCall, _ server: ObjectServer) {
        guard let link = device.link else { return server.refuse(call, .noLink) }
        link.read(source, of: characteristic.source.handle + 1) { [weak self] result in
            guard let self else { return }
            switch result {
            case .success(let bytes):
                value = bytes
                server.propertyChanged("Value", of: Self.interface.name, at: path)
                server.reply(to: call) { (writer) throws(BusError) in try writer.write(.bytes(bytes)) }
            case .failure(let failure): server.refuse(call, BlueZError(att: failure.code))
            }
        }
    }

    private func writeValue(_ call: IncomingCall, _ server: ObjectServer) {
        guard let bytes = try? call.values().first?.bytesValue else { return server.refuse(call, .invalidArguments) }
        guard let link = device.link else { return server.refuse(call, .noLink) }
        guard !source.isConfiguration else { return server.refuse(call, .notPermitted("Write not permitted")) }
        link.write(bytes, to: source) { result in
            switch result {
            case .success: server.reply(to: call)
            case .failure(let failure): server.refuse(call, BlueZError(att: failure.code))
            }
        }
    }
}
