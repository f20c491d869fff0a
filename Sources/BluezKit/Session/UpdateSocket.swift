import Dispatch
import Foundation

/// Our end of a socket that BlueZ has asked for by `AcquireNotify`: one packet is one notification to one central.
/// Confined to the bus queue.
final class UpdateSocket {
    private let socket: CommandSocket
    private let reading: any DispatchSourceRead
    private var waiting: [(data: [UInt8], done: () -> Void)] = []
    private var isWaiting = false
    private let queue: DispatchQueue

    /// BlueZ has closed its end: the central has unsubscribed, or is gone.
    var onEnd: (() -> Void)?
    /// Something has happened that no call or message led to.
    var onTurnEnd: (() -> Void)?

    /// - Parameter descriptor: Taken over, and closed by ``close()``.
    init(descriptor: Int32, mtuBytes: Int, queue: DispatchQueue) {
        // A descriptor of its own for each of the two that watch it, to be closed when that one is done.
        let second = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        socket = CommandSocket(descriptor: descriptor, mtuBytes: mtuBytes)
        self.queue = queue
        reading = DispatchSource.makeReadSource(fileDescriptor: second, queue: queue)
        reading.setCancelHandler { Glibc.close(second) }
        reading.setEventHandler { [weak self] in self?.read(from: second) }
        reading.activate()
    }

    private func read(from descriptor: Int32) {
        var bytes = [UInt8](repeating: 0, count: 16)
        // What comes is BlueZ's note that an indication was confirmed (5.80 and later).
        let count = recv(descriptor, &bytes, bytes.count, Int32(MSG_DONTWAIT))
        guard count == 0 || count < 0 && errno != EAGAIN && errno != EINTR else { return }
        reading.cancel()
        onEnd?()
        onTurnEnd?()
    }

    /// Sends after all that was sent before. - Parameter done: BlueZ's end has it, or never will.
    func send(_ data: [UInt8], done: @escaping () -> Void) {
        waiting.append((Array(data.prefix(socket.capacity)), done))
        if !isWaiting { sendWaiting() }
    }

    private func sendWaiting() {
        isWaiting = false
        while let next = waiting.first {
            if socket.send(next.data) == .full {
                isWaiting = true
                return socket.whenWritable(on: queue) { [weak self] in
                    self?.sendWaiting()
                    self?.onTurnEnd?()
                }
            }
            waiting.removeFirst().done()
        }
    }

    func close() {
        reading.cancel()
        socket.close()
        let unsent = waiting
        waiting = []
        for (_, done) in unsent { done() }
    }
}
