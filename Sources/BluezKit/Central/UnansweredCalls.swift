import BluezDBus
import Dispatch

/// Calls that BlueZ has left unanswered, by device. Confined to the bus queue.
final class UnansweredCalls {
    private let bus: BlueZBus
    private var budgets: [DeviceIdentity: CallBudget] = [:]

    init(_ bus: BlueZBus) { self.bus = bus }

    /// A call was given up, or was not answered in time.
    func note(_ call: OperationCall, about identity: DeviceIdentity, on lane: CallLane?) {
        guard !call.isAnswered, !call.isNoted else { return }
        call.isNoted = true
        prune()
        budgets[identity, default: CallBudget(timing: bus.timing.unanswered)].lose(at: .now())
        guard !call.isOverdue else { return }
        lane?.abandoned += 1
        call.onEnd = { [weak self, weak lane, weak call] in
            if call?.isAnswered == true { self?.budgets[identity]?.recover() }
            lane?.abandoned -= 1
        }
    }

    /// For how long no link is made to a device; nil: one may be.
    func pause(of identity: DeviceIdentity) -> Duration? { budgets[identity]?.pause(at: .now()) }

    /// Addresses rotate. What is held against a device longest is forgotten last.
    private func prune() {
        guard budgets.count >= 1000 else { return }
        let now = DispatchTime.now()
        for (identity, var budget) in budgets where budget.isFresh(at: now) { budgets[identity] = nil }
        for (identity, _) in budgets.sorted(by: { $0.value.holdsUntil < $1.value.holdsUntil }).dropLast(750) {
            budgets[identity] = nil
        }
    }
}
