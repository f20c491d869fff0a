import BluezDBus
import BluezKitRestore
import Foundation

/// What an earlier process left of a central manager, until its app has heard of it: BlueZ is asked about each
/// preserved peripheral, and the app hears when all answers are there, when that has taken too long, or when Bluetooth
/// is not on. Nothing is reported before.
///
/// The subscriptions of adopted links are renewed without a report to the app. They had ended with the process, by
/// signals and by sockets alike: what the peripheral sent in the meantime is lost. Attributes are matched by handle,
/// UUID and a digest of the service's layout. Those that do not match are reported by `didModifyServices`; all others
/// keep working.
final class CentralRestoration {
    private let snapshot: Snapshot
    private var hasBegun = false
    private var hasAskedAll = false
    private var isFinished = false
    private var peripherals: [PeripheralCore] = []
    private var unanswered: Set<UUID> = []
    /// What BlueZ has told of. What is not here is treated as a peripheral that may come.
    private var answers: [UUID: Device] = [:]
    /// Events of peripherals, until the app has heard of their restoration.
    private var held: [CentralEvent] = []

    init(_ snapshot: Snapshot) { self.snapshot = snapshot }

    /// The state of Bluetooth is known for the first time, or is another one, by which what was asked does not matter
    /// any longer.
    func stateChanged(isOn: Bool, for core: CentralManagerCore, _ central: CentralRole) {
        guard !hasBegun else { return finish(for: core, central) }
        hasBegun = true
        prepare(central)
        if isOn { ask(for: core, central) } else { finish(for: core, central) }
    }

    private func prepare(_ central: CentralRole) {
        for record in snapshot.peripherals {
            guard let identity = DeviceIdentity(identifier: record.identifier), let known = record.resolved else {
                continue
            }
            central.store.associate(identity, withIdentity: known)
        }
    }

    func hold(_ event: CentralEvent) { held.append(event) }

    // MARK: Asking BlueZ

    private func ask(for core: CentralManagerCore, _ central: CentralRole) {
        for record in snapshot.peripherals { ask(about: record, for: core, central) }
        hasAskedAll = true
        if unanswered.isEmpty { return finish(for: core, central) }
        central.bus.after(central.bus.timing.link.restoration) { [weak core, weak central] in
            if let core, let central { self.finish(for: core, central) }
        }
    }

    private func ask(about record: Snapshot.Peripheral, for core: CentralManagerCore, _ central: CentralRole) {
        guard let identity = DeviceIdentity(identifier: record.identifier),
            let device = central.store.device(identity)
        else { return }
        let peripheral = core.peripheral(identity)
        peripherals.append(peripheral)
        peripheral.attach(device)
        let isNew = device.connection == nil
        let connection = central.connection(of: device)
        connection.add(peripheral)
        // Another manager of this process may know all about it.
        if !isNew, connection.isUp { return answers[record.identifier] = device }
        unanswered.insert(record.identifier)
        connection.ask { [weak core, weak central] isConnected in
            // Another manager may be connecting: the signal changes nothing any more.
            if isConnected == true, let connection = device.connection, connection.phase != .checking {
                connection.handle(.connectedChanged(true))
            }
            guard let core, let central, !self.isFinished else { return }
            // A refusal says nothing of it.
            if isConnected == nil || device.isInBlueZ { self.answers[record.identifier] = device }
            self.unanswered.remove(record.identifier)
            if self.hasAskedAll, self.unanswered.isEmpty { self.finish(for: core, central) }
        }
    }

    // MARK: Telling the app

    /// Tells the app, and starts what the plan says. Once.
    private func finish(for core: CentralManagerCore, _ central: CentralRole) {
        guard !isFinished else { return }
        isFinished = true
        let peripherals = peripherals
        self.peripherals = []  // a timer may hold this a little longer
        defer { for peripheral in peripherals { peripheral.device?.connection?.dropIfUnused() } }
        guard central.isManager(core) else { return }
        let plan = RestorationPlan(snapshot, live(central.adapter))
        core.endRestoration(.restored(plan, adapter: central.adapter.name))
        central.announceState(to: core)
        for event in held { core.post(event) }
        held = []
        guard central.adapter.state == .poweredOn else { return }
        if let scan = plan.scan {
            core.startScan(Scan(scan, token: RestorationPlan.scanToken))
            central.discovery.update(afresh: true)
        } else {
            core.endScan()
        }
        let dropped = Set(plan.items.filter { $0.outcome == .dropped }.map(\.peripheral.identifier))
        for peripheral in peripherals where dropped.contains(peripheral.identity.identifier) {
            central.release(peripheral)
            core.forget(peripheral)
        }
        for (index, item) in plan.items.enumerated() {
            guard let identity = DeviceIdentity(identifier: item.peripheral.identifier),
                let peripheral = core.known(identity)
            else { continue }
            resume(item, RestorationPlan.connectionID(at: index), peripheral, central)
        }
        if !dropped.isEmpty { central.endOrphans() }
    }

    private func live(_ adapter: AdapterController) -> RestorationPlan.Live {
        guard adapter.state == .poweredOn else { return .init(bluetooth: nil, adapter: adapter.name, peripherals: [:]) }
        return RestorationPlan.Live(
            bluetooth: adapter.stackGeneration, adapter: adapter.name,
            adapterAddress: adapter.identity?.addressText,
            peripherals: answers.mapValues {
                .init(isConnected: $0.properties.isConnected, isBonded: $0.properties.isBonded)
            })
    }

    // MARK: Resuming

    private func resume(
        _ item: RestorationPlan.Item, _ connectionID: ConnectionID, _ core: PeripheralCore, _ central: CentralRole
    ) {
        guard let device = core.device, let connection = device.connection else { return }
        let record = item.peripheral
        switch item.outcome {
        case .connecting:
            core.begin(connectionID)
            central.connect(core, connectionID: connectionID, record.options)
        case .connected where connection.phase != .closing && connection.phase != .lost:
            let link = RestoredLink(record, at: device.path)
            core.restore(record.options, connectionID: connectionID, link: link)
            connection.adopt(core, link.subscribed, connectionID, isOurs: record.isOurs == true)
        // Another manager of this process may be ending the link.
        case .connected, .disconnected:
            core.restore(record.options, connectionID: connectionID, link: nil)
            core.reportLoss(reason: nil)
            if core.request == nil { connection.detach(core) } else { connection.pursue(core) }
        case .dropped: break
        }
    }
}

extension DeviceConnection {
    /// The link is there and stays as it is: what BlueZ has of the table is read, and what the app was subscribed to is
    /// subscribed to again, before anything that the app asks for.
    /// - Parameter isOurs: Whether programs with BluezKit had made it.
    fileprivate func adopt(
        _ core: PeripheralCore, _ subscribed: [AttributeID], _ connectionID: ConnectionID, isOurs: Bool
    ) {
        add(core)
        let isNew = !isUp
        client.reader.adopt(for: core)
        claim(for: core)
        for characteristic in subscribed {
            client.add(AttributeOperation(.resubscribe(characteristic), of: core, connectionID: connectionID))
        }
        if isNew {
            client.reader.readUnreadObjects()
            // Others of this process may have been connecting: they have their link.
            handle(.adopt)
        }
        // The user may have logged out, and the lease has gone with the session's directory.
        if isOurs { claimLateLink() }
        if !client.reader.isDiscovered, device.properties.areServicesResolved { client.reader.servicesResolved() }
    }
}
