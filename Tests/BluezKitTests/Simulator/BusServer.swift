import BluezKitSimulator
import BluezDBus
import Foundation

/// A GATT application that knows only D-Bus: it answers as configured, and records bluetoothd's calls in its client's
/// lines, `<- /app/s/c ReadValue device offset=3 link mtu`.
final class BusServer: @unchecked Sendable {  // holds: all state is touched on the client's queue
    typealias Properties = [String: Value]
    let client: BusClient
    private var objects: [(path: String, interface: String, properties: Properties)] = []
    private var values: [String: [UInt8]] = [:]
    private var refusals: [String: (name: String, message: String)] = [:]
    private var silent: Set<String> = []
    /// Our ends of sockets, by path.
    private var sockets: [String: Int32] = [:]

    init(_ address: BusAddress) async throws {
        client = try await BusClient(address)
        client.queue.sync { client.connection.onCall = { [weak self] in self?.answer($0) } }
    }

    deinit { for socket in sockets.values { close(socket) } }

    // MARK: Building

    func add(_ path: String, _ interface: String, _ properties: Properties, value: [UInt8] = []) {
        client.queue.sync {
            objects.append((path, "org.bluez." + interface, properties))
            values[path] = value
        }
    }

    func service(_ path: String, _ uuid: String, primary: Bool = true, includes: [String] = []) throws {
        var properties: Properties = ["UUID": .string(uuid), "Primary": .bool(primary)]
        if !includes.isEmpty {
            properties["Includes"] = .array(element: "o", try includes.map { .path(try Self.path($0)) })
        }
        add(path, "GattService1", properties)
    }

    func characteristic(
        _ path: String, _ uuid: String, _ flags: [String], _ value: [UInt8] = [], more: Properties = [:]
    ) throws {
        let service = try Self.path((path as NSString).deletingLastPathComponent)
        let properties: Properties = ["UUID": .string(uuid), "Service": .path(service), "Flags": .strings(flags)]
        add(path, "GattCharacteristic1", properties.merging(more) { $1 }, value: value)
    }

    func descriptor(_ path: String, _ uuid: String, _ flags: [String], _ value: [UInt8] = []) throws {
        let owner = try Self.path((path as NSString).deletingLastPathComponent)
        add(
            path, "GattDescriptor1",
            ["UUID": .string(uuid), "Characteristic": .path(owner), "Flags": .strings(flags)], value: value)
    }

    static func path(_ text: String) throws -> ObjectPath {
        guard let path = ObjectPath(text) else { throw BusError.invalid(text) }
        return path
    }

    func value(_ path: String) -> [UInt8]? { client.queue.sync { values[path] } }
    func setValue(_ value: [UInt8], _ path: String) { client.queue.sync { values[path] = value } }
    /// From now on calls of this object are answered with an error.
    func refuse(_ path: String, _ name: String, _ message: String = "") {
        client.queue.sync { refusals[path] = (name, message) }
    }
    /// From now on calls of this object are not answered.
    func ignore(_ path: String) { _ = client.queue.sync { silent.insert(path) } }

    // MARK: Calling

    private func manager(_ member: String, _ interface: String, _ path: String, adapter: String, options: Bool)
        async throws
    {
        let path = Value.path(try Self.path(path))
        if options {
            try await client.call(adapter, interface, member, path, .noOptions)
        } else {
            try await client.call(adapter, interface, member, path)
        }
    }

    func register(_ root: String = "/app", adapter: String = "/org/bluez/hci0") async throws {
        try await manager("RegisterApplication", "org.bluez.GattManager1", root, adapter: adapter, options: true)
    }
    func unregister(_ root: String = "/app", adapter: String = "/org/bluez/hci0") async throws {
        try await manager("UnregisterApplication", "org.bluez.GattManager1", root, adapter: adapter, options: false)
    }
    func advertise(
        _ properties: Properties, at path: String = "/adv", adapter: String = "/org/bluez/hci0"
    ) async throws {
        client.queue.sync { objects.removeAll { $0.path == path } }
        add(path, "LEAdvertisement1", properties)
        try await manager(
            "RegisterAdvertisement", "org.bluez.LEAdvertisingManager1", path, adapter: adapter, options: true)
    }
    func withdraw(_ path: String = "/adv", adapter: String = "/org/bluez/hci0") async throws {
        try await manager(
            "UnregisterAdvertisement", "org.bluez.LEAdvertisingManager1", path, adapter: adapter, options: false)
    }

    func notify(_ path: String, _ value: [UInt8]) throws {
        try changed(path, "GattCharacteristic1", ["Value": .bytes(value)])
    }

    func changed(
        _ path: String, _ interface: String, _ properties: Properties, invalidated: [String] = []
    ) throws {
        let path = try Self.path(path)
        try client.queue.sync {
            try client.connection.emit(
                path: path, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged"
            ) { (writer) throws(BusError) in
                try writer.write("org.bluez." + interface)
                try writer.write(.properties(properties))
                try writer.write(.strings(invalidated))
            }
        }
    }

    /// Sends a packet on the socket that AcquireNotify handed out.
    func send(_ value: [UInt8], _ path: String) {
        let socket = client.queue.sync { sockets[path] ?? -1 }
        _ = Glibc.send(socket, value, value.count, Int32(MSG_NOSIGNAL))
    }

    /// A packet of the socket that AcquireWrite handed out.
    func receive(_ path: String) -> [UInt8] {
        let socket = client.queue.sync { sockets[path] ?? -1 }
        var buffer = [UInt8](repeating: 0, count: 600)
        return Array(buffer[..<max(0, recv(socket, &buffer, buffer.count, 0))])
    }

    // MARK: Answering

    private func answer(_ call: IncomingCall) {
        let path = call.path?.rawValue ?? "", member = call.member ?? ""
        let arguments = (try? call.values()) ?? []
        client.hear("<- \(path) \(member) \(text(arguments))".trimmingCharacters(in: .whitespaces))
        if silent.contains(path) { return }
        if let refusal = refusals[path] {
            return client.connection.refuse(call, name: refusal.name, message: refusal.message)
        }
        do {
            try answer(call, path, member, arguments)
        } catch {
            client.connection.refuse(call, name: "org.freedesktop.DBus.Error.UnknownMethod", message: member)
        }
    }

    private func answer(_ call: IncomingCall, _ path: String, _ member: String, _ arguments: [Value]) throws {
        func reply(_ values: Value...) {
            client.connection.reply(to: call) { (writer) throws(BusError) in
                for value in values { try writer.write(value) }
            }
        }
        switch member {
        case "GetManagedObjects":
            let below = objects.filter { $0.path.hasPrefix(path + "/") }
            let entries = try below.map { object in
                Value.Entry(
                    .path(try Self.path(object.path)),
                    .dictionary(
                        key: "s", value: "a{sv}", [.init(.string(object.interface), .properties(object.properties))]))
            }
            reply(.dictionary(key: "o", value: "a{sa{sv}}", entries))
        case "GetAll":
            guard let object = objects.first(where: { $0.path == path }) else { throw BusError.invalid(path) }
            reply(.properties(object.properties))
        case "ReadValue":
            let offset = arguments.first?.dictionaryValue?["offset"]?.intValue ?? 0
            reply(.bytes(Array((values[path] ?? []).dropFirst(offset))))
        case "WriteValue":
            let options = arguments.last?.dictionaryValue ?? [:]
            if options["prepare-authorize"] == nil {
                let before = (values[path] ?? []).prefix(options["offset"]?.intValue ?? 0)
                values[path] = before + (arguments.first?.bytesValue ?? [])
            }
            reply()
        case "AcquireNotify", "AcquireWrite":
            var ends: [Int32] = [-1, -1]
            guard socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0 else {
                throw BusError.limit("sockets")
            }
            sockets[path] = ends[0]
            reply(.fileDescriptor(ends[1]), .uint16(517))
            close(ends[1])
        default: reply()
        }
    }

    private func text(_ values: [Value]) -> String {
        values.map { value in
            if let entries = value.entries {
                return entries.map { key, value in
                    switch key {
                    case "device": "device=\(value.stringValue?.suffix(2) ?? "?")"
                    default:
                        "\(key)=\(value.unwrapped.boolValue.map { "\($0)" } ?? value.stringValue ?? "\(value.intValue ?? -1)")"
                    }
                }.joined(separator: " ")
            }
            if let bytes = value.bytesValue {
                return bytes.isEmpty ? "-" : bytes.map { String(format: "%02x", $0) }.joined()
            }
            return value.stringValue ?? "?"
        }.joined(separator: " ")
    }
}
