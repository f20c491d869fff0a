import BluezKitSimulator
import CBluezDBus
import Foundation
import Synchronization
import Testing

@testable import BluezDBus

@Suite("BluezDBus: receiving")
struct MessageStreamTests {
    init() { DescriptorCloser.settle() }

    @Test("messages are accepted, refused and read as libdbus does, in both byte orders")
    func sameAsLibdbus() {
        var generator = SeededGenerator(seed: 1)
        for number in 0..<20_000 {
            var bytes = RandomMessage.make(using: &generator)
            let isValid = bytes.withUnsafeBytes { Message(bytes: $0) } != nil
            #expect(isValid, "message \(number): \(bytes)")
            for _ in 0..<4 {
                let difference = bytes.withUnsafeBytes { MessageComparison.difference($0) }
                #expect(difference == nil, "message \(number): \(bytes)")
                guard difference == nil, isValid else { return }
                RandomMessage.damage(&bytes, using: &generator)
            }
        }
    }

    @Test("values nest as deeply as libdbus allows, and no deeper")
    func depth() {
        var deepest = 0
        for depth in 1...70 {
            // A variant in a variant…
            let outer = [UInt8]([1, UInt8(ascii: "v"), 0]), inner = [UInt8]([1, UInt8(ascii: "y"), 0, 7])
            let body = Array(repeatElement(outer, count: depth - 1).joined()) + inner
            let bytes = RandomMessage.signal(signature: "v", body: body)
            #expect(bytes.withUnsafeBytes { MessageComparison.difference($0) } == nil, "depth \(depth)")
            if bytes.withUnsafeBytes({ Message(bytes: $0) }) != nil { deepest = depth }
        }
        #expect(deepest == 64)
    }

    // Any local user may send signals, and each empty array below cost a look at the whole signature: ten times
    // libdbus' time, in which the bus dropped values of peripherals.
    @Test("no message costs much more to check than libdbus takes for it, however it is made")
    func cost() {
        /// An array with as many of these elements as fit in 2 MB, or 200 kB; its elements begin at multiples of 8.
        func array(_ element: String, of bytes: [UInt8], padding: Int = 0) -> [UInt8] {
            let elements = Array(repeatElement(bytes, count: thorough(2_000_000) / bytes.count).joined()).dropLast(
                padding)
            let length = withUnsafeBytes(of: UInt32(elements.count).littleEndian, Array.init)
            return RandomMessage.signal(signature: "a" + element, body: length + [0, 0, 0, 0] + elements)
        }
        let many = String(repeating: "y", count: 240)
        let zeros = [UInt8](repeating: 0, count: 8)
        for bytes in [
            array("(a(\(many)))", of: zeros), array("(a{y(\(many))})", of: zeros),
            array("(aas)", of: zeros, padding: 4),
            array("(vv)", of: [1, UInt8(ascii: "y"), 0, 5, 1, UInt8(ascii: "y"), 0, 5]),
            array("(g)", of: [5] + Array("aaaas".utf8) + [0, 0], padding: 1),
            array("(o)", of: [1, 0, 0, 0, UInt8(ascii: "/"), 0, 0, 0], padding: 2),
            array("(bb)", of: [1, 0, 0, 0, 1, 0, 0, 0]),
        ] {
            bytes.withUnsafeBytes { bytes in
                guard let start = bytes.baseAddress else { return }
                var header = cdbus_message_t()
                var (ours, theirs) = (Double.infinity, Double.infinity)
                // The least of up to 25 times: what else the machine does at the moment makes each longer.
                for _ in 0..<25 where !(ours < 2 * theirs) {
                    let parsing = threadTime {
                        let result = cdbus_message_parse(
                            start.assumingMemoryBound(to: UInt8.self), bytes.count, &header)
                        #expect(result == 0)
                    }
                    ours = min(ours, parsing)
                    let demarshalling = threadTime {
                        let message = dbus_message_demarshal(
                            start.assumingMemoryBound(to: CChar.self), CInt(bytes.count), nil)
                        if let message { dbus_message_unref(message) } else { Issue.record("libdbus refuses it") }
                    }
                    theirs = min(theirs, demarshalling)
                }
                let signature = String(cString: header.signature)
                #expect(ours < 2 * theirs, "\(signature): \(ours) s, libdbus \(theirs) s")
            }
        }
    }

    @Test("messages arrive in any pieces, large and small, and those that are kept stay as they are")
    func pieces() throws {
        let stream = MessageStream()
        var (generator, sent) = (SeededGenerator(seed: 2), [[UInt8]]())
        for number in 0..<600 {
            let size = number % 100 == 50 ? 200_000 : Int.random(in: 0..<400, using: &generator)
            sent.append(
                RandomMessage.signal(
                    serial: UInt32(number + 1), bytes: [UInt8](repeating: UInt8(number & 255), count: size)))
        }
        let ends = try socketPair()
        defer { ends.forEach { close($0) } }
        var (waiting, kept, count) = (sent.flatMap { $0 }[...], [Message](), 0)
        while count < sent.count {
            let piece = waiting.prefix(Int.random(in: 1..<90_000, using: &generator))
            if !piece.isEmpty {
                let written = Array(piece).withUnsafeBytes {
                    send(ends[0], $0.baseAddress, $0.count, Int32(MSG_DONTWAIT))
                }
                waiting = waiting.dropFirst(max(0, written))
            }
            guard try stream.receive(from: ends[1]) else { continue }
            while let message = try stream.next() {
                count += 1
                #expect(message.serial == count)
                if count % 7 == 0 { kept.append(message) }
            }
        }
        #expect(try stream.next() == nil)
        for message in kept {
            var reader = message.reader
            let bytes = try reader.readBytes()
            #expect(bytes.allSatisfy { $0 == UInt8(truncatingIfNeeded: message.serial - 1) })
            #expect(message.memberC.matches("Signal"))
        }
        #expect(kept.count == 85)
    }

    @Test("descriptors arrive with their messages, and those that are not taken are closed")
    func descriptors() throws {
        let (ends, pipe) = (try socketPair(), try socketPair())
        defer { (ends + [pipe[0]]).forEach { close($0) } }
        let stream = MessageStream()
        try sendDescriptors([pipe[1], pipe[1]], RandomMessage.signal(descriptors: 2), to: ends[0])
        try sendDescriptors([], RandomMessage.signal(), to: ends[0])
        try sendDescriptors([pipe[1]], RandomMessage.signal(descriptors: 1), to: ends[0])
        close(pipe[1])
        #expect(try descriptorCounts(stream, from: ends[1]) == [2, 0, 1])
        #expect(recv(pipe[0], UnsafeMutableRawPointer(bitPattern: 0), 0, 0) == 0)
    }

    @Test("a stream ends where no message begins, after those before it")
    func garbage() throws {
        let ends = try socketPair()
        defer { ends.forEach { close($0) } }
        let stream = MessageStream()
        var wrong = RandomMessage.signal()
        wrong[0] = 0
        try sendDescriptors([], RandomMessage.signal(serial: 7) + wrong, to: ends[0])
        #expect(try stream.receive(from: ends[1]))
        #expect(try stream.next()?.serial == 7)
        #expect(throws: BusError.self) { try stream.next() }
    }

    @Test("a message that is not valid, or has fewer descriptors than it announces, is left out, with its descriptors")
    func oddMessages() throws {
        let (ends, pipe) = (try socketPair(), try socketPair())
        defer { (ends + [pipe[0]]).forEach { close($0) } }
        let stream = MessageStream()
        var wrong = RandomMessage.signal(serial: 1, descriptors: 1, bytes: [1])
        wrong[3] = 9  // of another version of the protocol
        try sendDescriptors([pipe[1]], wrong, to: ends[0])
        try sendDescriptors([], RandomMessage.signal(descriptors: 1), to: ends[0])
        try sendDescriptors([pipe[1]], RandomMessage.signal(descriptors: 2), to: ends[0])
        try sendDescriptors([pipe[1]], RandomMessage.signal(serial: 7, descriptors: 1, bytes: []), to: ends[0])
        try sendDescriptors([pipe[1], pipe[1]], RandomMessage.signal(), to: ends[0])
        try sendDescriptors([pipe[1], pipe[1]], RandomMessage.signal(descriptors: 1), to: ends[0])
        close(pipe[1])
        #expect(try descriptorCounts(stream, from: ends[1]) == [1, 0, 1])
        #expect(recv(pipe[0], UnsafeMutableRawPointer(bitPattern: 0), 0, 0) == 0)
    }

    @Test("as many descriptors as the kernel lets pass are received, whatever waits")
    func manyDescriptors() throws {
        let ends = try socketPair()
        defer { ends.forEach { close($0) } }
        let stream = MessageStream()
        let large = RandomMessage.signal(serial: 1, descriptors: 253, bytes: [UInt8](repeating: 0, count: 40_000))
        let descriptors = [Int32](repeating: ends[0], count: 253)
        try sendDescriptors(descriptors, Array(large.prefix(100)), to: ends[0])
        #expect(try stream.receive(from: ends[1]) && stream.next() == nil)
        try sendDescriptors([], Array(large.dropFirst(100)), to: ends[0])
        try sendDescriptors(descriptors, RandomMessage.signal(descriptors: 253), to: ends[0])
        #expect(try descriptorCounts(stream, from: ends[1]) == [253, 253])
    }

    @Test("without a free descriptor a message loses its own, and those after it have theirs")
    func noDescriptorFree() throws {
        let ends = try socketPair()
        defer { ends.forEach { close($0) } }
        let stream = MessageStream()
        try sendDescriptors(
            [ends[0], ends[0]], RandomMessage.signal(serial: 1, descriptors: 2, bytes: []), to: ends[0])
        try sendDescriptors([ends[0]], RandomMessage.signal(serial: 2, descriptors: 1, bytes: []), to: ends[0])
        #expect(try withResourceLimit(RLIMIT_NOFILE, 0) { try stream.receive(from: ends[1]) })
        let first = try #require(try stream.next())
        #expect(first.serial == 1 && first.takeDescriptor(0) == nil)
        #expect(throws: BusError.self) { try first.values(takesFileDescriptors: true) }
        #expect(try descriptorCounts(stream, from: ends[1]) == [1])
    }

    /// Has `wait` take its time with each descriptor, until `body` has returned.
    private func withEnds(
        _ wait: @escaping @Sendable () -> Void, _ body: () async throws -> Void
    ) async throws {
        let end = DescriptorCloser.end.withLock { $0 }
        DescriptorCloser.end.withLock {
            $0 = .init {
                wait()
                end.body($0)
            }
        }
        defer { DescriptorCloser.end.withLock { $0 = end } }
        try await body()
    }

    // As that of a file can whose file system is a program of the sender's, or `setsockopt` of a socket that he has
    // locked.
    @Test("a descriptor that is never closed holds up itself")
    func neverCloses() async throws {
        let ends = try socketPair()
        defer { ends.forEach { close($0) } }
        let (stream, count, gate) = (MessageStream(), ProtectedBox(0), DispatchSemaphore(value: 0))
        try await withEnds {
            let number = count.withLock {
                $0 += 1
                return $0
            }
            if number <= 3 { _ = gate.wait(timeout: .now() + 60) }
        } _: {
            for serial in 1...UInt32(60) {
                try sendDescriptors([ends[0]], RandomMessage.signal(serial: serial, descriptors: 1), to: ends[0])
                #expect(try stream.receive(from: ends[1]) && stream.next()?.serial == serial)
            }
            try await eventually("the others are closed") { DescriptorCloser.openCount == 3 }
            for _ in 0..<3 { gate.signal() }
            try await eventually("all are closed") { DescriptorCloser.isIdle }
        }
    }

    @Test("descriptors whose closing waits hold up nothing; more of them than a process can bear are not received")
    func slowToClose() async throws {
        let ends = try socketPair()
        defer { ends.forEach { close($0) } }
        let (stream, gate) = (MessageStream(), DispatchSemaphore(value: 0))
        try await withEnds {
            _ = gate.wait(timeout: .now() + 60)
            gate.signal()  // for the next one
        } _: {
            try await fallBehind(stream, ends) { gate.signal() }
        }
    }

    private func fallBehind(_ stream: MessageStream, _ ends: [Int32], then release: () -> Void) async throws {
        for serial in 1...UInt32(30) {
            try sendDescriptors(
                [Int32](repeating: ends[0], count: 16), RandomMessage.signal(serial: serial, descriptors: 16),
                to: ends[0])
            #expect(try stream.receive(from: ends[1]) && stream.next()?.serial == serial)
        }
        #expect(DescriptorCloser.isBehind)
        try sendDescriptors([ends[0]], RandomMessage.signal(serial: 99, descriptors: 1), to: ends[0])
        #expect(try descriptorCounts(stream, from: ends[1]) == [0])
        release()
        try await eventually("they are closed") { !DescriptorCloser.isBehind }
        try sendDescriptors([ends[0]], RandomMessage.signal(serial: 100, descriptors: 1), to: ends[0])
        #expect(try descriptorCounts(stream, from: ends[1]) == [1])
    }

    @Test("a socket that lingers is closed at once")
    func lingers() async throws {
        let ends = try socketPair()
        defer { ends.forEach { close($0) } }
        let (stream, slow) = (MessageStream(), try LingeringSocket())
        try sendDescriptors([slow.descriptor], RandomMessage.signal(serial: 1, descriptors: 0), to: ends[0])
        slow.close()
        #expect(try stream.receive(from: ends[1]) && stream.next()?.serial == 1)
        try await eventually("it is closed") { DescriptorCloser.isIdle }
        withExtendedLifetime(slow) {}
    }

    /// How many descriptors each message has that is there.
    private func descriptorCounts(_ stream: MessageStream, from socket: Int32) throws -> [Int] {
        var counts: [Int] = []
        while try stream.receive(from: socket) {
            while let message = try stream.next() {
                counts.append(
                    (0..<300).count { index in message.takeDescriptor(UInt32(index)).map { close($0) } != nil })
            }
        }
        return counts
    }
}

/// A socket with data that the other end does not read, and that closing waits for.
private final class LingeringSocket {
    let descriptor: Int32
    private let peer: Int32

    init() throws {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { Glibc.close(listener) }
        var (address, length) = (sockaddr_in(), socklen_t(MemoryLayout<sockaddr_in>.size))
        (address.sin_family, address.sin_addr.s_addr) = (sa_family_t(AF_INET), in_addr_t(INADDR_LOOPBACK).bigEndian)
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        let (client, size) = (descriptor, length)
        try withUnsafeMutablePointer(to: &address) { pointer in
            try pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                try #require(bind(listener, address, size) == 0 && listen(listener, 1) == 0)
                try #require(getsockname(listener, address, &length) == 0 && connect(client, address, size) == 0)
            }
        }
        peer = accept(listener, nil, nil)
        var linger = linger(l_onoff: 1, l_linger: 60)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<Glibc.linger>.size))
        let bytes = [UInt8](repeating: 0, count: 1 << 20)
        while send(descriptor, bytes, bytes.count, Int32(MSG_DONTWAIT)) > 0 {}
    }

    deinit { Glibc.close(peer) }

    /// Not the last one, if it was sent.
    func close() { Glibc.close(descriptor) }
}

func socketPair() throws -> [Int32] {
    var ends: [Int32] = [-1, -1]
    try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
    return ends
}

/// Sends bytes with descriptors in one call.
func sendDescriptors(_ descriptors: [Int32], _ bytes: [UInt8], to socket: Int32) throws {
    let length = MemoryLayout<cmsghdr>.size + descriptors.count * 4
    let control = UnsafeMutableRawBufferPointer.allocate(byteCount: (length + 7) & ~7, alignment: 8)
    defer { control.deallocate() }
    var part = cmsghdr()
    (part.cmsg_len, part.cmsg_level, part.cmsg_type) = (length, SOL_SOCKET, Int32(SCM_RIGHTS))
    control.storeBytes(of: part, as: cmsghdr.self)
    descriptors.withUnsafeBytes { control[MemoryLayout<cmsghdr>.size...].copyBytes(from: $0) }
    var bytes = bytes
    let sent = bytes.withUnsafeMutableBytes { bytes in
        var part = iovec(iov_base: bytes.baseAddress, iov_len: bytes.count)
        return withUnsafeMutablePointer(to: &part) { part in
            var header = msghdr()
            (header.msg_iov, header.msg_iovlen) = (part, 1)
            if !descriptors.isEmpty { (header.msg_control, header.msg_controllen) = (control.baseAddress, length) }
            return sendmsg(socket, &header, 0)
        }
    }
    try #require(sent == bytes.count)
}

extension DescriptorCloser {
    /// Waits until all are closed.
    static func settle() {
        let deadline = ContinuousClock.now + .seconds(60)
        while !isIdle, ContinuousClock.now < deadline { sched_yield() }
    }
}
