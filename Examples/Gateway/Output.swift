import Foundation

/// What happened to a peripheral, or was measured by one: a JSON object.
struct Line: Encodable {
    enum Event: String, Encodable { case connected, disconnected, value, problem, written }
    var time = Date.now
    let event: Event
    let peripheral: UUID?
    var name: String?
    /// In hexadecimal digits.
    var value: String?
    /// The value, if its format is known.
    var number: Double?
    var unit: String?
    var problem: String?

    /// Without line feeds.
    var json: Data {
        get throws {
            let encoder = JSONEncoder()
            encoder.dateEncodingStrategy = .iso8601
            encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
            return try encoder.encode(self)
        }
    }
}

extension Data {
    var hex: String { map { String(format: "%02x", $0) }.joined() }
}

/// Writes a value to a connected peripheral.
typealias Write = @Sendable (Data) async throws -> Void

/// Where the lines go.
protocol Output: Sendable {
    /// - Parameter write: Of a peripheral that has been connected, and takes commands.
    func put(_ line: Line, write: Write?) async throws
}

extension Output {
    func put(_ line: Line) async throws { try await put(line, write: nil) }
}

/// Prints, and counts values.
actor Printer: Output {
    private var left: Int

    init(_ count: Int) { left = count }

    func put(_ line: Line, write: Write?) throws {
        guard left > 0 else { return }
        try FileHandle.standardOutput.write(contentsOf: line.json + Data("\n".utf8))
        if case .value = line.event { left -= 1 }
        if left == 0 { exit(0) }
    }
}
