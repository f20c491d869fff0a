/// What a peripheral does not do as its description says.
struct PeripheralFaults {
    var refusesLinks = false
    /// Whether reads or writes fail; nil: none.
    var reads: Chance?
    var writes: Chance?

    /// Decides about requests, one by one.
    final class Chance {
        private let part: Double
        private let failure: ATTFailure
        private var random: SeededGenerator
        private let failed: (_ uuid: String) -> Void

        init(_ part: Double, _ failure: ATTFailure, seed: UInt64, failed: @escaping (_ uuid: String) -> Void) {
            (self.part, self.failure, self.failed) = (part, failure, failed)
            random = SeededGenerator(seed: seed)
        }

        /// - Returns: With what the next request fails, if it does.
        func next(_ uuid: String) -> ATTFailure? {
            guard random.fraction() < part else { return nil }
            failed(uuid)
            return failure
        }
    }
}

extension Simulator {
    /// Begins to carry out a plan. Several may be under way at a time.
    /// - Parameters:
    ///   - plan: What is to happen, from now on.
    ///   - peripherals: Those that its steps about peripherals are about.
    @discardableResult
    public func run(_ plan: FaultPlan, on peripherals: VirtualPeripheral...) -> FaultRun {
        let run = FaultRun(plan, peripherals, in: self)
        sync { run.begin() }
        return run
    }
}

/// A ``FaultPlan`` that is being carried out, by ``Simulator/run(_:on:)``. It continues if this is released, and ends
/// with the simulator.
public final class FaultRun: @unchecked Sendable {  // holds: what changes is confined to the simulator's queue
    /// What is carried out.
    public let plan: FaultPlan
    private let peripherals: [VirtualPeripheral]
    private weak var simulator: Simulator?
    private var alarms: [Alarm] = []
    /// How many steps have not begun, or not ended.
    private var pending = 0
    /// What ends the steps that are in effect, by number.
    private var undos: [Int: () -> Void] = [:]
    /// How many steps with the same fault are in effect.
    private var inEffect: [FaultPlan.Fault: Int] = [:]
    private var isStopped = false
    private var noted: [String] = []
    private var waiting: [CheckedContinuation<Void, Never>] = []

    init(_ plan: FaultPlan, _ peripherals: [VirtualPeripheral], in simulator: Simulator) {
        (self.plan, self.peripherals, self.simulator) = (plan, peripherals, simulator)
    }

    deinit { waiting.forEach { $0.resume() } }

    /// What has happened so far, one text each: steps with the times of the plan, the ends of their periods, such as
    /// `at 5 s: no longer: the peripheral vanishes`, and requests that have failed, such as `read of 2a38 failed`.
    public var events: [String] { simulator?.sync { noted } ?? noted }

    /// Waits until all steps have begun, and those with a period have ended; at once after ``stop()``. With a
    /// ``SimulatorClock`` time passes meanwhile.
    public func waitForEnd() async {
        guard let simulator else { return }
        try? await simulator.clock.run(within: .seconds(1_000_000_000)) { [self] in
            await withCheckedContinuation { continuation in
                simulator.sync { if pending == 0 { continuation.resume() } else { waiting.append(continuation) } }
            }
        }
    }

    /// Nothing more of it begins, and what is in effect ends: a peripheral that has vanished comes back, for example.
    public func stop() {
        simulator?.sync {
            isStopped = true
            for alarm in alarms { alarm.cancel() }
            for number in undos.keys.sorted() { undo(number) }
            pending = 0
            finish()
        }
    }

    // MARK: On the simulator's queue

    func begin() {
        pending = plan.steps.count
        finish()
        for (number, step) in plan.steps.enumerated() { after(step.start) { $0.begin(step, number) } }
    }

    private func after(_ delay: Duration, _ body: @escaping (FaultRun) -> Void) {
        // Until it has begun, the run is kept by its alarms.
        if let alarm = simulator?.afterAlways(delay, { body(self) }) { alarms.append(alarm) }
    }

    private func begin(_ step: FaultPlan.Step, _ number: Int) {
        guard let simulator else { return }
        note("\(step)")
        if let undo = perform(step, number, simulator) {
            undos[number] = undo
            inEffect[step.fault, default: 0] += 1
        }
        // What the step has led to may have stopped the run.
        if isStopped { undo(number) }
        guard let period = step.period else { return ended() }
        after(period) { run in
            if run.undo(number) { run.note("at \((step.start + period).inSeconds): no longer: \(step.fault)") }
            run.ended()
        }
    }

    /// - Returns: Whether there was anything to undo.
    @discardableResult private func undo(_ number: Int) -> Bool {
        guard let undo = undos.removeValue(forKey: number) else { return false }
        let fault = plan.steps[number].fault
        inEffect[fault, default: 1] -= 1
        switch fault {
        case .failReads, .failWrites: undo()  // knows whether it is this step's
        default: if inEffect[fault] == 0 { undo() }  // it may be in effect by another step as well
        }
        return true
    }

    private func ended() {
        guard !isStopped else { return }
        pending -= 1
        finish()
    }

    private func finish() {
        guard pending == 0 else { return }
        let waiting = waiting
        self.waiting = []
        for continuation in waiting { continuation.resume() }
    }

    private func note(_ text: String) { noted.append(text) }

    /// - Returns: What undoes it.
    private func perform(_ step: FaultPlan.Step, _ number: Int, _ simulator: Simulator) -> (() -> Void)? {
        let peripherals = peripherals
        func forAll(_ body: (VirtualPeripheral) -> Void) { peripherals.forEach(body) }
        switch step.fault {
        case .vanish:
            forAll { $0.vanish() }
            return { for peripheral in peripherals { peripheral.comeBack() } }
        case .comeBack: forAll { $0.comeBack() }
        case .disconnect: forAll { $0.disconnect() }
        case .refuseLinks:
            forAll { $0.refusesLinks = true }
            return { for peripheral in peripherals { peripheral.refusesLinks = false } }
        case .rssi(nil, let end): forAll { $0.rssi = end }
        case .rssi(let begin?, let end): walk(from: begin, to: end, over: step.period ?? .zero, number)
        case .failReads(let part, let failure): return fail(\.reads, part, failure, "read", number)
        case .failWrites(let part, let failure): return fail(\.writes, part, failure, "write", number)
        case .hangDaemon:
            simulator.hangDaemon()
            return { [weak simulator] in simulator?.continueDaemon() }
        case .crashDaemon:
            simulator.killDaemon()
            return { [weak simulator] in simulator?.beginDaemon() }
        case .powerOff(let index):
            simulator.setPowered(false, adapter: index)
            return { [weak simulator] in simulator?.setPowered(true, adapter: index) }
        case .unplug(let index):
            simulator.unplugAdapter(index)
            return { [weak simulator] in simulator?.plugAdapter(index) }
        }
        return nil
    }

    /// Each step has numbers of its own, so that others do not change what it decides.
    private func seed(_ number: Int) -> UInt64 { plan.seed &* 1_000_003 &+ UInt64(number) }

    private func fail(
        _ kind: WritableKeyPath<PeripheralFaults, PeripheralFaults.Chance?>, _ part: Double, _ failure: ATTFailure,
        _ what: String, _ number: Int
    ) -> () -> Void {
        let chance = PeripheralFaults.Chance(part, failure, seed: seed(number)) { [weak self] uuid in
            self?.note("\(what) of \(UUIDText.short(uuid)) failed")
        }
        let peripherals = peripherals
        for peripheral in peripherals { peripheral.sync { peripheral.faults[keyPath: kind] = chance } }
        return {
            for peripheral in peripherals {
                peripheral.sync {
                    // Another step may have its own by now.
                    if peripheral.faults[keyPath: kind] === chance { peripheral.faults[keyPath: kind] = nil }
                }
            }
        }
    }

    private func walk(from begin: Int16, to end: Int16, over period: Duration, _ number: Int) {
        var random = SeededGenerator(seed: seed(number))
        let count = max(1, abs(Int(end) - Int(begin)))
        for step in 0...count {
            let middle = Int(begin) + (Int(end) - Int(begin)) * step / count
            let beside = step == 0 || step == count ? 0 : Int.random(in: -2...2, using: &random)
            let strength = Int16(clamping: min(max(middle + beside, -127), 20))
            after(period * (Double(step) / Double(count))) { run in
                for peripheral in run.peripherals { peripheral.rssi = strength }
            }
        }
    }
}
