import BluezKitRestore
import BluezDBus
import Foundation

/// The central role of this process on one BlueZ: the requests of all `CBCentralManager`s, merged, and the devices that
/// they are about. Confined to the bus queue.
final class CentralRole: @unchecked Sendable {  // holds: confined to the bus queue, but for constants
    let bus: BlueZBus
    let adapter: AdapterController
    let pairing: PairingService
    let store: DeviceStore
    let discovery: DiscoveryController
    let connects: ConnectQueue
    let connectionEvents: ConnectionEventMonitor
    let subscriptions = SubscriptionTable()
    let sockets: L2CAPSockets
    let unanswered: UnansweredCalls

    private(set) var managers: [CentralManagerCore] = []
    /// Devices that an app is connected to or wants to be. While there are any, their signals are received.
    private(set) var connected: [Device] = [] {
        didSet { signalSource = connected.isEmpty ? nil : bus.observer }
    }
    private var signalSource: (any BlueZBusObserver)?
    /// Bonded devices whose connection attempt has crashed bluetoothd, as 5.66 does when the peer has lost its keys.
    private var lostBonds: Set<DeviceIdentity> = []

    init(_ bus: BlueZBus, _ adapter: AdapterController, _ pairing: PairingService, _ sockets: L2CAPSockets) {
        (self.bus, self.adapter, self.pairing, self.sockets) = (bus, adapter, pairing, sockets)
        store = DeviceStore(bus, adapter)
        unanswered = UnansweredCalls(bus)
        discovery = DiscoveryController(bus, adapter, store)
        connects = ConnectQueue(bus, store, discovery)
        connectionEvents = ConnectionEventMonitor(bus, store)
        discovery.central = self
        connectionEvents.central = self
        pairing.add(self)
    }

    // MARK: Managers

    func add(_ core: CentralManagerCore) {
        bus.assertOnQueue()
        managers.append(core)
    }

    /// The app has released the manager: its scan and its connections end, silently (CN-15).
    func remove(_ core: CentralManagerCore) {
        bus.assertOnQueue()
        managers.removeAll { $0 === core }
        core.end()
        discovery.update()
        connectionEvents.update()
        connectionEvents.forget(core)
        for device in connected {
            for client in device.connection?.clients ?? [] where client.manager === core { release(client) }
        }
    }

    // MARK: What the apps ask for

    func carryOut(_ message: CentralMessage, of core: CentralManagerCore) {
        bus.assertOnQueue()
        // The end of Bluetooth, of which the app will hear next, has undone what this asks for.
        if let generation = message.generation, generation != adapter.generation { return }
        switch message.request {
        case .startScan(let request, let token): startScan(Scan(request, token: token), of: core)
        case .endScan:
            core.endScan()
            discovery.update()
        case .setPairing(let abilities):
            core.abilities = abilities
            pairing.updateAgent()
        case .setConnectionEvents(let filter):
            core.connectionEvents = filter
            connectionEvents.update()
        case .connect(let identity, let connectionID, let request):
            guard let peripheral = begin(connectionID, of: identity, core) else { return }
            startConnecting(peripheral, connectionID: connectionID, request)
        case .connectAgain(let identity, let connectionID, let request, let isAnswered):
            guard let peripheral = core.known(identity) else { return }
            connectAgain(peripheral, connectionID: connectionID, request, isAnswered: isAnswered)
        case .resume(let identity, let connectionID, let request):
            guard let peripheral = begin(connectionID, of: identity, core) else { return }
            connect(peripheral, connectionID: connectionID, request)
        case .cancel(let identity, let connectionID):
            // Restored while Bluetooth was not on, it may be unknown.
            guard isManager(core) else { return }
            let peripheral = core.peripheral(identity)
            // Another thread's connect has come first: that is not meant.
            guard peripheral.cancel(connectionID) else { return peripheral.post(.cancelled(connectionID)) }
            cancel(peripheral)
        case .release(let identity, let connectionID):
            // The app may have another object for it by now, and has connected that.
            guard let peripheral = core.known(identity), peripheral.newest.request <= connectionID.request else {
                return
            }
            release(peripheral, of: core)
        case .perform(let request, let identity, let connectionID):
            core.known(identity).map { perform(request, for: $0, connectionID: connectionID) }
        case .openChannel(let psm, let identity, let connectionID):
            core.known(identity).map { openChannel(psm, for: $0, connectionID: connectionID) }
        case .channelEnded(let number, let identity):
            core.known(identity)?.device?.connection?.channels.ended(number)
            // On the way of `didOpen`, which may not have been delivered yet.
            core.known(identity)?.post(.channelEnded(number))
        case .answerQuestion(let ticket, let accepts, let passkey):
            pairing.answer(ticket, accepts: accepts, passkey: passkey)
        case .removeBond(let identity, let ticket):
            removeBond(with: identity) { core.post(.bondRemoved(ticket: ticket, $0.map(AppError.init))) }
        }
    }

    /// The app begins to connect.
    /// - Returns: Nil: nothing comes of it, as another thread has cancelled since.
    private func begin(
        _ connectionID: ConnectionID, of identity: DeviceIdentity, _ core: CentralManagerCore
    ) -> PeripheralCore? {
        guard isManager(core) else { return nil }
        if let known = core.known(identity) {
            guard known.newest.request < connectionID.request else { return nil }
            // Of another object, that the app has released; or another thread has cancelled, which has not come yet.
            if known.request != nil {
                for _ in 0..<known.pendingCancels { known.reportRequestedDisconnect() }
                release(known, of: core)
            }
        }
        let peripheral = core.peripheral(identity)
        peripheral.begin(connectionID)
        return peripheral
    }

    private func release(_ peripheral: PeripheralCore, of core: CentralManagerCore) {
        release(peripheral)
        core.forget(peripheral)
    }

    /// Whether the app has not released it.
    func isManager(_ core: CentralManagerCore) -> Bool { managers.contains { $0 === core } }

    private func startScan(_ scan: Scan, of core: CentralManagerCore) {
        guard adapter.state == .poweredOn else { return }
        core.startScan(scan)
        discovery.update(afresh: true)
    }

    // MARK: Connections

    /// `connect(_:options:)`, of which the start delay may have to pass.
    private func startConnecting(_ core: PeripheralCore, connectionID: ConnectionID, _ request: ConnectRequest) {
        core.delayedStart = nil
        guard request.startDelay > .zero else { return connect(core, connectionID: connectionID, request) }
        let (start, generation) = (PeripheralCore.DelayedStart(connectionID: connectionID), adapter.generation)
        core.delayedStart = start
        bus.after(request.startDelay) { [weak self] in
            guard let self, core.delayedStart === start, adapter.generation == generation else { return }
            core.delayedStart = nil
            connect(core, connectionID: connectionID, request)
        }
    }

    /// `connect(_:options:)`, when its start delay is over.
    /// - Parameter connectionID: Which of the app's connects this is. Answers to an earlier one are not delivered.
    func connect(_ core: PeripheralCore, connectionID: ConnectionID, _ request: ConnectRequest) {
        bus.assertOnQueue()
        // The app may have released the manager since: it may have waited for its start delay.
        guard adapter.state == .poweredOn, isManager(core.manager), let device = store.device(core.identity) else {
            return
        }
        core.connect(request, connectionID: connectionID, to: device)
        guard lostBonds.remove(device.identity) == nil else {
            // Another attempt would crash bluetoothd again.
            core.fail(
                disconnectError(
                    reason: "org.bluez.Reason.Authentication",
                    message: "bluetoothd crashed because the peer has deleted its keys; remove the bond and pair again",
                    isBonded: true))
            device.connection?.remove(core)
            return
        }
        connection(of: device).pursue(core)
    }

    /// `connect(_:options:)` of a peripheral that is connecting or connected, as far as the app knows (CN-4). If it is
    /// not any more the app hears of that.
    /// - Parameter isAnswered: Whether a `didConnect` of its own is due: not where that of an earlier call is.
    private func connectAgain(
        _ core: PeripheralCore, connectionID: ConnectionID, _ request: ConnectRequest, isAnswered: Bool
    ) {
        if core.delayedStart?.connectionID == connectionID {
            return startConnecting(core, connectionID: connectionID, request)
        }
        guard core.request?.connectionID == connectionID else { return }
        core.renew(request)
        if core.isUp, isAnswered { core.announceConnection() }
    }

    /// `cancelPeripheralConnection(_:)`: the app hears of it when the link is down, or at once if others use it. Each
    /// cancel has an answer of its own (CN-7).
    func cancel(_ core: PeripheralCore) {
        bus.assertOnQueue()
        guard let connection = core.device?.connection, core.request != nil else {
            return core.reportRequestedDisconnect()
        }
        connection.cancel(core)
    }

    /// The app has released the peripheral, or its manager: as a cancel, but without a callback.
    func release(_ core: PeripheralCore) {
        bus.assertOnQueue()
        core.delayedStart = nil
        core.device?.connection?.release(core)
    }

    /// An operation of an app, in the order of its calls.
    func perform(_ request: AttributeRequest, for core: PeripheralCore, connectionID: ConnectionID) {
        guard core.isUp, core.request?.connectionID == connectionID, let client = core.device?.connection?.client else {
            // The link has ended meanwhile: no answer (CN-10).
            if case .writeWithoutResponse(let data, _) = request {
                core.commandDone(data.count, connectionID: connectionID)
            }
            return
        }
        client.add(AttributeOperation(request, of: core, connectionID: connectionID))
    }

    /// `openL2CAPChannel(_:)`. Without an answer if the link has ended meanwhile (CN-10).
    private func openChannel(_ psm: CBL2CAPPSM, for core: PeripheralCore, connectionID: ConnectionID) {
        guard core.isUp, core.request?.connectionID == connectionID else { return }
        core.device?.connection?.channels.open(psm, for: core)
    }

    /// - Parameter completion: Gets nil also where there was nothing to remove.
    func removeBond(with identity: DeviceIdentity, completion: @escaping ((any Error)?) -> Void) {
        bus.assertOnQueue()
        guard let path = adapter.path, let proxy = bus.proxy(path, BlueZ.adapter), let device = store.device(identity)
        else { return completion(CBError(.notConnected)) }
        let devicePath = device.path
        if device.connection == nil { forgetIfUnknown(device) }
        proxy.removeDevice(devicePath) { result in
            guard let error = result.failure, error.name != "org.bluez.Error.DoesNotExist" else {
                return completion(nil)
            }
            completion(
                coreBluetoothError(name: error.name, message: error.message, context: .adapter, isBonded: false))
        }
    }

    /// The device's connection; made if there is none.
    func connection(of device: Device) -> DeviceConnection {
        if let connection = device.connection { return connection }
        connected.append(device)
        let connection = DeviceConnection(of: device, in: self)
        device.attach(connection)
        connection.updateMatchRules()
        return connection
    }

    /// A device that no app is connected to keeps nothing.
    func drop(_ connection: DeviceConnection) {
        let device = connection.device
        connection.end()
        device.attach(nil)
        discovery.forget(device)
        connected.removeAll { $0 === device }
        forgetIfUnknown(device)
    }

    private func forgetIfUnknown(_ device: Device) {
        if !discovery.isFollowing || !device.isInBlueZ { store.forget(device) }
    }

    // MARK: The bus and the adapter

    /// The links stay, as far as is known, and cannot be ended now: their files stay as well, until they can.
    func busLost() {
        connectionEvents.busLost()
        discovery.busLost()
        abandonLeases()
    }

    func abandonLeases() { for device in connected { device.connection?.abandonLease() } }

    /// bluetoothd has ended: was it because of one of these devices?
    func daemonEnded() {
        discovery.daemonEnded()
        for device in connected where device.properties.isBonded {
            if device.connection?.mayHaveLostBond == true { lostBonds.insert(device.identity) }
        }
    }

    /// Bluetooth is off, or away: every scan and every link has ended (ST-4, ST-6).
    func bluetoothEnded() {
        bus.assertOnQueue()
        discovery.reset()
        connectionEvents.reset()
        for core in managers { core.endScan() }
        connects.reset()
        for device in connected { device.connection.map { $0.bluetoothEnded() } }
        subscriptions.removeAll()
        store.removeAll()
    }

    func announceState() { for core in managers { announceState(to: core) } }

    func announceState(to core: CentralManagerCore) {
        let state = adapter.state
        guard state != .unknown, state != core.announcedState else { return }
        if let restoration = core.restoration {
            return restoration.stateChanged(isOn: state == .poweredOn, for: core, self)
        }
        core.announce(state)
        core.post(
            .state(
                Coded(state), generation: adapter.generation,
                stack: state == .poweredOn ? adapter.stackGeneration : nil, adapter: adapter.name))
        if state == .poweredOn, let claims = core.takeClaims() {
            bus.after(claims.period) { [weak self] in self?.endUnclaimed(in: claims.directory) }
        }
    }
}

// MARK: - Pairing

extension CentralRole: PairingRole {
    /// Not for a link that a dead process has left: BlueZ may ask this agent of a link of another program's, which it
    /// would refuse.
    var needsAgent: Bool { connected.contains { $0.connection?.clients.isEmpty == false } }
    var abilities: [PairingAbilities] { managers.map(\.abilities) }

    func pairingPeers(at path: ObjectPath) -> [any PairingPeer]? {
        guard let connection = store[path.rawValue]?.connection, connection.isWanted else { return nil }
        return connection.clients.filter { $0.request != nil }
    }

    func mayPairUnasked(at path: ObjectPath) -> Bool { false }

    func pairingAccepted(at path: ObjectPath) { store[path.rawValue]?.connection?.client.pairingAccepted() }
    func pairingRefused(at path: ObjectPath) { store[path.rawValue]?.connection?.pairingRefused() }
}
