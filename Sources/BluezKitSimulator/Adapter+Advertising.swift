import BluezDBus

/// One advertisement that a client registered.
final class AdvertisementInstance {
    let client: String
    let path: ObjectPath
    var content = VirtualAdvertisement()
    var isActive = false
    var timeout: Alarm?

    init(client: String, path: ObjectPath) { (self.client, self.path) = (client, path) }
}

/// The advertisements of all clients.
extension Adapter {
    static let advertisementCapacity = 5

    static let advertisingManager = ExportedInterface(
        "org.bluez.LEAdvertisingManager1", of: Adapter.self,
        properties: [
            .init("ActiveInstances", "y") { .byte(UInt8($0.activeAdvertisements.count)) },
            .init("SupportedInstances", "y") {
                .byte(UInt8(Adapter.advertisementCapacity - $0.activeAdvertisements.count))
            },
            .init("SupportedIncludes", "as") { _ in .strings(["tx-power", "appearance", "local-name"]) },
        ],
        methods: [
            .init("RegisterAdvertisement", takes: [.init("advertisement", "o"), .init("options", "a{sv}")]) {
                adapter, call, _ in adapter.registerAdvertisement(call)
            },
            .init("UnregisterAdvertisement", takes: [.init("service", "o")]) { adapter, call, _ in
                adapter.unregisterAdvertisement(call)
            },
        ])

    private var activeAdvertisements: [AdvertisementInstance] { advertisements.filter(\.isActive) }

    private func registerAdvertisement(_ call: IncomingCall) {
        guard let server = simulator.server, let client = call.sender else { return }
        var reader = call.reader
        guard let path = try? reader.readPath() else { return server.refuse(call, .invalidArguments) }
        guard !advertisements.contains(where: { $0.client == client && $0.path == path }) else {
            return server.refuse(call, .alreadyExists)
        }
        guard advertisements.count < Self.advertisementCapacity else {
            return server.refuse(call, .notPermitted("Maximum advertisements reached"))
        }
        let instance = AdvertisementInstance(client: client, path: path)
        advertisements.append(instance)
        simulator.watchClient(client)
        ask(instance) { [weak self] result in
            guard let self, advertisements.contains(where: { $0 === instance }) else { return }
            // Observed: a client that answers with an error never gets a reply itself.
            guard let properties = result else { return }
            do {
                try activate(instance, properties)
                server.reply(to: call)
            } catch {
                advertisements.removeAll { $0 === instance }
                server.refuse(call, error as? BlueZError ?? .failed)
            }
        }
    }

    /// Queries the client for the properties, in the two ways that bluetoothd uses.
    private func ask(_ instance: AdvertisementInstance, completion: @escaping ([String: Value]?) -> Void) {
        let tree = MethodCall(
            destination: instance.client, path: instance.path, interface: "org.freedesktop.DBus.ObjectManager",
            member: "GetManagedObjects")
        let all = MethodCall.getAllProperties(
            of: "org.bluez.LEAdvertisement1", at: instance.path, on: instance.client)
        simulator.call(tree, deadline: .seconds(25)) { [simulator] _ in
            simulator.call(all, deadline: .seconds(25)) { result in
                completion((try? (try? result.get())?.values())?.first?.dictionaryValue)
            }
        }
    }

    private func activate(_ instance: AdvertisementInstance, _ properties: [String: Value]) throws {
        let isNew = !instance.isActive
        var content = try AdvertisementParser.parse(properties, isDiscoverable: isDiscoverable, name: alias ?? name)
        let size = content.dataFields.reduce(0) { $0 + $1.count }
        guard size <= 31 else { throw BlueZError.failed("Failed to register advertisement") }
        // The kernel adds the flag for LE only if it still fits.
        if content.flags == nil, content.isConnectable, size <= 28 { content.flags = 0x04 }
        instance.content = content
        instance.isActive = true
        if isNew {
            let rule = MatchRule(
                sender: instance.client, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged")
            simulator.connection?.addMatch(rule)
            if let seconds = properties["Timeout"]?.intValue, seconds > 0 {
                instance.timeout = simulator.after(.seconds(seconds) * simulator.timing.scale) { [weak self] in
                    self?.release(instance)
                }
            }
            instancesChanged()
        }
        updatePresence()
    }

    /// The client changed a property of an active advertisement.
    func refresh(_ instance: AdvertisementInstance) {
        ask(instance) { [weak self] properties in
            guard let self, let properties, advertisements.contains(where: { $0 === instance }) else { return }
            try? activate(instance, properties)
        }
    }

    private func unregisterAdvertisement(_ call: IncomingCall) {
        guard let server = simulator.server else { return }
        var reader = call.reader
        let path = try? reader.readPath()
        guard let instance = advertisements.first(where: { $0.client == call.sender && $0.path == path }) else {
            return server.refuse(call, .doesNotExist)
        }
        remove(instance)
        server.reply(to: call)
    }

    func remove(_ instance: AdvertisementInstance) {
        advertisements.removeAll { $0 === instance }
        instance.timeout?.cancel()
        guard instance.isActive else { return }
        simulator.connection?.removeMatch(
            MatchRule(
                sender: instance.client, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged"))
        instancesChanged()
        updatePresence()
    }

    /// Ends an advertisement and informs its client.
    private func release(_ instance: AdvertisementInstance) {
        guard advertisements.contains(where: { $0 === instance }) else { return }
        try? simulator.connection?.send(
            MethodCall(
                destination: instance.client, path: instance.path, interface: "org.bluez.LEAdvertisement1",
                member: "Release"))
        remove(instance)
    }

    /// The adapter is removed, or bluetoothd exits normally.
    func releaseAdvertisements() { for instance in advertisements { release(instance) } }

    private func instancesChanged() {
        for name in ["ActiveInstances", "SupportedInstances"] {
            simulator.server?.propertyChanged(name, of: Self.advertisingManager.name, at: path)
        }
    }

    /// Updates what is advertised, from the advertisements and the power state.
    func updatePresence() {
        let presence = controller.presence
        presence.rotation = isPowered && !simulator.isSuspended ? activeAdvertisements.map(\.content) : []
        presence.isAdvertisingEnabled = !presence.rotation.isEmpty
        presence.advertising?.cancel()
        presence.advertising = nil
        simulator.airChanged(presence)
        simulator.listenersChanged()
    }
}
