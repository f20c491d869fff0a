import BluezKitSimulator
import BluezDBus
import Dispatch
import Foundation

/// A client of the simulated bluetoothd that knows D-Bus and nothing else: it calls, and writes down what it hears in
/// a form that reads like the traces of the real daemon.
final class BusClient: @unchecked Sendable {  // holds: all state is touched on `queue`
    static let heart = "/org/bluez/hci0/dev_F0_F1_F2_00_00_01"
    static let sink = "/org/bluez/hci0/dev_F0_F1_F2_00_00_02"

    let queue = DispatchQueue(label: "test.client")
    let connection: Connection
    private let service: String
    private let clock: SimulatorClock
    private var heard: [String] = []
    private var waiters: [(met: () -> Bool, continuation: CheckedContinuation<Bool, Never>, id: UUID)] = []

    /// Connects, and subscribes to all signals of the service and to what the bus reports about it.
    /// - Parameter clock: That of the simulator: time passes while the client waits.
    init(_ address: BusAddress, service: String = "org.bluez", clock: SimulatorClock = .real) async throws {
        (self.service, self.clock) = (service, clock)
        let queue = queue
        queue.virtualTime = VirtualTime.on(address)
        connection = try queue.sync { try Connection(address: address, queue: queue) }
        queue.sync {
            connection.onSignal = { [weak self] message in self?.hear(self?.describe(message)) }
            connection.addMatch(MatchRule(sender: service))
            connection.addMatch(MatchRule(sender: "org.freedesktop.DBus", argument0: service))
        }
        // The answer to this comes after those to the rules.
        _ = try? await call("/", "org.freedesktop.DBus.Peer", "Ping")
        forget()
    }

    deinit {
        let connection = connection
        queue.async { connection.close() }
    }

    /// Kept as long as the client: the simulator, so that a test need not name it.
    var keeps: Any?

    /// Calls without waiting for an answer.
    func send(_ path: String, _ interface: String, _ member: String) throws {
        guard let path = ObjectPath(path) else { throw BusError.invalid(path) }
        try queue.sync {
            try connection.send(
                MethodCall(destination: service, path: path, interface: interface, member: member))
        }
    }

    /// Leaves the bus.
    func leave() { queue.sync { connection.close() } }

    var name: String { queue.sync { connection.uniqueName ?? "" } }

    // MARK: Calling

    @discardableResult
    func call(
        _ path: String, _ interface: String, _ member: String, _ arguments: Value..., deadline: Duration = .seconds(20)
    ) async throws -> [Value] {
        guard let path = ObjectPath(path) else { throw BusError.invalid(path) }
        return try await clock.run { [self] in
            try await makeCall(path, interface, member, arguments, deadline)
        }
    }

    private func makeCall(
        _ path: ObjectPath, _ interface: String, _ member: String, _ arguments: [Value], _ deadline: Duration
    ) async throws -> [Value] {
        try await withCheckedThrowingContinuation { continuation in
            queue.async { [self] in
                let call = MethodCall(destination: service, path: path, interface: interface, member: member) {
                    (writer) throws(BusError) in for argument in arguments { try writer.write(argument) }
                }
                connection.call(call, deadline: deadline) { [self] result in
                    switch result {
                    case .success: hear("\(member) returns")
                    case .failure(let error): hear("\(member) fails \(error.name) \(error.message)")
                    }
                    continuation.resume(
                        with: result.flatMap { reply in
                            Result { () throws(BusError) in try reply.values(takesFileDescriptors: true) }
                        })
                }
            }
        }
    }

    func adapter(_ member: String, _ arguments: Value...) async throws {
        _ = try await call("/org/bluez/hci0", "org.bluez.Adapter1", member, list: arguments)
    }

    func device(_ member: String, _ path: String = heart) async throws {
        _ = try await call(path, "org.bluez.Device1", member, list: [])
    }

    @discardableResult
    func characteristic(_ path: String, _ member: String, _ arguments: Value...) async throws -> [Value] {
        try await call(path, "org.bluez.GattCharacteristic1", member, list: arguments)
    }

    private func call(_ path: String, _ interface: String, _ member: String, list: [Value]) async throws -> [Value] {
        switch list.count {
        case 0: try await call(path, interface, member)
        case 1: try await call(path, interface, member, list[0])
        default: try await call(path, interface, member, list[0], list[1])
        }
    }

    func read(_ path: String) async throws -> [UInt8]? {
        try await characteristic(path, "ReadValue", .noOptions).first?.bytesValue
    }

    func property(_ path: String, _ interface: String, _ name: String) async throws -> Value? {
        let reply = try await call(
            path, "org.freedesktop.DBus.Properties", "Get", .string(interface), .string(name))
        return reply.first?.unwrapped
    }

    /// All objects: path, interface, property.
    func objects() async throws -> [String: [String: [String: Value]]] {
        let reply = try await call("/", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
        return (reply.first?.dictionaryValue ?? [:]).mapValues {
            ($0.dictionaryValue ?? [:]).mapValues { $0.dictionaryValue ?? [:] }
        }
    }

    /// Answers an agent's calls: with `passkey` if one is requested.
    func beAgent(passkey: UInt32 = 0) async throws {
        queue.sync {
            connection.onCall = { [weak self] call in
                self?.hear("agent: \(call.member ?? "")")
                self?.connection.reply(to: call) { (writer) throws(BusError) in
                    if call.member == "RequestPasskey" { try writer.write(passkey) }
                }
            }
        }
        try await call(
            "/org/bluez", "org.bluez.AgentManager1", "RegisterAgent", .path("/agent"), .string("KeyboardDisplay"))
    }

    // MARK: Received signals

    func hear(_ line: String?) {
        guard let line else { return }
        heard.append(line)
        while let index = waiters.firstIndex(where: { $0.met() }) {
            waiters.remove(at: index).continuation.resume(returning: true)
        }
    }

    /// Everything that was received, in order.
    var lines: [String] { queue.sync { heard } }
    func forget() { queue.sync { heard = [] } }

    /// Waits until something was received `count` times.
    func hears(_ line: String, count: Int = 1, timeout: Duration = .seconds(20)) async -> Bool {
        await waits(timeout) { $0.filter { $0 == line }.count >= count }
    }

    func waits(_ timeout: Duration = .seconds(20), until condition: @escaping ([String]) -> Bool) async -> Bool {
        // holds: it is called on the client's queue only
        nonisolated(unsafe) let condition = condition
        return (try? await clock.run { [self] in await wait(timeout, until: condition) }) ?? false
    }

    private func wait(_ timeout: Duration, until condition: @escaping ([String]) -> Bool) async -> Bool {
        await withCheckedContinuation { continuation in
            queue.sync {
                if condition(heard) { return continuation.resume(returning: true) }
                let id = UUID()
                waiters.append(({ [weak self] in condition(self?.heard ?? []) }, continuation, id))
                queue.later(timeout) { [weak self] in
                    guard let self, let index = waiters.firstIndex(where: { $0.id == id }) else { return }
                    waiters.remove(at: index).continuation.resume(returning: false)
                }
            }
        }
    }

    /// `hci0/dev…01: Connected=true`, `+ hci0/dev…01/service0006 GattService1`, `- …`, `org.bluez owner`.
    private func describe(_ message: Message) -> String? {
        guard let values = try? message.values() else { return "unreadable" }
        let path = message.path?.rawValue ?? ""
        switch message.member {
        case "PropertiesChanged":
            let changed = (values[1].entries ?? []).map { "\($0.0)=\(text($0.1))" }
            let gone = (values[2].stringsValue ?? []).map { "\($0) gone" }
            return "\(short(path)): " + (changed + gone).joined(separator: " ")
        case "InterfacesAdded":
            let names = (values[1].entries ?? []).map(\.0)
            return "+ \(short(values[0].stringValue ?? "")) " + names.compactMap(shortName).joined(separator: " ")
        case "InterfacesRemoved":
            let names = values[1].stringsValue ?? []
            return "- \(short(values[0].stringValue ?? "")) " + names.compactMap(shortName).joined(separator: " ")
        case "NameOwnerChanged":
            return values[2].stringValue == "" ? "\(service) lost" : "\(service) owned"
        case "NameAcquired", "NameLost": return nil
        default: return "\(short(path)) signal \(message.member ?? "")"
        }
    }

    private func short(_ path: String) -> String {
        path.replacingOccurrences(of: "/org/bluez/hci0/dev_F0_F1_F2_00_00_", with: "dev")
            .replacingOccurrences(of: "/org/bluez/", with: "")
    }

    private func shortName(_ interface: String) -> String? {
        interface.hasPrefix(service + ".") ? String(interface.dropFirst(service.count + 1)) : nil
    }

    private func text(_ value: Value) -> String {
        switch value.unwrapped {
        case .bool(let v): "\(v)"
        case .bytes(let v): v.map { String(format: "%02x", $0) }.joined()
        case .array: "[\((value.stringsValue ?? []).count)]"
        case .dictionary: "{}"
        default: value.stringValue ?? value.intValue.map { "\($0)" } ?? "?"
        }
    }
}

extension Value {
    static let noOptions = Value.properties([(String, Value)]())
    static func options(_ options: [String: Value]) -> Value { .properties(options) }

    /// The entries of a dictionary with text keys, in order.
    var entries: [(String, Value)]? {
        guard case .dictionary(_, _, let entries) = unwrapped else { return nil }
        return entries.map { ($0.key.stringValue ?? "", $0.value) }
    }
}
