import Foundation

/// The texts of `--help`, in lines of at most `width` columns.
struct HelpText {
    let width: Int

    init(width: Int = min(Terminal.size.columns, 100)) { self.width = width }

    static let about = "a tour of BluezKit, CoreBluetooth for Linux"
    static let beginning = """
        Begin with `bluez-demo heart-rate`; without a Bluetooth adapter: `bluez-demo heart-rate --simulated`; with \
        two machines: `bluez-demo peripheral heart-rate` on one of them, `bluez-demo heart-rate` on the other. \
        `bluez-demo COMMAND --help` says more. If nothing works: `bluez-demo doctor`.
        """
    static let exitStatus = """
        Exit status: 0 done, 1 failed, 2 wrong usage, 3 Bluetooth not available, 130 interrupted (Ctrl-C).
        """

    /// About all commands.
    var general: String {
        let options = CommandSpec.common + [CommandSpec.version]
        return [
            text("bluez-demo: " + Self.about),
            "usage: bluez-demo COMMAND [OPTION]...",
            table(CommandSpec.all.map { ($0.name, $0.summary) }),
            text("options of most commands, before or after its name") + "\n"
                + table(options.map { (Self.usage($0), $0.help) }),
            text(Self.beginning), text(Self.exitStatus),
        ].joined(separator: "\n\n")
    }

    func of(_ spec: CommandSpec) -> String {
        var parts = [
            text("bluez-demo \(spec.name): \(spec.summary)"),
            text("usage: bluez-demo \(spec.name)" + (spec.operand.map { " " + $0 } ?? "") + " [OPTION]..."),
        ]
        if spec.name == "simulate" {
            parts.append("scenarios\n" + table(Scenario.all.map { ($0.usage, $0.summary) }))
        }
        parts.append("options\n" + table(spec.options.map { (Self.usage($0), $0.help) }))
        if !spec.notes.isEmpty { parts.append(text(spec.notes)) }
        return parts.joined(separator: "\n\n")
    }

    private static func usage(_ option: OptionSpec) -> String {
        option.name + (option.value.map { option.defaultValue == nil ? " " + $0 : " [\($0)]" } ?? "")
    }

    private func text(_ paragraph: String) -> String {
        wrapped(paragraph.replacingOccurrences(of: "\n", with: " "), indent: 0)
    }

    private func wrapped(_ text: String, indent: Int) -> String {
        Line(text).wrapped(to: width, indent: indent).map(\.text).joined(separator: "\n")
    }

    /// Two columns; where they would be too narrow, one below the other.
    private func table(_ rows: [(String, String)]) -> String {
        let first = (rows.map(\.0.count).max() ?? 0) + 4
        return rows.map { name, about in
            let name = "  " + name
            guard width - first >= 30 else { return name + "\n" + wrapped("      " + about, indent: 6) }
            return wrapped(name.padding(toLength: first, withPad: " ", startingAt: 0) + about, indent: first)
        }.joined(separator: "\n")
    }
}
