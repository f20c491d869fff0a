import Synchronization
import Testing

@testable import BluezKit

@Suite(.serialized) struct LogTests {
    @Test("a handler receives level and text, and debug is off until asked for")
    func handler() {
        final class Lines: Sendable {
            let lines = Mutex<[String]>([])
        }
        let (lines, mark) = (Lines(), UUID().uuidString)
        let (handler, level) = (BluezKitLog.handler, BluezKitLog.level)
        defer { (BluezKitLog.handler, BluezKitLog.level) = (handler, level) }
        BluezKitLog.handler = { level, text in
            guard text.contains(mark) else { return handler(level, text) }  // other tests log at the same time
            lines.lines.withLock { $0.append("\(level) \(text.replacingOccurrences(of: mark, with: "*"))") }
        }
        func unexpected() -> String {
            Issue.record("the text was made although debug is off")
            return ""
        }
        BluezKitLog.level = .warning
        Log.debug(unexpected())
        Log.warning("a\(mark)")
        Log.misuse("b\(mark)")
        BluezKitLog.level = .debug
        Log.debug("c\(mark)")
        BluezKitLog.level = .misuse
        Log.warning("d\(mark)")
        Log.misuse("e\(mark)")
        #expect(lines.lines.withLock { $0 } == ["warning a*", "misuse b*", "debug c*", "misuse e*"])
    }

    @Test("the default is one line that begins with [CoreBluetooth]")
    func format() {
        #expect(BluezKitLog.line(.warning, "text") == "[CoreBluetooth] text\n")
        #expect(BluezKitLog.line(.misuse, "text\nmore") == "[CoreBluetooth] API MISUSE: text more\n")
    }
}
