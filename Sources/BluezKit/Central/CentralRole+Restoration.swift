import BluezKitRestore
import BluezDBus
import Foundation

/// What BlueZ says of a manager's preserved peripherals, gathered before the app hears anything.
final class RestorationQuery {
    let snapshot: Snapshot
    fileprivate var peripherals: [CBPeripheral] = []
    fileprivate var unanswered: Set<UUID> = []
    fileprivate var answers: [UUID: Device] = [:]

    init(_ snapshot: Snapshot) { self.snapshot = snapshot }
}

/// Restoring what a manager of an earlier process was doing.
extension CentralRole {
    /// Asks about each preserved peripheral, then has the plan carried out. While Bluetooth is not on, BlueZ cannot be asked:
    /// then everything waits for it.
    func restore(_ snapshot: Snapshot, _ core: CentralManagerCore) {
        core.use(adapter: adapter.name)
        let query = RestorationQuery(snapshot)
        core.beginRestoration(query)
        for record in snapshot.peripherals {
            guard let identity = DeviceIdentity(identifier: record.identifier), let known = record.resolved else {
                continue
            }
            store.note(identity, isReally: known)
        }
        guard adapter.state == .poweredOn, let manager = core.manager else { return finish(query, of: core) }
        for record in snapshot.peripherals { ask(about: record, query, manager) }
        if query.unanswered.isEmpty { return finish(query, of: core) }
        // What has not answered by then is treated as a peripheral that may come.
        bus.after(bus.timing.link.restoration) { [weak self, weak core] in
            if let self, let core, core.isAsking(query) { finish(query, of: core) }
        }
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
        query.unanswered.insert(record.identifier)
        connection.ask { [weak self, weak core = manager.core] isConnected in
            // Another manager may be connecting: the signal changes nothing any more.
            if isConnected == true, let connection = device.connection, connection.phase != .checking {
                connection.handle(.connectedChanged(true))
            }
            guard let self, let core, core.isAsking(query) else { return }
            // A refusal says nothing of it.
            if isConnected == nil || device.isInBlueZ { query.answers[record.identifier] = device }
            query.unanswered.remove(record.identifier)
            if query.unanswered.isEmpty { finish(query, of: core) }
        }
    }

    /// Tells the app, and starts what the plan says.
    func finish(_ query: RestorationQuery, of core: CentralManagerCore) {
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
        case .connecting: connect(core, link: item.link, reconnects: item.reconnects)
        case .connected where connection.phase != .closing && connection.phase != .lost: connection.adopt(item)
        // Another manager of this process may be ending the link.
        case .connected, .disconnected:
            core.restore(link: item.link, reconnects: item.reconnects, layouts: nil, isUp: false)
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
        core.restore(
            link: item.link, reconnects: item.reconnects, layouts: item.peripheral.serviceLayouts, isUp: true)
        add(core)
        let isNew = !isUp
        client.adopt()
        claim(for: core)
        for characteristic in item.peripheral.subscribedCharacteristics {
            client.add(AttributeOperation(core: core, link: item.link, kind: .resubscribe(characteristic)))
        }
        if isNew {
            client.readUnreadObjects()
            // Others of this process may have been connecting: they have their link.
            handle(.adopt)
        }
        if !client.isDiscovered, device.properties.areServicesResolved { client.servicesResolved() }
    }
}
