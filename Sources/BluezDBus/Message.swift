import CBluezDBus
import Glibc

/// A received message. Its text and bytes are read in place, with ``MessageReader``; nothing is decoded until it is
/// needed.
///
/// Confined to the queue of its connection.
public final class Message {
    /// The type of a message, from its header.
    public enum Kind: Sendable { case call, reply, error, signal }

    /// The message where it was received; ``block`` keeps that.
    private(set) var header: cdbus_message_t
    private var block: MessageStream.Block?
    /// Those that were taken are -1.
    private var descriptors: [Int32]

    /// - Parameters:
    ///   - header: Of a message that has been checked.
    ///   - descriptors: Taken over.
    init(_ header: cdbus_message_t, in block: MessageStream.Block, descriptors: [Int32]) {
        (self.header, self.block, self.descriptors) = (header, block, descriptors)
    }

    /// A message that is given whole, without descriptors. Nil if it is not valid.
    convenience init?(bytes: UnsafeRawBufferPointer) {
        let block = MessageStream.Block(capacity: bytes.count)
        UnsafeMutableRawBufferPointer(start: block.start, count: bytes.count).copyMemory(from: bytes)
        var header = cdbus_message_t()
        guard cdbus_message_length(block.start, bytes.count) == bytes.count, bytes.count > 0,
            cdbus_message_parse(block.start, bytes.count, &header) == 0, header.descriptors == 0
        else { return nil }
        self.init(header, in: block, descriptors: [])
    }

    deinit { DescriptorCloser.close(descriptors.filter { $0 >= 0 }) }

    /// This object becomes another message; only if it is not kept, and has no descriptors.
    func become(_ header: cdbus_message_t, in block: MessageStream.Block) {
        self.header = header
        if self.block !== block { self.block = block }
    }

    /// Lets go of the memory; only if it is not kept.
    func forget() { block = nil }

    /// A descriptor that came with the message, now the caller's. Nil: there is none, or it was lost or taken.
    func takeDescriptor(_ index: UInt32) -> Int32? {
        guard index < descriptors.count, descriptors[Int(clamping: index)] >= 0 else { return nil }
        let descriptor = descriptors[Int(clamping: index)]
        descriptors[Int(clamping: index)] = -1
        guard descriptor < 3 else { return descriptor }
        // Whatever is written to standard output or error, where those are closed, would be written to it.
        defer { close(descriptor) }
        let other = fcntl(descriptor, F_DUPFD_CLOEXEC, 3)
        return other < 0 ? nil : other
    }

    /// The type of this message.
    public var kind: Kind {
        switch Int32(header.type) {
        case DBUS_MESSAGE_TYPE_METHOD_CALL: .call
        case DBUS_MESSAGE_TYPE_METHOD_RETURN: .reply
        case DBUS_MESSAGE_TYPE_ERROR: .error
        default: .signal
        }
    }

    /// The sender's own number of this message. Every receiver of a broadcast sees the same one.
    public var serial: UInt32 { header.serial }
    var replySerial: UInt32 { header.reply_serial }

    // C strings of the header are valid as long as the message exists. Nil if the header has no such field.

    /// The unique name of the sender, in place.
    public var senderC: UnsafePointer<CChar>? { header.sender }
    /// The object path, in place.
    public var pathC: UnsafePointer<CChar>? { header.path }
    /// The interface, in place.
    public var interfaceC: UnsafePointer<CChar>? { header.interface }
    /// The name of the method or signal, in place.
    public var memberC: UnsafePointer<CChar>? { header.member }

    /// The unique name of the sender, as the bus daemon wrote it.
    public var sender: String? { senderC.map { String(cString: $0) } }
    /// The bus name that the message was sent to; nil for a broadcast.
    public var destination: String? { header.destination.map { String(cString: $0) } }
    /// The object that is called, or that signals.
    public var path: ObjectPath? { pathC.map { ObjectPath(trusted: String(cString: $0)) } }
    /// The interface of the method or signal.
    public var interface: String? { interfaceC.map { String(cString: $0) } }
    /// The name of the method or signal.
    public var member: String? { memberC.map { String(cString: $0) } }
    /// The types of all arguments, as a D-Bus signature; empty if there are none.
    public var signature: String { String(cString: header.signature) }
    /// The name of the error that an error reply carries.
    public var errorName: String? { header.error_name.map { String(cString: $0) } }
    /// Whether the caller expects an answer.
    public var expectsReply: Bool { Int32(header.flags) & DBUS_HEADER_FLAG_NO_REPLY_EXPECTED == 0 }

    /// Whether this is the signal `interface.member`.
    public func isSignal(_ interface: StaticString, _ member: StaticString) -> Bool {
        Int32(header.type) == DBUS_MESSAGE_TYPE_SIGNAL && memberC.matches(member)
            && interfaceC.matches(interface)
    }

    /// Reads the arguments, beginning with the first.
    public var reader: MessageReader { MessageReader(self) }

    /// All arguments as values.
    /// - Parameter takesFileDescriptors: File descriptors among them are the caller's to close; without it they are an
    ///   error.
    public func values(takesFileDescriptors: Bool = false) throws(BusError) -> [Value] {
        var reader = self.reader
        reader.takesFileDescriptors = takesFileDescriptors
        var result: [Value] = []
        while !reader.atEnd { result.append(try reader.readValue()) }
        return result
    }

    /// The error of an error reply, whatever the types of its arguments.
    var remoteError: BusError {
        var reader = self.reader
        let text = (try? reader.readString()) ?? ""
        return .remote(name: errorName ?? "org.freedesktop.DBus.Error.Failed", message: text)
    }
}

extension Message {
    /// Whether it is a call of `org.freedesktop.DBus.Peer.Ping`.
    var isPing: Bool { interfaceC.matches("org.freedesktop.DBus.Peer") && memberC.matches("Ping") }
}

extension UnsafePointer<CChar> {
    /// Whether this C string is `string`. Compares bytes; creates no `String`.
    public func matches(_ string: StaticString) -> Bool {
        let count = string.utf8CodeUnitCount
        return string.withUTF8Buffer { bytes in
            // `strncmp` ends at the first difference, so at the end of a shorter C string.
            guard let start = UnsafeRawPointer(bytes.baseAddress) else { return self[0] == 0 }
            return strncmp(self, start.assumingMemoryBound(to: CChar.self), count) == 0 && self[count] == 0
        }
    }
}

extension UnsafePointer<CChar>? {
    /// Whether there is a C string and it is `string`.
    public func matches(_ string: StaticString) -> Bool { self?.matches(string) ?? false }
}
