import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Synchronization
import Testing

@testable import BluezKit

// Each read of the log's handler wrapped the stored closure in two more, so that a few thousand lines overflowed the
// stack; and any program that may send signals on the bus could cause a line for each. Now the closure is stored where
// no generic code sees it, lines have a maximum length, and of similar lines one a minute is logged, with a count.
@Suite struct LogFloodTests {
    #if compiler(>=6.2)  // exit tests
    @Test("100,000 log lines on a thread with a small stack")
    func manyLines() async {
        // In a process of its own: the handler is the whole process's.
        await #expect(processExitsWith: .success) {
            final class Lines: Sendable {
                let count = Atomic<Int>(0)
            }
            let (lines, done) = (Lines(), DispatchSemaphore(value: 0))
            BluezKitLog.handler = { _, _ in lines.count.add(1, ordering: .relaxed) }
            let thread = Thread {
                for _ in 0..<100_000 { Log.warning("a line") }
                done.signal()
            }
            thread.stackSize = 64 << 10
            thread.start()
            done.wait()
            precondition(lines.count.load(ordering: .relaxed) == 100_000)
        }
    }

    @Test("a log line has a limited length, and no control characters")
    func length() async {
        #expect(BluezKitLog.line(.warning, "a\u{1B}[2Jb\nc\u{9B}d") == "[CoreBluetooth] a [2Jb c d\n")
        await #expect(processExitsWith: .success) {
            final class Lines: Sendable {
                let last = Mutex("")
            }
            let lines = Lines()
            BluezKitLog.handler = { _, text in lines.last.withLock { $0 = text } }
            Log.warning(String(repeating: "ä", count: 100_000))
            precondition(lines.last.withLock { $0.utf8.count <= BluezKitLog.lengthLimit && $0.hasSuffix("ä…") })
            let exact = String(repeating: "x", count: BluezKitLog.lengthLimit)
            Log.warning(exact)
            precondition(lines.last.withLock { $0 } == exact)
        }
    }

    // Writing a line waited for the reader of the one before, so that a viewer that had been stopped stopped the
    // library.
    @Test("a reader of standard error that has stalled does not stop the library, and sees later how much is missing")
    func stalledReader() async {
        await #expect(processExitsWith: .success) {
            var ends: [Int32] = [0, 0]
            precondition(pipe(&ends) == 0)
            Self.flood(writing: ends[1], reading: ends[0])
        }
        await #expect(processExitsWith: .success) {
            var ends: [Int32] = [0, 0]
            precondition(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
            Self.flood(writing: ends[1], reading: ends[0])
        }
        await #expect(processExitsWith: .success) {
            let terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY)
            var isLocked: CInt = 0
            precondition(ioctl(terminal, 0x4004_5431 /* TIOCSPTLCK */, &isLocked) == 0)
            Self.flood(writing: ioctl(terminal, 0x5441 /* TIOCGPTPEER */, O_RDWR | O_NOCTTY), reading: terminal)
        }
    }

    @Test("a line that is longer than the room in a pipe does not wait; nor does one without a reader end the process")
    func longLine() async {
        await #expect(processExitsWith: .success) {
            alarm(60)  // ends the process
            var ends: [Int32] = [0, 0]
            precondition(pipe(&ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO)
            BluezKitLog.writeToStandardError(.warning, String(repeating: "x", count: 4 << 20))
            close(ends[0])
            BluezKitLog.writeToStandardError(.warning, "without a reader")
            exit(0)  // what the testing library writes after this would need one
        }
    }

    private static func flood(writing: Int32, reading: Int32) {
        alarm(60)  // ends the process
        precondition(isatty(writing) == isatty(reading) && dup2(writing, STDERR_FILENO) == STDERR_FILENO)
        var logged = 3000  // more than a pipe takes where a page has 64 KiB
        for _ in 0..<logged { Log.warning(String(repeating: "x", count: 900)) }
        _ = fcntl(reading, F_SETFL, O_NONBLOCK)
        var text: [UInt8] = []
        // What was written to a terminal can be read only after the kernel has passed it on, in pieces, in its own
        // time.
        func read() {
            var input = pollfd(fd: reading, events: Int16(POLLIN), revents: 0)
            guard poll(&input, 1, 100) > 0 else { return }
            var buffer = [UInt8](repeating: 0, count: 65536)
            while case let count = Glibc.read(reading, &buffer, buffer.count), count > 0 { text += buffer[..<count] }
        }
        // The complete ones. A terminal may take a part of a line, which counts as lost; the next follows on the same
        // line.
        func lines() -> [String] {
            let ended = String(decoding: text, as: UTF8.self).split(
                omittingEmptySubsequences: false, whereSeparator: \.isNewline)
            return ended.dropLast().compactMap { $0.components(separatedBy: "[CoreBluetooth] ").last }
        }
        repeat {
            logged += 1
            Log.warning("line \(logged)")
            read()
        } while lines().last != "line \(logged)"
        let note = "lines that standard error did not take in time are lost: "
        let notes = lines().compactMap { $0.hasPrefix(note) ? Int($0.dropFirst(note.count)) : nil }
        let (read, lost) = (lines().count - notes.count, notes.reduce(0, +))
        // A note with which the terminal did not take the line behind it is repeated.
        let isExact = isatty(reading) == 0
        precondition(read > 1 && lost > 0, "\(read), \(notes)")
        precondition(isExact ? read + lost == logged : read + lost >= logged, "\(read), \(notes), \(logged)")
    }
    #endif

    @Test("the first event of each source passes, then one a minute with the number of suppressed ones")
    func gate() {
        var gate = FloodGate()
        let start = ContinuousClock.now
        #expect(gate.admit("a", at: start) == 0)
        for second in 1..<60 { #expect(gate.admit("a", at: start + .seconds(second)) == nil) }
        #expect(gate.admit("b", at: start + .seconds(59)) == 0)
        #expect(gate.admit("a", at: start + .seconds(60)) == 59)
        #expect(gate.admit("a", at: start + .seconds(61)) == nil)
        #expect(gate.admit("a", at: start + .seconds(120)) == 1)
    }

    @Test("an unlimited number of sources counts as one, and old ones make room")
    func sources() {
        var gate = FloodGate()
        let start = ContinuousClock.now
        let passed = (0..<10_000).count { gate.admit(":1.\($0)", at: start) != nil }
        #expect(passed == FloodGate.sourceLimit + 1)
        let later = start + gate.interval
        #expect(gate.admit("new", at: later) == 0)
        #expect(gate.admit(":1.0", at: later) == 0)
    }

    @Test("sources of which something is withheld make room as well: a program that has left does not come again")
    func leavers() {
        var gate = FloodGate()
        let start = ContinuousClock.now
        for number in 0..<FloodGate.sourceLimit {
            for _ in 0..<2 { _ = gate.admit(":1.\(number)", at: start) }
        }
        for number in 100..<105 { #expect(gate.admit(":1.\(number)", at: start + gate.interval) == 0) }
    }

    @Test("10,000 forged signals of one program cause one log line, and BlueZ's signals are still handled")
    func forgeries() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let forger = try await Peer.named(world.simulator.busAddress)
        let name = await central.busName()
        let path = ObjectPath("/" + String(repeating: "a", count: 2000)) ?? "/"
        for _ in 0..<10_000 { try forger.emit(path, "a.b", "C", to: name, [.string("x")]) }
        try await forger.settle()
        try await central.connect(central.find("Rig Heart"))
        // None, if other tests of this minute have used up the number of sources.
        #expect(LogCapture.shared.count("(C of /aaaa") <= 1)
    }
}

extension Central {
    /// What the manager's connection is called on its bus.
    fileprivate func busName() async -> String {
        let session = manager.session
        return session.queue.sync { session.bus?.uniqueName ?? "" }
    }
}
