import BluezKitRestore
import BluezDBus
import Foundation

/// What an earlier process left of a manager, and what BlueZ says of its peripherals.
final class RestorationQuery {
    let snapshot: Snapshot
    fileprivate var machine = RestorationStateMachine<UUID>()
    fileprivate var peripherals: [CBPeripheral] = []
    fileprivate var answers: [UUID: Device] = [:]

    init(_ snapshot: Snapshot) { self.snapshot = snapshot }
}

/// Restoring what a manager of an earlier process was doing. Carries out what ``RestorationStateMachine`` decides.
extension CentralRole {
    func handle(
        _ event: RestorationStateMachine<UUID>.Event, _ query: RestorationQuery, of core: CentralManagerCore
    ) {
        for action in query.machine.handle(event) {
            switch action {
            case .prepare: prepare(query.snapshot, core)
            case .ask: ask(query, of: core)
            case .startTimer:
                bus.after(bus.timing.link.restoration) { [weak self, weak core] in
                    if let self, let core { handle(.timerFired, query, of: core) }
                }
            case .finish: finish(query, of: core)
            }
        }
    }

    private func prepare(_ snapshot: Snapshot, _ core: CentralManagerCore) {
        core.use(adapter: adapter.name)
        for record in snapshot.peripherals {
            guard let identity = DeviceIdentity(identifier: record.identifier), let known = record.resolved else {
                continue
            }
            store.associate(identity, withIdentity: known)
        }
    }

    private func ask(_ query: RestorationQuery, of core: CentralManagerCore) {
        guard let manager = core.manager else { return handle(.allAsked, query, of: core) }
        for record in query.snapshot.peripherals { ask(about: record, query, manager) }
        handle(.allAsked, query, of: core)
    }

    private func ask(about record: Snapshot.Peripheral, _ query: RestorationQuery, _ manager: CBCentralManager) {
        guard let identity = DeviceIdentity(identifier: record.identifier), let device = store.device(identity) else {
            return
        }
        let peripheral = manager.peripheral(identity)
        query.peripherals.append(peripheral)
        peripheral.core.attach(device)
        let isNew = device.connection == nil
        let connection = connection(of: device)
        connection.add(peripheral.core)
        // Another manager of this process may know all about it.
        if !isNew, connection.isUp { return query.answers[record.identifier] = device }
        handle(.asks(record.identifier), query, of: manager.core)
        connection.ask { [weak self, weak core = manager.core] isConnected in
            // Another manager may be connecting: the signal changes nothing any more.
            if isConnected == true, let connection = device.connection, connection.phase != .checking {
                connection.handle(.connectedChanged(true))
            }
            guard let self, let core, !query.machine.isDone else { return }
            // A refusal says nothing of it.
            if isConnected == nil || device.isInBlueZ { query.answers[record.identifier] = device }
            handle(.answered(record.identifier), query, of: core)
        }
    }

    /// Tells the app, and starts what the plan says.
    private func finish(_ query: RestorationQuery, of core: CentralManagerCore) {
        core.endRestoration()
        let peripherals = query.peripherals
        query.peripherals = []  // the app's now: a timer may hold the query a little longer
        defer { for peripheral in peripherals { peripheral.core.device?.connection?.dropIfUnused() } }
        guard let manager = core.manager else { return }
        let isOn = adapter.state == .poweredOn
        let live = RestorationPlan.Live(
            bluetooth: isOn ? adapter.stackGeneration : nil, adapter: adapter.name,
            peripherals: isOn
                ? query.answers.mapValues {
                    RestorationPlan.Peripheral(
                        isConnected: $0.properties.isConnected, isBonded: $0.properties.isBonded)
                } : [:])
        let plan = RestorationPlan(query.snapshot, live)
        let restored = manager.restore(plan) { store.device($0)?.path.rawValue ?? "" }
        core.post { manager in manager.tellRestored(restored, plan.scan) }
        announceState(to: core)
        guard isOn else { return }
        if let scan = manager.shared.withLock({ $0.coreScan }) {
            core.startScan(scan)
            discovery.update(afresh: true)
        } else {
            core.endScan()
        }
        let kept = Set(restored.map(\.peripheral.identifier))
        for peripheral in peripherals where !kept.contains(peripheral.identifier) { release(peripheral.core) }
        for item in restored { perform(item) }
        if restored.count < peripherals.count { endOrphans() }
    }

    private func perform(_ item: CBCentralManager.Restored) {
        let core = item.peripheral.core
        guard let connection = core.device?.connection else { return }
        switch item.outcome {
        case .connecting: connect(core, connectionID: item.connectionID, item.request)
        case .connected where connection.phase != .closing && connection.phase != .lost: connection.adopt(item)
        // Another manager of this process may be ending the link.
        case .connected, .disconnected:
            core.restore(item.request, connectionID: item.connectionID, layouts: nil, isUp: false)
            core.reportLoss(reason: nil)
            if core.request == nil { connection.detach(core) } else { connection.pursue(core) }
        case .dropped: break
        }
    }
}

extension DeviceConnection {
    /// The link is there and stays as it is: what BlueZ has of the table is read, and what the app was subscribed to is
    /// subscribed to again, before anything that the app asks for.
    fileprivate func adopt(_ item: CBCentralManager.Restored) {
        let core = item.peripheral.core
        core.restore(item.request, connectionID: item.connectionID, layouts: item.peripheral.serviceLayouts, isUp: true)
        add(core)
        let isNew = !isUp
        client.adopt(for: core)
        claim(for: core)
        for characteristic in item.peripheral.subscribedCharacteristics {
            client.add(AttributeOperation(core: core, connectionID: item.connectionID, kind: .resubscribe(characteristic)))
        }
        if isNew {
            client.readUnreadObjects()
            // Others of this process may have been connecting: they have their link.
            handle(.adopt)
        }
        if !client.isDiscovered, device.properties.areServicesResolved { client.servicesResolved() }
    }
}
