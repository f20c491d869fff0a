import BluezKit
import DBus

/// Lets everybody pair, as a desktop does whose user says yes.
final class PairingAgent: Sendable {
    private let peer: Peer

    init(_ world: any World) async throws {
        peer = try await Peer.named(world.busAddress)
        peer.serve { connection, call in connection.reply(to: call) }
        try await call("RegisterAgent", [.path("/agent"), .string("NoInputNoOutput")])
        try await call("RequestDefaultAgent", [.path("/agent")])
    }

    private func call(_ member: String, _ arguments: [Value]) async throws {
        try await peer.call("org.bluez", "/org/bluez", "org.bluez.AgentManager1", member, arguments)
    }
}

extension World {
    var busAddress: BusAddress {
        (managerOptions[BluezManagerOptionBusAddressKey] as? String).map { BusAddress($0) } ?? .system
    }

    /// Runs `body` with a sink that pairs by just works, is bonded with nobody, and advertises from a private address. Bond
    /// and address do not outlive it.
    func withPrivateSink(_ body: () async throws -> Void) async throws {
        func forgetEverything() async throws {
            try await control("sink forget")
            try await forget("F0:F1:F2:00:00:02")
        }
        try await control("sink pairing justworks")
        try await forgetEverything()
        try await control("sink private")
        do { try await body() } catch {
            _ = try? await control("sink identity")
            try? await forgetEverything()
            throw error
        }
        try await control("sink identity")
        try await forgetEverything()
    }

    /// Makes an adapter, as soon as it is there, forget a device and its bond.
    func forget(_ address: String, on adapter: String = "hci0") async throws {
        guard let path = ObjectPath("/org/bluez/\(adapter)"),
            let device = path.appending("dev_" + address.replacing(":", with: "_"))
        else { return }
        let peer = try await Peer.named(busAddress)
        let deadline = ContinuousClock.now + .seconds(world_deadline)
        while ContinuousClock.now < deadline {
            do {
                try await peer.call("org.bluez", path, "org.bluez.Adapter1", "RemoveDevice", [.path(device)])
                return
            } catch BusError.remote(name: "org.bluez.Error.DoesNotExist", _) {
                return
            } catch {}  // there is no such adapter yet
        }
    }
}
