/// Reports whether Bluetooth works, and what to do if it does not.
final class DoctorCommand: Command {
    private let common: CommonOptions
    private let output: Output

    init(common: CommonOptions, output: Output) { (self.common, self.output) = (common, output) }

    func start() {
        Surroundings.examine(adapter: common.adapter, onlyBus: false) { [self] surroundings in
            let report = DoctorReport(surroundings)
            for check in report.checks {
                output.report(.check(check))
                output.say(check.line, indent: DoctorCheck.indent)
                if let remedy = check.remedyLine { output.say(remedy, indent: DoctorCheck.indent + 3) }
            }
            output.report(.verdict(isUsable: report.isUsable))
            output.say("")
            output.say(
                report.isUsable
                    ? Line("Bluetooth is usable.", .green) + " Next: bluez-demo scan"
                    : Line("Bluetooth is not usable yet.", .red) + " Without it: bluez-demo heart-rate --simulated")
            Program.quit(report.isUsable ? .success : .unavailable)
        }
    }

    func stop(_ status: ExitStatus) { Program.quit(status) }
}
