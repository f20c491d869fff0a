import BluezDBus

/// All peripheral managers on one BlueZ, and what they share: the centrals, their requests, and the way of updates.
/// Confined to the bus queue.
final class PeripheralRole {
    let bus: BlueZBus
    let adapter: AdapterController
    let remoteCentrals: RemoteCentrals
    let requests: RequestBroker
    let updates: UpdateSender
    let sockets: L2CAPSockets
    private let pairing: PairingService
    private var managers: [PeripheralManagerCore] = []

    init(_ bus: BlueZBus, _ adapter: AdapterController, _ pairing: PairingService, _ sockets: L2CAPSockets) {
        (self.bus, self.adapter, self.pairing, self.sockets) = (bus, adapter, pairing, sockets)
        remoteCentrals = RemoteCentrals(bus)
        requests = RequestBroker(bus, remoteCentrals)
        updates = UpdateSender(bus, adapter, remoteCentrals)
        remoteCentrals.role = self
        pairing.add(self)
    }

    // MARK: Managers

    var managerCount: Int { managers.count }

    func add(_ core: PeripheralManagerCore) {
        bus.assertOnQueue()
        managers.append(core)
    }

    /// The app has released the manager: what it has published is withdrawn, silently.
    func remove(_ core: PeripheralManagerCore) {
        bus.assertOnQueue()
        managers.removeAll { $0 === core }
        core.withdrawAll()
    }

    /// The process of the apps has ended, as a simulator has it.
    func forgetManagers() { managers = [] }

    // MARK: The state

    func announceState() {
        bus.assertOnQueue()
        for core in managers { announceState(to: core) }
    }

    func announceState(to core: PeripheralManagerCore) {
        guard core.announce(adapter) == .poweredOn else { return }
        pairing.updateAgent()
    }

    /// Bluetooth is not on any more. Off: BlueZ keeps the services and has dropped the links. Below that: it has
    /// forgotten everything, and so does the manager (ST-6). The state callback alone tells of it.
    func dropPublications(keepingServices: Bool) {
        bus.assertOnQueue()
        requests.end { _ in true }
        for core in managers {
            core.dropUpdates()
            core.advertiser.stop()
            core.channels.endChannels()
            if !keepingServices { core.withdrawAll() }
        }
        remoteCentrals.removeAll(butFor: isAwaited)
        updates.reset()
    }

    /// What was asked on the connection that is gone gets no answer.
    func connectionEnded() {
        bus.assertOnQueue()
        updates.connectionEnded()
    }
}

// MARK: - Pairing

extension PeripheralRole: PairingRole {
    var needsAgent: Bool { managers.contains(where: \.configuration.allowsJustWorks) }
    var abilities: [PairingAbilities] { [] }
    func pairingPeers(at path: ObjectPath) -> [any PairingPeer]? { nil }
    func pairingAccepted(at path: ObjectPath) {}
    func pairingRefused(at path: ObjectPath) {}

    /// Only where it may need that: for what is published, or to show what is solicited.
    func mayPairUnasked(at path: ObjectPath) -> Bool {
        guard let adapterPath = adapter.path, path.parent == adapterPath else { return false }
        return managers.contains {
            $0.configuration.allowsJustWorks
                && (!$0.gattServer.services.isEmpty || !$0.channels.isEmpty || $0.advertiser.isSoliciting)
        }
    }
}

// MARK: - The links of centrals

extension PeripheralRole {
    private var subscribers: [CharacteristicSubscribers] {
        managers.flatMap { $0.gattServer.characteristics.map(\.subscribers) }
    }

    /// BlueZ keeps the subscriptions of a bonded central, and says nothing when they count again.
    func connected(_ central: RemoteCentral) {
        for subscribers in subscribers { subscribers.connected(central) }
    }

    /// Its ATT_MTU has become known.
    func changed(_ central: CentralInfo) { for core in managers { core.post(.centralChanged(central)) } }

    /// It is not followed any longer.
    func forgotten(_ central: CentralInfo) { for core in managers { core.post(.centralForgotten(central.identifier)) } }

    /// - Returns: Whether it stays subscribed, so that its next link matters.
    func disconnected(_ central: RemoteCentral) -> Bool {
        requests.end { $0.central == central.path }
        for subscribers in subscribers { subscribers.disconnected(central) }
        return isAwaited(central)
    }

    private func isAwaited(_ central: RemoteCentral) -> Bool { subscribers.contains { $0.awaits(central) } }
}
