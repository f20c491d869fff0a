import BluezKitRestore
import CBluezL2CAP
import Dispatch
import Foundation

/// A process of an app, as the kernel knows it.
final class AppProcess: Sendable {
    /// 0: not known.
    let number: Int32
    /// The path of its program.
    let program: String?
    /// Can be read when it has ended; -1: that is not told.
    private let descriptor: Int32

    /// The one at the other end of a socket.
    convenience init(at socket: KeeperSocket) { self.init(number: cl2cap_peer_process(socket.descriptor)) }

    init(number: Int32) {
        self.number = number
        descriptor = number > 0 ? cl2cap_process_end(number) : -1
        program = number > 0 ? StateDirectory.program(of: "/proc/\(number)") : nil
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Whether it has not ended, as far as the kernel tells.
    var isRunning: Bool {
        var state = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return descriptor < 0 || poll(&state, 1, 0) == 0
    }

    /// Whether the kernel tells that it has not.
    var isKnownToRun: Bool { descriptor >= 0 && isRunning }

    /// Calls `body` once, on `queue`, when it has ended: who has started it has been told by then. Its sockets are
    /// closed before that.
    /// - Returns: To be cancelled if that is of no interest any more; nil: it cannot be.
    func whenEnded(on queue: DispatchQueue, _ body: @escaping @Sendable () -> Void) -> (any DispatchSourceRead)? {
        guard descriptor >= 0 else {
            queue.async(execute: body)
            return nil
        }
        let source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: queue)
        source.setEventHandler {
            source.cancel()
            body()
        }
        source.setCancelHandler { [self] in withExtendedLifetime(self) {} }
        source.activate()
        return source
    }
}
