public import CoreBluetooth

/// An open L2CAP channel: a stream of bytes in each direction. Releasing it closes it.
///
/// ```swift
/// let channel = try await peripheral.openL2CAPChannel(psm)
/// try await channel.write(request)
/// while let bytes = try await channel.read() { ... }
/// ```
///
/// It has flow control: as long as this side does not read, the peer has to wait, and the other way round. Nothing is
/// lost.
public final class L2CAPChannel: Sendable {
    /// The channel's PSM at the listening side.
    public let psm: CBL2CAPPSM
    /// The ``Peripheral/identifier`` or ``Central/identifier`` of the other side.
    public let peerIdentifier: UUID
    private let number: UInt64
    private let host: any ChannelHost

    init(psm: CBL2CAPPSM, peer: UUID, number: UInt64, host: any ChannelHost) {
        (self.psm, peerIdentifier, self.number, self.host) = (psm, peer, number, host)
    }

    deinit { host.closeChannel(number) }

    /// Waits for bytes, and returns as many as there are.
    /// - Parameter count: The maximum number of bytes, limited to 65,536.
    /// - Returns: At least one byte; nil if the channel was closed, by either side or because the connection has ended.
    public func read(upToCount count: Int = 65_536) async throws -> Data? {
        try await host.readChannel(number, min(max(1, count), 65_536))
    }

    /// Writes bytes, and returns when the system has taken all of them. Cancelling the task leaves some of them unsent.
    /// - Throws: `CBError.notConnected` if the channel is closed.
    public func write(_ data: Data) async throws { try await host.writeChannel(number, data) }

    /// Closes it. What was written is still sent.
    public func close() { host.closeChannel(number) }
}

/// The actor of a manager, as far as channels are concerned.
protocol ChannelHost: QueueActor {
    var channels: ChannelTable { get }
}

extension ChannelHost {
    func readChannel(_ number: UInt64, _ count: Int) async throws -> Data? {
        try await wait { $0.read(number, $1, count, $2) }
    }

    func writeChannel(_ number: UInt64, _ data: Data) async throws {
        _ = try await wait { $0.write(number, $1, data, $2) }
    }

    nonisolated func closeChannel(_ number: UInt64) { post { $0.channels.close(number) } }

    private func wait(
        _ begin: (ChannelTable, UInt64, CheckedContinuation<Data?, any Error>) -> Void
    ) async throws -> Data? {
        try Task.checkCancellation()
        let request = Number.next()
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { begin(channels, request, $0) }
        } onCancel: {
            post { $0.channels.cancel(request) }
        }
    }
}

/// The open channels of a manager. Used on its queue only.
final class ChannelTable {
    typealias Continuation = CheckedContinuation<Data?, any Error>
    private var channels: [UInt64: ChannelDelegate] = [:]

    /// - Returns: What the app gets of a channel that has been opened.
    func add(_ channel: CBL2CAPChannel, _ host: some ChannelHost) -> L2CAPChannel {
        let number = Number.next()
        channels[number] = ChannelDelegate(channel, on: host.executor.queue)
        return L2CAPChannel(psm: channel.psm, peer: channel.peer.identifier, number: number, host: host)
    }

    func read(_ number: UInt64, _ request: UInt64, _ count: Int, _ continuation: Continuation) {
        guard let channel = channels[number] else { return continuation.resume(returning: nil) }
        channel.read(request, count, continuation)
    }

    func write(_ number: UInt64, _ request: UInt64, _ data: Data, _ continuation: Continuation) {
        guard let channel = channels[number] else { return continuation.resume(throwing: CBError(.notConnected)) }
        channel.write(request, data, continuation)
    }

    func cancel(_ request: UInt64) {
        for channel in channels.values { channel.cancel(request) }
    }

    func close(_ number: UInt64) { channels.removeValue(forKey: number)?.close() }

    func closeAll() {
        for channel in channels.values { channel.close() }
        channels = [:]
    }
}

/// A `CBL2CAPChannel` with what waits for its streams, whose events come on the manager's queue.
private final class ChannelDelegate: NSObject, StreamDelegate {
    typealias Continuation = CheckedContinuation<Data?, any Error>

    private let channel: CBL2CAPChannel
    private var reads: [(request: UInt64, count: Int, continuation: Continuation)] = []
    private var writes: [(request: UInt64, rest: Data, continuation: Continuation)] = []
    private var hasEnded = false

    init(_ channel: CBL2CAPChannel, on queue: DispatchQueue) {
        self.channel = channel
        super.init()
        for stream in streams { stream.delegate = self }
        channel.schedule(on: queue)
        for stream in streams { stream.open() }
    }

    private var streams: [Stream] { [channel.inputStream, channel.outputStream] }

    func read(_ request: UInt64, _ count: Int, _ continuation: Continuation) {
        reads.append((request, count, continuation))
        transfer()
    }

    func write(_ request: UInt64, _ data: Data, _ continuation: Continuation) {
        writes.append((request, data, continuation))
        transfer()
    }

    func cancel(_ request: UInt64) {
        if let index = reads.firstIndex(where: { $0.request == request }) {
            reads.remove(at: index).continuation.resume(throwing: CancellationError())
        }
        if let index = writes.firstIndex(where: { $0.request == request }) {
            writes.remove(at: index).continuation.resume(throwing: CancellationError())
        }
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        if eventCode.contains(.endEncountered) || eventCode.contains(.errorOccurred) { hasEnded = true }
        transfer()
    }

    /// As much as the streams permit.
    private func transfer() {
        while let (_, count, continuation) = reads.first, let input = channel.inputStream {
            if input.hasBytesAvailable, let bytes = read(count, input) {
                reads.removeFirst()
                continuation.resume(returning: bytes)
            } else if hasEnded {
                reads.removeFirst()
                continuation.resume(returning: nil)
            } else {
                break
            }
        }
        while let (_, rest, continuation) = writes.first, let output = channel.outputStream {
            if rest.isEmpty {
                writes.removeFirst()
                continuation.resume(returning: nil)
            } else if hasEnded {
                writes.removeFirst()
                continuation.resume(throwing: CBError(.notConnected))
            } else if output.hasSpaceAvailable {
                let count = rest.withUnsafeBytes { bytes in
                    bytes.bindMemory(to: UInt8.self).baseAddress.map { output.write($0, maxLength: bytes.count) } ?? 0
                }
                guard count > 0 else { break }
                writes[0].rest = rest.dropFirst(count)  // no copy of what may be hundreds of megabytes
            } else {
                break
            }
        }
    }

    private func read(_ count: Int, _ input: InputStream) -> Data? {
        var bytes = [UInt8](repeating: 0, count: count)
        let length = input.read(&bytes, maxLength: count)
        return length > 0 ? Data(bytes[..<length]) : nil
    }

    func close() {
        for stream in streams {
            stream.delegate = nil
            stream.close()
        }
        channel.schedule(on: nil)
        hasEnded = true
        transfer()
    }
}
