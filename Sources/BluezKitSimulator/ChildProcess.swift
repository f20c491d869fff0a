import Dispatch
import Foundation
import Glibc

/// One run of a program, with its lines.
final class ChildProcess: @unchecked Sendable {  // holds: what changes is under `lock`
    let pid: pid_t
    private let input: Int32
    private var lifeline: Lifeline?
    private let lock = NSLock()
    private var all: [String] = []
    /// How many lines were taken.
    private var taken = 0
    private var outputEnded = false
    private var end: TestApp.Ending?
    /// Each looks whether what it waits for is there; true: it is done.
    private var waiters: [UUID: () -> Bool] = [:]

    init(_ words: [String], _ environment: [String: String]) throws(TestApp.Failure) {
        guard let toChild = socketPair() else { throw .notStarted(String(cString: strerror(errno))) }
        defer { close(toChild.0) }
        guard let fromChild = socketPair() else {
            close(toChild.1)
            throw .notStarted(String(cString: strerror(errno)))
        }
        defer { close(fromChild.1) }
        do throws(SpawnFailure) {
            let lifeline = try Lifeline()
            pid = try spawnChild(words, input: toChild.0, output: fromChild.1, environment: environment)
            lifeline.tie(pid)
            self.lifeline = lifeline
        } catch {
            close(toChild.1)
            close(fromChild.0)
            throw .notStarted(error.description)
        }
        input = toChild.1
        Thread.detachNewThread { [self] in
            readLines(of: fromChild.0) { line in change { all.append(line) } }
            change { outputEnded = true }
        }
        Thread.detachNewThread { [self] in awaitEnd() }
    }

    deinit { close(input) }

    // MARK: Its threads

    private func awaitEnd() {
        // It stays in the table of processes until its end is noted: until then a signal can reach no other process.
        var found = siginfo_t()
        while waitid(P_PID, id_t(pid), &found, WEXITED | WNOWAIT) != 0, errno == EINTR {}
        change {
            lifeline = nil
            var status: Int32 = 0
            waitpid(pid, &status, 0)
            end = status & 0x7F == 0 ? .exited(status >> 8 & 0xFF) : .signalled(status & 0x7F)
        }
    }

    private func change(_ body: () -> Void) {
        lock.withLock {
            body()
            waiters = waiters.filter { !$1() }
        }
    }

    // MARK: What a test does

    var lines: [String] { lock.withLock { all } }
    var ending: TestApp.Ending? { lock.withLock { end } }
    var hasNoMoreLines: Bool { lock.withLock { outputEnded && taken == all.count } }

    func kill() { send(signal: SIGKILL) }
    func send(signal: Int32) { lock.withLock { if end == nil { _ = Glibc.kill(pid, signal) } } }

    func send(line: String) {
        var bytes = [UInt8]((line + "\n").utf8)[...]
        while !bytes.isEmpty {
            // It may have ended already; that must not end this process. And one that does not read is not waited for.
            let flags = Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT)
            let count = bytes.withUnsafeBytes { Glibc.send(input, $0.baseAddress, $0.count, flags) }
            guard count > 0 else { return }
            bytes = bytes.dropFirst(count)
        }
    }

    /// - Returns: Nil if the time was over, or the output has ended.
    func nextLine(within limit: Duration, where matches: @escaping @Sendable (String) -> Bool) async -> String? {
        await wait(limit) { [self] () -> String?? in
            while taken < all.count {
                taken += 1
                if matches(all[taken - 1]) { return all[taken - 1] }
            }
            return outputEnded ? .some(nil) : nil
        } ?? nil
    }

    /// - Parameter limit: Nil: none.
    func waitForEnd(within limit: Duration?) async -> TestApp.Ending? {
        await wait(limit) { [self] in end }
    }

    /// - Parameter look: Called under the lock.
    private func wait<Found: Sendable>(_ limit: Duration?, for look: @escaping () -> Found?) async -> Found? {
        await withCheckedContinuation { (continuation: CheckedContinuation<Found?, Never>) in
            let id = UUID()
            let isDone = {
                guard let found = look() else { return false }
                continuation.resume(returning: found)
                return true
            }
            lock.withLock { if !isDone() { waiters[id] = isDone } }
            guard let limit else { return }
            DispatchQueue.global().asyncAfter(deadline: .now() + limit / .seconds(1)) { [self] in
                let waiter = lock.withLock { waiters.removeValue(forKey: id) }
                if waiter != nil { continuation.resume(returning: nil) }
            }
        }
    }
}
