import Dispatch
import Foundation

/// A keeper's end of the connection to an app, which never waits for the app. Confined to its queue.
final class KeeperConnection: @unchecked Sendable {  // holds: confined to the queue
    let process: AppProcess
    /// About how many bytes are sent at once.
    static let most = 65_536

    private let socket: KeeperSocket
    private let queue: DispatchQueue
    private var reader = FrameReader()
    private var reading: (any DispatchSourceRead)?
    private var writing: (any DispatchSourceWrite)?
    /// What is being sent, and how much of it the socket has taken; the descriptors go with its first byte.
    private var outgoing = (bytes: Data(), taken: 0, descriptors: [Int32]())
    private var isSending: Bool { outgoing.taken < outgoing.bytes.count }
    /// What follows that.
    private var waiting: [Frame] = []
    /// The other side has ended. What it has sent before is still to be read.
    private var takesNothing = false
    private var endsWhenSent = false
    var onFrame: ((Frame) -> Void)?
    /// The frames that have come by now were handed over.
    var onPause: (() -> Void)?
    var onEnd: (() -> Void)?
    var onRoom: (() -> Void)?

    init(_ socket: KeeperSocket, on queue: DispatchQueue) {
        (process, self.socket, self.queue) = (AppProcess(at: socket), socket, queue)
    }

    /// Begins to read.
    func start() {
        let reading = DispatchSource.makeReadSource(fileDescriptor: socket.descriptor, queue: queue)
        // The sources keep the socket open until they are cancelled, and this with it.
        reading.setEventHandler { [self] in read() }
        reading.setCancelHandler { [socket] in withExtendedLifetime(socket) {} }
        self.reading = reading
        reading.activate()
    }

    /// Reads what is there, up to the end if the other side has ended.
    func readAll() { while read() {} }

    /// - Returns: Whether there may be more.
    @discardableResult
    private func read() -> Bool {
        guard reading != nil else { return false }
        switch socket.receive(into: &reader, waits: false) {
        case .notReady: return false
        case .ended:
            end()
            return false
        case .bytes: break
        }
        do {
            while reading != nil, let frame = try reader.next() {
                if let onFrame { onFrame(frame) } else { frame.closeDescriptors() }
            }
            onPause?()
        } catch { end() }
        return reading != nil
    }

    /// Whether the socket has taken everything so far.
    var hasRoom: Bool { reading != nil && !takesNothing && !isSending && waiting.isEmpty }

    func send(_ frame: Frame) { send(CollectionOfOne(frame)) }

    /// The descriptors stay the caller's, who has to keep them until they are sent.
    func send(_ frames: some Sequence<Frame>) {
        guard reading != nil, !takesNothing else { return }
        for frame in frames where !gather(frame) { waiting.append(frame) }
        if writing == nil { write() }
    }

    /// Adds it to what goes at once: a call of the kernel costs more than a frame.
    /// - Returns: Whether it can be added.
    private func gather(_ frame: Frame) -> Bool {
        if !isSending {
            guard waiting.isEmpty else { return false }
            outgoing.bytes.removeAll(keepingCapacity: outgoing.bytes.count <= 2 * Self.most)
            (outgoing.taken, outgoing.descriptors) = (0, frame.descriptors)
        } else {
            guard waiting.isEmpty, frame.descriptors.isEmpty, outgoing.bytes.count < Self.most else { return false }
        }
        frame.write(to: &outgoing.bytes)
        return true
    }

    /// Likewise, and the connection ends after it.
    func sendLast(_ frame: Frame) {
        (onFrame, endsWhenSent) = (nil, true)
        send(frame)
    }

    private func write() {
        while reading != nil, !takesNothing {
            if !isSending {
                let frames = waiting
                waiting = []
                for frame in frames where !gather(frame) { waiting.append(frame) }
                guard isSending else { return endsWhenSent ? end() : roomAgain() }
            }
            switch socket.send(outgoing.bytes.dropFirst(outgoing.taken), outgoing.descriptors, waits: false) {
            case .bytes(let count):
                outgoing.taken += count
                outgoing.descriptors = []
            case .notReady: return awaitRoom()
            case .ended:
                writing?.cancel()
                writing = nil
                takesNothing = true
                forget()
                // All that it has sent is there.
                queue.async { [self] in readAll() }
            }
        }
    }

    private func forget() {
        outgoing = (Data(), 0, [])
        waiting = []
    }

    private func roomAgain() {
        guard let writing else { return }
        writing.cancel()
        self.writing = nil
        onRoom?()
    }

    private func awaitRoom() {
        guard writing == nil else { return }
        let writing = DispatchSource.makeWriteSource(fileDescriptor: socket.descriptor, queue: queue)
        writing.setEventHandler { [self] in write() }
        writing.setCancelHandler { [socket] in withExtendedLifetime(socket) {} }
        self.writing = writing
        writing.activate()
    }

    func end() {
        guard let reading else { return }
        socket.shutDown()
        reading.cancel()
        writing?.cancel()
        (self.reading, writing) = (nil, nil)
        forget()
        reader.end()
        let ended = onEnd
        (onFrame, onPause, onEnd, onRoom) = (nil, nil, nil, nil)
        ended?()
    }
}
