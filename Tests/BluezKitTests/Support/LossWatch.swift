import BluezDBus

/// Sees how long before it says that Bluetooth is off BlueZ ends the links. The library waits 200 ms for that
/// (Docs/BLUEZ.md), in the simulator 100, and a guest that shares a processor with many may need longer, as does a bus
/// that stands still between the two: then it is a loss like any other.
final class LossWatch: Sendable {
    private struct Times {
        var lost: ContinuousClock.Instant?
        var off: ContinuousClock.Instant?
        /// When this process was last seen to run, and when it has stood still: for so long an app may have known of
        /// the one without the other, although this has received both at once.
        var seen = ContinuousClock.now
        var pauses: [(start: ContinuousClock.Instant, end: ContinuousClock.Instant)] = []

        mutating func look() {
            let now = ContinuousClock.now
            if seen.duration(to: now) > .milliseconds(30) { pauses.append((seen, now)) }
            seen = now
        }
    }

    private let peer: Peer
    private let times: ProtectedBox<Times>
    private let looking: Task<Void, Never>

    init(_ world: any World) async throws {
        let times = ProtectedBox(Times())
        let peer = try await Peer.named(world.busAddress)
        peer.sync { connection in
            connection.onSignal = { message in
                guard let values = try? message.values(), let first = values.first?.stringValue else { return }
                // Those of the rig: in a busy world others come and go.
                let isOurs = message.path?.rawValue.contains("/dev_F0_F1_F2_") == true
                times.withLock { times in
                    switch first {
                    case "org.bluez.Device1" where isOurs && Self.says("Connected", values):
                        times.lost = times.lost ?? .now
                    case "org.bluez.Adapter1" where Self.says("Powered", values): times.off = times.off ?? .now
                    case "org.bluez" where values.last?.stringValue?.isEmpty == true: times.off = times.off ?? .now
                    default: break
                    }
                }
            }
            connection.addMatch(MatchRule(sender: "org.bluez", member: "PropertiesChanged"))
            connection.addMatch(
                MatchRule(sender: "org.freedesktop.DBus", member: "NameOwnerChanged", argument0: "org.bluez"))
        }
        _ = try await peer.bus("GetId")  // after the rules
        times.withLock { $0.seen = .now }
        looking = Task {
            while !Task.isCancelled {
                try? await Task.sleep(for: .milliseconds(10))
                times.withLock { $0.look() }
            }
        }
        (self.peer, self.times) = (peer, times)
    }

    deinit { looking.cancel() }

    /// Whether a property is false now.
    private static func says(_ property: String, _ values: [Value]) -> Bool {
        guard values.count > 1, case .dictionary(_, _, let entries) = values[1] else { return false }
        return entries.contains { $0.key.stringValue == property && $0.value.unwrapped == .bool(false) }
    }

    /// The links ended so long before that the app may have heard of it.
    var isEarly: Bool {
        times.withLock { times in
            times.look()
            guard let lost = times.lost else { return false }
            // Other pauses have hidden nothing of this.
            let (end, near) = (times.off ?? lost, Duration.milliseconds(30))
            let pause =
                times.pauses.filter { $0.start <= end + near && $0.end + near >= lost }
                .map { $0.start.duration(to: $0.end) }.max() ?? .zero
            return lost.duration(to: end) + pause > .milliseconds(Worlds.isRig ? 150 : 75)
        }
    }
}
