import CBluezDBus

/// What a connection waits for: its socket, and other descriptors. ``wait(pause:)`` is called on the thread that waits, which
/// holds the connection and thereby this; everything else on the connection's queue.
final class EventLoop: @unchecked Sendable {  // holds: `raw` permits both, and the rest is confined to the queue
    private let raw: OpaquePointer
    /// Who reads from the other descriptors.
    private var readers: [Int32: () -> Int] = [:]
    var pacing = TurnPacing()

    init() throws(BusError) {
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
        for descriptor in readers.keys { cdbus_loop_unwatch(raw, descriptor) }
        readers.removeAll()
        cdbus_loop_detach(raw, connection)
    }

    /// Waits until something is ready, but not before `pause` has passed, in nanoseconds, or ``wake()`` was called.
    func wait(pause: UInt64) {
        if pause > 0 { cdbus_loop_pause(raw, pause) }
        cdbus_loop_wait(raw)
    }

    func wake() { cdbus_loop_wake(raw) }

    /// Lets libdbus do its part of what is ready.
    func handle() throws(BusError) {
        guard cdbus_loop_handle(raw) == 0 else { throw .limit("no file descriptor for reading from the bus") }
    }

    /// Where to read messages from, and whether there are any. Negative: nowhere yet.
    var input: (descriptor: Int32, isReady: Bool) {
        var isReady = false
        let descriptor = cdbus_loop_input(raw, &isReady)
        return (descriptor, isReady)
    }

    func watch(_ descriptor: Int32, _ body: @escaping () -> Int) -> Bool {
        guard cdbus_loop_watch(raw, descriptor) == 0 else { return false }
        readers[descriptor] = body
        return true
    }

    func unwatch(_ descriptor: Int32) {
        if readers.removeValue(forKey: descriptor) != nil { cdbus_loop_unwatch(raw, descriptor) }
    }

    /// Lets those read whose descriptors are ready.
    func handleReaders() {
        guard !readers.isEmpty else { return }
        withUnsafeTemporaryAllocation(of: Int32.self, capacity: 16) { ready in
            guard let first = ready.baseAddress else { return }
            let count = cdbus_loop_ready(raw, first, Int32(ready.count))
            if Int(count) == ready.count { pacing.goOn() }
            for descriptor in ready.prefix(Int(count)) {
                guard let values = readers[descriptor]?() else { continue }
                pacing.receive(values)
            }
        }
    }
}
