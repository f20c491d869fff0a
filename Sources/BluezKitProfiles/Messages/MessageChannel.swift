public import BluezKit
import Dispatch
import Foundation

/// Messages over an L2CAP channel, each with its length before it. BluezKit addition.
///
/// ```swift
/// let messages = MessageChannel(channel)
/// messages.onMessage = { print("\($0.count) bytes") }
/// messages.open()
/// try messages.send(Data("hello".utf8))
/// ```
/// Everything happens on one queue: the callbacks come on it, and the methods are called on it. Keep the object: releasing it
/// closes the channel, unless that is kept.
public final class MessageChannel: NSObject, StreamDelegate {
    /// The channel.
    public let channel: CBL2CAPChannel
    /// Called with each message, in order.
    public var onMessage: ((Data) -> Void)?
    /// Called when there is room for a message again, after ``send(_:)`` has returned false.
    public var onRoom: (() -> Void)?
    /// Called once, after all messages: the channel has ended. The error is nil if it ended between two messages.
    public var onEnd: ((MessageError?) -> Void)?

    private let queue: DispatchQueue
    private let encoder: MessageEncoder
    private var decoder: MessageDecoder
    /// What there was no space for.
    private var waiting = Data()
    private var isAwaited = false
    private var hasEnded = false

    /// - Parameters:
    ///   - channel: An open channel; its streams belong to this object from now on.
    ///   - limit: The longest message in bytes, in both directions; the same as at the other end.
    ///   - queue: A serial queue.
    public init(_ channel: CBL2CAPChannel, limit: Int = MessageDecoder.usualLimit, queue: DispatchQueue = .main) {
        (self.channel, self.queue) = (channel, queue)
        (encoder, decoder) = (MessageEncoder(limit: limit), MessageDecoder(limit: limit))
        super.init()
    }

    /// Starts. Set the callbacks before.
    public func open() {
        channel.schedule(on: queue)
        for stream in [channel.inputStream as Stream?, channel.outputStream as Stream?] {
            stream?.delegate = self
            stream?.open()
        }
    }

    /// Closes the channel, when what was sent before has left. ``onEnd`` is not called.
    public func close() {
        hasEnded = true
        channel.inputStream?.close()
        channel.outputStream?.close()
    }

    /// Whether all messages have been handed to the system.
    public var isIdle: Bool { waiting.isEmpty }

    /// Whether messages are received. While it is false, the other end soon has no room for more.
    public var isReading = true {
        didSet { if isReading, !oldValue, channel.inputStream?.hasBytesAvailable == true { read() } }
    }

    /// Sends a message, unless one before it still waits for the other end.
    /// - Returns: False: there is no room, and it is not sent; ``onRoom`` will be called.
    /// - Throws: ``MessageError/tooLong(_:limit:)``
    public func send(_ message: some Collection<UInt8>) throws(MessageError) -> Bool {
        let bytes = try encoder.encode(message)
        guard waiting.isEmpty, !hasEnded else {
            isAwaited = true
            return false
        }
        waiting = bytes
        write()
        return true
    }

    private func write() {
        while !waiting.isEmpty, let output = channel.outputStream, output.hasSpaceAvailable {
            let count = waiting.withUnsafeBytes { bytes in
                bytes.bindMemory(to: UInt8.self).baseAddress.map { output.write($0, maxLength: bytes.count) } ?? 0
            }
            guard count > 0 else { return }
            waiting.removeFirst(count)
        }
    }

    private func read() {
        guard let input = channel.inputStream, isReading, !hasEnded else { return }
        var count = 0
        let piece = [UInt8](unsafeUninitializedCapacity: 16_384) { buffer, initialized in
            count = buffer.baseAddress.map { input.read($0, maxLength: buffer.count) } ?? 0
            initialized = max(count, 0)
        }
        guard count > 0 else { return }
        decoder.append(piece)
        do throws(MessageError) {
            while !hasEnded, let message = try decoder.next() { onMessage?(message) }
        } catch {
            finish(error)
        }
    }

    private func finish(_ error: MessageError?) {
        guard !hasEnded else { return }
        close()
        onEnd?(error)
    }

    /// For the streams.
    public func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable: read()
        case .hasSpaceAvailable:
            write()
            guard waiting.isEmpty, isAwaited, !hasEnded else { return }
            isAwaited = false
            onRoom?()
        case .endEncountered where stream === channel.inputStream, .errorOccurred:
            // What had arrived has been read, unless reading was stopped.
            finish(decoder.count > 0 ? .endedEarly(decoder.count) : nil)
        default: break
        }
    }
}
