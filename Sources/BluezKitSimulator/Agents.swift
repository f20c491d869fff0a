import BluezDBus

/// A client that answers pairing requests.
struct Agent {
    let client: String
    let path: ObjectPath
    let capability: String
}

/// The object `/org/bluez`.
final class RootObject {
    unowned(unsafe) var simulator: Simulator!  // holds: set by the simulator that owns this object

    static let agentManager = ExportedInterface(
        "org.bluez.AgentManager1", of: RootObject.self,
        methods: [
            .init("RegisterAgent", takes: [.init("agent", "o"), .init("capability", "s")]) { root, call, _ in
                root.simulator.registerAgent(call)
            },
            .init("UnregisterAgent", takes: [.init("agent", "o")]) { root, call, _ in
                root.simulator.unregisterAgent(call)
            },
            .init("RequestDefaultAgent", takes: [.init("agent", "o")]) { root, call, _ in
                root.simulator.requestDefaultAgent(call)
            },
        ])

    static let profileManager = ExportedInterface(
        "org.bluez.ProfileManager1", of: RootObject.self,
        methods: [
            .init(
                "RegisterProfile",
                takes: [.init("profile", "o"), .init("UUID", "s"), .init("options", "a{sv}")]
            ) { $2.refuse($1, .notSupported) },
            .init("UnregisterProfile", takes: [.init("profile", "o")]) { $2.refuse($1, .doesNotExist) },
        ])
}

/// The agents; the first one is the default.
extension Simulator {
    fileprivate func registerAgent(_ call: IncomingCall) {
        guard let server, let client = call.sender else { return }
        var reader = call.reader
        guard let path = try? reader.readPath(), let capability = try? reader.readString(),
            ["", "DisplayOnly", "DisplayYesNo", "KeyboardOnly", "NoInputNoOutput", "KeyboardDisplay"]
                .contains(capability)
        else { return server.refuse(call, .invalidArguments) }
        guard !agents.contains(where: { $0.client == client }) else { return server.refuse(call, .alreadyExists) }
        let known = capability.isEmpty ? "KeyboardDisplay" : capability
        agents.append(Agent(client: client, path: path, capability: known))
        watchClient(client)
        server.reply(to: call)
        for adapter in adapters { adapter.agentsChanged(exist: true) }
    }

    private func agentIndex(_ call: IncomingCall) -> Int? {
        var reader = call.reader
        let path = try? reader.readPath()
        return agents.firstIndex { $0.client == call.sender && $0.path == path }
    }

    fileprivate func unregisterAgent(_ call: IncomingCall) {
        guard let index = agentIndex(call) else {
            server?.refuse(call, .doesNotExist)
            return
        }
        agents.remove(at: index)
        server?.reply(to: call)
        agentsChanged()
    }

    fileprivate func requestDefaultAgent(_ call: IncomingCall) {
        guard let index = agentIndex(call) else {
            server?.refuse(call, .doesNotExist)
            return
        }
        agents.insert(agents.remove(at: index), at: 0)
        server?.reply(to: call)
    }

    private func agentsChanged() {
        if agents.isEmpty { for adapter in adapters { adapter.agentsChanged(exist: false) } }
    }

    // MARK: Clients

    /// Watches for this client to leave the bus.
    func watchClient(_ client: String) {
        guard watchedClients.insert(client).inserted else { return }
        var wasThere = !optionsState.keepsGoneClients
        connection?.watchName(client) { [weak self] owner in
            if owner != nil { wasThere = true } else if wasThere { self?.clientGone(client) }
        }
    }

    private func clientGone(_ client: String) {
        guard watchedClients.remove(client) != nil else { return }
        connection?.unwatchName(client)
        // Observed order: subscriptions, then discovery.
        for adapter in adapters {
            for device in adapter.devices.values {
                for service in device.services {
                    for characteristic in service.characteristics { characteristic.clientGone(client) }
                }
                device.pairing?.clientGone(client)
            }
            adapter.clientGone(client)
            adapter.serverClientGone(client)
        }
        if agents.contains(where: { $0.client == client }) {
            agents.removeAll { $0.client == client }
            agentsChanged()
        }
    }
}
