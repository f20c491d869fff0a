import BluezDBus

/// BlueZ's names on the bus.
enum BlueZ {
    static let busName = "org.bluez"
    static let adapter = "org.bluez.Adapter1"
    static let device = "org.bluez.Device1"
    static let service = "org.bluez.GattService1"
    static let characteristic = "org.bluez.GattCharacteristic1"
    static let descriptor = "org.bluez.GattDescriptor1"
    static let gattManager = "org.bluez.GattManager1"
    static let advertisingManager = "org.bluez.LEAdvertisingManager1"
    static let advertisement = "org.bluez.LEAdvertisement1"
    /// In BlueZ 5.86 and later.
    static let bearerLE = "org.bluez.Bearer.LE1"
    static let agentManager = "org.bluez.AgentManager1"
    static let root: ObjectPath = "/org/bluez"

    /// `/org/bluez/hci0/dev_` plus the 17 characters of an address. Returns the length of the path of the device that
    /// `path` is, or is below; nil for adapters and everything else.
    static func devicePathLength(_ path: UnsafePointer<CChar>) -> Int? {
        // Addresses contain no '/', so the device's path ends with the element that begins with "dev_".
        var slashes = 0
        var i = 0
        while path[i] != 0 {
            if path[i] == CChar(bitPattern: UInt8(ascii: "/")) {
                slashes += 1
                if slashes == 4 {
                    guard strncmpDevice(path + i + 1) else { return nil }
                } else if slashes == 5 {
                    return i
                }
            }
            i += 1
        }
        return slashes == 4 ? i : nil
    }

    private static func strncmpDevice(_ element: UnsafePointer<CChar>) -> Bool {
        element[0] == 0x64 && element[1] == 0x65 && element[2] == 0x76 && element[3] == 0x5F  // "dev_"
    }
}

/// Typed calls to BlueZ's objects. Stateless: BlueZ's properties are kept in ``Device`` and ``AttributeTable``.
///
/// Each call has a deadline (``BlueZTiming/Deadline``).
struct BlueZProxy {
    let bus: Connection
    let path: ObjectPath
    let interface: String
    /// Of reads, writes and subscriptions.
    var attributeDeadline = BlueZTiming.GATT().pairingAnswer
    /// What else is done with the answers; nil: nothing.
    var counting: Counting?

    init(bus: Connection, path: ObjectPath, interface: String) {
        (self.bus, self.path, self.interface) = (bus, path, interface)
    }

    typealias Completion = (Result<Message, BusError>) -> Void
    /// Makes a call's completion count the call while it is open.
    typealias Counting = (@escaping Completion) -> Completion

    private func send(_ call: MethodCall, deadline: Duration, completion: @escaping Completion) {
        bus.call(call, deadline: deadline, completion: counting?(completion) ?? completion)
    }

    private func call(
        _ member: String, deadline: Duration = BlueZTiming.Deadline.call, isUrgent: Bool = false,
        bindsCaller: Bool = false, completion: @escaping Completion,
        _ arguments: ((inout MessageWriter) throws(BusError) -> Void)? = nil
    ) {
        send(
            MethodCall(
                destination: BlueZ.busName, path: path, interface: interface, member: member, isUrgent: isUrgent,
                bindsCaller: bindsCaller, arguments: arguments),
            deadline: deadline, completion: completion)
    }

    // MARK: Adapter1

    /// - SeeAlso: BlueZ doc/org.bluez.Adapter.rst, `SetDiscoveryFilter`.
    func setDiscoveryFilter(_ filter: DiscoveryStateMachine.Filter, completion: @escaping Completion) {
        call("SetDiscoveryFilter", completion: completion) { (writer) throws(BusError) in
            var properties: [(String, Value)] = [("Transport", .string("le"))]
            if let services = filter.services { properties.append(("UUIDs", .strings(services.sorted()))) }
            // Omitted if false: up to BlueZ 5.70 booleans overwrite the daemon's own memory.
            if filter.wantsDuplicates { properties.append(("DuplicateData", .bool(true))) }
            // On an adapter without classic Bluetooth the transport alone counts as no filter (5.67 and later,
            // src/adapter.c, `merge_discovery_filters`), and without one BlueZ drops what does not advertise that it is
            // discoverable. This matches everything.
            if filter.services == nil, !filter.wantsDuplicates { properties.append(("Pattern", .string(""))) }
            try writer.write(Value.properties(properties))
        }
    }

    func startDiscovery(completion: @escaping Completion) {
        call("StartDiscovery", bindsCaller: true, completion: completion)
    }

    func stopDiscovery(completion: @escaping Completion) {
        call("StopDiscovery", isUrgent: true, completion: completion)
    }

    // MARK: Device1

    /// Returns when the link is up, when GATT discovery has only started. BlueZ gives up after 40 s.
    func connect(completion: @escaping Completion) {
        call("Connect", deadline: BlueZTiming.Deadline.connect, completion: completion)
    }

    /// Returns after 2 s (BlueZ's own timer), or at once if there is no link. Also ends a pending `Connect`.
    func disconnect(completion: @escaping Completion) { call("Disconnect", isUrgent: true, completion: completion) }

    /// Pairs, which may ask the user. BlueZ gives up after 120 s.
    func pair(completion: @escaping Completion) {
        call("Pair", deadline: BlueZTiming.Deadline.pair, completion: completion)
    }

    /// Removes a device and its keys; a link to it ends. BlueZ 5.73 and later may answer and keep them, after a link
    /// that ended as soon as it was up: then it is asked again.
    /// - SeeAlso: BlueZ doc/org.bluez.Adapter.rst, `RemoveDevice`.
    func removeDevice(_ device: ObjectPath, attempts: Int = 3, completion: @escaping Completion) {
        let ended: Completion = { result in
            guard case .success = result else { return completion(result) }
            var proxy = BlueZProxy(bus: bus, path: device, interface: BlueZ.device)
            proxy.counting = counting
            proxy.get("Paired") { answer in
                var reader = (try? answer.get())?.reader
                let isPaired = try? reader?.readVariant { (value) throws(BusError) in try value.readBool() }
                guard isPaired == true else { return completion(result) }
                guard attempts > 1 else {
                    let error = BusError.remote(name: "org.bluez.Error.Failed", message: "the device is still paired")
                    return completion(.failure(error))
                }
                removeDevice(device, attempts: attempts - 1, completion: completion)
            }
        }
        call("RemoveDevice", completion: ended) { (writer) throws(BusError) in try writer.write(device) }
    }

    // MARK: AgentManager1

    func registerAgent(_ agent: ObjectPath, capability: String, completion: @escaping Completion) {
        call("RegisterAgent", bindsCaller: true, completion: completion) { (writer) throws(BusError) in
            try writer.write(agent)
            try writer.write(capability)
        }
    }

    func unregisterAgent(_ agent: ObjectPath, completion: @escaping Completion) {
        call("UnregisterAgent", completion: completion) { (writer) throws(BusError) in try writer.write(agent) }
    }

    // MARK: GattCharacteristic1, GattDescriptor1

    func readValue(completion: @escaping Completion) {
        call("ReadValue", deadline: attributeDeadline, completion: completion) {
            (writer) throws(BusError) in
            try writer.write(Value.properties([]))
        }
    }

    /// - Parameter type: `request` or `command`; nil for descriptors, which are always written by request.
    func writeValue(_ data: [UInt8], type: String?, completion: @escaping Completion) {
        call("WriteValue", deadline: attributeDeadline, completion: completion) {
            (writer) throws(BusError) in
            try writer.write(.bytes(data))
            try writer.write(Value.properties(type.map { [("type", .string($0))] } ?? []))
        }
    }

    func startNotify(completion: @escaping Completion) {
        call("StartNotify", deadline: attributeDeadline, completion: completion)
    }

    func stopNotify(completion: @escaping Completion) { call("StopNotify", isUrgent: true, completion: completion) }

    /// - SeeAlso: BlueZ doc/org.bluez.GattCharacteristic.rst, `AcquireWrite`.
    func acquireWrite(completion: @escaping Completion) {
        call("AcquireWrite", deadline: attributeDeadline, completion: completion) {
            (writer) throws(BusError) in
            try writer.write(Value.properties([]))
        }
    }

    /// - SeeAlso: BlueZ doc/org.bluez.GattCharacteristic.rst, `AcquireNotify`.
    func acquireNotify(completion: @escaping Completion) {
        call("AcquireNotify", deadline: attributeDeadline, completion: completion) {
            (writer) throws(BusError) in
            try writer.write(Value.properties([]))
        }
    }

    // MARK: A simulator's sockets

    /// Returns a connected socket, as the kernel would make it.
    func connectChannel(to device: ObjectPath, psm: UInt16, completion: @escaping Completion) {
        call("Connect", deadline: BlueZTiming.Deadline.connect, completion: completion) {
            (writer) throws(BusError) in
            try writer.write(device)
            try writer.write(psm)
            try writer.write(false)
        }
    }

    /// Returns a listening socket and its PSM.
    func listenForChannels(psm: UInt16, isEncrypted: Bool, completion: @escaping Completion) {
        call("Listen", completion: completion) { (writer) throws(BusError) in
            try writer.write(psm)
            try writer.write(isEncrypted)
        }
    }

    // MARK: GattManager1, LEAdvertisingManager1

    /// Returns when BlueZ has read the objects below `root`, with calls of its own.
    /// - SeeAlso: BlueZ doc/org.bluez.GattManager.rst.
    func registerApplication(_ root: ObjectPath, completion: @escaping Completion) {
        register("RegisterApplication", root, completion)
    }

    func unregisterApplication(_ root: ObjectPath, completion: @escaping Completion) {
        call("UnregisterApplication", completion: completion) { (writer) throws(BusError) in try writer.write(root) }
    }

    /// Returns when the advertisement has started.
    /// - SeeAlso: BlueZ doc/org.bluez.LEAdvertisingManager.rst.
    func registerAdvertisement(_ advertisement: ObjectPath, completion: @escaping Completion) {
        register("RegisterAdvertisement", advertisement, completion)
    }

    func unregisterAdvertisement(_ advertisement: ObjectPath, completion: @escaping Completion) {
        call("UnregisterAdvertisement", completion: completion) { (writer) throws(BusError) in
            try writer.write(advertisement)
        }
    }

    private func register(_ method: String, _ object: ObjectPath, _ completion: @escaping Completion) {
        call(method, bindsCaller: true, completion: completion) { (writer) throws(BusError) in
            try writer.write(object)
            try writer.write(Value.properties([]))
        }
    }

    // MARK: Standard interfaces

    /// Returns when the other side has handled everything that was sent before.
    func ping(completion: @escaping Completion) { call("Ping", completion: completion) }

    func getAll(mayStartDestination: Bool = false, completion: @escaping Completion) {
        send(
            .getAllProperties(
                of: interface, at: path, on: BlueZ.busName, mayStartDestination: mayStartDestination),
            deadline: BlueZTiming.Deadline.call, completion: completion)
    }

    func get(_ property: String, completion: @escaping Completion) {
        send(
            .getProperty(property, of: interface, at: path, on: BlueZ.busName), deadline: BlueZTiming.Deadline.call,
            completion: completion)
    }

    func set(_ property: String, _ value: Value, completion: @escaping Completion) {
        let call = MethodCall(
            destination: BlueZ.busName, path: path, interface: "org.freedesktop.DBus.Properties", member: "Set"
        ) { [interface] (writer) throws(BusError) in
            try writer.write(interface)
            try writer.write(property)
            try writer.write(.variant(value))
        }
        send(call, deadline: BlueZTiming.Deadline.call, completion: completion)
    }

    /// The names of the children of this object, from the introspection data: the only query whose cost does not grow
    /// with the number of devices that BlueZ knows.
    func children(completion: @escaping (Result<[String], BusError>) -> Void) {
        let call = MethodCall(
            destination: BlueZ.busName, path: path, interface: "org.freedesktop.DBus.Introspectable",
            member: "Introspect")
        send(call, deadline: BlueZTiming.Deadline.call) { result in
            completion(
                result.flatMap { reply in
                    var reader = reply.reader
                    guard let xml = try? reader.readString() else { return .failure(.malformed("Introspect")) }
                    return .success(Self.childNodes(inIntrospection: xml))
                })
        }
    }

    /// Child nodes are `<node name="hci0"/>`, one level below the outer `<node>`.
    static func childNodes(inIntrospection xml: String) -> [String] {
        // In bytes: comparing characters takes many times as long, and each connect reads several of these.
        xml.utf8.split(separator: UInt8(ascii: "<")).compactMap { element in
            let parts = element.split(separator: UInt8(ascii: "\""), omittingEmptySubsequences: false)
            guard parts.count > 2, parts[0].elementsEqual("node name=".utf8), parts[1].first != UInt8(ascii: "/") else {
                return nil
            }
            return String(Substring(parts[1]))
        }
    }
}
