import BluezKitRestore
#if compiler(<6.1)
package import Foundation  // later compilers see that the module exports it, and warn
#else
import Foundation
#endif

/// Reads a trace, which ``TraceFile`` has written, in pieces of any length. The file is anybody's text: a line that
/// cannot be read is reported with its number, and the next ones are read.
package struct TraceReader {
    /// Of a line that cannot be read.
    package struct Damage: Error, Equatable, Sendable {
        /// From 1.
        package let line: Int
        /// In words.
        package let reason: String
    }

    package typealias Item = Result<TraceEntry, Damage>

    private struct Process {
        /// What is added to its clock, to continue that of the first process: not zero after a restart of the computer.
        var shift = 0.0
        var hidesValues = false
        /// Its messages cannot be read: another version of the format.
        var isForeign = false
        var managers: [Int: TracedManager] = [:]
    }

    private let decoder = BorderFormat.decoder()
    private var line: [UInt8] = []
    private var isTooLong = false
    private var count = 0
    private var processes: [Int32: Process] = [:]
    private var managers = 0
    /// Where the trace begins.
    private var start: (wall: Double, clock: Double, boot: String?)?

    package init() {}

    /// - Returns: What the lines tell that end in these bytes.
    package mutating func read(_ bytes: Data) -> [Item] {
        var items: [Item] = []
        var rest = bytes
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            take(rest[..<end])
            if let item = endLine() { items.append(item) }
            rest = rest[rest.index(after: end)...]
        }
        take(rest)
        return items
    }

    /// The file has ended. - Returns: What its last line tells, if no line break has ended that.
    package mutating func end() -> Item? { line.isEmpty && !isTooLong ? nil : endLine() }

    private mutating func take(_ part: Data) {
        if line.count + part.count > TraceFile.longestLine { isTooLong = true }
        if isTooLong { line = [] } else { line += part }
    }

    private mutating func endLine() -> Item? {
        defer { (line, isTooLong) = ([], false) }
        count += 1
        if isTooLong { return damage("it has more than \(TraceFile.longestLine) bytes") }
        if line.isEmpty { return nil }
        do {
            let read = try decoder.decodeSafely(TraceLine.self, from: Data(line))
            // A time of any size may stand there.
            guard (0..<1e11).contains(read.wall), (0..<1e11).contains(read.clock) else {
                return damage("its time is none")
            }
            return entry(read)
        } catch { return damage(Self.reason(error)) }
    }

    private func damage(_ reason: String) -> Item { .failure(Damage(line: count, reason: reason)) }

    private static func reason(_ error: any Error) -> String {
        guard let error = error as? DecodingError else { return "it is no line of a trace" }
        switch error {
        case .dataCorrupted(let context) where context.codingPath.isEmpty: return "it is no JSON"
        case .keyNotFound(let key, _): return "it has no \"\(key.stringValue)\""
        case .dataCorrupted(let context), .typeMismatch(_, let context), .valueNotFound(_, let context):
            let path = context.codingPath.map { $0.intValue.map(String.init) ?? $0.stringValue }
            return (path.isEmpty ? "" : path.joined(separator: ".") + ": ") + context.debugDescription
        @unknown default: return "it is no line of a trace"
        }
    }

    private mutating func entry(_ read: TraceLine) -> Item? {
        if case .began(let header) = read.message {
            if let item = begin(header, read) { return item }
        } else if start == nil {
            start = (read.wall, read.clock, nil)
        }
        var process = processes[read.process] ?? Process()
        if process.isForeign { return nil }
        defer { processes[read.process] = process }
        guard let number = read.manager else {
            return .success(Self.describe(read.message, at: place(read, process)))
        }
        // There is none if the file was cut.
        var manager = process.managers[number] ?? TracedManager(number: managers + 1, role: nil)
        if process.managers[number] == nil { managers += 1 }
        manager.hidesValues = process.hidesValues
        if case .made(let made) = read.message { manager.role = made.role == .central ? .central : .peripheral }
        let entry = manager.describe(read.message, at: place(read, process, manager))
        process.managers[number] = manager
        return entry.map { .success($0) }
    }

    /// A process begins; an earlier one may have had its number.
    private mutating func begin(_ header: TraceHeader, _ read: TraceLine) -> Item? {
        if start == nil { start = (read.wall, read.clock, header.boot) }
        var process = Process(hidesValues: header.hidesValues)
        if let start, start.boot != header.boot {
            process.shift = (read.wall - start.wall) - (read.clock - start.clock)
        }
        process.isForeign = header.border != BorderFormat.version
        processes[read.process] = process
        guard process.isForeign else { return nil }
        return damage(
            "process \(read.process) has written with BluezKit \(header.version), whose format is \(header.border); "
                + "this is \(bluezKitVersion), which reads \(BorderFormat.version). Its lines are left out")
    }

    private func place(_ read: TraceLine, _ process: Process, _ manager: TracedManager? = nil) -> TraceEntry.Place {
        TraceEntry.Place(
            seconds: read.clock - (start?.clock ?? read.clock) + process.shift, wall: read.wall, process: read.process,
            manager: manager?.number, role: manager?.role)
    }

    /// What happens to a process.
    private static func describe(_ message: TraceMessage, at place: TraceEntry.Place) -> TraceEntry {
        var entry = TraceEntry(at: place)
        switch message {
        case .began(let header):
            entry.name = "\(header.program) begins"
            entry.facts = ["process \(place.process)", "BluezKit \(header.version)", header.system]
            if header.hidesValues { entry.facts.append("values are hidden") }
        case .log(let level, let text):
            entry.name = level == "misuse" ? "API MISUSE" : "log"
            entry.facts = [text]
        case .omitted(let what): (entry.name, entry.facts) = ("left out", [what])
        case .full(let limit):
            entry.name = "process \(place.process) writes nothing more"
            entry.facts = ["the file may have \(limit) bytes"]
        case .made, .released, .daemon, .centralRequest, .centralEvent, .peripheralRequest, .peripheralEvent, .noRoom,
            .query, .devices, .bytes:
            entry.name = "a message of no manager"
        }
        return entry
    }
}
