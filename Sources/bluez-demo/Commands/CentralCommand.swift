import BluezKit
import DBus
import Dispatch
import Foundation

/// What the commands that talk to devices share: the manager, its state, and how they end.
class CentralCommand: NSObject, Command, CBCentralManagerDelegate {
    let output: Output
    private let common: CommonOptions
    private(set) var central: CBCentralManager?
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
    /// What the manager is made with, beside the bus and the adapter.
    var managerOptions: [String: Any] { [:] }
    /// The state became `.poweredOn`: the first time, or again after ``bluetoothWentOff()``.
    func bluetoothIsOn(_ central: CBCentralManager) {}
    /// It was on and is not any more. Links and scans have ended, without another callback.
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
        guard common.isSimulated else { return makeManager([:]) }
        SimulatedBus.start(simulatedScenario) { [self] result in
            switch result {
            case .success(let bus):
                simulatedBus = bus
                makeManager([BluezManagerOptionBusAddressKey: bus.address])
            case .failure(let error):
                output.complain("the simulator cannot be started: \(error)")
                stop(.failure)
            }
        }
    }

    private func makeManager(_ world: [String: Any]) {
        guard ending == nil else { return }
        var options = world.merging(managerOptions) { $1 }
        if let adapter = common.adapter { options[BluezManagerOptionAdapterKey] = adapter }
        central = CBCentralManager(delegate: self, queue: .main, options: options)
    }

    func stop(_ status: ExitStatus) {
        guard ending == nil else { return }
        ending = status
        guard end() else { return quit() }
        after(3) { $0.quit() }  // the daemon does not answer: leave all the same
    }

    /// Does something later, unless the command is gone.
    func after(_ seconds: Double, _ body: @escaping (CentralCommand) -> Void) {
        DispatchQueue.main.later(.seconds(seconds)) { [weak self] in
            if let self { body(self) }
        }
    }

    // MARK: State

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        guard ending == nil else { return }
        output.report(.state("\(central.state)"))
        switch central.state {
        case .poweredOn:
            if hasBeenOn { output.say("Bluetooth is back.") }
            hasBeenOn = true
            bluetoothIsOn(central)
        case .unknown: break
        case .resetting where !hasBeenOn: break
        default:
            guard hasBeenOn else { return explain(central.state) }
            output.say(Line(Self.news(central.state), .yellow))
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

    // MARK: Restoration and links; subclasses override what they need

    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {}
    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {}
    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {}
    func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {}
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {}
}

extension Error {
    /// One sentence, without the full stop.
    var sentence: String {
        let text = (self as NSError).localizedDescription
        return text.hasSuffix(".") ? String(text.dropLast()) : text
    }
}
