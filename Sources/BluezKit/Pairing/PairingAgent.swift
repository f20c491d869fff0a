import BluezDBus

/// This process as BlueZ's agent: an object that BlueZ asks when something is paired.
///
/// Registered while an app wants a connection, and never as the default: where the desktop has an agent, that one is asked.
/// - SeeAlso: BlueZ doc/org.bluez.Agent.rst; src/agent.c (5.87).
final class PairingAgent {
    static let path: ObjectPath = "/org/bluezkit/agent"
    private static let name = "org.bluez.Agent1"

    /// Nil when the last manager is gone and the bus queue has not seen it yet.
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
            // Of classic Bluetooth.
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
            Log.warning("\(call.member ?? "?"): \(error.message)")  // the types have been checked: cannot be
        }
    }
}

extension ObjectServer {
    func reject(_ call: IncomingCall) {
        refuse(call, name: "org.bluez.Error.Rejected", message: "refused by this program")
    }
}
