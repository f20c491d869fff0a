import Foundation

/// What people see of a transfer: a bar, the rate, and the time that is left. Pure.
struct TransferDisplay {
    private var samples: [(time: Double, count: Int)] = []
    private let clock = ContinuousClock()
    private let start = ContinuousClock.now
    private(set) var began: Double?
    /// How much was there before, in bytes: the least, if another file has come in between.
    private var earlier: Int?

    /// Seconds since this was made.
    private var now: Double { start.duration(to: clock.now) / .seconds(1) }

    /// A session begins with this many bytes.
    mutating func begin(_ count: Int) {
        samples = [(now, count)]
        began = began ?? now
        earlier = min(earlier ?? count, count)
    }

    /// Since the first session began, in seconds.
    var seconds: Double { began.map { now - $0 } ?? 0 }

    /// What was moved of a file of this size: what was there before was moved by an earlier process.
    func summary(of size: Int, in seconds: Double) -> Line {
        let moved = size - (earlier ?? 0)
        if moved == 0, size > 0 { return Line("\(CardText.size(size)), all of them earlier") }
        let text = (moved == size ? "" : "the last \(CardText.grouped(moved)) of ") + CardText.size(size)
        let time = " in \(JSONValue.double((seconds * 10).rounded() / 10)) s"
        guard seconds > 0 else { return Line(text + time) }
        return Line(text + time) + Line(", \(Self.rate(Double(moved) / seconds))", .dim)
    }

    /// - Returns: One line of this width at most.
    mutating func line(_ count: Int, of size: Int, width: Int) -> Line {
        // The rate of the last five seconds, from samples at least 0.2 s apart.
        let time = now
        if samples.last.map({ time - $0.time >= 0.2 }) ?? true { samples.append((time, count)) }
        while samples.count > 2, let first = samples.first, time - first.time > 5 { samples.removeFirst() }
        var numbers = Line()
        if let first = samples.first, time - first.time > 0.3, count > first.count {
            let rate = Double(count - first.count) / (time - first.time)
            numbers = Line("  \(Self.rate(rate))") + Line("  \(Self.time(Double(size - count) / rate)) left", .dim)
        }
        return CardText.progress(count, of: size, width: width - numbers.width) + numbers
    }

    /// `3.2 kB/s`.
    static func rate(_ bytesPerSecond: Double) -> String {
        switch bytesPerSecond {
        case ..<1000: "\(Int(bytesPerSecond.rounded())) B/s"
        case ..<1_000_000: "\(tenths(bytesPerSecond / 1000)) kB/s"
        default: "\(tenths(bytesPerSecond / 1_000_000)) MB/s"
        }
    }

    private static func tenths(_ number: Double) -> String {
        number >= 100 ? String(Int(number)) : "\(Int(number * 10) / 10).\(Int(number * 10) % 10)"
    }

    /// `1:02:03`, `2:03`, or `< 1 s`.
    static func time(_ seconds: Double) -> String {
        guard seconds >= 1 else { return "< 1 s" }
        guard seconds < 360_000 else { return "> 99 h" }
        let (hours, minutes, rest) = (Int(seconds) / 3600, Int(seconds) / 60 % 60, Int(seconds) % 60)
        func two(_ number: Int) -> String { (number < 10 ? "0" : "") + String(number) }
        return hours > 0 ? "\(hours):\(two(minutes)):\(two(rest))" : "\(minutes):\(two(rest))"
    }
}

/// Says and shows what happens to a transfer, in both roles.
final class TransferReporter {
    private let output: Output
    private let options: TransferOptions
    private let end: any TransferEnd
    private var display = TransferDisplay()
    private var isTold = false
    private var tenth = -1

    init(_ options: TransferOptions, _ end: any TransferEnd, output: Output) {
        (self.options, self.end, self.output) = (options, end, output)
    }

    /// A link has ended; the next session tells where it continues.
    func linkEnded() {
        isTold = false
        output.show([])
    }

    /// Since the first session began.
    var seconds: Double { display.seconds }
    /// What was moved, and how long it took.
    var summary: Line { display.summary(of: end.offer?.size ?? 0, in: seconds) }

    /// Something may have moved.
    func update(_ peer: UUID) {
        guard end.isMoving, let offer = end.offer else { return }
        if !isTold {
            isTold = true
            display.begin(end.resumedAt)
            if !options.isCard { output.report(.transferring(options, offer, offset: end.resumedAt)) }
            let name = options.isSending ? "" : Line.quoted(offer.name)
            output.say(
                Line(options.isSending ? "Sending " : "Receiving ")
                    + Line(name.isEmpty ? options.file.harmless : name, .bold)
                    + Line(", \(CardText.size(offer.size)), by \(options.way.label)", .dim)
                    + Line(end.resumedAt > 0 ? ", continuing at \(CardText.size(end.resumedAt))" : "") + ".")
        }
        guard offer.size > 0 else { return }
        if end.count * 10 / offer.size != tenth {
            tenth = end.count * 10 / offer.size
            output.report(.progress(peer, bytes: end.count, size: offer.size))
        }
        output.show([display.line(end.count, of: offer.size, width: Terminal.size.columns - 1)])
    }

    /// The command ends: says what becomes of a part.
    func stopped() {
        guard !options.isSending, !options.isCard, !end.isDone, end.count > 0, let offer = end.offer else { return }
        output.show([])
        let arrived = "\(CardText.size(end.count)) of \(CardText.size(offer.size))"
        output.say(Line("\(arrived) are in \(options.file.harmless).part. To continue: the same command again."))
    }

    func finished() {
        guard let offer = end.offer else { return }
        output.show([])
        output.report(.transferred(options, offer, seconds: seconds))
        output.say(
            Line(options.isSending ? "Sent " : "Received ", .green) + summary
                + ". The SHA-256 is the same at both ends:")
        output.say(Line("  \(offer.digest.hex)", .dim))
    }
}

extension Line {
    /// The name of a file, from another device.
    fileprivate static func quoted(_ name: String) -> String { name.harmless.clipped(to: 60) }
}
