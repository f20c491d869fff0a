import Foundation

/// The arguments of one command, separated into options and operands, not validated yet.
struct ParsedArguments: Equatable {
    private(set) var operands: [String] = []
    private var values: [String: [String]] = [:]
    private let command: String

    private static let short = ["-h": "--help", "-o": "--output"]

    /// Parses `--name VALUE`, `--name=VALUE`, `--flag`, and operands in between; after `--` all are operands.
    init(_ arguments: [String], of spec: CommandSpec) throws(UsageError) {
        command = spec.name
        var rest = arguments[...]
        while let argument = rest.popFirst() {
            if argument == "--" {
                operands += rest
                break
            }
            guard argument.hasPrefix("-"), argument != "-" else {
                operands.append(argument)
                continue
            }
            let parts = argument.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let name = Self.short[String(parts[0])] ?? String(parts[0])
            guard let option = spec.option(name) else {
                throw error("\(spec.name) has no option \(name)" + Self.suggestion(for: name, in: spec))
            }
            try take(option, attached: parts.count > 1 ? String(parts[1]) : nil, from: &rest)
        }
        for argument in arguments where argument.contains("\u{FFFD}") {
            // What the system has put in place of such bytes: the name of another file.
            throw error("'\(argument)' is not UTF-8; only names in UTF-8 can be used")
        }
        if operands.contains("") { throw error("an operand of \(spec.name) is empty") }
        if spec.operand == nil, let surplus = operands.first { throw error("\(spec.name) does not take '\(surplus)'") }
    }

    private mutating func take(
        _ option: OptionSpec, attached: String?, from rest: inout ArraySlice<String>
    ) throws(UsageError) {
        guard let kind = option.value else {
            if attached != nil { throw error("\(option.name) takes no value") }
            values[option.name] = []
            return
        }
        if let standard = option.defaultValue, attached == nil, rest.first?.hasPrefix("-") != false {
            rest = [standard] + rest
        }
        guard let value = attached ?? rest.popFirst(), !value.isEmpty, attached != nil || !value.hasPrefix("--") else {
            throw error("\(option.name) needs a value: \(option.name) \(kind)")
        }
        if values[option.name] != nil, !option.repeats { throw error("\(option.name) is given twice") }
        values[option.name, default: []].append(value)
    }

    /// An error about an argument.
    func error(_ message: String) -> UsageError { UsageError(message: message, command: command) }

    func has(_ option: OptionSpec) -> Bool { isGiven(option.name) }
    func isGiven(_ name: String) -> Bool { values[name] != nil }
    func all(_ name: String) -> [String] { values[name] ?? [] }
    func first(_ name: String) -> String? { values[name]?.first }

    /// A positive number of seconds.
    /// - Parameter orZero: Whether it may be 0.
    func seconds(_ name: String, orZero: Bool = false) throws(UsageError) -> Double? {
        guard let text = first(name) else { return nil }
        guard let seconds = Double(text), seconds.isFinite, seconds > 0 || orZero && seconds == 0, seconds <= 1e9 else {
            let range = orZero ? "from 0" : "above 0 and up"
            throw error("\(name) needs a number of seconds \(range) to 1000000000, not '\(text)'")
        }
        return seconds
    }

    /// A positive whole number.
    func count(_ name: String) throws(UsageError) -> Int? {
        try integer(name, in: 1...Int.max)
    }

    /// A whole number within a range.
    func integer(_ name: String, in range: ClosedRange<Int>) throws(UsageError) -> Int? {
        guard let text = first(name) else { return nil }
        return try integer(text, of: name, in: range)
    }

    func integer(_ text: String, of name: String, in range: ClosedRange<Int>) throws(UsageError) -> Int {
        guard let number = Int(text), range.contains(number) else {
            throw error("\(name) needs a number from \(range.lowerBound) to \(range.upperBound), not '\(text)'")
        }
        return number
    }

    func device(_ text: String) throws(UsageError) -> DeviceName {
        guard let device = DeviceName(text) else {
            throw error("'\(text)' is neither an identifier nor a Bluetooth address; `bluez-demo scan` shows them")
        }
        return device
    }

    private static func suggestion(for name: String, in spec: CommandSpec) -> String {
        if name == CommandSpec.simulated.name {
            // `state` reads files, and `simulate` is what the others would use.
            return spec.option(CommandSpec.adapter.name) == nil
                ? "; it needs no Bluetooth" : "; run it on the bus of `bluez-demo simulate`"
        }
        return Spelling.nearest(to: name, of: spec.options.map(\.name)).map { "; did you mean \($0)?" } ?? ""
    }
}
