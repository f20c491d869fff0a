/// One line of the doctor's report.
struct DoctorCheck: Equatable {
    enum Verdict: String { case ok, warning, problem }

    /// For programs; stable: `bus`, `daemon`, ...
    let name: String
    let verdict: Verdict
    /// The finding, without a full stop.
    let finding: String
    /// What to do about it.
    var remedy: String?

    /// Both, when reported by another command.
    var sentence: String { finding + (remedy.map { ": " + $0 } ?? "") }

    var json: JSONValue {
        [
            "event": "check", "check": .string(name), "verdict": .string(verdict.rawValue),
            "finding": .string(finding), "remedy": .optional(remedy),
        ]
    }

    /// Where a finding begins.
    static let indent = 9

    var line: Line {
        let mark: Line =
            switch verdict {
            case .ok: Line("ok       ", .green)
            case .warning: Line("warning  ", .yellow)
            case .problem: Line("problem  ", .red)
            }
        return mark + Line(finding)
    }

    /// The second line, with the remedy if there is one.
    var remedyLine: Line? { remedy.map { Line(String(repeating: " ", count: Self.indent)) + Line("-> " + $0, .bold) } }
}
