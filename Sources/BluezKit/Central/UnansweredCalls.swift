import BluezDBus
import Dispatch

/// Calls that BlueZ has left unanswered, by device. Confined to the bus queue.
final class UnansweredCalls {
    private let bus: BlueZBus
    private var budgets: [DeviceIdentity: CallBudget] = [:]
    /// Calls that are no operations, and are not answered.
    private var open: [DeviceIdentity: [OperationCall]] = [:]

    init(_ bus: BlueZBus) { self.bus = bus }

    /// A call was given up, or was not answered in time.
    func record(_ call: OperationCall, about identity: DeviceIdentity, on lane: CallLane?) {
        guard !call.isAnswered, !call.isCounted else { return }
        call.isCounted = true
        prune()
        budgets[identity, default: CallBudget(timing: bus.timing.unanswered)].lose(at: DispatchQueue.now)
        guard !call.isOverdue else { return }
        lane?.abandoned += 1
        call.onEnd = { [weak self, weak lane, weak call] in
            if call?.isAnswered == true { self?.budgets[identity]?.recover() }
            lane?.abandoned -= 1
        }
    }

    /// For a call that is no operation: it counts as lost while it has waited longer than
    /// ``BlueZTiming/Unanswered/late``. Its lane is not closed before it is answered or overdue.
    func counting(_ device: Device, on lane: CallLane?) -> BlueZProxy.Counting {
        let identity = device.identity
        return { [weak self, weak device] completion in
            let call = OperationCall()
            self?.open[identity, default: []].append(call)
            return { result in
                withExtendedLifetime(lane) {
                    call.ended(result.failure)
                    self?.open[identity]?.removeAll { $0 === call }
                    if self?.open[identity]?.isEmpty == true { self?.open[identity] = nil }
                    if call.isOverdue {
                        self?.record(call, about: identity, on: nil)
                        device?.connection?.client.callWasLost()
                    }
                    completion(result)
                }
            }
        }
    }

    /// A question about a device or its attributes, which counts as above.
    func ask<Answer>(
        about device: Device, _ path: ObjectPath, _ interface: String,
        _ question: @escaping (BlueZProxy, @escaping (Result<Answer, BusError>) -> Void) -> Void,
        answered: @escaping (Result<Answer, BusError>) -> Void
    ) {
        bus.ask(
            path, interface, counting: { [weak self] in self?.counting(device, on: $0) }, question, answered: answered)
    }

    /// For how long no link is made to a device; nil: one may be.
    func pause(of identity: DeviceIdentity) -> Duration? {
        let now = DispatchQueue.now
        for call in open[identity] ?? [] where call.start.later(by: bus.timing.unanswered.late) <= now {
            record(call, about: identity, on: nil)
        }
        return budgets[identity]?.pause(at: now)
    }

    /// Addresses rotate. What is held against a device longest is forgotten last.
    private func prune() {
        guard budgets.count >= 1000 else { return }
        let now = DispatchQueue.now
        for (identity, var budget) in budgets where budget.isFresh(at: now) { budgets[identity] = nil }
        for (identity, _) in budgets.sorted(by: { $0.value.holdsUntil < $1.value.holdsUntil }).dropLast(750) {
            budgets[identity] = nil
        }
    }
}
