import BluezDBus
import Foundation

/// `registerForConnectionEvents`: which peers connect to this system, whichever program connects them (CE-1, CE-2).
/// Confined to the bus queue.
final class ConnectionEventMonitor {
    /// A peer that is connected, and the managers that have reported it.
    private struct ConnectedPeer {
        var identity: DeviceIdentity?
        var reporters: [CentralManagerCore] = []
    }

    private let bus: BlueZBus
    private let store: DeviceStore
    weak var central: CentralRole?
    private var peers: [ObjectPath: ConnectedPeer] = [:]
    /// Whether BlueZ's signals of all devices are received for this.
    private(set) var isActive = false

    init(_ bus: BlueZBus, _ store: DeviceStore) { (self.bus, self.store) = (bus, store) }

    private var managers: [CentralManagerCore] { central?.managers ?? [] }

    /// The rule for the signals of all devices exists only while an app wants these events.
    func update() {
        bus.assertOnQueue()
        guard managers.contains(where: { $0.connectionEvents != nil }) != isActive, let connection = bus.connection
        else { return }
        isActive.toggle()
        let rule = MatchRule(
            sender: BlueZ.busName, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged",
            argument0: BlueZ.device)
        if isActive { connection.addMatch(rule) } else { connection.removeMatch(rule) }
        if !isActive { peers = [:] }
    }

    /// The app has released the manager.
    func forget(_ core: CentralManagerCore) {
        for path in peers.keys { peers[path]?.reporters.removeAll { $0 === core } }
    }

    /// Bluetooth is off, or away.
    func reset() { peers = [:] }

    /// The connection to the bus is gone, and the rule with it.
    func busLost() { isActive = false }

    /// Device1 has changed, or has come.
    func handleChange(of path: ObjectPath, _ properties: MessageReader) throws(BusError) {
        guard store.isOurs(path) else { return }
        var properties = properties
        var isConnected: Bool?
        var (isResolved, hasNewServices) = (false, false)
        try properties.readProperties { (key, value) throws(BusError) in
            if key.matches("Connected") { isConnected = try value.readBool() }
            if key.matches("ServicesResolved") { isResolved = try value.readBool() }
            if key.matches("UUIDs") { hasNewServices = true }
        }
        if isConnected == false { return peerGone(path) }
        // BlueZ does not always signal `Connected`: not if it has the ATT socket of a link before the kernel's event
        // (src/device.c, `att_connect_cb`). Services are resolved with a link only.
        let isLinked = isConnected == true || isResolved
        if isLinked, peers[path] == nil { peers[path] = ConnectedPeer() }
        // The services of a new peer are known when they are resolved, and not before. Some come later: a phone shows
        // its notifications when it is paired.
        if peers[path] != nil, isLinked || hasNewServices { lookAtPeer(path) }
    }

    private func lookAtPeer(_ path: ObjectPath) {
        bus.ask(path, BlueZ.device, { $0.getAll(completion: $1) }) { [weak self] result in
            guard let self, case .success(let reply) = result else { return }
            var reader = reply.reader
            var fields = DeviceProperties()
            guard (try? fields.apply(&reader, of: path, uuids: store.uuids)) != nil, fields.isConnected else { return }
            report(fields, at: path)
        }
    }

    private func report(_ fields: DeviceProperties, at path: ObjectPath) {
        // Use the identity under which the app already knows the device.
        guard let identity = store[path.rawValue]?.identity ?? fields.identity, var peer = peers[path] else {
            return
        }
        peer.identity = identity
        for core in managers where !peer.reporters.contains(where: { $0 === core }) {
            guard core.connectionEvents?.matches(identity, fields.services) == true else { continue }
            peer.reporters.append(core)
            core.post(.connectionEvent(Coded(.peerConnected), identity, name: fields.name))
        }
        peers[path] = peer
    }

    func peerGone(_ path: ObjectPath) {
        guard let peer = peers.removeValue(forKey: path) else { return }
        store.linkEnded(path)
        guard let identity = peer.identity else { return }
        for core in peer.reporters where core.connectionEvents != nil {
            core.post(.connectionEvent(Coded(.peerDisconnected), identity, name: nil))
        }
    }
}
