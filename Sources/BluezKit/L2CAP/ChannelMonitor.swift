import BluezDBus
import CBluezL2CAP
import Foundation

/// Waits for the sockets of all channels, without a thread for each and without polling. What is watched for is
/// reported once, until it is asked for again; the end of a channel is always watched for.
///
/// Two threads take turns. The one that has found something may deliver it to the app itself, which saves a wake-up of
/// another thread for each event, while the other one waits.
final class ChannelMonitor: Sendable {
    // holds: weak references are safe to copy from any thread
    private struct Watched: @unchecked Sendable { weak var endpoint: ChannelEndpoint? }

    /// A place in the monitor.
    struct Ticket: Equatable { fileprivate let number: UInt64 }

    private struct State {
        var watched: [UInt64: Watched] = [:]
        var tickets: UInt64 = 0
        /// How many threads wait for sockets.
        var waiting = ChannelMonitor.threads
    }

    private static let threads = 2

    private let epoll: Int32
    private let state = Protected(State())

    /// Made with the first channel, and never ended. Nil: there is no descriptor or no thread left for it.
    static func shared() -> ChannelMonitor? {
        instance.withLock { instance in
            if instance == nil { instance = ChannelMonitor() }
            return instance
        }
    }

    private static let instance = Protected<ChannelMonitor?>(nil)

    private init?() {
        epoll = epoll_create1(Int32(EPOLL_CLOEXEC))
        guard epoll >= 0 else { return nil }
        let started = (0..<Self.threads).count { _ in
            startThread(named: "bluezkit.l2cap") { [self] in
                while true { wait() }
            }
        }
        guard started == 0 else { return }
        close(epoll)
        return nil
    }

    // MARK: Any thread

    /// Begins to watch for the end of a socket. - Returns: nil if the kernel cannot.
    func add(_ descriptor: Int32, _ endpoint: ChannelEndpoint) -> Ticket? {
        let ticket = state.withLock { state in
            state.tickets += 1
            state.watched[state.tickets] = Watched(endpoint: endpoint)
            return Ticket(number: state.tickets)
        }
        if control(EPOLL_CTL_ADD, descriptor, ticket, Self.endEvents) { return ticket }
        remove(descriptor, ticket)
        return nil
    }

    /// Watches for these once, and for the end.
    func watch(_ descriptor: Int32, _ ticket: Ticket, isReadable: Bool, isWritable: Bool) {
        var events = Self.endEvents
        if isReadable { events |= EPOLLIN.rawValue }
        if isWritable { events |= EPOLLOUT.rawValue }
        _ = control(EPOLL_CTL_MOD, descriptor, ticket, events)
    }

    func remove(_ descriptor: Int32, _ ticket: Ticket) {
        _ = control(EPOLL_CTL_DEL, descriptor, ticket, 0)
        let endpoint = state.withLock { $0.watched.removeValue(forKey: ticket.number)?.endpoint }
        withExtendedLifetime(endpoint) {}  // it must not be released under the lock
    }

    private static let endEvents = EPOLLRDHUP.rawValue | EPOLLONESHOT.rawValue

    private func control(_ operation: Int32, _ descriptor: Int32, _ ticket: Ticket, _ events: UInt32) -> Bool {
        var event = epoll_event(events: events, data: epoll_data_t(u64: ticket.number))
        return epoll_ctl(epoll, operation, descriptor, &event) == 0
    }

    // MARK: The threads

    private func wait() {
        // One at a time: the next one must not wait for the app that this one is delivered to.
        var event = epoll_event()
        guard epoll_wait(epoll, &event, 1, -1) == 1 else { return }
        let (bits, ticket) = (event.events, event.data.u64)
        func has(_ event: EPOLL_EVENTS) -> Bool { bits & event.rawValue != 0 }
        let (endpoint, othersWait) = state.withLock { state in
            state.waiting -= 1
            return (state.watched[ticket]?.endpoint, state.waiting > 0)
        }
        endpoint?.socketReady(
            isReadable: has(EPOLLIN), isWritable: has(EPOLLOUT),
            hasEnded: has(EPOLLHUP) || has(EPOLLERR) || has(EPOLLRDHUP), mayWait: othersWait)
        state.withLock { $0.waiting += 1 }
    }
}
