import CBluezDBus
import Glibc

/// What arrives from a socket, cut into messages, which stay in the memory into which they were read. Confined to the
/// queue of its connection.
///
/// The fuzzer and a unit test compare every verdict and every value with libdbus' own; another test does so for every
/// short path, name and signature. `ReadScheduleTests` sends messages with descriptors in pieces of any size and reads
/// them in others; `BLUEZKIT_SCHEDULES=10000000` tries that many schedules.
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
    /// How many bytes have been received.
    private var received = 0
    /// Descriptors of messages that have not arrived completely.
    private var arrivals: [Arrival] = []
    /// The last message without descriptors, used again if it is not kept.
    private var last: Message?

    /// What came with one read. It belongs to the message that has the last byte of the read: a read ends with the data
    /// that carries descriptors, and no sender puts two messages into that.
    private struct Arrival {
        /// The number of bytes that had been received then.
        let position: Int
        /// Nil: lost, because this process may open no more, or has too many to close.
        let descriptors: [Int32]?
    }

    deinit { for arrival in arrivals { closeAll(arrival.descriptors ?? []) } }

    /// Whether the last block had no room for more, which is likely to be there.
    var isFull: Bool { end == block.capacity }

    /// Whether the last read has ended with descriptors, as each that has some does, whatever is there after them.
    private(set) var endsWithDescriptors = false

    /// Receives what is there, at most a block.
    /// - Parameter limit: Fewer bytes than that, for tests.
    /// - Returns: Whether anything was.
    func receive(from socket: Int32, atMost limit: Int = .max) throws(BusError) -> Bool {
        try makeRoom()
        let (result, descriptors) = withUnsafeTemporaryAllocation(
            of: Int32.self, capacity: Int(CDBUS_MAX_DESCRIPTORS)
        ) { room -> (Int, [Int32]?) in
            guard let first = room.baseAddress else { return (-Int(ENOMEM), []) }
            var (count, someLost) = (Int32(0), false)
            let result = cdbus_receive(
                socket, block.start + end, min(block.capacity - end, limit), DescriptorCloser.isBehind ? nil : first,
                &count, &someLost)
            let descriptors = Array(room.prefix(Int(count)))
            if someLost { closeAll(descriptors) }
            return (result, someLost ? nil : descriptors)
        }
        if result == -Int(EAGAIN) { return false }
        guard result > 0 else { throw result == 0 ? Self.ended : Self.failed(Int32(-result)) }
        end += result
        received += result
        endsWithDescriptors = descriptors?.isEmpty != true
        if endsWithDescriptors { arrivals.append(Arrival(position: received, descriptors: descriptors)) }
        return true
    }

    /// The next message that has arrived completely. It is valid until the next one is asked for, unless it is
    /// retained.
    ///
    /// One that is not valid, or that lacks descriptors, is left out: no other program must end this connection with
    /// it. Only a stream in which no message begins where one should is at its end.
    func next() throws(BusError) -> Message? {
        while true {
            let length = try lengthOfNext()
            guard length > 0, end - begin >= length else {
                if block.capacity > Self.blockSize, begin == end { try makeRoom() }  // a large message is done with
                return nil
            }
            var header = cdbus_message_t()
            let isValid = cdbus_message_parse(block.start + begin, length, &header) == 0
            begin += length
            if !arrivals.isEmpty || header.descriptors > 0 {
                if let message = takeDescriptors(header, isValid) { return message }
            } else if isValid {
                return message(header)
            }
        }
    }

    private func message(_ header: cdbus_message_t) -> Message {
        if isKnownUniquelyReferenced(&last), let last {
            last.become(header, in: block)
            return last
        }
        let message = Message(header, in: block, descriptors: [])
        last = message
        return message
    }

    /// The message before ``begin``, with its descriptors, of which those that it does not announce are closed. Nil: it
    /// lacks some that have not been lost here, or is not valid.
    private func takeDescriptors(_ header: cdbus_message_t, _ isValid: Bool) -> Message? {
        let position = received - (end - begin)
        let own = arrivals.prefix { $0.position <= position }
        arrivals.removeFirst(own.count)
        let (present, isLost) = (own.flatMap { $0.descriptors ?? [] }, own.contains { $0.descriptors == nil })
        let announced = Int(clamping: header.descriptors)
        guard isValid, !isLost, announced > 0, announced <= present.count else {
            closeAll(present)
            return isValid && (isLost || announced == 0) ? message(header) : nil
        }
        closeAll(Array(present.dropFirst(announced)))
        return Message(header, in: block, descriptors: Array(present.prefix(announced)))
    }

    private func closeAll(_ descriptors: [Int32]) { DescriptorCloser.close(descriptors) }

    /// 0: not known yet.
    private func lengthOfNext() throws(BusError) -> Int {
        let length = cdbus_message_length(block.start + begin, end - begin)
        guard length >= 0 else { throw Self.invalid }
        return length
    }

    /// Moves what is there to the beginning of a block that has room for the rest of the message; of another one if
    /// messages in this one are kept.
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
