import BluezDBus

/// A tree of GATT objects that a client registered, as bluetoothd read it: later additions are ignored.
final class Application {
    unowned let adapter: Adapter
    let client: String
    let root: ObjectPath
    private(set) var services: [GATTTable.Service] = []
    /// Characteristics by their object, for the values that they signal.
    private var characteristics: [ObjectPath: GATTTable.Characteristic] = [:]
    private var paths: [ObjectPath: GATTTable.Service] = [:]

    init(adapter: Adapter, client: String, root: ObjectPath) {
        (self.adapter, self.client, self.root) = (adapter, client, root)
    }

    private struct Object {
        let path: ObjectPath
        let interface: String
        let properties: [String: Value]

        func text(_ name: String) -> String? {
            if case .string(let text)? = properties[name] { text } else { nil }
        }
        func object(_ name: String) -> ObjectPath? {
            if case .path(let path)? = properties[name] { path } else { nil }
        }
        func flags(_ known: Set<String>) -> [String]? {
            guard case .array("s", _)? = properties["Flags"], let flags = properties["Flags"]?.stringsValue,
                !flags.isEmpty, known.isSuperset(of: flags)
            else { return nil }
            return flags
        }
    }

    // MARK: Registering

    /// Reads the answer to GetManagedObjects, and adds the services to the adapter's table.
    /// - Throws: ``BlueZError``
    func take(_ reply: Message) throws {
        guard let objects = Self.objects(reply) else { throw BlueZError.failed("No object received") }
        func all(_ name: String) -> [Object] { objects.filter { $0.interface == "org.bluez.Gatt\(name)1" } }
        let serviceObjects = all("Service")
        guard !serviceObjects.isEmpty else { throw Self.invalidTree }
        var definitions: [ObjectPath: [Object]] = [:]
        var descriptors: [ObjectPath: [Object]] = [:]
        for object in all("Characteristic") {
            guard let service = object.object("Service"), serviceObjects.contains(where: { $0.path == service })
            else { throw Self.invalidTree }
            definitions[service, default: []].append(object)
        }
        for object in all("Descriptor") {
            guard let characteristic = object.object("Characteristic"),
                definitions.values.contains(where: { $0.contains { $0.path == characteristic } })
            else { throw Self.invalidTree }
            descriptors[characteristic, default: []].append(object)
        }
        // Everything is checked before anything is added.
        let plans = try serviceObjects.map { try plan($0, definitions[$0.path] ?? [], descriptors) }
        let table = adapter.controller.presence.table
        let needed = plans.filter { $0.handle == 0 }.reduce(0) { $0 + $1.handleCount }
        guard needed <= table.room,
            plans.allSatisfy({ $0.handle == 0 || table.isFree($0.handle, count: $0.handleCount) })
        else { throw BlueZError.failed("Failed to create entry in database") }
        for (object, plan) in zip(serviceObjects, plans) { add(plan, for: object) }
    }

    private static func objects(_ reply: Message) -> [Object]? {
        guard case .dictionary("o", "a{sa{sv}}", let entries)? = try? reply.values().first, !entries.isEmpty else {
            return nil
        }
        var result: [Object] = []
        for entry in entries {
            guard case .path(let path) = entry.key, let interfaces = entry.value.dictionaryValue else { return nil }
            for (interface, properties) in interfaces {
                result.append(Object(path: path, interface: interface, properties: properties.dictionaryValue ?? [:]))
            }
        }
        return result
    }

    /// bluetoothd's error for any fault in a characteristic or descriptor.
    private static let invalidTree = BlueZError.failed("No valid service object found")

    // MARK: One service

    private struct Plan {
        var service: VirtualService
        /// Where it is to be; 0: anywhere.
        var handle: UInt16 = 0
        var includes: [ObjectPath] = []
        var characteristics: [(path: ObjectPath, served: ServedAttribute)] = []
        /// In the order of the table; nil for those that bluetoothd provides.
        var descriptors: [[ServedAttribute?]] = []

        var handleCount: Int {
            1 + includes.count + 2 * characteristics.count + descriptors.reduce(0) { $0 + $1.count }
        }
    }

    private func plan(
        _ object: Object, _ characteristics: [Object], _ descriptors: [ObjectPath: [Object]]
    ) throws -> Plan {
        guard let text = object.text("UUID"), let uuid = UUIDText.checked(text),
            case .bool(let isPrimary)? = object.properties["Primary"],
            !["1800", "1801"].map(UUIDText.full).contains(uuid)
        else { throw BlueZError.failed("Failed to create entry in database") }
        var plan = Plan(service: VirtualService(uuid, isPrimary: isPrimary))
        if case .uint16(let handle)? = object.properties["Handle"] { plan.handle = handle }
        if case .array("o", let values)? = object.properties["Includes"] {
            plan.includes = values.compactMap { if case .path(let path) = $0 { path } else { nil } }
        }
        for object in characteristics {
            guard let text = object.text("UUID"), let uuid = UUIDText.checked(text),
                let flags = object.flags(Self.characteristicFlags)
            else { throw Self.invalidTree }
            var definition = VirtualCharacteristic(uuid, VirtualCharacteristic.Flags(texts: flags))
            let served = ServedAttribute(
                application: self, path: object.path, interface: object.interface, flags: flags,
                acquiresNotify: object.properties["NotifyAcquired"] != nil,
                acquiresWrite: object.properties["WriteAcquired"] != nil)
            var order: [ServedAttribute?] = []
            let extended =
                UInt8(flags.contains("reliable-write") ? 1 : 0) | (flags.contains("writable-auxiliaries") ? 2 : 0)
            if extended != 0 {
                definition.descriptors.append(VirtualDescriptor("2900", value: [extended, 0]))
                order.append(nil)
            }
            if !definition.flags.isDisjoint(with: [.notify, .indicate]) {
                definition.descriptors.append(VirtualDescriptor("2902", value: [0, 0], isWritable: true))
                order.append(nil)
            }
            for object in descriptors[object.path] ?? [] {
                guard let text = object.text("UUID"), let uuid = UUIDText.checked(text),
                    let flags = object.flags(Self.descriptorFlags)
                else { throw Self.invalidTree }
                definition.descriptors.append(VirtualDescriptor(uuid, value: []))
                order.append(
                    ServedAttribute(application: self, path: object.path, interface: object.interface, flags: flags))
            }
            plan.service.characteristics.append(definition)
            plan.characteristics.append((object.path, served))
            plan.descriptors.append(order)
        }
        return plan
    }

    private func add(_ plan: Plan, for object: Object) {
        let service = adapter.controller.presence.table.add(
            plan.service, including: plan.includes.compactMap { paths[$0] }, at: plan.handle)
        if plan.handle == 0, object.properties["Handle"] != nil { set(handle: service.handle, of: object) }
        for (index, characteristic) in service.characteristics.enumerated() {
            characteristic.served = plan.characteristics[index].served
            characteristics[plan.characteristics[index].path] = characteristic
            for (descriptor, served) in zip(characteristic.descriptors, plan.descriptors[index]) {
                descriptor.served = served
            }
        }
        services.append(service)
        paths[object.path] = service
    }

    /// bluetoothd tells an application that asks for it where its service is, and does not wait for an answer.
    private func set(handle: UInt16, of object: Object) {
        let call = MethodCall(
            destination: client, path: object.path, interface: "org.freedesktop.DBus.Properties", member: "Set"
        ) { (writer) throws(BusError) in
            try writer.write(object.interface)
            try writer.write("Handle")
            try writer.write(Value.variant(.uint16(handle)))
        }
        adapter.simulator.call(call, deadline: .seconds(25)) { _ in }
    }

    private static let access = ["read", "write"].flatMap { kind in
        [kind] + ["encrypt", "encrypt-authenticated", "secure"].map { "\($0)-\(kind)" }
    }
    private static let descriptorFlags = Set(access + ["authorize"])
    private static let characteristicFlags = Set(
        access + [
            "broadcast", "write-without-response", "notify", "indicate", "authenticated-signed-writes",
            "reliable-write", "writable-auxiliaries", "extended-properties", "authorize",
        ]
            + ["notify", "indicate"].flatMap { kind in
                ["encrypt", "encrypt-authenticated", "secure"].map { "\($0)-\(kind)" }
            })

    // MARK: Events

    /// A characteristic's object signalled PropertiesChanged.
    func signalled(_ path: ObjectPath, value: [UInt8]) {
        guard let characteristic = characteristics[path] else { return }
        characteristic.served?.signalled(value, of: characteristic)
    }

    /// A link has ended: an unbonded central is no longer subscribed.
    func linkEnded(_ link: Link) {
        for characteristic in characteristics.values.sorted(by: { $0.handle < $1.handle })
        where link.configurations[characteristic.handle + 1] ?? 0 != 0 {
            characteristic.served?.unsubscribed(link, hasEnded: true)
        }
    }

    func close() {
        for characteristic in characteristics.values { characteristic.served?.close() }
    }
}

extension VirtualCharacteristic.Flags {
    /// The bits of the declaration for the flags of an application's object.
    init(texts: [String]) {
        self = []
        for text in texts {
            switch text {
            case "broadcast": insert(.broadcast)
            case "write-without-response": insert(.writeWithoutResponse)
            case "authenticated-signed-writes": insert(.signedWrites)
            case "extended-properties": insert(.extendedProperties)
            case "reliable-write": formUnion([.write, .extendedProperties])
            case "writable-auxiliaries": insert(.extendedProperties)
            case _ where text == "read" || text.hasSuffix("-read"): insert(.read)
            case _ where text == "write" || text.hasSuffix("-write"): insert(.write)
            case _ where text == "notify" || text.hasSuffix("-notify"): insert(.notify)
            case _ where text == "indicate" || text.hasSuffix("-indicate"): insert(.indicate)
            default: break
            }
        }
    }
}

extension UUIDText {
    /// Like ``full(_:)``, but nil if it is not a UUID.
    static func checked(_ text: String) -> String? {
        let full = full(text)
        let parts = full.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.map(\.utf8.count) == [8, 4, 4, 4, 12], parts.allSatisfy({ $0.allSatisfy(\.isHexDigit) }) else {
            return nil
        }
        return full
    }
}
