import Glibc
import Synchronization

/// A virtual device's end of an L2CAP channel: bytes in both directions.
///
/// ```swift
/// let psm = try sensor.serveChannels { channel in
///     while let bytes = await channel.receive() { try? await channel.send(bytes) }
/// }
/// ```
/// The end that does not read stops the other one, as credits do: about ``bufferSize`` bytes are under way in each
/// direction. The channel works until one end closes it or its link ends, whether or not a reference to it is kept. All
/// methods may be called from any thread, but bytes that are sent at the same time get mixed.
public final class VirtualChannel: Sendable {
    /// How many bytes the buffer of each direction holds, including what the kernel needs for itself. (What a program
    /// sends that has accepted the channel is in the buffer of its own socket, which it may set.)
    public static let bufferSize = 65_536

    /// Why a channel ended.
    public enum End: String, Sendable {
        /// By ``VirtualChannel/close()``.
        case closed
        /// The other end closed it, or its process ended.
        case closedByPeer
        /// The link ended.
        case linkLost
    }

    /// The PSM to which it was opened.
    public let psm: UInt16
    /// The address of the device at the other end.
    public let peer: String

    private let sockets: ChannelSockets
    private let state: Mutex<State>

    private struct State {
        var socket: Int32
        var end: End?
        var isReading = true
        /// Out of range: nothing moves in either direction.
        var isSilent = false
        /// Its link is, or its simulator ends.
        var isLost = false
        /// Who waits for the socket to be readable or writable: POLLIN or POLLOUT.
        var waiting: [(event: Int32, continuation: CheckedContinuation<Progress, Never>)] = []
        var waitingForEnd: [CheckedContinuation<End, Never>] = []
        var whenEnded: (@Sendable () -> Void)?
        var moved: (@Sendable (Int, Direction) -> Void)?

        /// Wakes all who wait for the socket; they try again.
        mutating func wake() {
            for (_, continuation) in waiting { continuation.resume(returning: .none) }
            waiting = []
        }

        mutating func closeSocket() {
            if socket >= 0 { Glibc.close(socket) }
            socket = -1
        }
    }

    enum Direction { case sent, received }

    private enum Progress {
        case none
        case received([UInt8])
        case sent(Int)
        case ended
    }

    /// - Parameter socket: Now belongs to the channel.
    init(_ socket: Int32, psm: UInt16, peer: String, sockets: ChannelSockets) {
        (self.psm, self.peer, self.sockets) = (psm, peer, sockets)
        state = Mutex(State(socket: socket))
    }

    deinit { state.withLock { $0.closeSocket() } }

    /// Starts to listen to its socket.
    /// - Parameters:
    ///   - moved: Called with the bytes that this end has sent or received.
    ///   - whenEnded: Called once.
    func start(
        moved: (@Sendable (Int, Direction) -> Void)? = nil, whenEnded: @escaping @Sendable () -> Void
    ) {
        state.withLock { ($0.whenEnded, $0.moved) = (whenEnded, moved) }
        sockets.add(self)
    }

    // MARK: Sending and receiving

    /// Sends all of `bytes`. Returns when they are in the buffer, which may have to wait for the other end to read.
    /// - Throws: ``VirtualChannelError/ended``
    public func send(_ bytes: [UInt8]) async throws {
        var sent = 0
        while sent < bytes.count {
            let progress = await attempt(POLLOUT) { state in
                guard state.end == nil, !state.isSilent else { return state.end == nil ? .none : .ended }
                let count = bytes[sent...].withUnsafeBytes {
                    Glibc.send(state.socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
                }
                return count >= 0 ? .sent(count) : errno == EAGAIN ? .none : .ended
            }
            switch progress {
            case .sent(let count):
                sent += count
                state.withLock { $0.moved }?(count, .sent)
            case .ended:
                finish(.closedByPeer)
                throw VirtualChannelError.ended
            case .none, .received: break
            }
        }
    }

    /// The next bytes, as many as are there, as soon as there are any.
    /// - Returns: Nil: the channel has ended, and everything that arrived before has been received.
    public func receive(upTo limit: Int = 4096) async -> [UInt8]? {
        while true {
            let progress = await attempt(POLLIN) { state in
                guard state.socket >= 0 else { return .ended }
                guard state.isReading, !state.isSilent else { return .none }
                var result = 0
                let bytes = [UInt8](unsafeUninitializedCapacity: limit) { buffer, count in
                    result = recv(state.socket, buffer.baseAddress, limit, 0)
                    count = max(result, 0)
                }
                if result > 0 { return .received(bytes) }
                if result < 0, errno == EAGAIN { return .none }
                state.closeSocket()
                return .ended
            }
            switch progress {
            case .received(let bytes):
                state.withLock { $0.moved }?(bytes.count, .received)
                return bytes
            case .ended:
                finish(.closedByPeer)
                return nil
            case .none, .sent: break
            }
        }
    }

    /// Tries once; if nothing was possible, waits for a change.
    private func attempt(_ event: Int32, _ body: (inout State) -> Progress) async -> Progress {
        await withCheckedContinuation { continuation in
            let mustWait = state.withLock { state in
                let progress = body(&state)
                guard case .none = progress else {
                    continuation.resume(returning: progress)
                    return false
                }
                state.waiting.append((event, continuation))
                return true
            }
            if mustWait { sockets.changed() }
        }
    }

    /// Sends back what it receives, until the channel ends.
    public func echo() async {
        while let bytes = await receive() {
            do { try await send(bytes) } catch { return }
        }
    }

    /// Whether ``receive(upTo:)`` receives anything. While it is false, a program at the other end can soon send
    /// nothing more.
    public var isReading: Bool {
        get { state.withLock { $0.isReading } }
        set {
            state.withLock { state in
                state.isReading = newValue
                state.wake()
            }
        }
    }

    // MARK: The end

    /// Why it ended; nil: it is open.
    public var ended: End? { state.withLock { $0.end } }

    /// Closes the channel. What the other end has not received yet still arrives there; what has not been received here
    /// is lost.
    public func close() { finish(.closed) }

    /// Waits until it has ended, whether or not it is read.
    @discardableResult
    public func waitForEnd() async -> End {
        await withCheckedContinuation { continuation in
            state.withLock { state in
                if let end = state.end {
                    continuation.resume(returning: end)
                } else {
                    state.waitingForEnd.append(continuation)
                }
            }
        }
    }

    /// Their link is lost. All know that before the first socket is closed, which its other end would take for a close.
    static func lose(_ channels: [VirtualChannel]) {
        for channel in channels { channel.state.withLock { $0.isLost = true } }
        for channel in channels { channel.finish(.linkLost) }
    }

    /// Ends it, if it has not ended yet. What the other end had sent before it closed the channel can still be
    /// received.
    func finish(_ cause: End) {
        let whenEnded = state.withLock { state -> (@Sendable () -> Void)? in
            let end = state.isLost ? .linkLost : cause
            if end != .closedByPeer { state.closeSocket() }
            state.wake()
            guard state.end == nil else { return nil }
            state.end = end
            for continuation in state.waitingForEnd { continuation.resume(returning: end) }
            state.waitingForEnd = []
            defer { state.whenEnded = nil }
            return state.whenEnded
        }
        guard let whenEnded else { return }
        sockets.remove(self)
        whenEnded()
    }

    /// The device at this end goes out of range, or comes back.
    func setSilent(_ isSilent: Bool) {
        state.withLock { state in
            state.isSilent = isSilent
            state.wake()
        }
        sockets.changed()
    }

    /// What is to be waited for: its end, and what those want who wait.
    var awaited: pollfd {
        state.withLock { state in
            guard !state.isSilent, state.end == nil else { return pollfd(fd: -1, events: 0, revents: 0) }
            let events = state.waiting.reduce(0) { $0 | ($1.event == POLLIN && !state.isReading ? 0 : $1.event) }
            return pollfd(fd: state.socket, events: Int16(events) | ChannelSockets.hungUp, revents: 0)
        }
    }

    func socketChanged(isHungUp: Bool) {
        if isHungUp { finish(.closedByPeer) } else { state.withLock { $0.wake() } }
    }
}

/// What is thrown by what a ``VirtualChannel`` cannot do.
public enum VirtualChannelError: Error, Hashable {
    /// The channel has ended.
    case ended
    /// The other end refused to open it, with this result of the Core Specification: 0x0002 the PSM is not supported,
    /// 0x0004 no resources, 0x0008 the link is not encrypted.
    case refused(result: UInt16)
    /// No PSM is free, or this one is not.
    case psmInUse
}
