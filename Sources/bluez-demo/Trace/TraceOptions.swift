import Foundation

struct TraceOptions: Equatable {
    var file: String
    var device: DeviceName?
    /// By the number in the timeline.
    var manager: Int?
    /// In seconds since the first line.
    var from, to: Double?

    init(_ parsed: ParsedArguments) throws(UsageError) {
        guard let file = parsed.operands.first else {
            throw parsed.error("show which trace? A program writes one with BLUEZKIT_TRACE=FILE")
        }
        guard parsed.operands.count == 1 else { throw parsed.error("trace takes one file") }
        self.file = file
        if let text = parsed.first("--device") { device = try parsed.device(text) }
        manager = try parsed.count("--manager")
        (from, to) = (try parsed.seconds("--from", orZero: true), try parsed.seconds("--to"))
        if let from, let to, from > to { throw parsed.error("--from \(from) is after --to \(to)") }
    }
}
