import BluezDBus

/// The adapter in the peripheral role: the applications of clients, and connected centrals.
extension Adapter {
    static let gattManager = ExportedInterface(
        "org.bluez.GattManager1", of: Adapter.self,
        methods: [
            .init("RegisterApplication", takes: [.init("application", "o"), .init("options", "a{sv}")]) {
                adapter, call, _ in adapter.registerApplication(call)
            },
            .init("UnregisterApplication", takes: [.init("application", "o")]) { adapter, call, _ in
                adapter.unregisterApplication(call)
            },
        ])

    private func registerApplication(_ call: IncomingCall) {
        guard let server = simulator.server, let connection = simulator.connection, let client = call.sender else {
            return
        }
        var reader = call.reader
        guard let root = try? reader.readPath() else { return server.refuse(call, .invalidArguments) }
        guard !applications.contains(where: { $0.client == client && $0.root == root }) else {
            return server.refuse(call, .alreadyExists)
        }
        let application = Application(adapter: self, client: client, root: root)
        applications.append(application)
        simulator.watchClient(client)
        let rule = MatchRule(
            sender: client, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged")
        connection.addMatch(rule)
        let question = MethodCall(
            destination: client, path: root, interface: "org.freedesktop.DBus.ObjectManager",
            member: "GetManagedObjects")
        simulator.call(question, deadline: .seconds(25)) { [weak self] result in
            guard let self, applications.contains(where: { $0 === application }) else { return }
            do {
                guard case .success(let reply) = result else { throw BlueZError.failed("No object received") }
                try application.take(reply)
                server.reply(to: call)
                localServicesChanged(application)
            } catch {
                applications.removeAll { $0 === application }
                connection.removeMatch(rule)
                server.refuse(call, error as? BlueZError ?? .failed)
            }
        }
    }

    private func unregisterApplication(_ call: IncomingCall) {
        guard let server = simulator.server else { return }
        var reader = call.reader
        let root = try? reader.readPath()
        guard let application = applications.first(where: { $0.client == call.sender && $0.root == root }) else {
            return server.refuse(call, .doesNotExist)
        }
        server.reply(to: call)
        remove(application)
    }

    private func remove(_ application: Application) {
        applications.removeAll { $0 === application }
        for service in application.services {
            controller.presence.table.remove(service)
            // Another service at its handles has no subscribers.
            let handles = service.handle...service.endHandle
            for link in controller.presence.links { link.configurations = link.configurations.outside(handles) }
            rememberedConfigurations = rememberedConfigurations.mapValues { $0.outside(handles) }
        }
        simulator.connection?.removeMatch(
            MatchRule(
                sender: application.client, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged"))
        application.close()
        localServicesChanged(application)
    }

    private func localServicesChanged(_ application: Application) {
        changed("UUIDs")
        for link in controller.presence.links {
            for service in application.services { link.servicesChanged(service.handle...service.endHandle) }
        }
    }

    /// A client has left the bus: its applications are removed.
    func serverClientGone(_ client: String) {
        for application in applications where application.client == client { remove(application) }
        for instance in advertisements where instance.client == client { remove(instance) }
    }

    /// Handles a signal from a client.
    func clientSignalled(_ message: Message) {
        guard message.member == "PropertiesChanged", let client = message.sender, let path = message.path,
            let values = try? message.values(), values.count == 3
        else { return }
        for application in applications where application.client == client {
            if let value = values[1].dictionaryValue?["Value"]?.bytesValue {
                application.signalled(path, value: value)
            } else if values[2].stringsValue?.contains("Value") == true {
                application.signalled(path, value: [])
            }
        }
        for instance in advertisements where instance.client == client && instance.path == path { refresh(instance) }
    }

    // MARK: Centrals

    /// A central has connected and gets a device object.
    func inboundLinkUp(_ link: Link, address: String, type: String) {
        let known = device(at: address)
        let device = known ?? addDevice(address, type: type)
        device.inbound = link
        device.isTemporary = !device.isBonded
        device.expiry = nil
        device.isConnected = true
        if known != nil { device.changed("Connected") }  // a new one is announced with it
        if device.isBonded { link.configurations = rememberedConfigurations[address] ?? [:] }
        if let server = (link.central as? VirtualCentral)?.server {
            device.link = link.goBack(to: device, from: server)
            device.restoreSubscriptions()
        }
        simulator.after(simulator.timing.serviceDiscovery) { [weak device, weak link] in
            guard let device, let link, device.inbound === link else { return }
            guard device.link == nil else { return device.resolve() }
            device.setUUIDs(["1800", "1801"].map(UUIDText.full))
            device.resolution = .now
            device.changed("ServicesResolved")
            if let central = link.central as? VirtualCentral { device.setName(central.name) }
        }
    }

    func inboundDevice(of link: Link) -> Device? { devices.values.first { $0.inbound === link } }

    func inboundLinkEnded(_ link: Link, reason: UInt8) {
        for indication in link.indications { indication.confirmed() }
        link.indications = []
        let device = inboundDevice(of: link)
        if let device, device.isBonded {
            rememberedConfigurations[device.address] = link.configurations  // it counts as subscribed
        } else {
            for application in applications { application.linkEnded(link) }
        }
        guard let device else { return }
        device.inbound = nil
        device.linkEnded(reason: reason)
    }

    /// Ends all links to centrals, and stops the adapter's advertising.
    func endServing(reason: UInt8) {
        for link in controller.presence.links { link.end(reason: reason) }
        updatePresence()
    }
}

extension Adapter {
    /// A central pairs: the default agent is asked.
    func pairInbound(_ link: Link, completion: @escaping (Bool) -> Void) {
        guard let device = inboundDevice(of: link), let agent = simulator.agents.first else { return completion(false) }
        let path = device.path
        let question = MethodCall(
            destination: agent.client, path: agent.path, interface: "org.bluez.Agent1", member: "RequestAuthorization"
        ) { (writer) throws(BusError) in try writer.write(path) }
        simulator.server?.flush()
        simulator.call(question, deadline: .seconds(60)) { [weak device] result in
            guard let device, device.inbound === link, case .success = result else { return completion(false) }
            link.isEncrypted = true
            if let central = link.central as? VirtualCentral { device.reveal(central.address) }
            device.isBonded = true
            device.changed("Bonded")
            device.isPaired = true
            device.changed("Paired")
            device.setPermanent()
            device.store()
            completion(true)
        }
    }
}

extension [UInt16: UInt16] {
    fileprivate func outside(_ handles: ClosedRange<UInt16>) -> Self { filter { !handles.contains($0.key) } }
}

extension VirtualPeripheral {
    /// bluetoothd has crashed: advertising and services stop, although links stay up for a moment.
    func leaveBus() {
        rotation = []
        isAdvertisingEnabled = false
        host = nil
        table = .ofAdapter(name: "")
    }
}
