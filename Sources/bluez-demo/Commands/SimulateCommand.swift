import BluezKitSimulator
import Dispatch
import Glibc

/// Provides simulated devices until it is stopped.
final class SimulateCommand: Command {
    private let options: SimulateOptions
    private let output: Output
    private let scenario: Scenario
    private var bus: SimulatedBus?
    private var input: (any DispatchSourceRead)?

    init(_ options: SimulateOptions, output: Output) throws(CardFile.Failure) {
        (self.options, self.output) = (options, output)
        var recordings: [Recording] = []
        for path in options.recordings { recordings.append(try RecordingFile.read(path)) }
        scenario = recordings.isEmpty ? options.scenario : .recordings(recordings, options.pace)
    }

    func start() {
        if options.isList {
            for scenario in Scenario.all {
                output.report(.scenario(scenario))
                output.say(Line(scenario.usage, .bold) + Line(": " + scenario.summary))
            }
            Program.quit(.success)
        }
        SimulatedBus.start(scenario) { [self] result in
            switch result {
            case .success(let bus):
                self.bus = bus
                output.report(.simulating(scenario, address: bus.address))
                // On a line of its own, for scripts and for copying.
                output.say(Line("DBUS_SYSTEM_BUS_ADDRESS=\(bus.address)"))
                for line in Self.instructions { output.say(Line(line, .dim)) }
                if case .recordings = scenario { watch(bus) }
            case .failure(let error):
                output.complain("the simulator cannot be started: \(error)")
                Program.quit(.failure)
            }
        }
    }

    func stop(_ status: ExitStatus) { Program.quit(status) }

    // MARK: Recordings

    private func watch(_ bus: SimulatedBus) {
        // holds: it is used on the main queue alone
        nonisolated(unsafe) let tell = { [weak self] (device: String, text: String) in
            self?.output.report(.deviation(device: device, text))
            self?.output.say(Line("Not in the recording of \(device): \(text.harmless)", .yellow))
        }
        bus.onDeviation { tell($0, $1) }
        guard options.pace == .stepwise else { return }
        output.say("Enter sends the next notification.")
        let input = DispatchSource.makeReadSource(fileDescriptor: STDIN_FILENO, queue: .main)
        input.setEventHandler { [weak self] in self?.takeInput() }
        input.activate()
        self.input = input
    }

    private func takeInput() {
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = read(STDIN_FILENO, &bytes, bytes.count)
        guard count > 0 else {
            if count == 0 || errno != EINTR && errno != EAGAIN { input?.cancel() }
            return
        }
        for byte in bytes.prefix(count) where byte == UInt8(ascii: "\n") {
            if bus?.replayNext() != true {
                output.say(Line("Nothing was sent: none is left, or no central is subscribed.", .dim))
            }
        }
    }

    private static let instructions = [
        "",
        "Simulated devices are on this bus. Put the line above before any BlueZ program in another terminal:",
        "  DBUS_SYSTEM_BUS_ADDRESS=... bluez-demo scan",
        "  DBUS_SYSTEM_BUS_ADDRESS=... bluez-demo heart-rate",
        "  DBUS_SYSTEM_BUS_ADDRESS=... bluetoothctl devices",
        "Ctrl-C ends it.",
    ]
}
