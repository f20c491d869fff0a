import BluezDBus
import BluezKit
import Dispatch
import Foundation

/// Prints a trace as a timeline.
final class TraceCommand: Command {
    /// What cannot be read is often one thing, many times.
    private static let shownDamages = 20
    /// In bytes: as much as is read in one turn of the main queue, on which Ctrl-C waits.
    private static let piece = 1 << 16
    /// In seconds: a shorter pause is not worth a line.
    private static let gap = 1.0

    private let options: TraceOptions
    private let output: Output
    private var file: FileHandle?
    private var reader = TraceReader()
    private var summary = TraceSummary()
    private var damages = 0
    /// When the last line that was shown was written.
    private var last: Double?

    init(_ options: TraceOptions, output: Output) { (self.options, self.output) = (options, output) }

    func start() {
        do throws(CardFile.Failure) {
            file = try CardFile.open(options.file)
            readOn()
        } catch {
            output.complain(error.message)
            Program.quit(.failure)
        }
    }

    private func readOn() {
        do {
            guard let bytes = try file?.read(upToCount: Self.piece), !bytes.isEmpty else { return end() }
            for item in reader.read(bytes) { show(item) }
            DispatchQueue.main.later { [self] in readOn() }
        } catch { fail(error) }
    }

    private func fail(_ error: any Error) {
        let cause = (error as NSError).userInfo[NSUnderlyingErrorKey] as? NSError
        let code = cause?.domain == NSPOSIXErrorDomain ? cause?.code : nil
        let reason = code.map { String(cString: strerror(Int32(truncatingIfNeeded: $0))) }
        output.complain("'\(options.file)' cannot be read: \(reason ?? error.localizedDescription)")
        Program.quit(.failure)
    }

    private func show(_ item: TraceReader.Item) {
        switch item {
        case .success(let entry): if wants(entry) { show(entry) }
        case .failure(let damage):
            damages += 1
            if damages <= Self.shownDamages { output.complain("line \(damage.line): \(damage.reason)") }
        }
    }

    private func wants(_ entry: TraceEntry) -> Bool {
        if let device = options.device {
            guard let identifier = entry.peripheral, device.identifiers.contains(identifier) else { return false }
        }
        if let manager = options.manager, entry.place.manager != manager { return false }
        return (options.from ?? -.infinity)...(options.to ?? .infinity) ~= entry.place.seconds
    }

    private func show(_ entry: TraceEntry) {
        let report = TraceReport(entry)
        let seconds = entry.place.seconds
        if summary.messages == 0 { output.say(Line("Time is in seconds since \(beginning(entry)).", .dim)) }
        if let last, seconds - last > Self.gap { output.say(TraceReport.gap(seconds - last)) }
        last = seconds
        summary.add(entry)
        output.report(.traced(report))
        output.say(report.line(width: max(Terminal.size.columns - 1, 80)), indent: TraceReport.indent)
    }

    /// When the trace begins, also where its first lines are not shown.
    private func beginning(_ entry: TraceEntry) -> String {
        TraceReport.date(entry.place.wall - entry.place.seconds)
    }

    private func end() {
        if let item = reader.end() { show(item) }
        let more = damages - Self.shownDamages
        if more > 0 { output.complain("\(more) more lines cannot be read") }
        if summary.messages == 0, damages == 0 {
            output.complain("there is nothing to show in '\(options.file)'")
            Program.quit(.failure)
        }
        output.report(.traceSummary(summary))
        output.say("")
        for line in summary.lines { output.say(line) }
        Program.quit(damages == 0 ? .success : .failure)
    }

    func stop(_ status: ExitStatus) { Program.quit(status) }
}
