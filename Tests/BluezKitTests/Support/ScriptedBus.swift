import BluezDBus
import BluezKitSimulator
import Foundation
import Testing

@testable import BluezKit

/// bluetoothd as a test plays it, for tests of single parts of a session: the test takes each call in the order in
/// which they come, and answers it, refuses it, or lets it wait. Nothing else is answered, but for routine.
final class ScriptedBus: @unchecked Sendable {  // holds: what changes is in boxes, or touched on one of the two queues
    /// A call that waits for its answer.
    struct Call: @unchecked Sendable {  // holds: the message is touched on the daemon's queue only
        let member: String
        let path: String
        let arguments: [Value]
        /// Over which of the session's connections it has come.
        let sender: String?
        fileprivate let incoming: IncomingCall
        fileprivate let daemon: Peer

        func answer(_ values: Value...) {
            daemon.sync { connection in
                connection.reply(to: incoming) { (writer) throws(BusError) in
                    for value in values { try writer.write(value) }
                }
            }
        }

        /// - Parameter name: Of an error of BlueZ, or a whole name.
        func refuse(_ name: String = "Failed", _ message: String = "") {
            let name = name.contains(".") ? name : "org.bluez.Error.\(name)"
            daemon.sync { $0.refuse(incoming, name: name, message: message) }
        }
    }

    struct Unexpected: Error, CustomStringConvertible { let description: String }

    static let busy = "org.freedesktop.DBus.Error.LimitsExceeded"
    static let noObject = "org.freedesktop.DBus.Error.UnknownObject"
    static let hci0 = "/org/bluez/hci0"

    /// The parts that are tested.
    let session: Session
    /// States of Bluetooth that the session was told.
    let states = EventLog<CBManagerState>()
    private let privateBus: PrivateBus
    private let daemon: Peer
    private let calls = EventLog<Call>()
    private let routine = ProtectedBox<[String: [Value]]>([:])
    private let taken = ProtectedBox(0)

    var address: BusAddress { privateBus.busAddress }
    var bus: BlueZBus { session.blueZ }
    var central: CentralRole { session.central }

    /// - Parameter prepare: Sets what has to be set before the session connects.
    init(adapter: AdapterChoice? = nil, _ prepare: (BlueZTiming) -> BlueZTiming = { $0 }) async throws {
        _ = LogCapture.shared
        privateBus = try PrivateBus()
        daemon = try await Peer.named(privateBus.busAddress)
        session = Session.shared(Session.Key(address: privateBus.busAddress, adapter: adapter))
        daemon.serve { [calls, routine, daemon] connection, call in
            let member = call.member ?? ""
            if let values = member == "Ping" ? [] : routine.withLock({ $0[member] }) {
                return connection.reply(to: call) { (writer) throws(BusError) in
                    for value in values { try writer.write(value) }
                }
            }
            let arguments = (try? call.values()) ?? []
            calls.append(
                Call(
                    member: member, path: call.path?.rawValue ?? "", arguments: arguments, sender: call.sender,
                    incoming: call, daemon: daemon))
        }
        try await own(true)
        let announce = session.adapter.onStateChange
        session.adapter.onStateChange = { [states] state in
            announce?(state)
            states.append(state)
        }
        turn { bus.timing = prepare(bus.timing) }
    }

    /// The session connects, and asks what it asks first.
    func open() { turn { bus.open() } }

    /// What BlueZ has of an adapter.
    static func adapter(
        isPowered: Bool, modalias: String = "usb:v1D6Bp0246d0542", address: String? = nil
    ) -> Value {
        .properties(
            [("Powered", .bool(isPowered)), ("Modalias", .string(modalias))]
                + (address.map { [("Address", .string($0))] } ?? []))
    }

    /// The same, and Bluetooth is on.
    func powerOn() async throws {
        open()
        try await expect("GetAll", at: Self.hci0).answer(Self.adapter(isPowered: true))
        try await states.next("power") { $0 == .poweredOn ? true : nil }
    }

    /// Does `body` in a turn of the bus queue.
    @discardableResult
    func turn<Result>(_ body: () throws -> Result) rethrows -> Result {
        try session.queue.sync {
            defer { bus.flush() }
            return try body()
        }
    }

    // MARK: Being bluetoothd

    /// bluetoothd starts, or ends.
    func own(_ owns: Bool) async throws {
        if owns {
            try await daemon.bus("RequestName", .string(BlueZ.busName), .uint32(4))
        } else {
            try await daemon.bus("ReleaseName", .string(BlueZ.busName))
        }
    }

    /// Calls that matter to no test of a suite are answered so, and are not taken.
    func answerRoutinely(_ answers: [String: [Value]]) { routine.withLock { $0.merge(answers) { $1 } } }

    func stopAnswering(_ member: String) { routine.withLock { $0[member] = nil } }

    /// The next call, whichever it is.
    func next(_ expected: String = "a call") async throws -> Call {
        let call = try await calls.next(expected) { $0 }
        taken.withLock { $0 += 1 }
        return call
    }

    /// The next call, which must be this one.
    /// - Parameter property: The property that is read or set.
    @discardableResult
    func expect(
        _ member: String, _ property: String? = nil, at path: String? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) async throws -> Call {
        let call = try await next("\(member) \(property ?? "")")
        let isRight =
            call.member == member && (property == nil || call.arguments.dropFirst().first?.stringValue == property)
            && (path == nil || call.path == path)
        guard isRight else {
            let text = "expected \(member) \(property ?? "") \(path ?? ""), and \(call.member) of \(call.path) came"
            Issue.record(Comment(rawValue: text), sourceLocation: sourceLocation)
            throw Unexpected(description: text)
        }
        return call
    }

    /// Nothing has been called that was not expected.
    func expectNoCall(sourceLocation: SourceLocation = #_sourceLocation) async throws {
        try await settle()
        let rest = calls.all.dropFirst(taken.withLock { $0 }).map { "\($0.member) of \($0.path)" }
        #expect(rest.isEmpty, sourceLocation: sourceLocation)
    }

    /// Calls an object of the session.
    /// - Parameter peer: Who calls; nil: bluetoothd.
    func call(
        _ path: ObjectPath, _ interface: String, _ member: String, _ arguments: [Value], from peer: Peer? = nil
    ) async throws -> [Value] {
        let name = turn { bus.connection?.uniqueName ?? "" }
        return try await (peer ?? daemon).call(name, path, interface, member, arguments)
    }

    func emit(_ path: String, _ interface: String, _ member: String, _ arguments: Value...) throws {
        try daemon.emit(#require(ObjectPath(path)), interface, member, arguments)
    }

    func change(_ path: String, _ interface: String, _ properties: [(String, Value)]) throws {
        try emit(
            path, "org.freedesktop.DBus.Properties", "PropertiesChanged", .string(interface), .properties(properties),
            .strings([]))
    }

    func add(_ path: String, _ interface: String, _ properties: [(String, Value)]) throws {
        let interfaces = Value.dictionary(
            key: "s", value: "a{sv}", [.init(.string(interface), .properties(properties))])
        try emit(
            "/", "org.freedesktop.DBus.ObjectManager", "InterfacesAdded", .path(#require(ObjectPath(path))), interfaces)
    }

    func remove(_ path: String, _ interface: String) throws {
        try emit(
            "/", "org.freedesktop.DBus.ObjectManager", "InterfacesRemoved", .path(#require(ObjectPath(path))),
            .strings([interface]))
    }

    /// What either side has sent so far has been received, and what follows from it at once has been done.
    func settle() async throws {
        // Once for what the test has sent, and once for what the session has sent because of that.
        for _ in 0..<2 {
            await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
                session.queue.async { [bus] in
                    guard let connection = bus.connection else { return continuation.resume() }
                    BlueZProxy(bus: connection, path: "/", interface: "org.freedesktop.DBus.Peer")
                        .ping { _ in continuation.resume() }
                }
            }
        }
    }
}

extension ScriptedBus {
    /// The answer to `GetManagedObjects`: devices by path.
    static func objects(_ devices: [(path: String, properties: [(String, Value)])]) throws -> Value {
        .dictionary(
            key: "o", value: "a{sa{sv}}",
            try devices.map { device in
                .init(
                    .path(try #require(ObjectPath(device.path))),
                    .dictionary(
                        key: "s", value: "a{sv}", [.init(.string(BlueZ.device), .properties(device.properties))]))
            })
    }

    /// What BlueZ has of a device.
    static func properties(
        _ identity: DeviceIdentity, connected: Bool = false, _ others: [(String, Value)] = []
    ) -> [(String, Value)] {
        let address = identity.addressText
        return [
            ("Address", .string(address)), ("AddressType", .string(identity.isRandom ? "random" : "public")),
            ("Connected", .bool(connected)),
        ] + others
    }

    static func path(_ identity: DeviceIdentity, on adapter: String = hci0) -> String {
        "\(adapter)/\(identity.pathElement)"
    }

    /// A manager's core, without the manager.
    func manager() -> CentralManagerCore {
        let core = CentralManagerCore(
            central: central, of: session, receiver: DeafApp(), place: DispatchQueue(label: "test"), preserved: nil,
            configuration: .init())
        turn { central.add(core) }
        return core
    }
}
