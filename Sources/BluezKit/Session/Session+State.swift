import BluezKitRestore
import DBus
import Foundation

/// What peripheral managers hear of the adapter.
extension Session {
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
        if state == .poweredOn { pairing.updateAgent() }
    }
}
