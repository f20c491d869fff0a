import BluezKitSimulator
import CBluezDBus
import Foundation
import Testing

@testable import BluezDBus

/// Where reads end, and which descriptors come with them, is up to the kernel and the time: every schedule of reads
/// must give the same messages, each with its own descriptors.
@Suite("BluezDBus: schedules of reads")
struct ReadScheduleTests {
    /// A message as it is sent.
    private struct Sent {
        let bytes: [UInt8]
        let descriptors: [Int]
        /// What is received of it; nil: nothing.
        let received: Received?
        /// Where it is cut when it is sent.
        var cuts: [Int] = []
    }

    private struct Received: Equatable, CustomStringConvertible {
        let serial: UInt32
        let descriptors: [Int]
        var description: String { "\(serial)\(descriptors)" }
    }

    /// Files that can be told apart, for descriptors of messages: sockets.
    private final class Files {
        private(set) var descriptors: [Int32] = []
        private var numbers: [UInt64: Int] = [:]

        init(_ count: Int) throws {
            for number in 0..<count {
                let descriptor = socket(AF_INET, Int32(SOCK_DGRAM.rawValue), 0)
                try #require(descriptor >= 0)
                descriptors.append(descriptor)
                numbers[try #require(Self.inode(descriptor))] = number
            }
        }

        deinit { descriptors.forEach { close($0) } }

        private static func inode(_ descriptor: Int32) -> UInt64? {
            var info = stat()
            return fstat(descriptor, &info) == 0 ? UInt64(info.st_ino) : nil
        }

        /// How many descriptors of them are open: those of `descriptors`, and those that were received.
        var openCount: Int {
            let all = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
            return all.compactMap(Int32.init).compactMap(Self.inode).count { numbers[$0] != nil }
        }

        /// Which of them a descriptor is; it is closed.
        func take(_ descriptor: Int32) -> Int {
            defer { close(descriptor) }
            return Self.inode(descriptor).flatMap { numbers[$0] } ?? -1
        }

        func received(_ message: Message) -> Received {
            var found: [Int] = []
            while let descriptor = message.takeDescriptor(UInt32(found.count)) { found.append(take(descriptor)) }
            return Received(serial: message.serial, descriptors: found)
        }
    }

    /// Up to five messages: short and long ones, with and without descriptors.
    /// - Parameter odd: Also those that no bus of today delivers.
    private static func messages(
        odd: Bool, files: Int, using generator: inout SeededGenerator
    ) -> [Sent] {
        (0..<Int.random(in: 1...5, using: &generator)).map { number in
            let size = [0, 10, 500, 500, 40_000, 70_000][Int.random(in: 0..<6, using: &generator)]
            let most = odd && Int.random(in: 0..<8, using: &generator) == 0 ? 253 : 16
            let count =
                Bool.random(using: &generator) ? 0 : [1, 2, 3, 16, most][Int.random(in: 0..<5, using: &generator)]
            let descriptors = (0..<count).map { _ in Int.random(in: 0..<files, using: &generator) }
            let serial = UInt32(number + 1)
            var announced = count
            let oddity = odd ? Int.random(in: 0..<12, using: &generator) : 99
            if oddity == 0 { announced += 1 }
            if oddity == 1 { announced = max(0, count - 1) }
            var bytes = RandomMessage.signal(
                serial: serial, descriptors: UInt32(announced), bytes: [UInt8](repeating: 7, count: size))
            if oddity == 2 { bytes[3] = 9 }  // of another version of the protocol
            let isReceived = oddity != 0 && oddity != 2
            var sent = Sent(
                bytes: bytes, descriptors: descriptors,
                received: isReceived
                    ? Received(serial: serial, descriptors: Array(descriptors.prefix(announced))) : nil)
            sent.cuts = (0..<Int.random(in: 0...3, using: &generator)).map { _ in
                Int.random(in: 1..<bytes.count, using: &generator)
            }
            sent.cuts.sort()
            return sent
        }
    }

    /// Sends a message as a bus does: its descriptors with the first of its pieces.
    private static func send(_ message: Sent, _ files: Files, to socket: Int32) throws {
        var (start, descriptors) = (0, message.descriptors.map { files.descriptors[$0] })
        for cut in message.cuts + [message.bytes.count] where cut > start {
            try sendDescriptors(descriptors, Array(message.bytes[start..<cut]), to: socket)
            (start, descriptors) = (cut, [])
        }
    }

    private static func limit(using generator: inout SeededGenerator) -> Int {
        switch Int.random(in: 0..<6, using: &generator) {
        case 0: Int.random(in: 1...40, using: &generator)
        case 1: Int.random(in: 1...1000, using: &generator)
        case 2: Int.random(in: 1...50_000, using: &generator)
        default: .max
        }
    }

    /// `BLUEZKIT_SCHEDULES` is how many are tried.
    private static let count =
        ProcessInfo.processInfo.environment["BLUEZKIT_SCHEDULES"].flatMap(Int.init) ?? thorough(10_000)

    @Test(
        "messages come with their own descriptors in every schedule of reads; odd ones are left out, no descriptor stays"
    )
    func schedules() throws {
        let files = try Files(40)
        let ends = try socketPair()
        defer { ends.forEach { close($0) } }
        var room: Int32 = 4 << 20
        setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, socklen_t(MemoryLayout<Int32>.size))
        let seed = SimulatorOptions.seed
        // One stream: what a schedule leaves behind shows in the next one.
        var stream = MessageStream()
        for number in 0..<Self.count {
            var generator = SeededGenerator(seed: seed &+ UInt64(number))
            let sent = Self.messages(odd: true, files: 40, using: &generator)
            var received: [Received] = []
            func read(all: Bool) throws {
                repeat {
                    DescriptorCloser.settle()  // they come faster than they are closed
                    guard try stream.receive(from: ends[1], atMost: Self.limit(using: &generator)) else { return }
                    while let message = try stream.next() { received.append(files.received(message)) }
                } while all || Bool.random(using: &generator)
            }
            for message in sent {
                try Self.send(message, files, to: ends[0])
                if Bool.random(using: &generator) { try read(all: false) }
            }
            try read(all: true)
            try #require(received == sent.compactMap(\.received), "BLUEZKIT_SEED=\(seed &+ UInt64(number))")
            if number % 1000 == 0 {
                stream = MessageStream()
                DescriptorCloser.settle()
                try #require(files.openCount == files.descriptors.count, "BLUEZKIT_SEED=\(seed &+ UInt64(number))")
            }
        }
    }

    @Test("libdbus receives the same from the messages that it accepts")
    func sameAsLibdbus() throws {
        let files = try Files(40)
        let peer = try LibdbusPeer()
        let stream = MessageStream()
        let ends = try socketPair()
        defer { ends.forEach { close($0) } }
        var room: Int32 = 4 << 20
        for end in [ends[0], peer.socket] {
            setsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, socklen_t(MemoryLayout<Int32>.size))
        }
        let seed = SimulatorOptions.seed
        for number in 0..<min(Self.count / 5, 100_000) {
            var generator = SeededGenerator(seed: seed &+ UInt64(number))
            let sent = Self.messages(odd: false, files: 40, using: &generator)
            var (ours, theirs): ([Received], [Received]) = ([], [])
            func read() throws {
                while try stream.receive(from: ends[1], atMost: Self.limit(using: &generator)) {
                    while let message = try stream.next() { ours.append(files.received(message)) }
                }
                try peer.read { serial, descriptors in
                    theirs.append(Received(serial: serial, descriptors: descriptors.map(files.take)))
                }
            }
            for message in sent {
                try Self.send(message, files, to: ends[0])
                try Self.send(message, files, to: peer.socket)
                if Bool.random(using: &generator) { try read() }
            }
            try read()
            try #require(ours == theirs && ours.count == sent.count, "BLUEZKIT_SEED=\(seed &+ UInt64(number))")
        }
    }
}

/// A connection of libdbus whose other end is a bare socket.
private final class LibdbusPeer {
    let socket: Int32
    private let connection: OpaquePointer

    init() throws {
        let directory = try TemporaryDirectory()
        let path = directory.path + "/socket"
        let listener = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(listener) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
        let bound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(listener, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        try #require(bound == 0 && listen(listener, 1) == 0)
        connection = try #require(dbus_connection_open_private("unix:path=" + path, nil))
        dbus_connection_set_exit_on_disconnect(connection, 0)
        socket = accept(listener, nil, nil)
        try authenticate()
    }

    deinit {
        dbus_connection_close(connection)
        dbus_connection_unref(connection)
        close(socket)
    }

    private func authenticate() throws {
        var text = ""
        var buffer = [UInt8](repeating: 0, count: 1024)
        for _ in 0..<1000 where !text.contains("BEGIN") {
            dbus_connection_read_write(connection, 0)
            let count = recv(socket, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            guard count > 0 else { continue }
            let new = String(decoding: buffer.prefix(count), as: UTF8.self)
            text += new
            if new.contains("AUTH") { send("OK 0123456789abcdef0123456789abcdef\r\n") }
            if new.contains("NEGOTIATE_UNIX_FD") { send("AGREE_UNIX_FD\r\n") }
        }
        try #require(text.contains("BEGIN"))
    }

    private func send(_ text: String) { _ = Glibc.send(socket, text, text.utf8.count, 0) }

    /// Reads all that is there.
    func read(_ body: (UInt32, [Int32]) -> Void) throws {
        var hasRead = true
        while hasRead {
            var entry = pollfd(fd: 0, events: Int16(POLLIN), revents: 0)
            dbus_connection_get_socket(connection, &entry.fd)
            hasRead = poll(&entry, 1, 0) > 0
            dbus_connection_read_write(connection, 0)
            while let message = dbus_connection_pop_message(connection) {
                defer { dbus_message_unref(message) }
                body(dbus_message_get_serial(message), descriptors(of: message))
            }
        }
        try #require(dbus_connection_get_is_connected(connection) != 0)
    }

    /// Those of the second argument.
    private func descriptors(of message: OpaquePointer) -> [Int32] {
        var (arguments, array) = (DBusMessageIter(), DBusMessageIter())
        dbus_message_iter_init(message, &arguments)
        guard dbus_message_iter_next(&arguments) != 0 else { return [] }
        dbus_message_iter_recurse(&arguments, &array)
        var found: [Int32] = []
        while dbus_message_iter_get_arg_type(&array) == CDBUS_TYPE_UNIX_FD {
            var descriptor: Int32 = -1
            dbus_message_iter_get_basic(&array, &descriptor)
            found.append(descriptor)
            dbus_message_iter_next(&array)
        }
        return found
    }
}
