import BluezDBus
import Dispatch

/// BlueZ's sockets for writes without response of one link, by characteristic. Confined to the bus queue.
struct CommandSockets {
    private var sockets: [String: CommandSocket] = [:]
    /// Characteristics whose socket BlueZ does not give, and when to ask again; nil: not on this link.
    private var refused: [String: DispatchTime?] = [:]
    /// When a slow link has carried what BlueZ was given. Empty sockets do not mean that it was sent: BlueZ takes all
    /// of it into its own queue (src/gatt-client.c, `sock_read`).
    private var carried: DispatchTime?

    mutating func given(_ bytes: Int, _ timing: BlueZTiming.GATT) {
        let now = DispatchQueue.now
        let begin = max(carried ?? now, now)
        carried = min(begin.later(by: timing.unsentByte * bytes), now.later(by: timing.longestUnsent))
    }

    /// What is asked of the peer goes behind all that was written before.
    mutating func peerAnswered() { carried = nil }

    /// How long that takes from now on.
    var unsent: Duration {
        let (now, end) = (DispatchQueue.now.uptimeNanoseconds, carried?.uptimeNanoseconds ?? 0)
        return end > now ? .nanoseconds(Int64(end - now)) : .zero
    }

    subscript(path: String) -> CommandSocket? { sockets[path] }

    func mayAsk(for path: String) -> Bool {
        guard let time = refused[path] else { return true }
        return time.map { $0 <= DispatchQueue.now } ?? false
    }
    mutating func refuse(_ path: String, until time: DispatchTime?) { refused[path] = .some(time) }
    mutating func add(_ socket: CommandSocket, _ path: String) { sockets[path] = socket }

    mutating func updateMTU(_ mtuBytes: Int) {
        for socket in sockets.values { socket.updateMTU(mtuBytes) }
    }

    /// Whether all that was written to others than that of `own` has reached BlueZ.
    func areDrained(but own: String?) -> Bool { sockets.allSatisfy { $0.key == own || $0.value.isDrained } }

    mutating func close(_ path: String) {
        guard let socket = sockets.removeValue(forKey: path) else { return }
        socket.close()
    }

    mutating func closeAll() {
        for socket in sockets.values { socket.close() }
        sockets = [:]
    }
}
