import Foundation

/// What arrives on a channel.
final class ChannelInputStream: InputStream {
    private let endpoint: ChannelEndpoint

    init(_ endpoint: ChannelEndpoint) {
        self.endpoint = endpoint
        super.init(data: Data())
        let stream = WeakStream(stream: self)
        endpoint.schedulers.input.setDelivery { [weak endpoint] in
            endpoint?.deliver(.input) { stream.report($0, .hasBytesAvailable) }
        }
    }

    override func open() { endpoint.open(.input) }
    override func close() { endpoint.close(.input) }

    override var streamStatus: Stream.Status { endpoint.status(of: .input) }
    override var streamError: (any Error)? { nil }

    override var hasBytesAvailable: Bool { endpoint.hasBytesAvailable }

    override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
        endpoint.read(into: UnsafeMutableRawBufferPointer(start: buffer, count: max(len, 0)))
    }

    /// The bytes are in the kernel: there is no buffer to show.
    override func getBuffer(
        _ buffer: UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>, length len: UnsafeMutablePointer<Int>
    ) -> Bool { false }

    override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        endpoint.schedulers.input.schedule(in: aRunLoop, mode)
        endpoint.updateSchedule(.input)
    }

    override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        endpoint.schedulers.input.remove(from: aRunLoop, mode)
        endpoint.updateSchedule(.input)
    }

    override func property(forKey key: Stream.PropertyKey) -> AnyObject? { nil }
    override func setProperty(_ property: AnyObject?, forKey key: Stream.PropertyKey) -> Bool { false }
}

/// What is sent on a channel.
final class ChannelOutputStream: OutputStream {
    private let endpoint: ChannelEndpoint

    init(_ endpoint: ChannelEndpoint) {
        self.endpoint = endpoint
        super.init(toMemory: ())
        let stream = WeakStream(stream: self)
        endpoint.schedulers.output.setDelivery { [weak endpoint] in
            endpoint?.deliver(.output) { stream.report($0, .hasSpaceAvailable) }
        }
    }

    /// Foundation requires it; no channel is made so.
    required init(toMemory: ()) { preconditionFailure("a channel's stream is not made in memory") }

    override func open() { endpoint.open(.output) }
    override func close() { endpoint.close(.output) }

    override var streamStatus: Stream.Status { endpoint.status(of: .output) }
    override var streamError: (any Error)? { endpoint.failure }

    override var hasSpaceAvailable: Bool { endpoint.hasSpaceAvailable }

    override func write(_ buffer: UnsafePointer<UInt8>, maxLength len: Int) -> Int {
        endpoint.write(UnsafeRawBufferPointer(start: buffer, count: max(len, 0)))
    }

    override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        endpoint.schedulers.output.schedule(in: aRunLoop, mode)
        endpoint.updateSchedule(.output)
    }

    override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        endpoint.schedulers.output.remove(from: aRunLoop, mode)
        endpoint.updateSchedule(.output)
    }

    override func property(forKey key: Stream.PropertyKey) -> AnyObject? { nil }
    override func setProperty(_ property: AnyObject?, forKey key: Stream.PropertyKey) -> Bool { false }
}

// holds: it is used on the thread that delivers to the stream
private struct WeakStream: @unchecked Sendable {
    weak var stream: Stream?

    func report(_ event: ChannelStreamState.Event, _ readiness: Stream.Event) {
        guard let stream, let delegate = stream.delegate else { return }
        switch event {
        case .opened: delegate.stream(stream, handle: .openCompleted)
        case .ready: delegate.stream(stream, handle: readiness)
        case .ended: delegate.stream(stream, handle: .endEncountered)
        }
    }
}
