/// The manual page, bluez-demo(1), from the table of commands. In the language of man(7).
struct ManualPage {
    let version: String

    var text: String {
        let header = [
            ".\\\" Made by `bluez-demo help --manual`: a change belongs to its sources.",
            ".TH BLUEZ-DEMO 1 \"\" \"BluezKit \(version)\" \"User Commands\"",
            ".SH NAME", "bluez-demo \\- " + escaped(HelpText.about),
            ".SH SYNOPSIS", ".B bluez-demo", ".I COMMAND", "[\\fIOPTION\\fR]...",
            ".SH DESCRIPTION", paragraph(HelpText.beginning),
        ]
        let options =
            [".SH OPTIONS OF MOST COMMANDS", "Before or after the name of the command:"]
            + (CommandSpec.common + [CommandSpec.version]).flatMap(entry)
        let commands = [".SH COMMANDS"] + CommandSpec.all.flatMap(section)
        let end = [
            ".SH EXIT STATUS", paragraph(HelpText.exitStatus),
            ".SH SEE ALSO", ".BR bluetoothctl (1),", ".BR bluetoothd (8)", ".br",
            "The guides of BluezKit, of which this program is a part.",
        ]
        return (header + commands + options + end).joined(separator: "\n")
    }

    private func section(_ spec: CommandSpec) -> [String] {
        var lines = [
            ".SS " + quoted("bluez-demo " + spec.name + (spec.operand.map { " " + $0 } ?? "") + " [OPTION]...")
        ]
        lines.append(paragraph(spec.summary.prefix(1).uppercased() + spec.summary.dropFirst() + "."))
        if spec.name == "simulate" { lines += Scenario.all.flatMap { entry($0.usage, $0.summary) } }
        lines += spec.options.filter { option in !CommandSpec.common.contains { $0.name == option.name } }.flatMap(
            entry)
        if !spec.notes.isEmpty { lines += [".PP", paragraph(spec.notes)] }
        return lines
    }

    private func entry(_ option: OptionSpec) -> [String] {
        guard let value = option.value else { return entry(option.name, option.help) }
        let name = "\\fB\(escaped(option.name))\\fR"
        let shown = option.defaultValue == nil ? "\\fI\(value)\\fR" : "[\\fI\(value)\\fR]"
        return [".TP", "\(name) \(shown)", paragraph(option.help)]
    }

    private func entry(_ name: String, _ about: String) -> [String] {
        [".TP", "\\fB\(escaped(name))\\fR", paragraph(about)]
    }

    /// What stands between grave accents is bold.
    private func paragraph(_ text: String) -> String {
        let parts = escaped(text.split(separator: "\n").joined(separator: " ")).split(
            separator: "`", omittingEmptySubsequences: false)
        let bold = parts.enumerated().map { $0.offset % 2 == 0 ? String($0.element) : "\\fB\($0.element)\\fR" }.joined()
        return bold.hasPrefix(".") || bold.hasPrefix("'") ? "\\&" + bold : bold
    }

    private func quoted(_ text: String) -> String { "\"" + escaped(text) + "\"" }

    private func escaped(_ text: String) -> String {
        text.map { character in
            switch character {
            case "\\": "\\e"
            case "-": "\\-"
            case "\"": "\\(dq"
            default: String(character)
            }
        }.joined()
    }
}
