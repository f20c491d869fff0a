import Dispatch
import Foundation

/// A keeper's end of the connection to an app, which never waits for the app. Confined to its queue.
final class KeeperConnection: @unchecked Sendable {  // holds: confined to the queue
    let process: AppProcess
    private let socket: KeeperSocket
    private let queue: DispatchQueue
    private var reader = FrameReader()
    private var reading: (any DispatchSourceRead)?
    private var writing: (any DispatchSourceWrite)?
    /// What is left of the frame that is being sent; its descriptors go with its first byte.
    private var rest: (bytes: Data.SubSequence, descriptors: [Int32])?
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
    var hasRoom: Bool { reading != nil && !takesNothing && rest == nil && waiting.isEmpty }

    /// The descriptors stay the caller's, who has to keep them until it is sent.
    func send(_ frame: Frame) {
        guard reading != nil, !takesNothing else { return }
        waiting.append(frame)
        if rest == nil { write() }
    }

    /// Likewise, and the connection ends after it.
    func sendLast(_ frame: Frame) {
        (onFrame, endsWhenSent) = (nil, true)
        send(frame)
    }

    private func write() {
        while reading != nil, !takesNothing {
            if rest == nil {
                guard !waiting.isEmpty else { return endsWhenSent ? end() : roomAgain() }
                let frame = waiting.removeFirst()
                rest = (frame.bytes[...], frame.descriptors)
            }
            guard let (bytes, descriptors) = rest else { return }
            switch socket.send(bytes, descriptors, waits: false) {
            case .bytes(let count): rest = count == bytes.count ? nil : (bytes.dropFirst(count), [])
            case .notReady: return awaitRoom()
            case .ended:
                writing?.cancel()
                (writing, rest, waiting, takesNothing) = (nil, nil, [], true)
                // All that it has sent is there.
                queue.async { [self] in readAll() }
            }
        }
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
        (self.reading, writing, rest, waiting) = (nil, nil, nil, [])
        reader.end()
        let ended = onEnd
        (onFrame, onPause, onEnd, onRoom) = (nil, nil, nil, nil)
        ended?()
    }
}
