import BluezKit
import Foundation

/// What a keeper does for one manager.
struct KeeperReport: Equatable {
    let json: JSONValue
    let text: [Line]

    init(_ status: KeeperStatus) {
        func time(_ seconds: Double) -> String {
            ISO8601DateFormatter().string(from: Date(timeIntervalSinceReferenceDate: seconds))
        }
        json = [
            "event": "keeps", "role": .string(status.role), "path": .string(status.statePath),
            "app": .optional(status.app.map(Int.init)), "since": .string(time(status.since)),
            "events": .int(status.events), "bytes": .int(status.bytes), "dropped": .int(status.dropped),
            "starts": .int(status.starts), "lastStart": .optional(status.lastStart.map(time)),
            "lastReason": .optional(status.lastReason), "relaunch": .string(status.relaunch),
            "givenUp": .bool(status.isGivenUp),
        ]
        let app = status.app.map { Line("the app is process \($0)") } ?? Line("the app is not running", .yellow)
        let dropped = status.dropped == 0 ? Line() : Line(", \(status.dropped) dropped", .yellow)
        let waiting = "\(status.events) \(status.events == 1 ? "event waits" : "events wait") for it"
        var lines = [
            Line("A keeper continues", .bold) + Line(" (\(status.role))", .dim),
            Line("  ") + app + Line(", since \(time(status.since))"),
            Line("  \(waiting), \(status.bytes) bytes") + dropped,
            Line("  how it is started: \(status.relaunch.harmless)"),
        ]
        if status.starts > 0 {
            let last = status.lastStart.map { ", last \(time($0))" } ?? ""
            let reason = status.lastReason.map { ", because of \($0.harmless)" } ?? ""
            lines.append(Line("  started \(status.starts == 1 ? "once" : "\(status.starts) times")\(last)\(reason)"))
        }
        if status.isGivenUp { lines.append(Line("  not started any more: it has ended at once too often", .red)) }
        text = lines + [Line("  " + status.statePath.harmless, .dim)]
    }
}
