import BluezKit
import CoreBluetooth
import Foundation
import Testing

/// An app's use of a channel, as Apple's samples do it: both streams on a run loop, in a delegate. Everything that is
/// received is kept; what is to be sent is written whenever there is space.
final class ChannelUser: NSObject, StreamDelegate, @unchecked Sendable {
    // holds: what changes is under the lock of its box; streams are used on the thread of the run loop
    enum Event: Equatable {
        case opened(isInput: Bool), bytes(Int), space, ended(isInput: Bool), error(isInput: Bool)
    }

    private struct State {
        var received = Data()
        var waiting = Data()
        var isReading = true
        var largestRead = 4096
    }

    let channel: CBL2CAPChannel
    private let state = ProtectedBox(State())
    let events = EventLog<Event>()
    private let loop = LoopThread()
    /// What must last as long: the manager.
    private let kept: Any?

    /// - Parameter isReading: Whether it reads what arrives.
    init(_ channel: CBL2CAPChannel, isReading: Bool = true, keeping kept: Any? = nil) {
        (self.channel, self.kept) = (channel, kept)
        super.init()
        state.withLock { $0.isReading = isReading }
        loop.perform { [self] in
            for stream in [channel.inputStream as Stream, channel.outputStream as Stream] {
                #expect(stream.streamStatus == .notOpen, "L2-4")
                stream.delegate = self
                stream.schedule(in: .current, forMode: .default)
                stream.open()
            }
        }
    }

    deinit { loop.end() }

    var received: Data { state.withLock { $0.received } }

    /// Sends after what was given before.
    func send(_ data: Data) {
        state.withLock { $0.waiting += data }
        loop.perform { [self] in write() }
    }

    func read(_ reads: Bool) {
        state.withLock { $0.isReading = reads }
        if reads { loop.perform { [self] in readAll() } }
    }

    func close() {
        loop.perform { [channel] in
            channel.inputStream.close()
            channel.outputStream.close()
        }
    }

    /// Waits until so many bytes have come.
    func awaitBytes(_ count: Int, within seconds: Double = world_deadline) async throws {
        while received.count < count { _ = try await nextBytes(within: seconds) }
    }

    /// Waits for the next bytes. - Returns: their number.
    func nextBytes(within seconds: Double = world_deadline) async throws -> Int {
        do {
            return try await events.next("more bytes; \(received.count) have come", within: seconds) { event in
                if case .bytes(let count) = event { count } else { nil }
            }
        } catch {
            // Whether they have not arrived, or were not reported.
            Issue.record("hasBytesAvailable is \(channel.inputStream.hasBytesAvailable) in the end")
            throw error
        }
    }

    /// How much has not been written yet.
    var unsent: Int { state.withLock { $0.waiting.count } }

    /// Waits until nothing more can be written, although there is more.
    func awaitFull() async throws {
        var last = -1
        try await eventually("no more can be written") {
            let (left, isFull) = await withCheckedContinuation { continuation in
                loop.perform { [self] in
                    continuation.resume(returning: (unsent, !channel.outputStream.hasSpaceAvailable))
                }
            }
            // It stays so: what the kernel had under way has been sent.
            if isFull, left == last, left > 0 { return true }
            last = isFull ? left : -1
            return false
        }
    }

    /// Waits until something can be read.
    func awaitReadable() async throws {
        try await eventually("something can be read") { channel.inputStream.hasBytesAvailable }
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        let isInput = stream === channel.inputStream
        switch event {
        case .openCompleted: events.append(.opened(isInput: isInput))
        case .hasBytesAvailable: readAll()
        case .hasSpaceAvailable:
            events.append(.space)
            write()
        case .endEncountered: events.append(.ended(isInput: isInput))
        default: events.append(.error(isInput: isInput))
        }
    }

    private func readAll() {
        guard state.withLock({ $0.isReading }) else { return }
        var buffer = [UInt8](repeating: 0, count: state.withLock { $0.largestRead })
        while channel.inputStream.hasBytesAvailable {
            let count = channel.inputStream.read(&buffer, maxLength: buffer.count)
            guard count > 0 else { return }
            state.withLock { $0.received += buffer[..<count] }
            events.append(.bytes(count))
        }
    }

    private func write() {
        while channel.outputStream.hasSpaceAvailable {
            let next = state.withLock { $0.waiting.prefix(65_536) }
            guard !next.isEmpty else { return }
            let count = next.withUnsafeBytes {
                // `!`: it is not empty.
                channel.outputStream.write($0.baseAddress!.assumingMemoryBound(to: UInt8.self), maxLength: $0.count)
            }
            guard count > 0 else { return }
            state.withLock { $0.waiting.removeFirst(count) }
        }
    }
}

/// A thread with a run loop.
final class LoopThread: @unchecked Sendable {  // holds: `loop` is set before anybody else has this
    private var loop: RunLoop?
    private let hasEnded = ProtectedBox(false)
    private let waiting = ProtectedBox<[@Sendable () -> Void]>([])

    init() {
        let started = DispatchSemaphore(value: 0)
        let thread = Thread { [hasEnded] in
            self.loop = .current
            let keepAlive = Timer(timeInterval: 1e9, repeats: true) { _ in }
            RunLoop.current.add(keepAlive, forMode: .default)
            started.signal()
            while !hasEnded.withLock({ $0 }), RunLoop.current.run(mode: .default, before: .distantFuture) {}
        }
        thread.start()
        started.wait()
    }

    /// Does `body` on the thread, later.
    func perform(_ body: @escaping @Sendable () -> Void) {
        waiting.withLock { $0.append(body) }
        // A timer wakes the run loop, unlike `perform`. Foundation never frees one, so it must not hold `body`.
        let timer = Timer(fire: Date(), interval: 0, repeats: false) { [waiting] _ in
            let bodies = waiting.withLock { waiting in
                defer { waiting = [] }
                return waiting
            }
            for body in bodies { body() }
        }
        loop?.add(timer, forMode: .default)
    }

    func end() {
        perform { [hasEnded] in
            hasEnded.withLock { $0 = true }
            RunLoop.current.endTurn()  // a timer alone does not end it
        }
    }
}
