import Foundation
import Glibc
import Synchronization

/// What the channels of a simulator share: the names of their sockets, and the thread that waits for the sockets of all
/// of them, as long as there are any.
///
/// A channel is a Unix stream socket, whose two buffers stand for the credits of both ends: who does not read stops the
/// other one. Sockets are the kernel's: they work on while bluetoothd hangs, and go with the process that has them.
final class ChannelSockets: Sendable {
    /// Distinguishes the names of these sockets from those of other simulators.
    private let prefix = "bluezkit-l2cap/\(UInt64.random(in: .min ... .max))"
    /// A pair of sockets: a byte in the second ends the waiting.
    private let waking: Int32
    private let wake: Int32
    private let state = Mutex(State())

    private struct State {
        var channels: [ObjectIdentifier: VirtualChannel] = [:]
        var isWaiting = false
        var count = 0
    }

    init() {
        (waking, wake) = (try? Self.pair()) ?? (-1, -1)
    }

    deinit {
        close(waking)
        close(wake)
    }

    // MARK: Waiting

    /// Keeps a channel, and tells it about its socket, until ``remove(_:)``.
    func add(_ channel: VirtualChannel) {
        let mustStart = state.withLock { state in
            state.channels[ObjectIdentifier(channel)] = channel
            defer { state.isWaiting = true }
            return !state.isWaiting
        }
        if mustStart { Thread.detachNewThread { self.wait() } } else { changed() }
    }

    func remove(_ channel: VirtualChannel) {
        _ = state.withLock { $0.channels.removeValue(forKey: ObjectIdentifier(channel)) }
        changed()  // a socket is not closed while the thread waits for it
    }

    /// What a channel waits for has changed.
    func changed() { _ = send(wake, [0], 1, Int32(MSG_NOSIGNAL)) }

    /// The simulator ends.
    func closeAll() {
        VirtualChannel.lose(state.withLock { Array($0.channels.values) })
    }

    private func wait() {
        var scrap = [UInt8](repeating: 0, count: 64)
        while true {
            let channels = state.withLock { state in
                state.isWaiting = !state.channels.isEmpty
                return Array(state.channels.values)
            }
            guard !channels.isEmpty else { return }
            var entries = [pollfd(fd: waking, events: Int16(POLLIN), revents: 0)] + channels.map(\.awaited)
            poll(&entries, nfds_t(entries.count), -1)
            while read(waking, &scrap, scrap.count) == scrap.count {}
            // A descriptor may belong to another channel by now, which then tries without success.
            for (channel, entry) in zip(channels, entries.dropFirst()) where entry.revents != 0 {
                channel.socketChanged(isHungUp: entry.revents & (Self.hungUp | Int16(POLLHUP)) != 0)
            }
        }
    }

    /// POLLRDHUP: the other end has closed its socket, whether or not there is something to read.
    static let hungUp: Int16 = 0x2000

    // MARK: Sockets

    /// A connected pair. Their buffers are small, so that few bytes are under way: about `VirtualChannel.bufferSize` in
    /// each direction.
    static func pair() throws(SocketError) -> (Int32, Int32) {
        var ends: [Int32] = [-1, -1]
        guard socketpair(AF_UNIX, stream, 0, &ends) == 0 else { throw .last }
        for end in ends { limitBuffer(of: end) }
        return (ends[0], ends[1])
    }

    /// A socket that listens on a PSM of a controller, as long as any process has it.
    func listen(_ psm: UInt16, of controller: String) throws(SocketError) -> Int32 {
        try Self.socket { (end) throws(SocketError) in
            try Self.with(listenerName(psm, controller), end, Glibc.bind)
            guard Glibc.listen(end, Self.backlog) == 0 else { throw .last }
        }
    }

    /// A socket that is connected to one of these, with the name of the central that connects.
    func connect(to psm: UInt16, of controller: String, from central: String, type: String) throws(SocketError) -> Int32
    {
        let number = state.withLock { state in
            state.count += 1
            return state.count
        }
        return try Self.socket { (end) throws(SocketError) in
            try Self.with("\(prefix)-\(number)/\(central)/\(type)", end, Glibc.bind)
            try Self.with(listenerName(psm, controller), end, Glibc.connect)
            Self.limitBuffer(of: end)
        }
    }

    /// Whether any process listens on a PSM of a controller.
    func hasListener(on psm: UInt16, of controller: String) -> Bool {
        guard let end = try? listen(psm, of: controller) else { return true }
        close(end)
        return false
    }

    /// As many connections as may wait for being accepted.
    private static let backlog: Int32 = 128
    private static let stream =
        Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)

    private func listenerName(_ psm: UInt16, _ controller: String) -> String { "\(prefix)/\(controller)/\(psm)" }

    private static func limitBuffer(of end: Int32) {
        var size = Int32(VirtualChannel.bufferSize / 2)  // the kernel doubles it
        setsockopt(end, SOL_SOCKET, SO_SNDBUF, &size, socklen_t(MemoryLayout<Int32>.size))
    }

    private static func socket(_ prepare: (Int32) throws(SocketError) -> Void) throws(SocketError) -> Int32 {
        let end = Glibc.socket(AF_UNIX, stream, 0)
        guard end >= 0 else { throw .last }
        do {
            try prepare(end)
        } catch {
            close(end)
            throw error
        }
        return end
    }

    /// Calls bind or connect with a name in the abstract namespace.
    private static func with(
        _ name: String, _ end: Int32, _ call: (Int32, UnsafePointer<sockaddr>, socklen_t) -> Int32
    ) throws(SocketError) {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let size = withUnsafeMutableBytes(of: &address.sun_path) { path in
            path.dropFirst().copyBytes(from: name.utf8.prefix(path.count - 1))
            return MemoryLayout.offset(of: \sockaddr_un.sun_path).map { $0 + 1 + min(name.utf8.count, path.count - 1) }
        }
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { call(end, $0, socklen_t(size ?? 0)) }
        }
        guard result == 0 else { throw .last }
    }
}

/// What a system call on a socket failed with.
struct SocketError: Error {
    let code: Int32

    static var last: SocketError { SocketError(code: errno) }

    /// As the answer of a method.
    var answer: (name: String, message: String) {
        ("org.bluezkit.Simulator.Error." + (Self.names[code] ?? "EIO"), String(cString: strerror(code)))
    }

    private static let names = [
        EACCES: "EACCES", EADDRINUSE: "EADDRINUSE", EAGAIN: "EAGAIN", ECONNABORTED: "ECONNABORTED",
        ECONNREFUSED: "ECONNREFUSED",
        EHOSTUNREACH: "EHOSTUNREACH", EINVAL: "EINVAL", EMFILE: "EMFILE", ENOTCONN: "ENOTCONN",
    ]
}
