import BluezDBus
import BluezKitSimulator
import Foundation
import Testing

@testable import BluezKit

/// bluetoothd as a test plays it: the test takes each call in the order in which they come, and answers it, refuses it,
/// or lets it wait. Nothing else is answered, but for routine.
///
/// Or it serves whole managers, and answers them as a version of BlueZ does. The test then does what no correct daemon
/// does.
final class ScriptedBus: World, @unchecked Sendable {
    // holds: what changes is in boxes, or touched on one of the two queues
    /// A call that waits for its answer.
    struct Call: @unchecked Sendable {  // holds: the message is touched on the daemon's queue only
        let member: String
        let path: String
        let arguments: [Value]
        /// Over which of the session's connections it has come.
        let sender: String?
        /// Its first argument, where that is an object.
        var object: ObjectPath? { if case .path(let path)? = arguments.first { path } else { nil } }
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

    private enum Routine { case answer([Value]), refusal(String), waits }

    struct Unexpected: Error, CustomStringConvertible { let description: String }

    static let busy = "org.freedesktop.DBus.Error.LimitsExceeded"
    static let noObject = "org.freedesktop.DBus.Error.UnknownObject"
    static let hci0 = "/org/bluez/hci0"

    /// The parts that are tested.
    let session: Session
    /// States of Bluetooth that the session was told.
    let states = EventLog<CBManagerState>()
    let daemon: Peer
    /// Calls that the test answers; where BlueZ serves, all calls.
    let calls = EventLog<Call>()
    private let privateBus: PrivateBus
    private let version: BlueZVersion?
    private let routine = ProtectedBox<[String: Routine]>(["Ping": .answer([])])
    private let taken = ProtectedBox(0)
    /// Who has registered something.
    private let app = ProtectedBox<String?>(nil)
    /// Devices by path; others are connected and not bonded.
    let bonded = ProtectedBox<Set<String>>([])
    private let disconnected = ProtectedBox<Set<String>>([])

    var address: BusAddress { privateBus.busAddress }
    var managerOptions: [String: Any] { [BluezManagerOptionBusAddressKey: privateBus.address] }
    var connectTimeout: Double { 1 }
    var bus: BlueZBus { session.blueZ }
    var central: CentralRole { session.central }

    /// - Parameters:
    ///   - version: Which BlueZ serves: it answers all calls but `Connect`. From 5.76 on each subscriber has a socket.
    ///   - prepare: Sets what has to be set before the session connects.
    init(
        adapter: AdapterChoice? = nil, serving version: BlueZVersion? = nil,
        _ prepare: (BlueZTiming) -> BlueZTiming = { $0 }
    ) async throws {
        _ = LogCapture.shared
        self.version = version
        privateBus = try PrivateBus()
        daemon = try await Peer.named(privateBus.busAddress)
        session = Session.shared(Session.Key(address: privateBus.busAddress, adapter: adapter))
        daemon.serve { [weak self] connection, call in self?.receive(call, connection) }
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

    private func receive(_ incoming: IncomingCall, _ connection: Connection) {
        let call = Call(
            member: incoming.member ?? "", path: incoming.path?.rawValue ?? "",
            arguments: (try? incoming.values()) ?? [], sender: incoming.sender, incoming: incoming, daemon: daemon)
        let routine = routine.withLock { $0[call.member] } ?? version.map { serve(call, as: $0) } ?? .waits
        if version != nil { calls.append(call) }
        switch routine {
        case .answer(let values):
            connection.reply(to: incoming) { (writer) throws(BusError) in
                for value in values { try writer.write(value) }
            }
        case .refusal(let name): connection.refuse(incoming, name: name, message: "")
        case .waits: if version == nil { calls.append(call) }
        }
    }

    /// bluetoothd starts, or ends.
    func own(_ owns: Bool) async throws {
        if owns {
            try await daemon.bus("RequestName", .string(BlueZ.busName), .uint32(4))
        } else {
            try await daemon.bus("ReleaseName", .string(BlueZ.busName))
        }
    }

    /// Calls that matter to no test of a suite are answered so, and are not taken.
    func answerRoutinely(_ answers: [String: [Value]]) {
        routine.withLock { $0.merge(answers.mapValues(Routine.answer)) { $1 } }
    }

    func refuseRoutinely(_ member: String, with name: String) { routine.withLock { $0[member] = .refusal(name) } }

    func stopAnswering(_ member: String) { routine.withLock { $0[member] = .waits } }

    /// The next call, whichever it is.
    func next(
        _ expected: String = "a call", where isWanted: @escaping (Call) -> Bool = { _ in true }
    ) async throws -> Call {
        try await calls.next(expected) { [taken] call in
            taken.withLock { $0 += 1 }
            return isWanted(call) ? call : nil
        }
    }

    /// The next call of a method, whatever came before it.
    @discardableResult
    func skip(to member: String, of object: ObjectPath? = nil) async throws -> Call {
        try await next(member) { $0.member == member && (object == nil || $0.object == object) }
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

    /// The app's name on the bus.
    private var appName: String { app.withLock { $0 } ?? turn { bus.connection?.uniqueName ?? "" } }

    /// Calls an object of the app.
    /// - Parameter peer: Who calls; nil: bluetoothd.
    @discardableResult
    func call(
        _ path: ObjectPath, _ interface: String, _ member: String, _ arguments: [Value] = [], from peer: Peer? = nil
    ) async throws -> [Value] {
        try await (peer ?? daemon).call(appName, path, interface, member, arguments)
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

    static let device: ObjectPath = "/org/bluez/hci0/dev_F0_00_00_00_00_01"
    static func device(_ number: Int) -> ObjectPath {
        ObjectPath(path(DeviceIdentity(address: 0xF000_0000_0000 + UInt64(number), isRandom: true))) ?? "/"
    }

    /// Asks this process' agent whether to pair. - Returns: the name of the error that it answers with.
    func askConsent(about device: ObjectPath) async -> String? {
        let error = await thrown {
            _ = try await call("/org/bluezkit/agent", "org.bluez.Agent1", "RequestAuthorization", [.path(device)])
        }
        return (error as? BusError)?.name
    }

    /// A manager's core, without the manager.
    func manager() -> CentralManagerCore {
        let core = CentralManagerCore(
            central: central, of: session, receive: { _ in }, place: DispatchQueue(label: "test"), preserved: nil,
            configuration: .init())
        turn { central.add(core) }
        return core
    }
}

// MARK: - Serving

extension ScriptedBus {
    private func serve(_ call: Call, as version: BlueZVersion) -> Routine {
        switch call.member {
        case "Get": return .refusal("org.freedesktop.DBus.Error.InvalidArgs")
        case "GetAll": return .answer([properties(of: call.arguments.first?.stringValue, at: call.path, version)])
        case "RegisterApplication", "RegisterAdvertisement", "UnregisterApplication", "UnregisterAdvertisement":
            app.withLock { $0 = call.sender }
            return .answer([])
        case "SetDiscoveryFilter", "StartDiscovery", "StopDiscovery", "Disconnect": return .answer([])
        case "Connect": return .waits
        default: return .refusal("org.freedesktop.DBus.Error.UnknownMethod")
        }
    }

    private func properties(of interface: String?, at path: String, _ version: BlueZVersion) -> Value {
        switch interface {
        case BlueZ.adapter:
            let modalias = String(format: "usb:v1D6Bp0246d%02X%02X", version.major, version.minor)
            return Self.adapter(isPowered: true, modalias: modalias)
        case BlueZ.device:
            let address = String(path.suffix(17)).replacing("_", with: ":")
            return .properties([
                ("Address", .string(address)), ("AddressType", .string("random")),
                ("Connected", .bool(!disconnected.withLock { $0.contains(path) })),
                ("Bonded", .bool(bonded.withLock { $0.contains(path) })),
            ])
        case BlueZ.advertisingManager:
            return .properties([("ActiveInstances", .byte(0)), ("SupportedInstances", .byte(5))])
        default: return .properties([])
        }
    }

    /// A device connects or disconnects.
    /// - Parameter isSignalled: False: only who asks gets to know it.
    func setConnected(_ isConnected: Bool, _ device: ObjectPath = device, isSignalled: Bool = true) throws {
        let path = device.rawValue
        // Later queries give the same answer.
        disconnected.withLock { if isConnected { $0.remove(path) } else { $0.insert(path) } }
        if isSignalled { try change(path, BlueZ.device, [("Connected", .bool(isConnected))]) }
    }

    /// Calls a characteristic of the app, and asks for no answer.
    func send(_ path: ObjectPath, _ member: String, _ arguments: [Value] = []) throws {
        let destination = appName
        try daemon.sync { connection in
            try connection.send(
                MethodCall(destination: destination, path: path, interface: BlueZ.characteristic, member: member) {
                    (writer) throws(BusError) in for argument in arguments { try writer.write(argument) }
                })
        }
    }

    func read(_ path: ObjectPath, _ options: [(String, Value)] = options()) async throws -> [UInt8]? {
        try await call(path, BlueZ.characteristic, "ReadValue", [.properties(options)]).first?.bytesValue
    }

    func write(_ path: ObjectPath, _ value: [UInt8], _ options: [(String, Value)] = options()) async throws {
        try await call(path, BlueZ.characteristic, "WriteValue", [.bytes(value), .properties(options)])
    }

    /// - Returns: The socket, if the app gave one.
    func acquire(_ path: ObjectPath, _ device: ObjectPath = device, mtu: UInt16 = 100) async throws -> Int32? {
        do {
            let options = Value.properties(Self.options(device, mtu: mtu))
            let answer = try await call(path, BlueZ.characteristic, "AcquireNotify", [options])
            if case .fileDescriptor(let descriptor)? = answer.first { return descriptor }
        } catch BusError.remote(name: "org.bluez.Error.NotSupported", _) {
            try send(path, "StartNotify")
        }
        return nil
    }

    static func options(
        _ device: ObjectPath = device, mtu: UInt16 = 100, offset: UInt16? = nil
    ) -> [(String, Value)] {
        [("device", .path(device)), ("link", .string("LE")), ("mtu", .uint16(mtu))]
            + (offset.map { [("offset", .uint16($0))] } ?? [])
    }

    /// What the app exports below an application, by path.
    func objects(below root: ObjectPath) async throws -> [(path: ObjectPath, interfaces: [String: Value])] {
        let answer = try await call(root, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
        guard case .dictionary(_, _, let entries)? = answer.first else { return [] }
        return entries.compactMap { entry in
            guard case .path(let path) = entry.key, let interfaces = entry.value.dictionaryValue else { return nil }
            return (path, interfaces)
        }
    }
}
