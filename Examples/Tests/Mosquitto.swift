import CMosquitto
import Foundation
import Synchronization

/// A broker of the test's own, on loopback and on Unix sockets.
final class Mosquitto: @unchecked Sendable {  // holds: used by one test
    let directory: TemporaryDirectory
    /// Where subscribers connect, and what is tested over TCP.
    private(set) var port: Int32 = 0
    /// Where the gateway connects, once ``open()`` was called.
    var socket: String { directory.path + "/broker" }
    let log = Lines()
    private let configuration: [String]
    private var process: Process?

    /// - Parameter configuration: Of the listener at ``port``, for `mosquitto.conf`.
    init(_ configuration: [String] = ["allow_anonymous true"]) throws {
        self.configuration = configuration
        directory = try TemporaryDirectory()
    }

    deinit { signal(SIGKILL) }

    /// Starts it. The gateway cannot connect yet, so that a subscriber is there first.
    func start() async throws {
        for _ in 0..<5 {
            if port == 0 { port = try FreePort().number }
            let file = directory.path + "/mosquitto.conf"
            let lines = [
                "per_listener_settings true", "user root", "log_dest stderr", "connection_messages true",
                "max_queued_messages 0", "listener \(port) 127.0.0.1", "socket_domain ipv4",
            ]
            let text = lines + configuration + ["listener 0 \(socket).new", "allow_anonymous true"]
            try text.joined(separator: "\n").appending("\n").write(toFile: file, atomically: true, encoding: .utf8)
            let (process, pipe) = (Process(), Pipe())
            process.executableURL = URL(fileURLWithPath: try Self.program("sbin/mosquitto"))
            process.arguments = ["-c", file]
            process.standardError = pipe
            try process.run()
            readLines(pipe) { [log] in log.add($0) }
            let line = try await log.next { $0.hasSuffix(" running") || $0.contains("Error") }
            if line.hasSuffix(" running") {
                self.process = process
                return
            }
            // Another program may have taken the port meanwhile.
            kill(process.processIdentifier, SIGKILL)
            guard line.contains("in use") else { throw Missing(description: "mosquitto: \(line)") }
            port = 0
        }
        throw Missing(description: "no port is free")
    }

    /// Lets the gateway connect.
    func open() throws {
        guard rename(socket + ".new", socket) == 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
    }

    /// Ends it, and what it has in memory.
    func crash() async throws {
        unlink(socket)
        signal(SIGKILL)
        try await until { [process] in process?.isRunning != true }
    }

    func signal(_ number: Int32) { if let process, process.isRunning { kill(process.processIdentifier, number) } }

    /// Of the Debian package: installed, or unpacked by scripts/install.
    static func program(_ name: String) throws -> String {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().appending(path: "../..").standardized
            .path
        guard
            let found = ["/usr/\(name)", "\(root)/.build/mosquitto/usr/\(name)"].first(
                where: FileManager.default.isExecutableFile)
        else { throw Missing(description: "there is no \(name); scripts/install installs what tests need") }
        return found
    }
}

/// A port of loopback on which nothing listens, and no other program can as long as this exists.
final class FreePort {
    private let descriptor: Int32
    let number: Int32

    init() throws {
        descriptor = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafeMutablePointer(to: &address) { [descriptor] in
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, length) == 0 ? getsockname(descriptor, $0, &length) : -1
            }
        }
        number = Int32(UInt16(bigEndian: address.sin_port))
        guard result == 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
    }

    deinit { close(descriptor) }
}

/// A client that subscribes to everything, without acknowledgements (QoS 0). So it has everything that the broker has
/// sent, also if that is killed: an acknowledgement that cannot be written would end the connection before all is read.
final class Subscriber: Sendable {
    /// What has come: `- TOPIC PAYLOAD`, or `R` before what was retained.
    let lines = Lines()
    // holds: libmosquitto's functions lock what they share
    private nonisolated(unsafe) let client: OpaquePointer
    private let handle: @Sendable (_ topic: String, _ payload: String, _ isRetained: Bool) -> Void
    private let state = Mutex((isSubscribed: false, hasEnded: false))

    /// Connects, and waits until it is subscribed.
    /// - Parameter handle: Gets messages instead of ``lines``.
    init(
        _ broker: Mosquitto,
        _ handle: (@Sendable (_ topic: String, _ payload: String, _ isRetained: Bool) -> Void)? = nil
    ) async throws {
        mosquitto_lib_init()
        guard let client = mosquitto_new(nil, true, nil) else { throw Missing(description: "libmosquitto") }
        self.client = client
        self.handle = handle ?? { [lines] in lines.add("\($2 ? "R" : "-") \($0) \($1)") }
        mosquitto_threaded_set(client, true)
        // holds: retained until the thread ends, and called back on that only
        mosquitto_user_data_set(client, Unmanaged.passRetained(self).toOpaque())
        mosquitto_connect_callback_set(client) { client, _, _ in mosquitto_subscribe(client, nil, "#", 0) }
        mosquitto_subscribe_callback_set(client) { _, context, _, _, _ in
            Subscriber.of(context)?.state.withLock { $0.isSubscribed = true }
        }
        mosquitto_message_callback_set(client) { _, context, message in
            guard let message = message?.pointee else { return }
            let payload = UnsafeRawBufferPointer(start: message.payload, count: Int(message.payloadlen))
            Subscriber.of(context)?.handle(
                String(cString: message.topic), String(decoding: payload, as: UTF8.self), message.retain)
        }
        guard mosquitto_connect(client, "127.0.0.1", broker.port, 60) == MOSQ_ERR_SUCCESS.rawValue else {
            throw Missing(description: "no connection to the broker")
        }
        Thread.detachNewThread {
            while mosquitto_loop(self.client, 1000, 1) == MOSQ_ERR_SUCCESS.rawValue {}
            self.state.withLock { $0.hasEnded = true }
            if let context = mosquitto_userdata(self.client) { Unmanaged<Subscriber>.fromOpaque(context).release() }
        }
        try await until { state.withLock { $0.isSubscribed } }
    }

    /// Until everything has been read that the broker has sent.
    func ended() async throws { try await until { state.withLock { $0.hasEnded } } }

    func close() { mosquitto_disconnect(client) }

    func publish(_ topic: String, _ payload: String, retain: Bool = false) {
        mosquitto_publish(client, nil, topic, Int32(payload.utf8.count), payload, 1, retain)
    }

    /// The payload of the next message to this topic.
    func next(_ topic: String) async throws -> String {
        let line = try await lines.next { $0.dropFirst(2).hasPrefix(topic + " ") }
        return String(line.dropFirst(topic.utf8.count + 3))
    }

    private static func of(_ context: UnsafeMutableRawPointer?) -> Subscriber? {
        context.map { Unmanaged<Subscriber>.fromOpaque($0).takeUnretainedValue() }
    }
}
