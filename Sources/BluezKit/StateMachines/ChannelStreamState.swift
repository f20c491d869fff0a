import Foundation

/// Which events a stream of an L2CAP channel reports, and when its socket must be watched for that (L2-4 to L2-6). The
/// same for both directions: ready means that there are bytes, or room.
struct ChannelStreamState: Equatable {
    private(set) var status = Stream.Status.notOpen
    private var isOpeningUnreported = false
    /// The socket was found to be ready since the app used it last.
    private var isReady = false
    /// The app was told so, and has not used the stream since: it is not told again.
    private var isReadinessReported = false
    private var isEndUnreported = false

    var isOpen: Bool { status == .open }

    /// `open()`. Streams cannot be opened again.
    mutating func open() {
        guard status == .notOpen else { return }
        (status, isOpeningUnreported) = (.open, true)
    }

    /// `close()`. Nothing is reported any more.
    mutating func close() {
        self = Self()
        status = .closed
    }

    /// The socket is ready.
    mutating func ready() { if isOpen { isReady = true } }

    /// It is not, after all: the app has used it since that was found.
    mutating func notReady() { isReady = false }

    /// The app has read or written: it hears of the next readiness again.
    mutating func used() { (isReady, isReadinessReported) = (false, false) }

    /// There is nothing more to read, or the peer cannot be written to any more. Reported once (O-42).
    mutating func end() {
        guard isOpen else { return }
        (status, isEndUnreported) = (.atEnd, true)
    }

    /// Whether the socket's readiness matters.
    var awaitsReadiness: Bool { isOpen && !isReady && !isReadinessReported }

    /// Whether there is an event to report.
    var hasEvent: Bool { isOpeningUnreported || isEndUnreported || isOpen && isReady && !isReadinessReported }

    enum Event: Equatable { case opened, ready, ended }

    /// The next event, in the order in which the app hears of them.
    mutating func takeEvent() -> Event? {
        if isOpeningUnreported {
            isOpeningUnreported = false
            return .opened
        }
        if isEndUnreported {
            isEndUnreported = false
            return .ended
        }
        guard isOpen, isReady, !isReadinessReported else { return nil }
        isReadinessReported = true
        return .ready
    }
}
