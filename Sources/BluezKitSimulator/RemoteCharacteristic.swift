import BluezDBus

/// A GATT characteristic object.
final class RemoteCharacteristic {
    unowned let service: RemoteService
    let source: GATTTable.Characteristic
    let path: ObjectPath
    private(set) var descriptors: [RemoteDescriptor] = []
    /// The last value that was read or notified.
    var value: [UInt8]?
    var reads: [PendingRead] = []
    var isWriting = false

    // Subscriptions; see RemoteCharacteristic+Notify.swift.
    var isNotifying = false
    /// Clients with StartNotify, in order. A client whose configuration is still being written has a call here.
    var notifyClients: [(client: String, pending: IncomingCall?)] = []
    var notifySocket: AcquiredSocket?
    var notifySocketOwner: String?
    var isAcquiringNotify = false
    /// `AcquireNotify` was not answered because the peripheral has refused it.
    var isHalfAcquired = false
    var writeSocket: AcquiredSocket?

    struct PendingRead {
        let offset: Int
        var calls: [IncomingCall]
    }

    var device: Device { service.device }
    var simulator: Simulator { service.device.simulator }
    var server: ObjectServer? { service.device.server }
    var flags: VirtualCharacteristic.Flags { source.definition.flags }
    var canNotify: Bool { !flags.isDisjoint(with: [.notify, .indicate]) }

    init(service: RemoteService, source: GATTTable.Characteristic) {
        (self.service, self.source) = (service, source)
        path = service.path.appending("char" + Hex.handle(source.handle)) ?? service.path
        descriptors = source.descriptors.map { RemoteDescriptor(characteristic: self, source: $0) }
    }

    func changed(_ property: String) { server?.propertyChanged(property, of: Self.interface.name, at: path) }

    static let interface = ExportedInterface(
        "org.bluez.GattCharacteristic1", of: RemoteCharacteristic.self,
        properties: [
            .init("UUID", "s") { .string($0.source.definition.uuid) },
            .init("Service", "o") { .path($0.service.path) },
            .init("Value", "ay", flushes: true) { $0.value.map { .bytes($0) } },
            .init("Notifying", "b") { $0.canNotify ? .bool($0.isNotifying) : nil },
            .init("Flags", "as") { .strings($0.source.flagTexts) },
            .init("WriteAcquired", "b") {
                $0.flags.contains(.writeWithoutResponse) ? .bool($0.writeSocket != nil) : nil
            },
            .init("NotifyAcquired", "b") {
                $0.flags.contains(.notify) ? .bool($0.notifySocket != nil || $0.isAcquiringNotify) : nil
            },
            .init("MTU", "q") { characteristic in
                // It is exchanged before the services are looked for.
                characteristic.device.link.map { .uint16(characteristic.device.isResolved ? $0.mtu : 23) }
            },
        ],
        methods: [
            .init("ReadValue", takes: [.init("options", "a{sv}")], gives: [.init("value", "ay")]) {
                characteristic, call, _ in characteristic.readValue(call)
            },
            .init("WriteValue", takes: [.init("value", "ay"), .init("options", "a{sv}")]) {
                characteristic, call, _ in characteristic.writeValue(call)
            },
            .init(
                "AcquireWrite", takes: [.init("options", "a{sv}")], gives: [.init("fd", "h"), .init("mtu", "q")]
            ) { characteristic, call, _ in characteristic.acquireWrite(call) },
            .init(
                "AcquireNotify", takes: [.init("options", "a{sv}")], gives: [.init("fd", "h"), .init("mtu", "q")]
            ) { characteristic, call, _ in characteristic.acquireNotify(call) },
            .init("StartNotify") { characteristic, call, _ in characteristic.startNotify(call) },
            .init("StopNotify") { characteristic, call, _ in characteristic.stopNotify(call) },
        ])

    // MARK: Reading and writing

    private func readValue(_ call: IncomingCall) {
        guard let server else { return }
        guard let options = try? call.values().first?.dictionaryValue else {
            return server.refuse(call, .invalidArguments)
        }
        var offset = 0
        if let value = options["offset"] {
            guard case .uint16(let number) = value else { return server.refuse(call, .invalidArguments) }
            offset = Int(number)
        }
        guard let link = device.link else { return server.refuse(call, .noLink) }
        if !reads.isEmpty {
            guard let index = reads.firstIndex(where: { $0.offset == offset }) else {
                return server.refuse(call, .inProgress)
            }
            reads[index].calls.append(call)
            return
        }
        reads.append(PendingRead(offset: offset, calls: [call]))
        device.secured(source.definition.security) { [weak self] failure in
            guard let self else { return }
            if let failure { return finishRead(.failure(failure)) }
            // Like bluetoothd, gives no answer if the service is removed meanwhile.
            link.read(source, offset: offset) { [weak self] in self?.finishRead($0) }
        }
    }

    private func finishRead(_ result: Result<[UInt8], ATTFailure>) {
        let calls = reads.flatMap(\.calls)
        let offset = reads.first?.offset ?? 0
        reads = []
        guard let server else { return }
        switch result {
        case .success(let bytes):
            value = Array((value ?? []).prefix(offset)) + bytes
            changed("Value")
            for call in calls {
                server.reply(to: call) { (writer) throws(BusError) in try writer.write(.bytes(bytes)) }
            }
        case .failure(let failure):
            for call in calls { server.refuse(call, BlueZError(att: failure.code)) }
        }
    }

    private func writeValue(_ call: IncomingCall) {
        guard let server else { return }
        guard let arguments = try? call.values(), arguments.count == 2, let bytes = arguments[0].bytesValue,
            let options = arguments[1].dictionaryValue
        else { return server.refuse(call, .invalidArguments) }
        var offset: Int?
        if let value = options["offset"] {
            guard case .uint16(let number) = value else { return server.refuse(call, .invalidArguments) }
            offset = Int(number)
        }
        guard let link = device.link else { return server.refuse(call, .noLink) }
        guard writeSocket == nil else { return server.refuse(call, .notPermitted("Write acquired")) }
        guard !isWriting else { return server.refuse(call, .inProgress) }
        var kind = options["type"]?.stringValue
        if kind == nil {
            kind = flags.contains(.write) ? "request" : flags.contains(.writeWithoutResponse) ? "command" : "none"
        }
        switch kind {
        case "command":
            guard offset == nil else { return server.refuse(call, .notSupported) }
            guard bytes.count <= Int(link.mtu) - 3 else {
                return server.refuse(call, .failed("Failed to initiate write"))
            }
            link.command(bytes, to: source)
            server.reply(to: call)
        case "request", "reliable":
            if bytes.isEmpty, (offset ?? 0) > 0 || kind == "reliable" {
                return server.refuse(call, .failed("Failed to initiate write"))
            }
            isWriting = true
            device.secured(source.definition.security) { [weak self] failure in
                guard let self else { return }
                if let failure { return finishWrite(call, .failure(failure)) }
                link.write(bytes, to: source, offset: offset == 0 ? nil : offset) { [weak self] in
                    self?.finishWrite(call, $0)
                }
            }
        default: server.refuse(call, .notSupported)
        }
    }

    private func finishWrite(_ call: IncomingCall, _ result: Result<Void, ATTFailure>) {
        isWriting = false
        switch result {
        case .success: server?.reply(to: call)
        case .failure(let failure): server?.refuse(call, BlueZError(att: failure.code))
        }
    }
}
