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
/// Everything happens on one queue: the callbacks come on it, and the methods are called on it. Keep the object:
/// releasing it closes the channel, unless that is kept, and drops what waits for the other end. ``close()`` does not
/// drop it.
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
    /// No callbacks are made any more.
    private var hasEnded = false
    /// The input has ended: so does this, when the messages that have arrived have been delivered.
    private var isInputAtEnd = false
    /// Messages are being delivered.
    private var isDelivering = false
    /// This object, while it only waits for the other end to take what was sent before ``close()``.
    private var keeper: MessageChannel?
    /// How long it waits for that with no byte taken.
    var patience = Duration.seconds(10)

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

    /// Closes the channel, when everything has left for which ``send(_:)`` has returned true; or when the other end has
    /// taken nothing for 10 s. No callback is made any more. The object need not be kept.
    public func close() {
        guard !hasEnded else { return }
        hasEnded = true
        guard !waiting.isEmpty else { return closeStreams() }
        channel.inputStream?.close()
        // Without effect if it is open already.
        open()
        keeper = self
        giveUpWithoutProgress()
    }

    private func closeStreams() {
        channel.inputStream?.close()
        channel.outputStream?.close()
        (waiting, keeper) = (Data(), nil)
    }

    private func giveUpWithoutProgress() {
        let count = waiting.count
        // holds: the object is used on this queue only
        nonisolated(unsafe) let look = { [weak self] in
            guard let self, keeper != nil else { return }
            if waiting.count < count { giveUpWithoutProgress() } else { closeStreams() }
        }
        queue.asyncAfter(
            deadline: .now() + Double(patience.components.seconds) + Double(patience.components.attoseconds) / 1e18
        ) {
            look()
        }
    }

    /// Whether all messages have been handed to the system.
    public var isIdle: Bool { waiting.isEmpty }

    /// Whether messages are received. While it is false, none is delivered, and the other end soon has no room for
    /// more; the end of the channel is reported after the messages that were there before it.
    public var isReading = true {
        didSet { if isReading, !oldValue { resume() } }
    }

    /// Sends a message, unless one before it still waits for the other end.
    /// - Returns: False: there is no room, and it is not sent; ``onRoom`` will be called.
    /// - Throws: ``MessageError/tooLong(_:limit:)``
    public func send(_ message: some Collection<UInt8>) throws(MessageError) -> Bool {
        let bytes = try encoder.encode(message)
        guard waiting.isEmpty, !hasEnded, !isInputAtEnd else {
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

    /// Delivers what has arrived while reading was stopped.
    private func resume() {
        deliver()
        if isReading, !isDelivering, channel.inputStream?.hasBytesAvailable == true { read() }
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
        deliver()
    }

    /// Delivers the messages that are complete, unless a callback stops that.
    private func deliver() {
        guard !isDelivering else { return }  // a callback has resumed reading
        isDelivering = true
        defer { isDelivering = false }
        do throws(MessageError) {
            while isReading, !hasEnded, let message = try decoder.next() { onMessage?(message) }
            if isReading, isInputAtEnd { finish(decoder.count > 0 ? .endedEarly(decoder.count) : nil) }
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
            guard waiting.isEmpty else { return }
            if hasEnded { return closeStreams() }
            guard isAwaited else { return }
            isAwaited = false
            onRoom?()
        case .endEncountered where hasEnded, .errorOccurred where hasEnded: closeStreams()
        case .endEncountered where stream === channel.inputStream, .errorOccurred:
            waiting = Data()  // no one takes it any more
            isInputAtEnd = true
            deliver()
        default: break
        }
    }
}
