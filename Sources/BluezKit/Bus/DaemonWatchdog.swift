import BluezDBus

/// Notices that bluetoothd hangs, stopped or in an endless loop, which the bus does not report. It answers a `Ping` at
/// once if it is well.
final class DaemonWatchdog {
    private let bus: BlueZBus
    private var isPinging = false

    init(_ bus: BlueZBus) { self.bus = bus }

    /// A call is slow: asks bluetoothd whether it is still there.
    /// - Parameter hangs: Called if it does not answer; not if the connection has ended meanwhile.
    func check(hangs: @escaping () -> Void) {
        bus.assertOnQueue()
        guard let connection = bus.connection, !isPinging, bus.owner != nil else { return }
        isPinging = true
        let ping = MethodCall(
            destination: BlueZ.busName, path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping",
            isUrgent: true)
        connection.call(ping, deadline: bus.timing.daemon.slowCall) { [weak self, weak connection] result in
            guard let self, bus.connection === connection else { return }
            isPinging = false
            if result.failure == .timedOut { hangs() }
        }
    }

    /// The connection is gone, and the question with it.
    func reset() { isPinging = false }
}
