import Glibc

do {
    switch try Invocation(Array(CommandLine.arguments.dropFirst())) {
    case .help(let name):
        let spec = CommandSpec.all.first { $0.name == name }
        print(spec.map(HelpText.of) ?? HelpText.general)
    case .version: print("bluez-demo \(Program.version)")
    case .scan(let options, let common):
        let output = Output(isJSON: common.isJSON)
        Program.run(ScanCommand(options, common: common, output: output), output: output)
    case .heartRate(let options, let common):
        let output = Output(isJSON: common.isJSON)
        Program.run(HeartRateCommand(options, common: common, output: output), output: output)
    case .inspect(let options, let common):
        let output = Output(isJSON: common.isJSON)
        Program.run(InspectCommand(options, common: common, output: output), output: output)
    case .state(let options, let common):
        let output = Output(isJSON: common.isJSON)
        Program.run(StateCommand(options, output: output), output: output)
    case .doctor(let common):
        let output = Output(isJSON: common.isJSON)
        Program.run(DoctorCommand(common: common, output: output), output: output)
    case .virtualHeartRate(let options, let common):
        let output = Output(isJSON: common.isJSON)
        Program.run(VirtualHeartRateCommand(options, common: common, output: output), output: output)
    case .cardShare(let options, let common):
        let output = Output(isJSON: common.isJSON)
        Program.run(CardShareCommand(options, common: common, output: output), output: output)
    case .cardReceive(let options, let common):
        let output = Output(isJSON: common.isJSON)
        Program.run(CardReceiveCommand(options, common: common, output: output), output: output)
    case .simulate(let options, let common):
        let output = Output(isJSON: common.isJSON)
        Program.run(SimulateCommand(options, output: output), output: output)
    }
} catch {
    let help = error.command.map { "bluez-demo \($0) --help" } ?? "bluez-demo --help"
    Terminal.write("bluez-demo: \(error.message)\nSee `\(help)`.\n", to: STDERR_FILENO)
    exit(ExitStatus.usage.rawValue)
}
