import BluezDBus
import Dispatch
import Foundation

/// Our end of a socket that BlueZ has asked for by `AcquireNotify`: one packet is one notification to one central.
/// Confined to the bus queue.
final class UpdateSocket {
    private let socket: CommandSocket
    private let reading: any DispatchSourceRead
    private struct Update {
        /// Nil: nothing, when BlueZ has read what was sent before.
        let data: [UInt8]?
        /// It is an indication, of whose confirmation BlueZ will tell.
        let awaitsConfirmation: Bool
        let done: () -> Void
    }

    private var waiting: [Update] = []
    private var isWaiting = false
    /// For how many ends of ``drain(_:)`` what follows waits.
    private var holds = 0
    /// The indication that BlueZ has and the central has not confirmed. One at a time, as on the air: BlueZ uses freed
    /// memory when one is confirmed after its subscription has ended.
    private var unconfirmed: (() -> Void)?
    private var confirmationTimer: QueueTimer?
    /// False: one was not confirmed although the link stays up. The central has unsubscribed while BlueZ was asking for
    /// this socket, and BlueZ drops what comes (src/gatt-database.c, `send_notification_to_device`).
    private var areConfirmed = true
    /// When something was sent, and how much has been taken from ``waiting``.
    private var lastSent: DispatchTime?
    private var taken = 0
    private let bus: BlueZBus
    private let onEnd: () -> Void
    private let onStuck: () -> Void

    /// Fails if the process has no descriptors left.
    /// - Parameters:
    ///   - descriptor: Taken over, unless this fails, and closed by ``close()``.
    ///   - onEnd: BlueZ has closed its end: the central has unsubscribed, or is gone.
    ///   - onStuck: Something waits, and BlueZ has read nothing for ``BlueZTiming/GATT/unreadSocket``.
    ///     Again after each such time.
    init?(descriptor: Int32, bus: BlueZBus, onEnd: @escaping () -> Void, onStuck: @escaping () -> Void = {}) {
        // One that a source watches must stay open until the source has let go of it.
        let second = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard second >= 0 else { return nil }
        // BlueZ cuts a value to what the link takes now (src/shared/gatt-server.c, `bt_gatt_server_send_notification`,
        // `bt_gatt_server_send_indication`), which may be more than when the central subscribed.
        socket = CommandSocket(descriptor: descriptor, mtuBytes: 517)
        (self.bus, self.onEnd, self.onStuck) = (bus, onEnd, onStuck)
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
            if count > 0 {
                areConfirmed = true
                confirmed()
            }
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

    /// Does `body` when BlueZ has read what was sent before. What is sent after that waits for ``release()``.
    func drain(_ body: @escaping () -> Void) {
        waiting.append(Update(data: nil, awaitsConfirmation: false, done: body))
        if !isWaiting { sendWaiting() }
    }

    func release() {
        holds -= 1
        if !isWaiting { sendWaiting() }
    }

    private func sendWaiting() {
        isWaiting = false
        while unconfirmed == nil, let next = waiting.first {
            guard let data = next.data else {
                guard socket.isDrained else { return awaitDrained(bus.timing.gatt.drain.shortest) }
                waiting.removeFirst()
                holds += 1
                next.done()
                continue
            }
            guard holds == 0 else { return }
            let outcome = socket.send(data)
            if outcome == .full {
                isWaiting = true
                awaitRoom()
                return socket.whenWritable(on: bus.queue, bus.timing.gatt) { [weak self] in
                    self?.sendWaiting()
                    self?.bus.flush()
                }
            }
            waiting.removeFirst()
            if outcome == .sent { lastSent = DispatchQueue.now }
            taken += 1
            let awaitsConfirmation = next.awaitsConfirmation && areConfirmed && outcome == .sent
            if awaitsConfirmation { awaitConfirmation(next.done) } else { next.done() }
        }
    }

    /// Nothing tells when a socket is empty. It nearly always is at the first look.
    private func awaitDrained(_ delay: Duration, since: DispatchTime = DispatchQueue.now) {
        isWaiting = true
        bus.after(delay) { [weak self] in
            guard let self else { return }
            if socket.isDrained { return sendWaiting() }
            let isStuck = since.later(by: bus.timing.gatt.unreadSocket) <= DispatchQueue.now
            awaitDrained(min(delay * 2, bus.timing.gatt.drain.longest), since: isStuck ? DispatchQueue.now : since)
            if isStuck { onStuck() }
        }
    }

    /// The same where the socket is full.
    private func awaitRoom() {
        bus.after(bus.timing.gatt.unreadSocket) { [weak self, taken] in
            guard let self, isWaiting, !waiting.isEmpty, self.taken == taken else { return }
            awaitRoom()
            onStuck()
        }
    }

    var unread: Int32 { socket.unread }

    /// Whether BlueZ has closed its end, which ``onEnd`` may not have been told yet.
    var hasEnded: Bool { socket.hasHungUp }

    /// Whether the central may not get something that was sent, if BlueZ has closed the socket. A socket whose other
    /// end is closed does not tell what was not read, so what was sent just now counts.
    var mayHaveLost: Bool {
        waiting.contains { $0.data != nil }
            || lastSent.map { $0.later(by: bus.timing.gatt.updateReading) > DispatchQueue.now } ?? false
    }

    private func awaitConfirmation(_ done: @escaping () -> Void) {
        unconfirmed = done
        // The Attribute Protocol ends the link of a central that does not confirm.
        confirmationTimer = bus.timer(bus.timing.server.confirmation) { [weak self] in
            self?.areConfirmed = false
            self?.confirmed()
        }
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
