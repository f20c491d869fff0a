import BluezKit
import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation

/// Owns `org.bluez` on a private bus and does to the objects of a peripheral manager what a test requests: what no
/// correct daemon does, and what only later versions do.
final class FakeBlueZ: World, @unchecked Sendable {  // holds: what changes is in boxes, or touched on the peer's queue
    private let bus: PrivateBus
    let peer: Peer
    /// Calls that were made to it: member and first argument.
    let calls = EventLog<Call>()
    /// What the next calls of a method are refused with.
    let refusals = ProtectedBox<[String: String]>([:])
    /// Devices by path; others are connected and not bonded.
    let bonded = ProtectedBox<Set<String>>([])
    private let disconnected = ProtectedBox<Set<String>>([])
    /// Calls of `Connect`, which the test answers.
    private let connects = ProtectedBox<[IncomingCall]>([])
    /// Calls of `Disconnect` wait for ``answerDisconnects()``.
    let holdsDisconnects = ProtectedBox(false)
    private let disconnects = ProtectedBox<[IncomingCall]>([])
    private let version: BlueZVersion
    private let app = ProtectedBox("")

    struct Call: Sendable {
        let member: String
        let path: ObjectPath?
    }

    var address: BusAddress { bus.busAddress }
    var managerOptions: [String: Any] { [BluezManagerOptionBusAddressKey: bus.address] }
    var connectTimeout: Double { 1 }
    func control(_ line: String) async throws -> String { throw RigWorld.Refused(description: line) }
    func nextEvent(_ what: String, where matches: @escaping @Sendable (String) -> Bool) async throws -> String {
        throw RigWorld.Refused(description: what)
    }

    /// - Parameter version: Which BlueZ it says it is. From 5.76 on each subscriber has a socket.
    init(version: BlueZVersion = BlueZVersion(5, 66)) async throws {
        _ = LogCapture.shared
        self.version = version
        bus = try PrivateBus()
        peer = try await Peer.named(bus.busAddress)
        peer.serve { [weak self] connection, call in self?.serve(call, connection) }
        try await withCheckedThrowingContinuation { continuation in
            peer.queue.async { [peer] in
                peer.connection.requestName("org.bluez") { continuation.resume(with: $0) }
            }
        }
    }

    static let device: ObjectPath = "/org/bluez/hci0/dev_F0_00_00_00_00_01"
    static func device(_ number: Int) -> ObjectPath {
        let (high, low) = (UInt8(truncatingIfNeeded: number >> 8), UInt8(truncatingIfNeeded: number))
        return ObjectPath("/org/bluez/hci0/dev_F0_00_00_00_\(Data([high]).hex)_\(Data([low]).hex)".uppercasedAddress)
            ?? "/"
    }

    // MARK: Being bluetoothd

    private func serve(_ call: IncomingCall, _ connection: Connection) {
        var reader = call.reader
        let member = call.member ?? ""
        if let refusal = refusals.withLock({ $0[member] }) {
            calls.append(Call(member: member, path: try? reader.readPath()))
            return connection.refuse(call, name: refusal, message: "")
        }
        switch member {
        case "Get":
            connection.refuse(call, name: "org.freedesktop.DBus.Error.InvalidArgs", message: "No such property")
        case "GetAll":
            let properties = properties(of: (try? reader.readString()) ?? "", at: call.path?.rawValue ?? "")
            connection.reply(to: call) { (writer) throws(BusError) in try writer.write(.properties(properties)) }
        case "RegisterApplication", "RegisterAdvertisement", "UnregisterApplication", "UnregisterAdvertisement":
            if let sender = call.sender { app.withLock { $0 = sender } }
            calls.append(Call(member: member, path: try? reader.readPath()))
            connection.reply(to: call)
        case "SetDiscoveryFilter", "StartDiscovery", "StopDiscovery":
            calls.append(Call(member: member, path: nil))
            connection.reply(to: call)
        case "Connect":
            connects.withLock { $0.append(call) }
            calls.append(Call(member: member, path: call.path))
        case "Disconnect":
            calls.append(Call(member: member, path: call.path))
            if holdsDisconnects.withLock({ $0 }) { return disconnects.withLock { $0.append(call) } }
            connection.reply(to: call)
        default: connection.refuse(call, name: "org.freedesktop.DBus.Error.UnknownMethod", message: member)
        }
    }

    private func properties(of interface: String, at path: String) -> [(String, Value)] {
        switch interface {
        case "org.bluez.Adapter1":
            return [("Powered", .bool(true)), ("Modalias", .string(version.modalias))]
        case "org.bluez.Device1":
            let address = path.suffix(17).replacingOccurrences(of: "_", with: ":")
            return [
                ("Address", .string(address)), ("AddressType", .string("random")),
                ("Connected", .bool(!disconnected.withLock { $0.contains(path) })),
                ("Bonded", .bool(bonded.withLock { $0.contains(path) })),
            ]
        case "org.bluez.LEAdvertisingManager1":
            return [("ActiveInstances", .byte(0)), ("SupportedInstances", .byte(5))]
        default: return []
        }
    }

    /// A central connects or disconnects.
    /// - Parameter isSignalled: False: only who asks gets to know it.
    func setConnected(_ isConnected: Bool, _ device: ObjectPath, isSignalled: Bool = true) throws {
        let path = device.rawValue
        // Later queries give the same answer.
        disconnected.withLock { if isConnected { $0.remove(path) } else { $0.insert(path) } }
        guard isSignalled else { return }
        try peer.emit(
            device, "org.freedesktop.DBus.Properties", "PropertiesChanged",
            [.string("org.bluez.Device1"), .properties([("Connected", .bool(isConnected))]), .strings([])])
    }

    /// Answers all calls of `Connect`.
    func answerConnects() { answer(connects) }

    /// Answers all calls of `Disconnect` that were held, and from now on each at once.
    func answerDisconnects() {
        holdsDisconnects.withLock { $0 = false }
        answer(disconnects)
    }

    private func answer(_ waiting: ProtectedBox<[IncomingCall]>) {
        let calls = waiting.withLock { calls in
            defer { calls = [] }
            return calls
        }
        peer.sync { connection in for call in calls { connection.reply(to: call) } }
    }

    // MARK: Calling the app

    /// Calls an object of the app, as bluetoothd.
    @discardableResult
    func call(
        _ path: ObjectPath, _ member: String, _ arguments: [Value] = [],
        interface: String = "org.bluez.GattCharacteristic1"
    ) async throws -> [Value] {
        try await peer.call(app.withLock { $0 }, path, interface, member, arguments)
    }

    /// The same without asking for an answer.
    func send(_ path: ObjectPath, _ member: String, _ arguments: [Value]) throws {
        let destination = app.withLock { $0 }
        try peer.sync { connection in
            try connection.send(
                MethodCall(
                    destination: destination, path: path, interface: "org.bluez.GattCharacteristic1", member: member
                ) { (writer) throws(BusError) in for argument in arguments { try writer.write(argument) } })
        }
    }

    /// Waits until the app has dealt with all that was sent to it before.
    func settle(at path: ObjectPath) async throws {
        try await call(
            path, "GetAll", [.string("org.bluez.GattCharacteristic1")], interface: "org.freedesktop.DBus.Properties")
    }

    func read(_ path: ObjectPath, _ options: [(String, Value)] = options()) async throws -> [UInt8]? {
        try await call(path, "ReadValue", [.properties(options)]).first?.bytesValue
    }

    func write(_ path: ObjectPath, _ value: [UInt8], _ options: [(String, Value)] = options()) async throws {
        try await call(path, "WriteValue", [.bytes(value), .properties(options)])
    }

    /// - Returns: The socket, if the app gave one.
    func acquire(_ path: ObjectPath, _ device: ObjectPath = device, mtu: UInt16 = 100) async throws -> Int32? {
        do {
            let answer = try await call(path, "AcquireNotify", [.properties(Self.options(device, mtu: mtu))])
            if case .fileDescriptor(let descriptor)? = answer.first { return descriptor }
        } catch BusError.remote(name: "org.bluez.Error.NotSupported", _) {
            try send(path, "StartNotify", [])
        }
        return nil
    }

    static func options(
        _ device: ObjectPath = device, mtu: UInt16 = 100, offset: UInt16? = nil
    ) -> [(String, Value)] {
        [("device", .path(device)), ("link", .string("LE")), ("mtu", .uint16(mtu))]
            + (offset.map { [("offset", .uint16($0))] } ?? [])
    }

    /// What the app exports below its last application, by path.
    func objects(below root: ObjectPath) async throws -> [(path: ObjectPath, interfaces: [String: Value])] {
        let answer = try await call(root, "GetManagedObjects", interface: "org.freedesktop.DBus.ObjectManager")
        guard case .dictionary(_, _, let entries)? = answer.first else { return [] }
        return entries.compactMap { entry in
            guard case .path(let path) = entry.key, let interfaces = entry.value.dictionaryValue else { return nil }
            return (path, interfaces)
        }
    }

    /// The object path of the app's characteristic with this UUID.
    func characteristic(_ uuid: CBUUID) async throws -> ObjectPath {
        let call = try await calls.next("RegisterApplication") { $0.member == "RegisterApplication" ? $0 : nil }
        for object in try await objects(below: call.path ?? "/") {
            let properties = object.interfaces["org.bluez.GattCharacteristic1"]?.dictionaryValue
            if properties?["UUID"]?.stringValue == uuid.line { return object.path }
        }
        throw RigWorld.Refused(description: "no characteristic \(uuid)")
    }
}

extension String {
    /// `…/dev_f0_…` with the address in capitals.
    fileprivate var uppercasedAddress: String { String(dropLast(5)) + suffix(5).uppercased() }
}

extension BlueZVersion {
    /// What `Adapter1.Modalias` of this version is.
    var modalias: String { String(format: "usb:v1D6Bp0246d%02X%02X", major, minor) }
}
