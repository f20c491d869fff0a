import BluezDBus

/// This process' agent in BlueZ: an object that BlueZ asks during pairing.
///
/// Registered while there is a connect request, but never as the default: if the desktop has an agent, BlueZ asks that
/// one.
/// - SeeAlso: BlueZ doc/org.bluez.Agent.rst; src/agent.c (5.87).
final class PairingAgent {
    static let path: ObjectPath = "/org/bluezkit/agent"
    private static let name = "org.bluez.Agent1"

    /// Nil when the last manager was released and the bus queue does not know yet.
    private weak var service: PairingService?

    init(_ service: PairingService) { self.service = service }

    static let interface = ExportedInterface(
        name, of: PairingAgent.self,
        methods: [
            .init("Release") { agent, call, server in
                agent.service?.agentReleased()
                server.reply(to: call)
            },
            .init("Cancel") { agent, call, server in
                agent.service?.cancelled()
                server.reply(to: call)
            },
            .init("RequestPasskey", takes: [.init("device", "o")], gives: [.init("passkey", "u")]) {
                agent, call, server in
                agent.ask(call, server) { _ in .passkey }
            },
            .init(
                "DisplayPasskey", takes: [.init("device", "o"), .init("passkey", "u"), .init("entered", "q")]
            ) { agent, call, server in
                agent.ask(call, server) { (reader) throws(BusError) in .display(try reader.readUInt32()) }
            },
            .init("RequestConfirmation", takes: [.init("device", "o"), .init("passkey", "u")]) { agent, call, server in
                agent.ask(call, server) { (reader) throws(BusError) in .comparison(try reader.readUInt32()) }
            },
            .init("RequestAuthorization", takes: [.init("device", "o")]) { agent, call, server in
                agent.ask(call, server) { _ in .consent }
            },
            // For classic Bluetooth only.
            .init("RequestPinCode", takes: [.init("device", "o")], gives: [.init("pincode", "s")]) { $2.reject($1) },
            .init("DisplayPinCode", takes: [.init("device", "o"), .init("pincode", "s")]) { $2.reject($1) },
            .init("AuthorizeService", takes: [.init("device", "o"), .init("uuid", "s")]) { $2.reject($1) },
        ])

    private func ask(
        _ call: IncomingCall, _ server: ObjectServer,
        _ question: (inout MessageReader) throws(BusError) -> PairingQuestion
    ) {
        guard let service else { return server.reject(call) }
        var reader = call.reader
        do throws(BusError) {
            let path = try reader.readPath()
            service.receive(try question(&reader), about: path, call)
        } catch {
            Log.warning("\(call.member ?? "?"): \(error.message)")  // cannot happen: the types have been checked
        }
    }
}

extension ObjectServer {
    func reject(_ call: IncomingCall) {
        refuse(call, name: "org.bluez.Error.Rejected", message: "refused by this program")
    }

    /// - Parameter passkey: That which was asked for; nil: none was.
    func answer(_ call: IncomingCall, _ accepts: Bool, passkey: UInt32?) {
        guard accepts else { return reject(call) }
        reply(to: call) { (writer) throws(BusError) in
            if let passkey { try writer.write(passkey) }
        }
    }
}
