import BluezDBus
import Dispatch
import Foundation

/// A program on the bus that knows D-Bus and nothing else: calls, signals, and objects in the raw.
final class Peer: @unchecked Sendable {  // holds: the connection is touched on `queue` only; the logs are safe
    let queue = DispatchQueue(label: "test.peer")
    let connection: Connection
    /// Signals that were received, decoded.
    let signals = EventLog<Received>()
    /// The order in which signals, answers and the end of the connection came.
    let order = EventLog<String>()

    struct Received: Sendable {
        let member: String
        let sender: String
        let values: [Value]
    }

    init(_ address: BusAddress) throws {
        let queue = queue
        queue.virtualTime = VirtualTime.on(address)
        connection = try queue.sync { try Connection(address: address, queue: queue) }
        queue.sync {
            connection.onSignal = { [signals, order] message in
                signals.append(
                    Received(
                        member: message.member ?? "", sender: message.sender ?? "",
                        values: (try? message.values()) ?? []))
                order.append("signal \(message.member ?? "")")
            }
            connection.onDisconnected = { [order] error in order.append("disconnected \(error.name)") }
        }
    }

    /// Connects and waits for the name on the bus.
    static func named(_ address: BusAddress) async throws -> Peer {
        let peer = try Peer(address)
        _ = try await peer.bus("GetId")
        return peer
    }

    deinit {
        let connection = connection
        queue.async { connection.close() }
    }

    var name: String { queue.sync { connection.uniqueName ?? "" } }

    /// Runs `body` on the connection's queue.
    func sync<R>(_ body: (Connection) throws -> R) rethrows -> R { try queue.sync { try body(connection) } }

    // MARK: Calling

    /// Calls a method and decodes the answer.
    @discardableResult
    func call(
        _ destination: String, _ path: ObjectPath, _ interface: String, _ member: String, _ arguments: [Value] = [],
        deadline: Duration = .seconds(20)
    ) async throws -> [Value] {
        try await call(
            MethodCall(destination: destination, path: path, interface: interface, member: member) {
                (writer) throws(BusError) in for argument in arguments { try writer.write(argument) }
            }, deadline: deadline)
    }

    @discardableResult
    func call(_ call: MethodCall, deadline: Duration = .seconds(20)) async throws -> [Value] {
        // holds: consumed once, on the queue
        nonisolated(unsafe) let call = call
        return try await withCheckedThrowingContinuation { continuation in
            queue.async { [self] in
                connection.call(call, deadline: deadline) { result in
                    continuation.resume(
                        with: result.flatMap { reply in
                            Result { () throws(BusError) in try reply.values(takesFileDescriptors: true) }
                        })
                }
            }
        }
    }

    /// A method of the bus.
    @discardableResult
    func bus(_ member: String, _ arguments: Value...) async throws -> [Value] {
        try await call(
            "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", member, arguments)
    }

    /// Calls `test.Echo.Echo` of another peer.
    @discardableResult
    func echo(_ other: Peer, _ arguments: Value..., deadline: Duration = .seconds(20)) async throws -> [Value] {
        try await call(other.name, "/echo", "test.Echo", "Echo", arguments, deadline: deadline)
    }

    // MARK: Answering

    /// Answers every call with its own arguments.
    func serveEcho() {
        sync { connection in
            connection.onCall = { [unowned connection] call in
                guard let values = try? call.values(takesFileDescriptors: true) else { return }
                connection.reply(to: call) { (writer) throws(BusError) in
                    for value in values { try writer.write(value) }
                }
                for value in values { value.closeFileDescriptors() }
            }
        }
    }

    /// Handles every call with `body`.
    func serve(_ body: @escaping (Connection, IncomingCall) -> Void) {
        sync { connection in
            connection.onCall = { [unowned connection] call in body(connection, call) }
        }
    }

    func emit(
        _ path: ObjectPath, _ interface: String, _ member: String, to destination: String? = nil, _ arguments: [Value]
    ) throws {
        try sync { connection in
            try connection.emit(path: path, interface: interface, member: member, to: destination) {
                (writer) throws(BusError) in for argument in arguments { try writer.write(argument) }
            }
        }
    }

    /// Waits until everything that was sent before has been through the bus, and what came of it is here.
    func settle() async throws { try await bus("GetId") }

    /// Kills the daemon of this bus, as the kernel does when memory is short.
    func killBus() async throws {
        let pid = try await bus("GetConnectionUnixProcessID", .string("org.freedesktop.DBus")).first?.intValue
        guard let pid, pid > 1, pid != Int(getpid()) else { throw BusError.malformed("no process") }
        kill(pid_t(pid), SIGKILL)
    }
}

extension Value {
    /// Closes what came with a message.
    func closeFileDescriptors() {
        switch self {
        case .fileDescriptor(let descriptor): close(descriptor)
        case .structure(let members): for member in members { member.closeFileDescriptors() }
        case .variant(let inside): inside.closeFileDescriptors()
        default: break
        }
    }
}

/// Whether the other end of a pipe is closed, after its owner was released.
func reachesEnd(_ descriptor: Int32) async -> Bool {
    await withCheckedContinuation { continuation in
        DispatchQueue.global().async {
            var entry = pollfd(fd: descriptor, events: 0, revents: 0)
            continuation.resume(returning: poll(&entry, 1, 20_000) == 1 && entry.revents & Int16(POLLHUP) != 0)
        }
    }
}
