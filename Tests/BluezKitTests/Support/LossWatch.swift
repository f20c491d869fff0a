import BluezDBus

/// Sees, in the rig, how long before it says that Bluetooth is off BlueZ ends the links. The library waits 200 ms for
/// that (Docs/BLUEZ.md), and a guest that shares a processor with many may need longer: then it is a loss like any
/// other.
final class LossWatch: Sendable {
    private struct Times {
        var lost: ContinuousClock.Instant?
        var off: ContinuousClock.Instant?
    }

    private let peer: Peer?
    private let times = ProtectedBox(Times())

    init() async throws {
        peer = Worlds.isRig ? try await Peer.named(.system) : nil
        peer?.sync { [times] connection in
            connection.onSignal = { message in
                guard let values = try? message.values(), let first = values.first?.stringValue else { return }
                times.withLock { times in
                    switch first {
                    case "org.bluez.Device1" where Self.says("Connected", values): times.lost = times.lost ?? .now
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
        _ = try await peer?.bus("GetId")  // after the rules
    }

    /// Whether a property is false now.
    private static func says(_ property: String, _ values: [Value]) -> Bool {
        guard values.count > 1, case .dictionary(_, _, let entries) = values[1] else { return false }
        return entries.contains { $0.key.stringValue == property && $0.value.unwrapped == .bool(false) }
    }

    /// The links ended so long before that the app may have heard of it.
    var isEarly: Bool {
        times.withLock { times in
            guard let lost = times.lost, let off = times.off else { return false }
            return lost.duration(to: off) > .milliseconds(150)
        }
    }
}
