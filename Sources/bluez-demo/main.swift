import Glibc

// A reader that is gone is an error of the write, also of a text that is written before a command runs.
signal(SIGPIPE, SIG_IGN)
// Likewise a file that has become as large as this process may make one.
signal(SIGXFSZ, SIG_IGN)
guard Terminal.openMissing() else {
    Terminal.write(
        "bluez-demo: standard output is closed; >/dev/null discards what is written to it\n", to: STDERR_FILENO)
    exit(ExitStatus.failure.rawValue)
}

/// Runs a command with the requested output.
/// - Parameter identifier: Under which it preserves its state.
func run(
    _ common: CommonOptions, restore identifier: String? = nil,
    _ command: (Output) throws(CardFile.Failure) -> any Command
) -> Never {
    let output = Output(isJSON: common.isJSON)
    do throws(CardFile.Failure) {
        Program.run(try command(output), output: output, preserves: identifier != nil)
    } catch {
        output.complain(error.message)
        Program.quit(.failure)
    }
}

do {
    switch try Invocation(Array(CommandLine.arguments.dropFirst())) {
    case .help(let name):
        let specs = name.map { name in CommandSpec.all.filter { $0.name == name || $0.name.hasPrefix(name + " ") } }
        Program.print(specs.map { $0.map(HelpText().of).joined(separator: "\n\n") } ?? HelpText().general)
    case .manual: Program.print(ManualPage(version: Program.version).text)
    case .completions(let shell): Program.print(shell.script)
    case .nothing:
        Terminal.write(HelpText().general + "\n", to: STDERR_FILENO)
        exit(ExitStatus.usage.rawValue)
    case .version: Program.print("bluez-demo \(Program.version)")
    case .scan(let options, let common):
        run(common) { ScanCommand(options, common: common, output: $0) }
    case .heartRate(let options, let common):
        run(common, restore: options.restore) { HeartRateCommand(options, common: common, output: $0) }
    case .inspect(let options, let common):
        run(common) { InspectCommand(options, common: common, output: $0) }
    case .record(let options, let common):
        run(common) { (output) throws(CardFile.Failure) in
            options.sources.isEmpty
                ? try RecordCommand(options, common: common, output: output) as any Command
                : try ImportCommand(options, output: output)
        }
    case .state(let options, let common):
        run(common) { StateCommand(options, output: $0) }
    case .doctor(let common):
        run(common) { DoctorCommand(common: common, output: $0) }
    case .virtualHeartRate(let options, let common):
        run(common) { VirtualHeartRateCommand(options, common: common, output: $0) }
    case .cardShare(let options, let common):
        run(common) { (output) throws(CardFile.Failure) in
            try CardShareCommand(options, common: common, output: output)
        }
    case .cardReceive(let options, let common):
        run(common) { (output) throws(CardFile.Failure) in
            try CardReceiveCommand(options, common: common, output: output)
        }
    case .transfer(let options, let common):
        run(common, restore: options.restore) { (output) throws(CardFile.Failure) in
            try TransferCommand.make(options, common: common, output: output)
        }
    case .notifications(let options, let common):
        run(common) { NotificationsCommand(options, common: common, output: $0) }
    case .ladder(let options, let common):
        run(common) { LadderCommand.make(options, common: common, output: $0) }
    case .trace(let options, let common):
        run(common) { TraceCommand(options, output: $0) }
    case .simulate(let options, let common):
        run(common) { (output) throws(CardFile.Failure) in try SimulateCommand(options, output: output) }
    }
} catch {
    if CommandLine.arguments.contains("--json") { Output(isJSON: true).report(.error(error.message)) }
    let help = error.command.map { "bluez-demo \($0) --help" } ?? "bluez-demo --help"
    Terminal.write("bluez-demo: \(error.message.harmless)\nSee `\(help)`.\n", to: STDERR_FILENO)
    exit(ExitStatus.usage.rawValue)
}
