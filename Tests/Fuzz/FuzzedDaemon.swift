import BluezDBus
import Dispatch
import Foundation

/// Owns `org.bluez`. What it says and answers is mostly as documented, and wrong in type, length, path or order where
/// the input says so.
final class FuzzedDaemon: @unchecked Sendable {  // holds: all but `queue` is touched on `queue` only
    private typealias Object = (path: String, interface: String, properties: [(String, Value)])

    private let queue = DispatchQueue(label: "fuzz.daemon")
    private let bus: Connection
    private var choices: Choices
    private var messages = 0
    private var app: String?
    private var hello: DispatchSemaphore?
    private var connected: Set<Int> = []
    private var tables: [Int: [Object]] = [:]
    /// What the app has on the bus.
    private var exported: [ObjectPath] = []
    private var agent: ObjectPath = "/org/bluezkit/agent"
    private var sockets: [Int32] = []

    init(_ address: BusAddress, _ choices: Choices) {
        self.choices = choices
        let queue = queue
        let connection = Result { try queue.sync { try Connection(address: address, queue: queue) } }
        guard case .success(let bus) = connection else { preconditionFailure("\(connection)") }
        self.bus = bus
        wait("the name") { done in
            queue.sync {
                bus.onCall = { [unowned self] in serve($0) }
                bus.requestName("org.bluez") { result in
                    precondition((try? result.get()) != nil, "\(result)")
                    done.signal()
                }
            }
        }
    }

    /// Acts until the input has ended.
    /// - Parameter settle: Lets the app deal with what has come.
    /// - Returns: How many messages were sent.
    func play(_ settle: () -> Void) -> Int {
        wait("the app's first call") { done in queue.sync { if app == nil { hello = done } else { done.signal() } } }
        var goesOn = true
        while goesOn {
            // In portions, so that the app gets to do things in between.
            goesOn = queue.sync {
                for _ in 0..<8 where !choices.atEnd { act() }
                return !choices.atEnd
            }
            wait("an answer of the app") { done in
                queue.sync {
                    let ping = MethodCall(
                        destination: app ?? "", path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping")
                    bus.call(ping, deadline: .seconds(15)) { result in
                        if case .failure(.timedOut) = result { preconditionFailure("the app hangs") }
                        done.signal()
                    }
                }
            }
            settle()
        }
        return queue.sync { messages }
    }

    func end() {
        wait("the name's release") { done in queue.sync { bus.releaseName("org.bluez") { _ in done.signal() } } }
        queue.sync {
            bus.close()
            for socket in sockets { close(socket) }
        }
    }

    // MARK: Answers

    private func answer(_ call: IncomingCall, _ values: Value...) {
        messages += 1
        var values = values
        if choices.chance(5) {
            switch choices.roll(6) {
            case 0: values = []
            case 1: values = [choices.value()]
            case 2: values.append(choices.value())
            case 3: values = values.map { _ in choices.value() }
            case 4: return  // never
            default:
                let errors = [
                    "org.bluez.Error.Failed", "org.bluez.Error.InProgress", "org.bluez.Error.NotPermitted",
                    "org.bluez.Error.NotConnected", "org.freedesktop.DBus.Error.UnknownObject",
                    "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.ServiceUnknown", "x.y",
                ]
                let texts = ["", "Not paired", "Write acquired", "le-connection-abort-by-local", "ATT error: 0x0e"]
                return bus.refuse(call, name: choices.pick(errors), message: choices.pick(texts))
            }
        }
        let final = values
        bus.reply(to: call) { (writer) throws(BusError) in for value in final { try writer.write(value) } }
    }

    private func serve(_ call: IncomingCall) {
        let path = call.path?.rawValue ?? "/"
        app = call.sender
        hello?.signal()
        hello = nil
        var reader = call.reader
        switch call.member {
        case "Introspect": answer(call, .string(tree(below: path)))
        case "Get":
            let name = (try? reader.readString()).flatMap { _ in try? reader.readString() } ?? ""
            answer(call, .variant(choices.property(name)))
        case "GetAll":
            let interface = (try? reader.readString()) ?? ""
            if interface == "org.bluez.Adapter1" {
                // Without an adapter there would be nothing to see.
                let adapter: [(String, Value)] = [
                    ("Powered", .bool(true)), ("Modalias", choices.property("Modalias")),
                ]
                return bus.reply(to: call) { (writer) throws(BusError) in try writer.write(.properties(adapter)) }
            }
            guard let number = Self.number(path) else { return answer(call, .properties([(String, Value)]())) }
            if interface == "org.bluez.Device1" { return answer(call, .properties(device(number))) }
            guard let object = table(number).first(where: { $0.path == path }) else {
                return bus.refuse(call, name: "org.freedesktop.DBus.Error.UnknownObject", message: "")
            }
            answer(call, .properties(object.properties))
        case "Connect":
            answer(call)
            if let number = Self.number(path), !choices.chance(10) { connect(number) }
        case "Disconnect":
            if let number = Self.number(path) { disconnect(number) }
            answer(call)
        case "ReadValue": answer(call, choices.property("Value"))
        case "AcquireWrite": answerAcquire(call)
        case "RegisterAgent":
            if let path = try? reader.readPath() { agent = path }
            answer(call)
        case "RegisterApplication", "RegisterAdvertisement":
            answer(call)
            if let root = try? reader.readPath() {
                exported.append(root)
                look(at: root)
            }
        default: answer(call)
        }
    }

    private func answerAcquire(_ call: IncomingCall) {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(SOCK_SEQPACKET.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        guard !choices.chance(20), socketpair(AF_UNIX, kind, 0, &ends) == 0 else {
            return bus.refuse(call, name: "org.bluez.Error.NotSupported", message: "")
        }
        answer(call, .fileDescriptor(ends[1]), choices.property("MTU"))
        close(ends[1])
        keep(ends[0])
    }

    private func keep(_ socket: Int32) {
        if choices.chance(30) { close(socket) } else { sockets.append(socket) }
        if sockets.count > 8 { close(sockets.removeFirst()) }
    }

    /// Reads the app's objects, as bluetoothd does with a new application.
    private func look(at root: ObjectPath) {
        let question = MethodCall(
            destination: app ?? "", path: root, interface: "org.freedesktop.DBus.ObjectManager",
            member: "GetManagedObjects")
        bus.call(question, deadline: .seconds(5)) { [weak self] result in
            guard let self, case .success(let reply) = result,
                case .dictionary(_, _, let entries)? = (try? reply.values())?.first
            else { return }
            for entry in entries { if case .path(let path) = entry.key { exported.append(path) } }
        }
    }

    // MARK: Devices

    private static func number(_ path: String) -> Int? {
        guard path.hasPrefix("/org/bluez/hci0/dev_F0_00_00_00_00_") else { return nil }
        return Int(path.dropFirst(35).prefix(2), radix: 16)
    }

    private func device(_ number: Int) -> [(String, Value)] {
        [
            ("Address", .string(Choices.address(number))), ("AddressType", .string("random")),
            ("Connected", .bool(connected.contains(number))),
            ("ServicesResolved", .bool(connected.contains(number))),
        ] + choices.properties(Decoders.advertisedProperties, most: 4)
    }

    private func table(_ number: Int) -> [Object] {
        if let table = tables[number] { return table }
        var table: [Object] = []
        var handle = 16
        func next(_ prefix: String) -> String {
            handle += 1
            return "\(prefix)00\(String(handle, radix: 16))"
        }
        for _ in 0...choices.roll(3) {
            let service = "\(Choices.device(number))/\(next("service"))"
            table.append((service, "org.bluez.GattService1", attribute(["Primary", "Includes"])))
            for _ in 0..<choices.roll(4) {
                let characteristic = "\(service)/\(next("char"))"
                table.append(
                    (characteristic, "org.bluez.GattCharacteristic1", attribute(["Flags", "Value", "MTU"])))
                for _ in 0..<choices.roll(3) {
                    table.append(("\(characteristic)/\(next("desc"))", "org.bluez.GattDescriptor1", attribute([])))
                }
            }
        }
        tables[number] = table
        return table
    }

    private func attribute(_ names: [String]) -> [(String, Value)] {
        let flags = Value.strings(["read", "write", "notify", "write-without-response"])
        return (["UUID"] + names).map { name in
            (name, name == "Flags" && !choices.chance(40) ? flags : choices.property(name))
        }
    }

    private func tree(below path: String) -> String {
        var names: Set<String> = path == "/org/bluez" ? ["hci0"] : []
        if let number = Self.number(path), connected.contains(number) {
            for object in table(number) where object.path.hasPrefix(path + "/") {
                names.insert(String(object.path.dropFirst(path.count + 1).prefix { $0 != "/" }))
            }
        }
        if choices.chance(3) { names.formUnion(["", "a/b", "service", "\"><node name=\"x", "x y"]) }
        return "<node>" + names.map { "<node name=\"\($0)\"/>" }.joined() + "</node>"
    }

    private func connect(_ number: Int) {
        connected.insert(number)
        if choices.chance(30) { tables[number] = nil }
        change(Choices.device(number), "org.bluez.Device1", [("Connected", .bool(true))])
        for object in table(number) where !choices.chance(3) { add(object) }
        change(
            Choices.device(number), "org.bluez.Device1",
            [("UUIDs", choices.property("UUIDs")), ("ServicesResolved", .bool(true))])
    }

    private func disconnect(_ number: Int) {
        connected.remove(number)
        change(
            Choices.device(number), "org.bluez.Device1",
            [("ServicesResolved", .bool(false)), ("Connected", .bool(false))])
    }

    // MARK: Signals

    private func emit(_ path: String, _ interface: String, _ member: String, _ values: [Value]) {
        messages += 1
        guard let path = ObjectPath(path) else { return }
        try? bus.emit(path: path, interface: interface, member: member) { (writer) throws(BusError) in
            for value in values { try writer.write(value) }
        }
    }

    private func change(
        _ path: String, _ interface: String, _ properties: [(String, Value)], gone: [String] = []
    ) {
        emit(
            path, "org.freedesktop.DBus.Properties", "PropertiesChanged",
            [.string(interface), .properties(properties), .strings(gone)])
    }

    private func add(_ object: Object) {
        emit(
            "/", "org.freedesktop.DBus.ObjectManager", "InterfacesAdded",
            [
                .path(ObjectPath(object.path) ?? "/"),
                .dictionary(
                    key: "s", value: "a{sv}", [.init(.string(object.interface), .properties(object.properties))]),
            ])
    }

    private func remove(_ path: String, _ interface: String) {
        emit(
            "/", "org.freedesktop.DBus.ObjectManager", "InterfacesRemoved",
            [.path(ObjectPath(path) ?? "/"), .strings([interface])])
    }

    private func act() {
        let number = choices.roll(24)
        let path = Choices.device(number)
        let shown = connected.isEmpty ? nil : choices.pick(table(choices.pick(connected.sorted())))
        switch choices.roll(32) {
        case 0..<5:
            change(
                path, "org.bluez.Device1", choices.properties(Decoders.deviceProperties),
                gone: choices.list(2) { $0.pick(Choices.propertyNames) })
        case 5..<9: add((path, "org.bluez.Device1", device(number)))
        case 9: if !connected.contains(number) { remove(path, "org.bluez.Device1") }
        case 10..<15:
            guard let shown else { return }
            change(shown.path, "org.bluez.GattCharacteristic1", [("Value", choices.property("Value"))])
        case 15:
            guard let shown else { return }
            change(shown.path, shown.interface, choices.properties(Choices.propertyNames))
        case 16:
            guard let shown else { return }
            remove(shown.path, shown.interface)
            if !choices.chance(30) { add(shown) }
        case 17:
            guard connected.contains(number) else { return }
            let isKnown = choices.chance(80)
            let reason = isKnown ? [Value.string("org.bluez.Reason.Remote"), .string("")] : [choices.value()]
            emit(path, "org.bluez.Device1", "Disconnected", reason)
            disconnect(number)
        case 18:
            emit(
                choices.path().rawValue,
                choices.pick([
                    "org.freedesktop.DBus.Properties", "org.freedesktop.DBus.ObjectManager", "org.bluez.Device1",
                ]),
                choices.pick(["PropertiesChanged", "InterfacesAdded", "InterfacesRemoved", "Disconnected", "Nonsense"]),
                choices.list(3) { $0.value() })
        case 19:
            guard choices.chance(5) else { return }
            for isOn in [false, true] {
                change("/org/bluez/hci0", "org.bluez.Adapter1", [("Powered", .bool(isOn))])
            }
            connected = []
        case 20:
            guard choices.chance(5) else { return }
            remove("/org/bluez/hci0", "org.bluez.Adapter1")
            connected = []
            add(("/org/bluez/hci0", "org.bluez.Adapter1", [("Powered", .bool(true))]))
        case 21:
            guard choices.chance(5) else { return }
            connected = []
            bus.releaseName("org.bluez") { _ in }
            bus.requestName("org.bluez") { _ in }
        case 22: callAgent(device: path)
        default: callExported(device: path)
        }
    }

    // MARK: Calls to the app

    private func callAgent(device path: String) {
        let device = Value.path(ObjectPath(path) ?? "/")
        let (member, arguments): (String, [Value]) = choices.pick([
            ("RequestPasskey", [device]), ("DisplayPasskey", [device, .uint32(.max), .uint16(0)]), ("Cancel", []),
            ("RequestConfirmation", [device, .uint32(4_000_000_000)]), ("RequestAuthorization", [device]),
            ("RequestPinCode", [device]), ("AuthorizeService", [device, .string("x")]), ("Release", []),
        ])
        callApp(agent, "org.bluez.Agent1", member, arguments)
    }

    private func callExported(device: String) {
        guard !exported.isEmpty else { return }
        let characteristic = "org.bluez.GattCharacteristic1"
        var options: [(String, Value)] = [
            ("device", .path(ObjectPath(device) ?? "/")), ("mtu", choices.property("mtu")), ("link", .string("LE")),
        ]
        if choices.chance(30) { options.append(("offset", .uint16(choices.pick([0, 1, 512, 513, .max])))) }
        let length = choices.pick([0, 1, 20, 512, 513, 600])
        let calls: [(String, String, [Value])] = [
            (characteristic, "ReadValue", [.properties(options)]),
            (characteristic, "AcquireNotify", [.properties(options)]),
            (characteristic, "WriteValue", [.bytes(choices.some(length)), .properties(options)]),
            (characteristic, "StartNotify", []), (characteristic, "StopNotify", []), (characteristic, "Confirm", []),
            ("org.bluez.GattDescriptor1", "ReadValue", [.properties(options)]),
            ("org.bluez.LEAdvertisement1", "Release", []),
            ("org.freedesktop.DBus.Properties", "GetAll", [.string(characteristic)]),
            (
                "org.freedesktop.DBus.Properties", "Set",
                [.string(characteristic), .string("UUID"), .variant(.fileDescriptor(0))]
            ),
        ]
        let (interface, member, arguments) = choices.pick(calls)
        callApp(choices.pick(exported), interface, member, arguments)
    }

    private func callApp(_ path: ObjectPath, _ interface: String, _ member: String, _ arguments: [Value]) {
        messages += 1
        let arguments = choices.chance(5) ? choices.list(3) { $0.value() } : arguments
        let call = MethodCall(destination: app ?? "", path: path, interface: interface, member: member) {
            (writer) throws(BusError) in for argument in arguments { try writer.write(argument) }
        }
        if choices.chance(10) { return (try? bus.send(call)) ?? () }
        bus.call(call, deadline: .seconds(10)) { [weak self] result in
            guard case .success(let reply) = result,
                case .fileDescriptor(let descriptor)? = (try? reply.values(takesFileDescriptors: true))?.first
            else { return }
            if let self { keep(descriptor) } else { close(descriptor) }
        }
    }
}
