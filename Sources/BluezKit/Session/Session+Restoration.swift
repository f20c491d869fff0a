import BluezKitRestore
import DBus
import Foundation

/// Bringing back what a manager of an earlier process was about.
extension Session {
    /// What BlueZ says of a manager's preserved peripherals, gathered before the app hears anything.
    final class Survey {
        let snapshot: Snapshot
        var peripherals: [CBPeripheral] = []
        var unanswered: Set<UUID> = []
        var answers: [UUID: Device] = [:]

        init(_ snapshot: Snapshot) { self.snapshot = snapshot }
    }

    /// Asks about each preserved peripheral, then has the plan carried out. While Bluetooth is not on there is nobody to
    /// ask: then everything waits for it.
    func survey(_ core: ManagerCore) {
        guard let snapshot = core.preserved else { return }
        core.preserved = nil
        core.adapterName.withLock { $0 = adapter.name }
        let survey = Survey(snapshot)
        core.survey = survey
        for record in snapshot.peripherals {
            guard let identity = DeviceIdentity(identifier: record.identifier), let known = record.resolved else {
                continue
            }
            note(identity, isReally: known)
        }
        guard adapter.state == .poweredOn, let manager = core.manager else { return finish(survey, of: core) }
        for record in snapshot.peripherals {
            guard let identity = DeviceIdentity(identifier: record.identifier), let device = device(identity) else {
                continue
            }
            let peripheral = manager.peripheral(identity)
            survey.peripherals.append(peripheral)
            peripheral.core.device = device
            if !device.clients.contains(where: { $0 === peripheral.core }) { device.clients.append(peripheral.core) }
            // Another manager of this process may know all about it.
            if let link = device.link, link.machine.phase == .up {
                survey.answers[record.identifier] = device
                continue
            }
            survey.unanswered.insert(record.identifier)
            ask(device, device.link ?? makeLink(of: device)) { [weak self, weak core] isConnected in
                // Somebody else may be connecting: the signal is no news any more.
                if isConnected == true, let self, let link = device.link, link.machine.phase != .checking {
                    apply(link.machine.handle(.connectedChanged(true)), to: device)
                }
                guard let self, let core, core.survey === survey else { return }
                // A refusal says nothing of it.
                if isConnected == nil || device.isInBlueZ { survey.answers[record.identifier] = device }
                survey.unanswered.remove(record.identifier)
                if survey.unanswered.isEmpty { finish(survey, of: core) }
            }
        }
        if survey.unanswered.isEmpty { return finish(survey, of: core) }
        // Who has not answered by then is treated as one that may come.
        blueZ.after(.seconds(2)) { [weak self, weak core] in
            if let self, let core, core.survey === survey { finish(survey, of: core) }
        }
    }

    /// Tells the app, and sets going what the plan says.
    func finish(_ survey: Survey, of core: ManagerCore) {
        core.survey = nil
        let peripherals = survey.peripherals
        survey.peripherals = []  // the app's now: a timer may hold the survey a little longer
        defer { for peripheral in peripherals { peripheral.core.device.map(dropIfUnused) } }
        guard let manager = core.manager else { return }
        let isOn = adapter.state == .poweredOn
        let live = RestorationPlan.Live(
            bluetooth: isOn ? adapter.stackGeneration : nil, adapter: adapter.name,
            peripherals: isOn
                ? survey.answers.mapValues {
                    RestorationPlan.Peripheral(
                        isConnected: $0.properties.isConnected, isBonded: $0.properties.isBonded)
                } : [:])
        let plan = RestorationPlan(survey.snapshot, live)
        let restored = manager.restore(plan) { identity in
            device(identity)?.path.rawValue ?? ""
        }
        core.post { manager in manager.tellRestored(restored, plan.scan) }
        announceState(to: core)
        guard isOn else { return }
        core.scan = manager.shared.withLock { $0.coreScan }
        if core.scan != nil { updateDiscovery(afresh: true) }
        let kept = Set(restored.map(\.peripheral.identifier))
        for peripheral in peripherals where !kept.contains(peripheral.identifier) { release(peripheral.core) }
        for item in restored { carryOut(item) }
        if restored.count < peripherals.count { endOrphans() }
    }

    private func carryOut(_ item: CBCentralManager.Restored) {
        let core = item.peripheral.core
        guard let device = core.device, let link = device.link else { return }
        switch item.fate {
        case .connecting:
            connect(core, link: item.link, reconnects: item.reconnects)
        case .adopted where link.machine.phase != .closing && link.machine.phase != .lost:
            adopt(core, device, link, item)
        // Somebody else of this process may be ending the link.
        case .adopted, .lost:
            core.wish = PeripheralCore.Wish(link: item.link, reconnects: item.reconnects, wasUp: true)
            lose(core, reason: nil)
            if core.wish == nil { device.clients.removeAll { $0 === core } } else { pursue(core, on: device) }
        case .dropped: break
        }
    }

    /// The link is there and stays as it is: what BlueZ has of the table is read, and what the app was subscribed to is
    /// subscribed to again, before anything that the app asks for.
    private func adopt(_ core: PeripheralCore, _ device: Device, _ link: Link, _ item: CBCentralManager.Restored) {
        core.wish = PeripheralCore.Wish(link: item.link, reconnects: item.reconnects, wasUp: true)
        core.isUp = true
        core.restoredLayouts = item.peripheral.serviceLayouts
        if !device.clients.contains(where: { $0 === core }) { device.clients.append(core) }
        let isNew = link.machine.phase != .up
        // Before anything is asked of attributes that an earlier process knew.
        if link.isDiscovered { reconcile(device, link) } else { link.isAdopted = true }
        core.manager.statePath.map { link.lease?.claim(in: $0) }
        for characteristic in item.peripheral.subscribedCharacteristics {
            perform(.resubscribe(characteristic), for: core, link: item.link)
        }
        if isNew {
            readUnreadObjects(device, link)
            // Others of this process may have been connecting: they have their link.
            apply(link.machine.handle(.adopt), to: device)
        }
        if !link.isDiscovered, device.properties.areServicesResolved { resolved(device, link) }
    }

    /// Holds what an earlier process knew against the table, and tells what has changed.
    func reconcile(_ device: Device, _ link: Link) {
        for core in device.clients {
            guard let known = core.restoredLayouts else { continue }
            core.restoredLayouts = nil
            // What has changed on this link and was not told yet may look as before.
            let changed = Set(
                known.filter { service, layout in
                    link.changedServices.contains(service) || link.tree.layout(of: service) != layout
                }.keys)
            for service in known.keys where !changed.contains(service) {
                core.restoredVersions[service] = link.tree.version(of: service)
            }
            guard !changed.isEmpty else { continue }
            let versions = link.tree.versions(of: changed)
            core.post { peripheral, delegate in
                let invalidated = peripheral.invalidate(services: versions)
                delegate?.peripheral(peripheral, didModifyServices: invalidated)
            }
        }
    }

    /// Subscribes as an earlier process was. `isNotifying` says so already, so only a failure is told.
    func resubscribe(
        _ characteristic: CBCharacteristic, _ entry: AttributeQueue<AttributeOperation>.Entry, _ device: Device,
        _ link: Link
    ) {
        guard entry.operation.core.peripheral?.wantsNotifications(of: characteristic) == true else {
            return finish(entry.id, device, link)
        }
        setNotify(true, characteristic, entry, device, link, isRestoring: true)
    }
}
