import CBluezDBus
import Glibc

/// What arrives from a socket, cut into messages, which stay in the memory into which they were read. Confined to the queue of
/// its connection.
final class MessageStream {
    /// Memory for messages, which they keep as long as they exist.
    final class Block {
        let start: UnsafeMutablePointer<UInt8>
        let capacity: Int

        init(capacity: Int) {
            (self.capacity, start) = (capacity, .allocate(capacity: capacity))
        }

        deinit { start.deallocate() }
    }

    /// Some hundred messages fit in.
    private static let blockSize = 64 << 10

    private var block = Block(capacity: blockSize)
    /// Where in ``block`` is what was received, and is no message yet.
    private var (begin, end) = (0, 0)
    /// What was received with it.
    private var descriptors: [Int32] = []
    /// The last message without descriptors, used again if it is not kept.
    private var last: Message?

    deinit { for descriptor in descriptors { close(descriptor) } }

    /// Whether the last block had no room for more, which is likely to be there.
    var isFull: Bool { end == block.capacity }

    /// Receives what is there, at most a block.
    /// - Returns: Whether anything was.
    func receive(from socket: Int32) throws(BusError) -> Bool {
        try makeRoom()
        let result = withUnsafeTemporaryAllocation(of: Int32.self, capacity: Int(CDBUS_MAX_DESCRIPTORS)) { received in
            guard let first = received.baseAddress else { return -Int(ENOMEM) }
            var count = Int32(received.count - descriptors.count)
            let result = cdbus_receive(socket, block.start + end, block.capacity - end, first, &count)
            descriptors += received.prefix(Int(count))
            return result
        }
        if result == -Int(EAGAIN) { return false }
        guard result > 0 else { throw result == 0 ? Self.ended : Self.failed(Int32(-result)) }
        end += result
        return true
    }

    /// The next message that has arrived completely. It is valid until the next one is asked for, unless it is retained.
    func next() throws(BusError) -> Message? {
        let length = try lengthOfNext()
        guard length > 0, end - begin >= length else {
            if block.capacity > Self.blockSize, begin == end { try makeRoom() }  // a large message is done with
            return nil
        }
        var header = cdbus_message_t()
        guard cdbus_message_parse(block.start + begin, length, descriptors.count, &header) == 0 else {
            throw Self.invalid
        }
        begin += length
        if header.descriptors > 0 {
            let own = Array(descriptors.prefix(Int(clamping: header.descriptors)))
            descriptors.removeFirst(own.count)
            return Message(header, in: block, descriptors: own)
        }
        if isKnownUniquelyReferenced(&last), let last {
            last.become(header, in: block)
            return last
        }
        let message = Message(header, in: block, descriptors: [])
        last = message
        return message
    }

    /// 0: not known yet.
    private func lengthOfNext() throws(BusError) -> Int {
        let length = cdbus_message_length(block.start + begin, end - begin)
        guard length >= 0 else { throw Self.invalid }
        return length
    }

    /// Moves what is there to the beginning of a block that has room for the rest of the message; of another one if messages in
    /// this one are kept.
    private func makeRoom() throws(BusError) {
        if isKnownUniquelyReferenced(&last) { last?.forget() } else { last = nil }
        let (needed, present) = (max(try lengthOfNext(), Self.blockSize), end - begin)
        if block.capacity != needed || !isKnownUniquelyReferenced(&block) {
            let other = Block(capacity: needed)
            memcpy(other.start, block.start + begin, present)
            block = other
        } else if begin > 0 {
            memmove(block.start, block.start + begin, present)
        }
        (begin, end) = (0, present)
    }

    private static let ended = BusError.disconnected(
        name: "org.freedesktop.DBus.Error.Disconnected", message: "the bus has closed the connection")
    private static let invalid = BusError.disconnected(
        name: "org.freedesktop.DBus.Error.Disconnected", message: "the bus has sent an invalid message")

    private static func failed(_ number: Int32) -> BusError {
        .disconnected(
            name: "org.freedesktop.DBus.Error.Disconnected",
            message: "cannot receive from the bus: \(String(cString: strerror(number)))")
    }
}
