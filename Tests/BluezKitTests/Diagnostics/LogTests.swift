import Synchronization
import Testing

@testable import BluezKit

@Suite struct LogTests {
    #if compiler(>=6.2)  // exit tests
    // In a process of its own: handler and level are of the whole process, and other tests look at the log.
    @Test("a handler receives level and text, and debug is off by default")
    func handler() async {
        await #expect(processExitsWith: .success) {
            final class Lines: Sendable {
                let lines = Mutex<[String]>([])
            }
            let lines = Lines()
            BluezKitLog.handler = { level, text in lines.lines.withLock { $0.append("\(level) \(text)") } }
            func unexpected() -> String { preconditionFailure("the text was made although debug is off") }
            BluezKitLog.level = .warning
            Log.debug(unexpected())
            Log.warning("a")
            Log.misuse("b")
            BluezKitLog.level = .debug
            Log.debug("c")
            BluezKitLog.level = .misuse
            Log.warning("d")
            Log.misuse("e")
            precondition(lines.lines.withLock { $0 } == ["warning a", "misuse b", "debug c", "misuse e"])
        }
    }
    #endif

    @Test("the default is one line that begins with [CoreBluetooth]")
    func format() {
        #expect(BluezKitLog.line(.warning, "text") == "[CoreBluetooth] text\n")
        #expect(BluezKitLog.line(.misuse, "text\nmore") == "[CoreBluetooth] API MISUSE: text more\n")
    }
}
