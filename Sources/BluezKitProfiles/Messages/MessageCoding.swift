public import Foundation

/// Why a byte stream is not, or must not become, a sequence of messages. BluezKit addition.
public enum MessageError: Error, Hashable, Sendable {
    /// A message is longer than the limit, in bytes. What follows it cannot be found.
    case tooLong(Int, limit: Int)
    /// The stream ended within a message, of which this many bytes had arrived.
    case endedEarly(Int)
}

extension MessageError: LocalizedError {
    /// One sentence, without a full stop.
    public var errorDescription: String? {
        switch self {
        case .tooLong(let length, let limit): "a message of \(length) bytes, longer than the limit of \(limit)"
        case .endedEarly(let count): "the stream ended within a message, after \(count) bytes of it"
        }
    }
}

/// Turns messages into bytes of a stream: each is preceded by its length, 4 bytes in little-endian order. BluezKit
/// addition.
///
/// An L2CAP channel, like every byte stream, does not keep the boundaries of what is written to it.
///
/// ```swift
/// output.write(try MessageEncoder().encode(Data("hello".utf8)))  // 05 00 00 00 68 65 6c 6c 6f
/// ```
public struct MessageEncoder: Hashable, Sendable {
    /// The number of bytes before each message.
    public static let headerLength = 4
    /// The longest message in bytes, that is encoded.
    public let limit: Int

    /// - Parameter limit: The same as at the other end.
    public init(limit: Int = MessageDecoder.usualLimit) { self.limit = limit }

    /// The bytes of one message.
    /// - Throws: ``MessageError/tooLong(_:limit:)``
    public func encode(_ message: some Collection<UInt8>) throws(MessageError) -> Data {
        guard message.count <= limit, let length = UInt32(exactly: message.count) else {
            throw .tooLong(message.count, limit: limit)
        }
        var bytes = Data(capacity: Self.headerLength + message.count)
        for shift in 0..<Self.headerLength { bytes.append(UInt8(truncatingIfNeeded: length >> (8 * shift))) }
        return bytes + message
    }
}

/// Finds the messages in a byte stream that arrives in pieces. BluezKit addition.
///
/// ```swift
/// var decoder = MessageDecoder()
/// decoder.append(piece)
/// while let message = try decoder.next() { handle(message) }
/// ```
/// Any bytes are accepted. Take all messages after each piece: then the decoder holds no more than one incomplete
/// message, which is at most ``limit`` long. A longer one is an error as soon as its length has arrived, before its
/// content.
public struct MessageDecoder: Hashable, Sendable {
    /// The usual limit, 65,536 bytes.
    public static let usualLimit = 65_536
    /// The longest message in bytes, that is accepted.
    public let limit: Int

    private var bytes: [UInt8] = []
    /// Where the next message begins.
    private var start = 0
    private var failure: MessageError?

    /// - Parameter limit: The same as at the other end; it bounds the memory that a stranger can make this side use.
    public init(limit: Int = Self.usualLimit) { self.limit = limit }

    /// The number of bytes that have arrived of messages that were not taken.
    public var count: Int { bytes.count - start }

    /// Adds what has arrived. After an error it is discarded.
    public mutating func append(_ piece: some Sequence<UInt8>) {
        guard failure == nil else { return }
        bytes.removeFirst(start)
        start = 0
        bytes += piece
    }

    /// The next message, if all of it has arrived.
    /// - Throws: ``MessageError/tooLong(_:limit:)``, also from every later call.
    public mutating func next() throws(MessageError) -> Data? {
        if let failure { throw failure }
        guard count >= MessageEncoder.headerLength else { return nil }
        let header = bytes[start..<start + MessageEncoder.headerLength]
        let length = Int(clamping: header.reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) })
        guard length <= limit else {
            failure = .tooLong(length, limit: limit)
            (bytes, start) = ([], 0)
            throw .tooLong(length, limit: limit)
        }
        guard count - MessageEncoder.headerLength >= length else { return nil }
        let end = header.endIndex + length
        defer { start = end }
        return Data(bytes[header.endIndex..<end])
    }
}
