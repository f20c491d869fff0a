import BluezKit
import BluezDBus
import Dispatch
import Foundation

/// Shared by the commands that use a manager: its state, its bus, and how they end.
class ManagerCommand: NSObject, Command {
    /// How long it may take until Bluetooth is on, in seconds: longer than bluetoothd needs to start.
    private static let patience = 20.0
    /// How long it may take to end a link, in seconds. BlueZ waits two seconds before it does so (src/device.c,
    /// `DISCONNECT_TIMER`), which GLib makes up to 2.75. A peer that does not answer then is given up after the
    /// supervision timeout: 0.42 s as Linux has it, 6 s at most as Apple has peripherals ask for it.
    static let linkEnd = 9.0
    /// How long it takes as a rule, in seconds.
    private static let usualLinkEnd = 3.0

    let output: Output
    private let common: CommonOptions
    private var simulatedBus: SimulatedBus?
    private var hasBeenOn = false
    private var state = CBManagerState.unknown
    private(set) var ending: ExitStatus?

    init(common: CommonOptions, output: Output) {
        (self.common, self.output) = (common, output)
        super.init()
    }

    // MARK: For subclasses

    /// The scenario of `--simulated`.
    var simulatedScenario: Scenario { .heartRate }
    /// `--timeout` or `--duration`, in seconds: also how long it may take until Bluetooth is on, if that is less than
    /// usual.
    var timeLimit: Double? { nil }
    /// Whether it continues when Bluetooth has been off and is on again. If not, ``bluetoothWentOff()`` ends it.
    var waitsForBluetooth: Bool { true }
    /// Creates the manager, on the main queue, with these options and its own.
    func makeManager(_ options: [String: Any]) {}
    /// The state became `.poweredOn`: for the first time, or again after ``bluetoothWentOff()``.
    func bluetoothIsOn() {}
    /// The state is no longer `.poweredOn`. Links, scans and advertisements have ended, without another callback.
    func bluetoothWentOff() {}
    /// Shows the final output, and starts ending whatever must be ended first.
    /// - Returns: Whether ``quit()`` will be called soon, when that has finished.
    func end() -> Bool { false }

    /// What ``end()`` waited for has finished.
    func quit() {
        // The simulated bus ends with the process, not before, so that its end is not visible.
        Program.quit(ending ?? .failure)
    }

    // MARK: Command

    func start() {
        guard common.isSimulated else { return useBus([:]) }
        SimulatedBus.start(simulatedScenario) { [self] result in
            switch result {
            case .success(let bus):
                simulatedBus = bus
                useBus([BluezManagerOptionBusAddressKey: bus.address])
            case .failure(let error):
                output.complain("the simulator cannot be started: \(error)")
                stop(.failure)
            }
        }
    }

    private func useBus(_ world: [String: Any]) {
        guard ending == nil else { return }
        var options = world
        if let adapter = common.adapter { options[BluezManagerOptionAdapterKey] = adapter }
        makeManager(options)
        // A bluetoothd that does not answer has no state.
        // And a slow machine needs a moment.
        after(min(max(timeLimit ?? .infinity, 2), Self.patience)) { command in
            if command.ending == nil, !command.hasBeenOn { command.explain(command.state) }
        }
    }

    func stop(_ status: ExitStatus) {
        guard ending == nil else { return }
        ending = status
        guard end() else { return quit() }
        after(Self.usualLinkEnd) { command in
            let remedy = status == .interrupted ? " Ctrl-C exits at once." : ""
            command.output.say(Line("Waiting for the link to end." + remedy, .dim))
        }
        after(Self.linkEnd) { $0.quit() }  // the daemon does not answer: exit anyway
    }

    /// How long another device may be silent, in seconds: as usual, unless a test chooses.
    static func silence(_ usual: Double, chosen: String? = environment("BLUEZ_DEMO_SILENCE")) -> Double {
        guard let seconds = chosen.flatMap({ UInt16($0) }), seconds > 0 else { return usual }
        return Double(seconds)
    }

    /// Runs a closure later, unless the command was released.
    func after(_ seconds: Double, _ body: @escaping (ManagerCommand) -> Void) {
        DispatchQueue.main.later(.seconds(seconds)) { [weak self] in
            if let self { body(self) }
        }
    }

    /// Ends when `moves` has stayed the same for so many seconds; nil: never.
    func endWhenStill(for seconds: Double?, _ remedy: String, _ moves: @escaping () -> Int) {
        guard let seconds else { return }
        var (known, since) = (moves(), ContinuousClock.now)
        func look() {
            after(seconds / 10) { command in
                guard command.ending == nil else { return }
                if moves() != known { (known, since) = (moves(), .now) }
                if since.duration(to: .now) < .seconds(seconds) { return look() }
                command.timeIsUp("nothing has moved for \(JSONValue.double(seconds)) s; \(remedy)")
            }
        }
        look()
    }

    // MARK: State

    /// The manager's state has changed.
    func take(_ state: CBManagerState) {
        guard ending == nil else {
            // The link whose end it waits for has ended, without another callback.
            if state != .poweredOn { after(0) { $0.quit() } }
            return
        }
        self.state = state
        output.report(.state("\(state)"))
        switch state {
        case .poweredOn:
            if hasBeenOn { output.say("Bluetooth is back.") }
            hasBeenOn = true
            bluetoothIsOn()
        case .unknown: break
        case .resetting where !hasBeenOn: break
        default:
            guard hasBeenOn else { return explain(state) }
            if waitsForBluetooth { output.say(Line(Self.news(state), .yellow)) }
            bluetoothWentOff()
        }
    }

    /// A time limit is over: ends, with this sentence, or with the reason why Bluetooth was not on in that time.
    func timeIsUp(_ sentence: String) {
        guard ending == nil else { return }
        guard hasBeenOn else { return explain(state, orElse: sentence) }
        output.complain(sentence)
        stop(.failure)
    }

    /// Reports why Bluetooth cannot be used, and ends, unless it is on by then.
    /// - Parameter sentence: Ends in that case as well, with this sentence.
    private func explain(_ state: CBManagerState, orElse sentence: String? = nil) {
        let address = simulatedBus.map { BusAddress($0.address) } ?? .system
        Surroundings.examine(address, adapter: common.adapter, onlyBus: true) { [self] surroundings in
            guard ending == nil else { return }
            guard !hasBeenOn else {
                if let sentence { timeIsUp(sentence) }
                return
            }
            let problem = DoctorReport(surroundings).checks.first { $0.verdict == .problem }
            output.complain(problem?.sentence ?? Self.sentence(state) + ". Run `bluez-demo doctor` for details.")
            stop(.unavailable)
        }
    }

    private static func sentence(_ state: CBManagerState) -> String {
        switch state {
        case .unauthorized: "this user may not use Bluetooth"
        case .poweredOff: "Bluetooth is switched off"
        case .resetting: "bluetoothd or the adapter is not available"
        case .unknown: "Bluetooth is not ready yet"
        default: "there is no Bluetooth adapter that can be used"
        }
    }

    /// The same for a state that follows `.poweredOn`.
    private static func news(_ state: CBManagerState) -> String {
        switch state {
        case .unauthorized: "This user is no longer allowed to use Bluetooth. Waiting."
        case .poweredOff: "Bluetooth was switched off. Waiting until it is on again."
        case .resetting: "bluetoothd or the adapter is not available. Waiting for it."
        default: "It is not available yet. Still waiting."
        }
    }
}

extension Error {
    /// One sentence, without a full stop. Some errors quote what another device has sent.
    var sentence: String {
        let text = (self as NSError).localizedDescription.harmless
        return text.hasSuffix(".") ? String(text.dropLast()) : text
    }
}
