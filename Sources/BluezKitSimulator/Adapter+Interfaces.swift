import BluezDBus

/// The interfaces of an adapter object.
extension Adapter {
    static let interface = ExportedInterface(
        "org.bluez.Adapter1", of: Adapter.self,
        properties: [
            .init("Address", "s") { .string($0.controller.address) },
            .init("AddressType", "s") { _ in .string("public") },
            .init("Name", "s") { .string($0.name) },
            .init("Alias", "s", get: { .string($0.alias ?? $0.name) }) { adapter, change in
                let text = change.value.stringValue ?? ""
                adapter.alias = text.isEmpty ? nil : text
                change.accept()
                adapter.changed("Alias")
            },
            .init("Class", "u") { .uint32($0.isPowered ? 0x10C : 0) },
            .init("Powered", "b", get: { .bool($0.isPowered) }) { adapter, change in
                adapter.setPowered(change.value.boolValue ?? false) { change.accept() }
            },
            .init("PowerState", "s") {
                $0.simulator.optionsState.isExperimental ? .string($0.isPowered ? "on" : "off") : nil
            },
            .init("Discoverable", "b", get: { .bool($0.isDiscoverable) }) { adapter, change in
                guard adapter.isPowered else { return change.refuse(BlueZError.failed) }
                adapter.isDiscoverable = change.value.boolValue ?? false
                change.accept()
                adapter.changed("Discoverable")
            },
            .init("DiscoverableTimeout", "u", get: { .uint32($0.discoverableTimeout) }) { adapter, change in
                adapter.discoverableTimeout = UInt32(change.value.intValue ?? 0)
                change.accept()
                adapter.changed("DiscoverableTimeout")
            },
            .init("Pairable", "b", get: { .bool($0.isKnownPairable) }) { adapter, change in
                adapter.setPairable(change.value.boolValue ?? false)
                change.accept()
            },
            .init("PairableTimeout", "u", get: { .uint32($0.pairableTimeout) }) { adapter, change in
                adapter.pairableTimeout = UInt32(change.value.intValue ?? 0)
                change.accept()
                adapter.changed("PairableTimeout")
            },
            .init("Discovering", "b") { .bool($0.discovery.isOn) },
            .init("UUIDs", "as") { adapter in
                let served = adapter.applications.flatMap(\.services).map(\.definition.uuid)
                return .strings(["1801", "1800", "1200", "110c", "110e", "180a"].map(UUIDText.full) + served)
            },
            .init("Modalias", "s") {
                .string($0.simulator.optionsState.modalias ?? $0.simulator.optionsState.version.modalias)
            },
            .init("Connectable", "b") { $0.simulator.optionsState.version >= .v5_79 ? .bool(true) : nil },
            .init("Roles", "as") { _ in .strings(["central", "peripheral"]) },
            // Not BlueZ's: the kernel has no channels to simulated devices; see Adapter+Channels.swift.
            .init("SimulatedSockets", "b") { _ in .bool(true) },
        ],
        methods: [
            .init("StartDiscovery") { adapter, call, _ in adapter.startDiscovery(call) },
            .init("SetDiscoveryFilter", takes: [.init("properties", "a{sv}")]) { adapter, call, _ in
                adapter.setDiscoveryFilter(call)
            },
            .init("StopDiscovery") { adapter, call, _ in adapter.stopDiscovery(call) },
            .init("RemoveDevice", takes: [.init("device", "o")]) { adapter, call, _ in adapter.removeDevice(call) },
            .init("GetDiscoveryFilters", gives: [.init("filters", "as")]) { _, call, server in
                server.reply(to: call) { (writer) throws(BusError) in
                    try writer.write(.strings(DiscoveryFilter.keys))
                }
            },
        ])

    static let media = ExportedInterface("org.bluez.Media1", of: Adapter.self)
    static let networkServer = ExportedInterface("org.bluez.NetworkServer1", of: Adapter.self)

    /// bluetoothd changes the setting only if it differs from what the kernel has told it last. Seen with 5.66.
    func agentsChanged(exist: Bool) { if exist != isKnownPairable { setPairable(exist) } }

    /// The kernel's answer comes a moment later.
    func setPairable(_ on: Bool) {
        guard on != isPairable else { return }
        isPairable = on
        simulator.after(.milliseconds(10)) { [weak self] in
            guard let self, isKnownPairable != isPairable else { return }
            isKnownPairable = isPairable
            changed("Pairable")
        }
    }

    private func removeDevice(_ call: IncomingCall) {
        guard let server = simulator.server else { return }
        var reader = call.reader
        let path = try? reader.readPath()
        guard let device = devices.values.first(where: { $0.path == path }) else {
            return server.refuse(call, .doesNotExist)
        }
        guard isPowered else { return server.refuse(call, .notReady) }
        let isKept = simulator.failures.connectedProfiles.remove(device.address) != nil && !device.isConnected
        device.disconnect { [weak self] in
            server.reply(to: call)
            if !isKept { self?.remove(device) }
        }
    }
}
