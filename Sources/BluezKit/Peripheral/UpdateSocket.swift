import BluezDBus
import Dispatch
import Foundation

/// Our end of a socket that BlueZ has asked for by `AcquireNotify`: one packet is one notification to one central.
/// Confined to the bus queue.
final class UpdateSocket {
    private let socket: CommandSocket
    private let reading: any DispatchSourceRead
    private struct Update {
        let data: [UInt8]
        /// It is an indication, of whose confirmation BlueZ will tell.
        let awaitsConfirmation: Bool
        let done: () -> Void
    }

    private var waiting: [Update] = []
    private var isWaiting = false
    /// The indication that BlueZ has and the central has not confirmed. One at a time, as on the air: BlueZ uses freed
    /// memory when one is confirmed after its subscription has ended.
    private var unconfirmed: (() -> Void)?
    private var confirmationTimer: QueueTimer?
    private let bus: BlueZBus
    private let onEnd: () -> Void

    /// Fails if the process has no descriptors left.
    /// - Parameters:
    ///   - descriptor: Taken over, unless this fails, and closed by ``close()``.
    ///   - onEnd: BlueZ has closed its end: the central has unsubscribed, or is gone.
    init?(descriptor: Int32, mtuBytes: Int, bus: BlueZBus, onEnd: @escaping () -> Void) {
        // One that a source watches must stay open until the source has let go of it.
        let second = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard second >= 0 else { return nil }
        socket = CommandSocket(descriptor: descriptor, mtuBytes: mtuBytes)
        (self.bus, self.onEnd) = (bus, onEnd)
        reading = DispatchSource.makeReadSource(fileDescriptor: second, queue: bus.queue)
        reading.setCancelHandler { Glibc.close(second) }
        reading.setEventHandler { [weak self] in self?.read(from: second) }
        reading.activate()
    }

    private func read(from descriptor: Int32) {
        var bytes = [UInt8](repeating: 0, count: 16)
        var count = 0
        // What comes is BlueZ's note that an indication was confirmed (5.80 and later). All is read at once: the end of
        // a socket makes one event, whatever else is still to be read.
        repeat {
            count = recv(descriptor, &bytes, bytes.count, Int32(MSG_DONTWAIT))
            if count > 0 { confirmed() }
        } while count > 0 || count < 0 && errno == EINTR
        guard count == 0 || errno != EAGAIN else { return bus.flush() }
        reading.cancel()
        onEnd()
        bus.flush()
    }

    /// Sends after all that was sent before.
    /// - Parameters:
    ///   - awaitsConfirmation: Whether `done` waits for the central as well.
    ///   - done: BlueZ's end has it, or never will.
    func send(_ data: [UInt8], awaitsConfirmation: Bool, done: @escaping () -> Void) {
        waiting.append(
            Update(data: Array(data.prefix(socket.capacity)), awaitsConfirmation: awaitsConfirmation, done: done))
        if !isWaiting { sendWaiting() }
    }

    private func sendWaiting() {
        isWaiting = false
        while unconfirmed == nil, let next = waiting.first {
            let outcome = socket.send(next.data)
            if outcome == .full {
                isWaiting = true
                return socket.whenWritable(on: bus.queue, bus.timing.gatt) { [weak self] in
                    self?.sendWaiting()
                    self?.bus.flush()
                }
            }
            waiting.removeFirst()
            if next.awaitsConfirmation, outcome == .sent { awaitConfirmation(next.done) } else { next.done() }
        }
    }

    private func awaitConfirmation(_ done: @escaping () -> Void) {
        unconfirmed = done
        // The Attribute Protocol ends the link of a central that does not confirm.
        confirmationTimer = bus.timer(bus.timing.server.confirmation) { [weak self] in self?.confirmed() }
    }

    private func confirmed() {
        guard let done = endUnconfirmed() else { return }
        done()
        if !isWaiting { sendWaiting() }
    }

    private func endUnconfirmed() -> (() -> Void)? {
        confirmationTimer?.cancel()
        confirmationTimer = nil
        defer { unconfirmed = nil }
        return unconfirmed
    }

    func close() {
        reading.cancel()
        socket.close()
        let undone = [endUnconfirmed()].compactMap(\.self) + waiting.map(\.done)
        waiting = []
        for done in undone { done() }
    }
}
