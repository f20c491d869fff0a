import BluezKit
import Foundation

/// Shows preserved state and what a keeper does, or ends both.
final class StateCommand: Command {
    private let options: StateOptions
    private let output: Output

    init(_ options: StateOptions, output: Output) { (self.options, self.output) = (options, output) }

    func start() {
        if let directory = options.directory {
            var isDirectory: ObjCBool = false
            let exists = FileManager.default.fileExists(atPath: directory, isDirectory: &isDirectory)
            guard exists, isDirectory.boolValue else {
                output.complain(
                    exists ? "'\(directory)' is not a directory" : "there is no directory '\(directory)'")
                Program.quit(.failure)
            }
        }
        let place: [String: Any] = options.directory.map { [BluezManagerOptionStateDirectoryKey: $0] } ?? [:]
        if let identifier = options.discard { discard(identifier, place) }
        let states = BluezPreservedState.all(options: place).map(PreservedReport.init)
        if states.isEmpty { output.say("Nothing is preserved.") }
        for state in states {
            output.report(.preserved(state))
            for line in state.text { output.say(line) }
        }
        let isAnswered = showKeeper()
        Program.quit(isAnswered && states.allSatisfy { $0.identifier != nil } ? .success : .failure)
    }

    /// - Returns: Whether that could be found out.
    private func showKeeper() -> Bool {
        do {
            let kept = try Keeper.status()
            if kept == nil { output.say("No keeper is running.") }
            for status in kept ?? [] where options.directory.map(status.isIn) ?? true {
                let report = KeeperReport(status)
                output.report(.keeps(report))
                for line in report.text { output.say(line) }
            }
            return true
        } catch {
            output.complain("the keeper cannot be asked: \(error)")
            return false
        }
    }

    private func discard(_ identifier: String, _ place: [String: Any]) -> Never {
        func paths() -> Set<String> { Set(BluezPreservedState.all(options: place).map(\.path)) }
        let before = paths()
        var isDone = false
        for role in BluezPreservedState.Role.allCases {
            isDone = BluezPreservedState.discard(identifier, role, options: place) || isDone
        }
        guard isDone else {
            output.complain(
                "there is no state of '\(identifier)' to delete, or a running program uses it; "
                    + "`bluez-demo state` lists all")
            Program.quit(.failure)
        }
        do {
            let removed = before.subtracting(paths())
            for status in try Keeper.status() ?? [] where removed.contains(status.statePath) {
                try Keeper.discard(status.statePath)
            }
        } catch {
            output.complain("the state was deleted, but a keeper may continue: \(error)")
            Program.quit(.failure)
        }
        output.report(.discarded(identifier))
        output.say(Line("The state of \(identifier.harmless) was deleted."))
        Program.quit(.success)
    }

    func stop(_ status: ExitStatus) { Program.quit(status) }
}

extension KeeperStatus {
    fileprivate func isIn(_ directory: String) -> Bool {
        func plain(_ path: String) -> String { URL(fileURLWithPath: path).standardizedFileURL.path }
        return plain((statePath as NSString).deletingLastPathComponent) == plain(directory)
    }
}

/// One file of preserved state.
struct PreservedReport: Equatable {
    let role: String
    let identifier: String?
    let path: String
    let app: String?
    let saved: Date?
    let lines: [String]

    init(_ state: BluezPreservedState) {
        (role, identifier, path) = (state.role.rawValue, state.identifier, state.path)
        (app, saved, lines) = (state.app, state.saved, state.lines)
    }

    private var time: String? { saved.map { ISO8601DateFormatter().string(from: $0) } }

    var json: JSONValue {
        [
            "event": "preserved", "role": .string(role), "identifier": .optional(identifier), "path": .string(path),
            "app": .optional(app), "saved": .optional(time), "lines": .strings(lines),
        ]
    }

    var text: [Line] {
        let title = Line(identifier?.harmless ?? "damaged", identifier == nil ? .red : .bold)
        var about = " (\(role)"
        if let app, let time { about += ", of \(app.harmless), \(time)" }
        return [title + Line(about + ")", .dim)] + lines.map { Line("  " + $0.harmless) }
            + [Line("  " + path.harmless, .dim)]
    }
}
