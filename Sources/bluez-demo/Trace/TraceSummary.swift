import BluezKit
import Foundation

/// What a trace amounts to: how often, why links ended, and which answers took long or are missing.
struct TraceSummary: Equatable {
    private struct Waiting: Equatable {
        let name: String
        let seconds: Double
    }

    private static let shownAnswers = 5
    private static let shownLost = 20

    private(set) var messages = 0
    private var calls = 0
    private var callbacks = 0
    private var values = 0
    private var errors = 0
    private var connects = 0
    private var last = 0.0
    private var managers: Set<Int> = []
    private var processes: Set<Int32> = []
    /// How often for each reason.
    private var disconnects: [String: Int] = [:]
    /// The longest, with their times.
    private var slowest: [Waiting] = []
    /// Questions whose link ended before their answers came: the first ones.
    private var lost: [Waiting] = []
    /// Questions without an answer so far. The same may be asked several times, and is answered in order.
    private var open: [TraceEntry.Question: [Waiting]] = [:]

    mutating func add(_ entry: TraceEntry) {
        messages += 1
        last = max(last, entry.place.seconds)
        processes.insert(entry.place.process)
        if let manager = entry.place.manager { managers.insert(manager) }
        switch entry.direction {
        case .toCore: calls += 1
        case .toApp: callbacks += 1
        case nil: break
        }
        // A value that was not asked for.
        if entry.name == "didUpdateValueFor", entry.answers == nil { values += 1 }
        if entry.error != nil { errors += 1 }
        if let question = entry.answers { answered(question, at: entry.place.seconds) }
        switch entry.link {
        case .up: connects += 1
        case .down(let reason):
            if let reason { disconnects[reason, default: 0] += 1 }
            // The app may release an object after it has asked for a new link, by another one.
            let ended = open.filter {
                $0.key.manager == entry.place.manager && $0.key.peripheral == entry.peripheral
                    && !(reason == nil && $0.key.isConnect)
            }
            for question in ended.keys { open[question] = nil }
            if reason != nil { lose(ended.values.flatMap { $0 }) }
        case .off: open = open.filter { $0.key.manager != entry.place.manager }
        case nil: break
        }
        if let question = entry.asks {
            let name = [entry.name, entry.device, entry.attribute].compactMap { $0 }.joined(separator: " ")
            open[question, default: []].append(Waiting(name: name, seconds: entry.place.seconds))
        }
    }

    private mutating func answered(_ question: TraceEntry.Question, at seconds: Double) {
        guard let first = open[question]?.first else { return }
        open[question]?.removeFirst()
        slowest.append(Waiting(name: first.name, seconds: seconds - first.seconds))
        slowest.sort { $0.seconds > $1.seconds }
        if slowest.count > Self.shownAnswers { slowest.removeLast() }
    }

    /// Their answer is the end of the link (CN-10).
    private mutating func lose(_ questions: [Waiting]) {
        lost += questions.sorted { $0.seconds < $1.seconds }.prefix(max(0, Self.shownLost - lost.count))
    }

    private var unanswered: [Waiting] { open.values.flatMap { $0 }.sorted { $0.seconds < $1.seconds } }
    private var reasons: [(reason: String, count: Int)] {
        disconnects.sorted { ($1.value, $0.key) < ($0.value, $1.key) }.map { ($0.key, $0.value) }
    }

    // MARK: For people

    var lines: [Line] {
        func count(_ number: Int, _ one: String, _ more: String? = nil) -> String {
            "\(number) \(number == 1 ? one : more ?? one + "s")"
        }
        func seconds(_ seconds: Double) -> String { TraceReport.time(seconds).trimmingCharacters(in: .whitespaces) }
        let extent = [
            count(messages, "line"), "\(seconds(last)) s", count(processes.count, "process", "processes"),
            count(managers.count, "manager"),
        ].joined(separator: ", ")
        var lines = [
            Line("Summary", .bold) + Line(": " + extent),
            Line(
                "  "
                    + [
                        count(calls, "call"), count(callbacks, "callback"), count(values, "notified value"),
                        count(errors, "error"), count(connects, "connect"),
                    ].joined(separator: ", ")),
        ]
        for (reason, number) in reasons { lines.append(Line("  \(count(number, "disconnect")): \(reason.harmless)")) }
        if !slowest.isEmpty { lines.append("  slowest answers:") }
        for answer in slowest { lines.append(Line("\(TraceReport.time(answer.seconds)) s  \(answer.name.harmless)")) }
        if !lost.isEmpty { lines.append(Line("  ended with their link, asked at:", .yellow)) }
        for question in lost {
            lines.append(Line("\(TraceReport.time(question.seconds)) s  \(question.name.harmless)"))
        }
        if !unanswered.isEmpty { lines.append(Line("  without an answer, asked at:", .yellow)) }
        for question in unanswered {
            lines.append(Line("\(TraceReport.time(question.seconds)) s  \(question.name.harmless)"))
        }
        return lines
    }

    // MARK: For programs

    var json: JSONValue {
        func list(_ waiting: [Waiting]) -> JSONValue {
            .array(
                waiting.map {
                    ["name": .string($0.name), "seconds": .double(TraceReport.rounded($0.seconds))]
                })
        }
        return [
            "event": "traceSummary", "lines": .int(messages), "seconds": .double(TraceReport.rounded(last)),
            "processes": .int(processes.count), "managers": .int(managers.count), "calls": .int(calls),
            "callbacks": .int(callbacks), "values": .int(values), "errors": .int(errors), "connects": .int(connects),
            "disconnects": .array(reasons.map { ["reason": .string($0.reason), "count": .int($0.count)] }),
            "slowest": list(slowest), "lost": list(lost), "unanswered": list(unanswered),
        ]
    }
}
