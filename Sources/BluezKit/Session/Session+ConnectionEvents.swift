import DBus
import Foundation

/// `registerForConnectionEvents`: who connects to this system, by whatever program (CE-1, CE-2).
extension Session {
    /// A peer that is connected, and who was told of it.
    struct ConnectedPeer {
        var identity: DeviceIdentity?
        var told: [ManagerCore] = []
    }

    var followsConnections: Bool { managers.contains { $0.connectionEvents != nil } }

    /// The rule for the signals of all devices exists only while somebody wants these events.
    func updateConnectionEvents() {
        assertOnQueue()
        guard followsConnections != hasConnectionRule, let bus else { return }
        hasConnectionRule.toggle()
        let rule = MatchRule(
            sender: BlueZ.busName, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged",
            argument0: BlueZ.device)
        if hasConnectionRule { bus.addMatch(rule) } else { bus.removeMatch(rule) }
        if !hasConnectionRule { peers = [:] }
    }

    /// Device1 has changed, or has come.
    func noteConnection(at path: ObjectPath, _ properties: MessageReader) throws(BusError) {
        guard isOurs(path) else { return }
        var properties = properties
        var isConnected: Bool?
        var isResolved = false
        try properties.readProperties { (key, value) throws(BusError) in
            if key.matches("Connected") { isConnected = try value.readBool() }
            if key.matches("ServicesResolved") { isResolved = try value.readBool() }
        }
        if isConnected == false { return peerGone(path) }
        if isConnected == true, peers[path] == nil { peers[path] = ConnectedPeer() }
        // The services of a new peer are known when they are resolved, and not before.
        if peers[path] != nil, isConnected == true || isResolved { lookAtPeer(path) }
    }

    private func lookAtPeer(_ path: ObjectPath) {
        guard let bus else { return }
        blueZ.insist {
            BlueZProxy(bus: bus, path: path, interface: BlueZ.device).getAll(completion: $0)
        } answered: {
            [weak self] result in
            guard let self, case .success(let reply) = result else { return }
            var reader = reply.reader
            var fields = DeviceProperties()
            guard (try? fields.apply(&reader, of: path, uuids: &uuids)) != nil, fields.isConnected else { return }
            tell(of: fields, at: path)
        }
    }

    private func tell(of fields: DeviceProperties, at path: ObjectPath) {
        // Whom the app knows already it gets under that name.
        guard let identity = devicesByPath[path.rawValue]?.identity ?? fields.identity, var peer = peers[path] else {
            return
        }
        peer.identity = identity
        for core in managers where !peer.told.contains(where: { $0 === core }) {
            guard core.connectionEvents?.matches(identity, fields.services) == true else { continue }
            peer.told.append(core)
            post(.peerConnected, identity, name: fields.name, to: core)
        }
        peers[path] = peer
    }

    func peerGone(_ path: ObjectPath) {
        guard let peer = peers.removeValue(forKey: path), let identity = peer.identity else { return }
        for core in peer.told where core.connectionEvents != nil {
            post(.peerDisconnected, identity, name: nil, to: core)
        }
    }

    private func post(_ event: CBConnectionEvent, _ identity: DeviceIdentity, name: String?, to core: ManagerCore) {
        core.post { manager in
            let peripheral = manager.peripheral(identity)
            if let name { _ = peripheral.takeName(name) }
            manager.delegate?.centralManager(manager, connectionEventDidOccur: event, for: peripheral)
        }
    }
}

/// Which peers a manager has registered for.
struct ConnectionEventFilter: Sendable {
    let services: Set<CBUUID>
    let identifiers: Set<UUID>

    init(_ options: [CBConnectionEventMatchingOption: Any]) {
        services = Set(options[.serviceUUIDs] as? [CBUUID] ?? [])
        identifiers = Set(options[.peripheralUUIDs] as? [UUID] ?? [])
    }

    func matches(_ identity: DeviceIdentity, _ found: [CBUUID]) -> Bool {
        identifiers.contains(identity.identifier) || found.contains { services.contains($0) }
    }
}
