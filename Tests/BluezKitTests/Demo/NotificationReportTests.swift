import Foundation
import Testing

@testable import BluezKitProfiles
@testable import bluez_demo

@Suite("Demo: notifications of a phone")
struct NotificationReportTests {
    private func report(
        _ texts: [ANCSCommand.Attribute: String], app: String? = "Messages",
        _ change: (inout ANCSEvent) -> Void = { _ in }
    ) -> NotificationReport {
        NotificationReport(event: ANCSEvent(change), texts: texts, appName: app)
    }

    @Test("a notification is one line")
    func line() {
        let texts: [ANCSCommand.Attribute: String] = [
            .appIdentifier: "com.apple.MobileSMS", .title: "Ada", .subtitle: "", .message: "Hello",
            .date: "20260102T030405",
        ]
        #expect(report(texts) { $0.category = .social }.line.text == "03:04  Messages: Ada  Hello  (social)")
        let later = report(texts, app: nil) {
            ($0.kind, $0.category, $0.flags) = (.modified, .healthAndFitness, [.preExisting])
        }
        #expect(later.line.text == "03:04  com.apple.MobileSMS: Ada  Hello  (health and fitness, changed, earlier)")
        #expect(report([:], app: nil).line.text == "--:--    (other)")
    }

    @Test("a phone's text is harmless on a terminal, and complete in JSON")
    func hostile() {
        let texts: [ANCSCommand.Attribute: String] = [
            .title: "\u{1B}]0;title\u{7}", .message: "two\nlines\u{202E}", .date: "\u{1B}[2J\u{1B}[2J\u{1B}[2J",
        ]
        let hostile = report(texts, app: "\u{9B}31m")
        let text = hostile.line.text
        #expect(!text.unicodeScalars.contains { $0.value < 32 || $0.value == 0x9B || $0.value == 0x202E })
        #expect(text.hasPrefix("--:--  ") && text.contains("two\u{FFFD}lines"))
        let json = hostile.json(of: UUID()).description
        #expect(json.contains(#""message":"two\nlines\u202e""#) && json.contains(#""title":"\u001b]0;title\u0007""#))
        #expect(json.contains(#""app":null"#) && json.contains(#""positiveAction":null"#))
    }

    @Test("a phone's text is harmless in errors, too")
    func hostileErrors() {
        let sentence = ANCSClient.NoAnswer(command: .appName("\u{1B}[2Ja\nb\u{202E}")).sentence
        #expect(sentence.hasPrefix("the phone was asked for the name of \u{FFFD}[2Ja\u{FFFD}b\u{FFFD}, "))
    }

    @Test("Docs/DEMO.md names every category")
    func documented() throws {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let document = try String(contentsOf: root.appendingPathComponent("Docs/DEMO.md"), encoding: .utf8)
        let row = try #require(document.split(separator: "\n").first { $0.hasPrefix("| `notification` |") })
        for category in ANCSEvent.Category.allCases { #expect(row.contains("`\(category)`")) }
    }
}
