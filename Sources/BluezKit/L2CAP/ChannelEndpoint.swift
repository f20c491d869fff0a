import BluezDBus
import Dispatch
import Foundation

/// This side of an open channel: its socket, and what its two streams have to report. Any thread.
///
/// The channel ends when the peer, the link or BluezKit ends it, or when the app has closed both streams. What had
/// arrived can be read after that.
final class ChannelEndpoint: @unchecked Sendable {  // holds: what changes is under `shared`'s lock
    enum Side { case input, output }

    private struct Half {
        var stream = ChannelStreamState()
        /// Whether events of it can be delivered: an unscheduled stream needs no watching.
        var isScheduled = false
        /// Its delegate is being called.
        var isDelivering = false
    }

    private struct Shared {
        /// Nil: closed.
        var socket: ChannelSocket?
        var input = Half()
        var output = Half()
        var hasEnded = false
        var isEndNoted = false
        var failure: POSIXError?

        subscript(side: Side) -> Half {
            get { side == .input ? input : output }
            set { if side == .input { input = newValue } else { output = newValue } }
        }
    }

    private let shared: Protected<Shared>
    private let monitor: ChannelMonitor
    private var ticket: ChannelMonitor.Ticket?
    /// The streams' schedulers, which are told that there is something to deliver.
    let schedulers = (input: StreamScheduler(), output: StreamScheduler())
    /// The end of the channel, once. On any thread.
    private let onEnd: @Sendable () -> Void
    private let closing: BlueZTiming.Channel
    /// Gets what the streams move; nil: nothing does.
    private let trace: ChannelTrace?

    /// Nil: no descriptor is left to watch the socket with.
    init?(
        _ socket: ChannelSocket, _ closing: BlueZTiming.Channel, trace: ChannelTrace? = nil,
        onEnd: @escaping @Sendable () -> Void
    ) {
        guard let monitor = ChannelMonitor.shared() else { return nil }
        (self.monitor, self.closing, self.trace, self.onEnd) = (monitor, closing, trace, onEnd)
        shared = Protected(Shared(socket: socket))
        ticket = monitor.add(socket.descriptor, self)
        guard ticket != nil else { return nil }
    }

    deinit { close() }

    private func scheduler(_ side: Side) -> StreamScheduler { side == .input ? schedulers.input : schedulers.output }

    /// Makes a change, then tells the schedulers and the owner what has come of it.
    /// - Parameter mayWait: Whether this thread may deliver to the app.
    private func update<R>(mayWait: Bool = false, _ change: (inout Shared) -> R) -> R {
        let (result, events, endsNow) = shared.withLock { shared in
            let result = change(&shared)
            let endsNow = (shared.hasEnded || shared.socket == nil) && !shared.isEndNoted
            if endsNow { shared.isEndNoted = true }
            return (result, (shared.input.stream.hasEvent, shared.output.stream.hasEvent), endsNow)
        }
        if endsNow { onEnd() }
        // Not for one stream while the other has something to report, perhaps elsewhere.
        if events.0 { schedulers.input.signal(mayWait: mayWait && !events.1) }
        if events.1 { schedulers.output.signal(mayWait: mayWait) }
        return result
    }

    // MARK: The socket

    /// The channel has ended. What is unread is still reported first.
    private static func markEnded(_ shared: inout Shared) {
        shared.hasEnded = true
        shared.output.stream.end()
        updateInput(&shared)
    }

    private static func updateInput(_ shared: inout Shared) {
        if (shared.socket?.unreadBytes ?? 0) > 0 {
            shared.input.stream.ready()
        } else if shared.hasEnded {
            shared.input.stream.end()
        }
    }

    /// Watches for what the streams wait for.
    private func watch(_ shared: Shared) {
        // The end first: it may come while `ticket` is being set.
        guard !shared.hasEnded, let socket = shared.socket, let ticket else { return }
        func isAwaited(_ half: Half) -> Bool { half.isScheduled && !half.isDelivering && half.stream.awaitsReadiness }
        monitor.watch(
            socket.descriptor, ticket, isReadable: isAwaited(shared.input), isWritable: isAwaited(shared.output))
    }

    /// Ends the channel. The streams report it.
    func end() { shared.withLock { $0.socket }?.shutDown() }

    /// Closes the channel, and reports nothing any more.
    func close() {
        close(.input)
        close(.output)
    }

    // MARK: The streams

    func status(of side: Side) -> Stream.Status { shared.withLock { $0[side].stream.status } }

    var failure: POSIXError? { shared.withLock { $0.failure } }

    func open(_ side: Side) {
        update { shared in
            shared[side].stream.open()
            if shared.hasEnded { Self.markEnded(&shared) }
            watch(shared)
        }
    }

    func close(_ side: Side) {
        scheduler(side).end()  // it leaves its run loops
        let socket = update { shared in
            shared[side].stream.close()
            guard shared.input.stream.status == .closed, shared.output.stream.status == .closed else {
                return nil as ChannelSocket?
            }
            defer { shared.socket = nil }
            return shared.socket
        }
        guard let socket else { return }
        ticket.map { monitor.remove(socket.descriptor, $0) }
        ChannelCloser.close(socket, closing)
    }

    /// A stream was scheduled, or is not any more. Several threads may do that at a time.
    func updateSchedule(_ side: Side) {
        var isScheduled: Bool
        repeat {
            isScheduled = scheduler(side).isScheduled
            update { shared in
                shared[side].isScheduled = isScheduled
                watch(shared)
            }
        } while isScheduled != scheduler(side).isScheduled
    }

    var hasBytesAvailable: Bool {
        shared.withLock { $0.input.stream.isOpen && ($0.socket?.unreadBytes ?? 0) > 0 }
    }

    var hasSpaceAvailable: Bool {
        shared.withLock { $0.output.stream.isOpen && $0.socket?.hasRoom ?? false }
    }

    /// - Returns: The number of bytes; 0 at the end; -1 if the stream is not open.
    func read(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        let count = transfer(.input) { $0.read(into: buffer) }
        if let trace, count > 0 { trace(.input, UnsafeRawBufferPointer(rebasing: buffer.prefix(count))) }
        return count
    }

    /// - Returns: The number of bytes; -1 if the stream is not open, or the channel has ended.
    func write(_ buffer: UnsafeRawBufferPointer) -> Int {
        let count = transfer(.output) { $0.write(buffer) }
        if let trace, count > 0 { trace(.output, UnsafeRawBufferPointer(rebasing: buffer.prefix(count))) }
        return count == 0 && !buffer.isEmpty ? -1 : count
    }

    private func transfer(_ side: Side, _ attempt: (ChannelSocket) -> ChannelSocket.Outcome) -> Int {
        while true {
            let (socket, status) = shared.withLock { ($0.socket, $0[side].stream.status) }
            guard let socket, status == .open else { return status == .atEnd ? 0 : -1 }
            switch attempt(socket) {
            case .bytes(let count):
                used(side)
                return count
            case .ended:
                update { shared in
                    if side == .output { shared.failure = POSIXError(.EPIPE) }
                    Self.markEnded(&shared)
                }
                // The input is looked at again: something may have arrived just before the end.
                if side == .output { return 0 }
            // As Apple's streams: without an event before it, a call waits.
            case .notReady: socket.wait(for: side == .input ? .reading : .writing)
            }
        }
    }

    private func used(_ side: Side) {
        update { shared in
            shared[side].stream.used()
            if side == .input, shared.hasEnded { Self.updateInput(&shared) }
            if shared[side].isScheduled, !shared[side].isDelivering { watch(shared) }
        }
    }

    // MARK: Delivery

    /// Delivers what one stream has to report.
    func deliver(_ side: Side, to body: (ChannelStreamState.Event) -> Void) {
        let isAlone = shared.withLock { shared in
            // Another thread delivers, as on a concurrent queue: it signals again if there is more.
            guard !shared[side].isDelivering else { return false }
            shared[side].isDelivering = true
            guard let socket = shared.socket else { return true }
            let isReady = side == .input ? socket.unreadBytes > 0 : socket.hasRoom
            if !isReady { shared[side].stream.notReady() }
            return true
        }
        guard isAlone else { return }
        // At most one readiness at a time: the run loop must get to its other work.
        while let event = shared.withLock({ $0[side].stream.takeEvent() }) {
            body(event)
            if event == .ready { break }
        }
        update { shared in
            shared[side].isDelivering = false
            // Often there is more: that is cheaper to see here than in the monitor's thread.
            if shared[side].stream.awaitsReadiness {
                if side == .input {
                    Self.updateInput(&shared)
                } else if shared.socket?.hasRoom ?? false {
                    shared.output.stream.ready()
                }
            }
            watch(shared)
        }
    }
}

extension ChannelEndpoint {
    /// On one of the monitor's threads.
    /// - Parameters:
    ///   - hasEnded: The channel has; there may be unread bytes.
    ///   - mayWait: Whether the thread may be kept as long as an app takes.
    func socketReady(isReadable: Bool, isWritable: Bool, hasEnded: Bool, mayWait: Bool) {
        update(mayWait: mayWait) { shared in
            if hasEnded {
                Self.markEnded(&shared)
            } else {
                if isReadable { shared.input.stream.ready() }  // `deliver` looks how much there is
                if isWritable { shared.output.stream.ready() }
            }
            watch(shared)
        }
    }
}

/// Closes sockets when all that was written has been sent: the kernel drops what waits for the peer's credits. Not
/// longer than ``BlueZTiming/Channel/lingering``: a peer that does not read must not keep a channel.
enum ChannelCloser {
    private static let queue = DispatchQueue(label: "bluezkit.closing")

    static func close(_ socket: ChannelSocket, _ timing: BlueZTiming.Channel) {
        guard socket.hasUnsentBytes else { return socket.shutDown() }
        wait(socket, timing.drain.shortest, until: .now().later(by: timing.lingering), timing)
    }

    private static func wait(
        _ socket: ChannelSocket, _ delay: Duration, until deadline: DispatchTime, _ timing: BlueZTiming.Channel
    ) {
        queue.later(delay) {
            guard socket.hasUnsentBytes, .now() < deadline else { return socket.shutDown() }
            wait(socket, min(delay * 2, timing.drain.longest), until: deadline, timing)
        }
    }
}
