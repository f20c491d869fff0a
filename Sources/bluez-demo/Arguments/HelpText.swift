import Foundation

/// The texts of `--help`.
enum HelpText {
    static let general = """
        bluez-demo: a tour of BluezKit, CoreBluetooth for Linux

        usage: bluez-demo COMMAND [OPTION]...

        \(table(CommandSpec.all.map { ($0.name, $0.summary) }))

        options of most commands, before or after its name
        \(table(CommandSpec.common.map { (usage($0), $0.help) }))

        Begin with `bluez-demo heart-rate`; without a Bluetooth adapter: `bluez-demo heart-rate --simulated`; with two
        machines: `bluez-demo peripheral heart-rate` on one of them, `bluez-demo heart-rate` on the other.
        `bluez-demo COMMAND --help` says more. If nothing works: `bluez-demo doctor`.
        Exit status: 0 done, 1 failed, 2 wrong usage, 3 Bluetooth not available, 130 interrupted (Ctrl-C).
        """

    static func of(_ spec: CommandSpec) -> String {
        var parts = [
            "bluez-demo \(spec.name): \(spec.summary)",
            "usage: bluez-demo \(spec.name)" + (spec.operand.map { " " + $0 } ?? "") + " [OPTION]...",
        ]
        if spec.name == "simulate" { parts.append("scenarios\n" + scenarios) }
        parts.append("options\n" + table(spec.options.map { (usage($0), $0.help) }))
        if !spec.notes.isEmpty { parts.append(spec.notes) }
        return parts.joined(separator: "\n\n")
    }

    private static let scenarios = table(Scenario.all.map { ($0.usage, $0.summary) })

    private static func usage(_ option: OptionSpec) -> String {
        option.name + (option.value.map { option.defaultValue == nil ? " " + $0 : " [\($0)]" } ?? "")
    }

    private static func table(_ rows: [(String, String)]) -> String {
        let width = rows.map(\.0.count).max() ?? 0
        return rows.map { "  " + $0.padding(toLength: width, withPad: " ", startingAt: 0) + "  " + $1 }
            .joined(separator: "\n")
    }
}
