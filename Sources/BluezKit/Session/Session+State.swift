import BluezKitRestore
import DBus
import Foundation

/// What managers hear of the adapter, and what ends with it.
extension Session {
    func announceState(to core: ManagerCore) {
        let state = adapter.state
        guard state != .unknown, state != core.announcedState else { return }
        guard core.preserved == nil else { return survey(core) }
        // Whatever it has found is void: the state is another one.
        if let survey = core.survey { return finish(survey, of: core) }
        core.announcedState = state
        core.adapterName.withLock { $0 = adapter.name }
        let life = state == .poweredOn ? adapter.stackGeneration : nil
        let era = adapter.generation
        core.post { manager in
            // Not before: until then a command from another thread belongs to the life that the app knows.
            if state == .poweredOn { manager.shared.withLock { $0.era = era } }
            manager.enter(state, life: life)
        }
        if state == .poweredOn, let claims = core.claims {
            core.claims = nil
            blueZ.after(claims.period) { [weak self] in self?.endUnclaimed(in: claims.directory) }
        }
    }

    func announceState(to core: PublisherCore) {
        let state = adapter.state
        guard state != .unknown, state != core.announcedState else { return }
        if let snapshot = core.preserved {
            core.preserved = nil
            let live = RestorationPlan.Live(bluetooth: nil, adapter: adapter.name, peripherals: [:])
            core.manager?.restore(RestorationPlan(snapshot, live))
            core.post { manager in manager.tellRestored() }
        }
        core.announcedState = state
        let (life, era) = (adapter.servicesGeneration, adapter.generation)
        core.post { manager in
            if state == .poweredOn { manager.shared.withLock { ($0.servicesLife, $0.era) = (life, era) } }
            manager.enter(state)
        }
        if state == .poweredOn { updateAgent() }
    }

    func dropEverything() {
        discovery.reset()
        discoveryLife += 1
        setFollowing(false)
        unknownPaths = PathQueue()
        scanWatch.reset()
        stopScanTimer()
        peers = [:]
        for core in managers { core.scan = nil }
        resetTurns()
        for device in linked {
            device.properties.isConnected = false
            // A `Connect` on its way gets there when Bluetooth may be on again: what follows it calls it off.
            if device.link?.failConnect != nil { proxy(device)?.disconnect { _ in } }
            device.link.map { dropLink($0, of: device) }
        }
        discoveryPauses = 0
        subscriptions.removeAll()
        devicesByPath.removeAll()
        devicesByIdentity.removeAll()
        (hiddenPaths, knowsHiddenPaths) = ([:], false)
    }
}
