import BluezKit
import BluezDBus
import Dispatch
import Foundation

/// What the commands that use a manager share: its state, where its bus is, and how they end.
class ManagerCommand: NSObject, Command {
    let output: Output
    private let common: CommonOptions
    private var simulatedBus: SimulatedBus?
    private var hasBeenOn = false
    private(set) var ending: ExitStatus?

    init(common: CommonOptions, output: Output) {
        (self.common, self.output) = (common, output)
        super.init()
    }

    // MARK: For subclasses

    /// What `--simulated` simulates.
    var simulatedScenario: Scenario { .heartRate }
    /// Makes the manager, on the main queue, with these options and its own.
    func makeManager(_ options: [String: Any]) {}
    /// The state became `.poweredOn`: the first time, or again after ``bluetoothWentOff()``.
    func bluetoothIsOn() {}
    /// It was on and is not any more. Links, scans and advertisements have ended, without another callback.
    func bluetoothWentOff() {}
    /// The last picture, and whatever has to be ended first.
    /// - Returns: Whether ``quit()`` will be called, soon, when that is done.
    func end() -> Bool { false }

    /// What ``end()`` waited for is done.
    func quit() {
        // The simulated bus ends with the process, not before: nobody is to see it go.
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
    }

    func stop(_ status: ExitStatus) {
        guard ending == nil else { return }
        ending = status
        guard end() else { return quit() }
        after(3) { $0.quit() }  // the daemon does not answer: leave all the same
    }

    /// Does something later, unless the command is gone.
    func after(_ seconds: Double, _ body: @escaping (ManagerCommand) -> Void) {
        DispatchQueue.main.later(.seconds(seconds)) { [weak self] in
            if let self { body(self) }
        }
    }

    // MARK: State

    /// The manager's state is another one.
    func take(_ state: CBManagerState) {
        guard ending == nil else { return }
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
            output.say(Line(Self.news(state), .yellow))
            bluetoothWentOff()
        }
    }

    /// Says why Bluetooth cannot be used, and ends.
    private func explain(_ state: CBManagerState) {
        let address = simulatedBus.map { BusAddress($0.address) } ?? .system
        Surroundings.examine(address, adapter: common.adapter, onlyBus: true) { [self] surroundings in
            let problem = DoctorReport(surroundings).checks.first { $0.verdict == .problem }
            output.complain(problem?.sentence ?? Self.sentence(state) + ". `bluez-demo doctor` says more.")
            stop(.unavailable)
        }
    }

    private static func sentence(_ state: CBManagerState) -> String {
        switch state {
        case .unauthorized: "this user may not use Bluetooth"
        case .poweredOff: "Bluetooth is switched off"
        case .resetting: "bluetoothd or the adapter has gone"
        default: "there is no Bluetooth adapter that can be used"
        }
    }

    /// The same of a state that was `.poweredOn` before.
    private static func news(_ state: CBManagerState) -> String {
        switch state {
        case .unauthorized: "This user may not use Bluetooth any more. Waiting."
        case .poweredOff: "Bluetooth was switched off. Waiting until it is on again."
        case .resetting: "bluetoothd or the adapter has gone. Waiting for it."
        default: "It has not come back yet. Still waiting."
        }
    }
}

extension Error {
    /// One sentence, without the full stop.
    var sentence: String {
        let text = (self as NSError).localizedDescription
        return text.hasSuffix(".") ? String(text.dropLast()) : text
    }
}
