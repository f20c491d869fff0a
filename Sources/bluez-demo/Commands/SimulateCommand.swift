/// Provides simulated devices until it is stopped.
final class SimulateCommand: Command {
    private let options: SimulateOptions
    private let output: Output
    private var bus: SimulatedBus?

    init(_ options: SimulateOptions, output: Output) { (self.options, self.output) = (options, output) }

    func start() {
        if options.isList {
            for scenario in Scenario.all {
                output.report(.scenario(scenario))
                output.say(Line(scenario.usage, .bold) + Line(": " + scenario.summary))
            }
            Program.quit(.success)
        }
        SimulatedBus.start(options.scenario) { [self] result in
            switch result {
            case .success(let bus):
                self.bus = bus
                output.report(.simulating(options.scenario, address: bus.address))
                // On a line of its own, for scripts and for copying.
                output.say(Line("DBUS_SYSTEM_BUS_ADDRESS=\(bus.address)"))
                for line in Self.instructions { output.say(Line(line, .dim)) }
            case .failure(let error):
                output.complain("the simulator cannot be started: \(error)")
                Program.quit(.failure)
            }
        }
    }

    func stop(_ status: ExitStatus) { Program.quit(status) }

    private static let instructions = [
        "",
        "Simulated devices are on this bus. Put the line above before any BlueZ program in another terminal:",
        "  DBUS_SYSTEM_BUS_ADDRESS=... bluez-demo scan",
        "  DBUS_SYSTEM_BUS_ADDRESS=... bluez-demo heart-rate",
        "  DBUS_SYSTEM_BUS_ADDRESS=... bluetoothctl devices",
        "Ctrl-C ends it.",
    ]
}
