import CBluezDBus
import Glibc

/// A received message. Its text and bytes are read in place, with ``MessageReader``; nothing is decoded until it is
/// needed.
///
/// Confined to the queue of its connection.
public final class Message {
    /// The type of a message, from its header.
    public enum Kind: Sendable { case call, reply, error, signal }

    let raw: OpaquePointer

    /// Takes ownership of the reference.
    init(adopting raw: OpaquePointer) { self.raw = raw }
    deinit { dbus_message_unref(raw) }

    /// The type of this message.
    public var kind: Kind {
        switch dbus_message_get_type(raw) {
        case DBUS_MESSAGE_TYPE_METHOD_CALL: .call
        case DBUS_MESSAGE_TYPE_METHOD_RETURN: .reply
        case DBUS_MESSAGE_TYPE_ERROR: .error
        default: .signal
        }
    }

    /// The sender's own number of this message. Every receiver of a broadcast sees the same one.
    public var serial: UInt32 { dbus_message_get_serial(raw) }
    var replySerial: UInt32 { dbus_message_get_reply_serial(raw) }

    // C strings of the header are valid as long as the message exists. Nil if the header has no such field.

    /// The unique name of the sender, in place.
    public var senderC: UnsafePointer<CChar>? { dbus_message_get_sender(raw) }
    /// The object path, in place.
    public var pathC: UnsafePointer<CChar>? { dbus_message_get_path(raw) }
    /// The interface, in place.
    public var interfaceC: UnsafePointer<CChar>? { dbus_message_get_interface(raw) }
    /// The name of the method or signal, in place.
    public var memberC: UnsafePointer<CChar>? { dbus_message_get_member(raw) }

    /// The unique name of the sender, as the bus daemon wrote it.
    public var sender: String? { senderC.map { String(cString: $0) } }
    /// The bus name that the message was sent to; nil for a broadcast.
    public var destination: String? { dbus_message_get_destination(raw).map { String(cString: $0) } }
    /// The object that is called, or that signals.
    public var path: ObjectPath? { pathC.map { ObjectPath(trusted: String(cString: $0)) } }
    /// The interface of the method or signal.
    public var interface: String? { interfaceC.map { String(cString: $0) } }
    /// The name of the method or signal.
    public var member: String? { memberC.map { String(cString: $0) } }
    /// The types of all arguments, as a D-Bus signature; empty if there are none.
    public var signature: String { String(cString: dbus_message_get_signature(raw)) }
    /// The name of the error that an error reply carries.
    public var errorName: String? { dbus_message_get_error_name(raw).map { String(cString: $0) } }
    /// Whether the caller expects an answer.
    public var expectsReply: Bool { dbus_message_get_no_reply(raw) == 0 }

    /// Whether this is the signal `interface.member`.
    public func isSignal(_ interface: StaticString, _ member: StaticString) -> Bool {
        dbus_message_get_type(raw) == DBUS_MESSAGE_TYPE_SIGNAL && memberC.matches(member)
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
