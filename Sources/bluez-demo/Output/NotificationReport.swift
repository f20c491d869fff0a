import BluezKitProfiles
import Foundation

/// A notification of a phone, for people and for programs. Pure.
struct NotificationReport: Equatable {
    let event: ANCSEvent
    let texts: [ANCSCommand.Attribute: String]
    let appName: String?

    init(event: ANCSEvent, texts: [ANCSCommand.Attribute: String], appName: String?) {
        (self.event, self.texts, self.appName) = (event, texts, appName)
    }

    init(_ notification: ANCSNotification) {
        self.init(event: notification.event, texts: notification.texts, appName: notification.appName)
    }

    private func text(_ attribute: ANCSCommand.Attribute) -> String? {
        texts[attribute].flatMap { $0.isEmpty ? nil : $0 }
    }

    /// App and title.
    var summary: String {
        [appName ?? text(.appIdentifier), text(.title)].compactMap { $0 }.joined(separator: ": ").harmless
    }

    /// `03:04  Messages: Ada Lovelace  The engine weaves...  (social)`.
    var line: Line {
        var line = Line(time + "  ", .dim) + Line(summary, event.flags.contains(.important) ? .yellow : .bold)
        for attribute in [ANCSCommand.Attribute.subtitle, .message] {
            if let text = text(attribute) { line += Line("  " + text.harmless) }
        }
        return line + Line("  (" + ([event.category.words] + states).joined(separator: ", ") + ")", .dim)
    }

    private var states: [String] {
        (event.kind == .modified ? ["changed"] : []) + (event.flags.contains(.preExisting) ? ["earlier"] : [])
    }

    /// The time of yyyyMMdd'T'HHmmSS.
    private var time: String {
        let date = Array((texts[.date] ?? "").utf8)
        guard date.count >= 13, date[9..<13].allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) else {
            return "--:--"
        }
        return String(decoding: date[9..<11], as: UTF8.self) + ":" + String(decoding: date[11..<13], as: UTF8.self)
    }

    func json(of phone: UUID) -> JSONValue {
        [
            "event": "notification", "identifier": .string(phone.uuidString), "uid": .number(event.notification),
            "kind": .string("\(event.kind)"), "category": .string("\(event.category)"),
            "categoryCount": .int(Int(event.count)), "silent": .bool(event.flags.contains(.silent)),
            "important": .bool(event.flags.contains(.important)),
            "preExisting": .bool(event.flags.contains(.preExisting)), "app": .optional(text(.appIdentifier)),
            "appName": .optional(appName), "title": .optional(text(.title)), "subtitle": .optional(text(.subtitle)),
            "message": .optional(text(.message)), "date": .optional(text(.date)),
            "positiveAction": action(.positiveAction, .positiveActionLabel),
            "negativeAction": action(.negativeAction, .negativeActionLabel),
        ]
    }

    /// The label of an action that it has.
    private func action(_ flag: ANCSEvent.Flags, _ label: ANCSCommand.Attribute) -> JSONValue {
        event.flags.contains(flag) ? .string(texts[label] ?? "") : .null
    }
}

extension ANCSEvent.Category {
    /// `health and fitness`.
    fileprivate var words: String {
        "\(self)".reduce(into: "") { $0 += $1.isUppercase ? " " + $1.lowercased() : String($1) }
    }
}
