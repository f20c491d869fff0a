import CBluezDBus
import Glibc

/// What threads wait for: the socket of a connection, if there is one, and other descriptors. ``wait(leads:)`` and
/// ``release()`` are called on the threads that wait, which hold the owner and thereby this; everything else on the
/// owner's queue.
// holds: `raw` permits both, and the rest is confined to the queue
package final class EventLoop: @unchecked Sendable {
    private let raw: OpaquePointer
    /// Who reads from the other descriptors.
    private var readers: [Int32: () -> Int] = [:]
    var pacing = TurnPacing()

    package init() throws(BusError) {
        guard let raw = cdbus_loop_new() else {
            throw .limit("no memory or no file descriptor for an event loop")
        }
        self.raw = raw
    }

    deinit { cdbus_loop_free(raw) }

    func attach(_ connection: OpaquePointer) throws(BusError) {
        guard cdbus_loop_attach(raw, connection) == 0 else { throw .limit("out of memory") }
    }

    func detach(_ connection: OpaquePointer) {
        cdbus_loop_detach(raw, connection)
        end()
    }

    /// Ends every wait.
    package func end() {
        unwatchAll()
        cdbus_loop_end(raw)
    }

    // MARK: Waiting

    /// Waits until the calling thread leads, and something is ready.
    /// - Parameter leads: Whether it led before, and has not let another one lead.
    /// - Returns: Whether there is more to come.
    func wait(leads: Bool) -> Bool { cdbus_loop_wait(raw, leads) }

    /// Lets another thread lead, as soon as something is ready.
    func release() { cdbus_loop_release(raw) }

    // MARK: Turns

    /// - Returns: Whether all threads wait now, for more to come together; otherwise the one that leads still does.
    func endTurn(at now: UInt64, hasOpenCalls: Bool) -> Bool {
        let pause = pacing.endTurn(at: now, hasOpenCalls: hasOpenCalls)
        if pause > 0 { cdbus_loop_pause(raw, pause) }
        return pause > 0
    }

    /// Leaves what has arrived where it is, and looks again after a millisecond.
    func rest() -> WaitingThreads.Turn {
        cdbus_loop_pause(raw, 1_000_000)
        return .init(isPaused: true)
    }

    /// A call was made, whose answer is not to wait.
    func recordCall(at now: UInt64) {
        if pacing.call(at: now) { cdbus_loop_resume(raw) }
    }

    /// Lets libdbus do its part of what is ready.
    func handle() throws(BusError) {
        guard cdbus_loop_handle(raw) == 0 else {
            throw .limit("no memory or no file descriptor for the connection to the bus")
        }
    }

    /// Where to read messages from. Negative: nowhere yet.
    var input: Int32 { cdbus_loop_input(raw) }

    /// Whether something has arrived that was not read.
    var hasInput: Bool {
        var socket = pollfd(fd: input, events: Int16(POLLIN), revents: 0)
        return poll(&socket, 1, 0) > 0 && socket.revents & Int16(POLLIN) != 0
    }

    func isReady(_ descriptor: Int32) -> Bool {
        var index: Int32 = 0
        while true {
            let ready = cdbus_loop_ready(raw, index)
            if ready == descriptor || ready < 0 { return ready >= 0 }
            index += 1
        }
    }

    package func watch(_ descriptor: Int32, _ body: @escaping () -> Int) -> Bool {
        guard cdbus_loop_watch(raw, descriptor) == 0 else { return false }
        readers[descriptor] = body
        return true
    }

    package func unwatch(_ descriptor: Int32) {
        if readers.removeValue(forKey: descriptor) != nil { cdbus_loop_unwatch(raw, descriptor) }
    }

    func unwatchAll() {
        for descriptor in readers.keys { cdbus_loop_unwatch(raw, descriptor) }
        readers.removeAll()
    }

    /// Lets those read whose descriptors are ready.
    /// - Returns: Whether there were any.
    @discardableResult
    package func handleReaders() -> Bool {
        guard !readers.isEmpty else { return false }
        var index: Int32 = 0
        while case let descriptor = cdbus_loop_ready(raw, index), descriptor >= 0 {
            index += 1
            if let values = readers[descriptor]?() { pacing.receive(values) }
        }
        if index == CDBUS_MAX_READY { pacing.keepGoing() }
        return index > 0
    }
}
