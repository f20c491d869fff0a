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
    private var peripherals: [CBPeripheral] = []
    private var unanswered: Set<UUID> = []
    /// What BlueZ has told of. What is not here is treated as a peripheral that may come.
    private var answers: [UUID: Device] = [:]

    init(_ snapshot: Snapshot) { self.snapshot = snapshot }

    /// The state of Bluetooth is known for the first time, or is another one, by which what was asked does not matter
    /// any longer.
    func stateChanged(isOn: Bool, for core: CentralManagerCore, _ central: CentralRole) {
        guard !hasBegun else { return finish(for: core, central) }
        hasBegun = true
        prepare(core, central)
        if isOn { ask(for: core, central) } else { finish(for: core, central) }
    }

    private func prepare(_ core: CentralManagerCore, _ central: CentralRole) {
        core.use(adapter: central.adapter.name)
        for record in snapshot.peripherals {
            guard let identity = DeviceIdentity(identifier: record.identifier), let known = record.resolved else {
                continue
            }
            central.store.associate(identity, withIdentity: known)
        }
    }

    // MARK: Asking BlueZ

    private func ask(for core: CentralManagerCore, _ central: CentralRole) {
        if let manager = core.manager {
            for record in snapshot.peripherals { ask(about: record, manager, central) }
        }
        hasAskedAll = true
        if unanswered.isEmpty { return finish(for: core, central) }
        central.bus.after(central.bus.timing.link.restoration) { [weak core, weak central] in
            if let core, let central { self.finish(for: core, central) }
        }
    }

    private func ask(about record: Snapshot.Peripheral, _ manager: CBCentralManager, _ central: CentralRole) {
        guard let identity = DeviceIdentity(identifier: record.identifier),
            let device = central.store.device(identity)
        else { return }
        let peripheral = manager.peripheral(identity)
        peripherals.append(peripheral)
        peripheral.core.attach(device)
        let isNew = device.connection == nil
        let connection = central.connection(of: device)
        connection.add(peripheral.core)
        // Another manager of this process may know all about it.
        if !isNew, connection.isUp { return answers[record.identifier] = device }
        unanswered.insert(record.identifier)
        connection.ask { [weak core = manager.core, weak central] isConnected in
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
        core.endRestoration()
        let peripherals = peripherals
        self.peripherals = []  // the app's now: a timer may hold this a little longer
        defer { for peripheral in peripherals { peripheral.core.device?.connection?.dropIfUnused() } }
        guard let manager = core.manager else { return }
        let plan = RestorationPlan(snapshot, live(central.adapter))
        let restored = manager.restore(plan) { central.store.device($0)?.path.rawValue ?? "" }
        core.post { manager in manager.tellRestored(restored, plan.scan) }
        central.announceState(to: core)
        guard central.adapter.state == .poweredOn else { return }
        if let scan = manager.shared.withLock({ $0.coreScan }) {
            core.startScan(scan)
            central.discovery.update(afresh: true)
        } else {
            core.endScan()
        }
        let kept = Set(restored.map(\.peripheral.identifier))
        for peripheral in peripherals where !kept.contains(peripheral.identifier) { central.release(peripheral.core) }
        for item in restored { resume(item, central) }
        if restored.count < peripherals.count { central.endOrphans() }
    }

    private func live(_ adapter: AdapterController) -> RestorationPlan.Live {
        guard adapter.state == .poweredOn else { return .init(bluetooth: nil, adapter: adapter.name, peripherals: [:]) }
        return RestorationPlan.Live(
            bluetooth: adapter.stackGeneration, adapter: adapter.name,
            peripherals: answers.mapValues {
                .init(isConnected: $0.properties.isConnected, isBonded: $0.properties.isBonded)
            })
    }

    // MARK: Resuming

    private func resume(_ item: CBCentralManager.Restored, _ central: CentralRole) {
        let core = item.peripheral.core
        guard let connection = core.device?.connection else { return }
        switch item.outcome {
        case .connecting: central.connect(core, connectionID: item.connectionID, item.request)
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
            client.add(
                AttributeOperation(core: core, connectionID: item.connectionID, kind: .resubscribe(characteristic)))
        }
        if isNew {
            client.readUnreadObjects()
            // Others of this process may have been connecting: they have their link.
            handle(.adopt)
        }
        if !client.isDiscovered, device.properties.areServicesResolved { client.servicesResolved() }
    }
}
