import BluezKit
import DBus

/// Lets everybody pair, as a desktop does whose user says yes.
final class PairingAgent: Sendable {
    private let peer: Peer

    init(_ world: any World) async throws {
        let address = world.managerOptions[BluezManagerOptionBusAddressKey] as? String
        peer = try await Peer.named(address.map { BusAddress($0) } ?? .system)
        peer.serve { connection, call in connection.reply(to: call) }
        try await call("RegisterAgent", [.path("/agent"), .string("NoInputNoOutput")])
        try await call("RequestDefaultAgent", [.path("/agent")])
    }

    private func call(_ member: String, _ arguments: [Value]) async throws {
        try await peer.call("org.bluez", "/org/bluez", "org.bluez.AgentManager1", member, arguments)
    }

    /// Ends the bond with a device, if there is one.
    func forget(_ address: String) async throws {
        let path = "/org/bluez/hci0/dev_\(address.replacing(":", with: "_"))"
        guard let device = ObjectPath(path) else { return }
        _ = try? await peer.call("org.bluez", "/org/bluez/hci0", "org.bluez.Adapter1", "RemoveDevice", [.path(device)])
    }
}
