import BluezKit
import BluezDBus

/// Accepts every pairing, like a desktop whose user confirms.
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
