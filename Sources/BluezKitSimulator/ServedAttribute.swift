import BluezDBus

/// A characteristic or descriptor that an application on the bus provides: each access becomes a call, as made by
/// bluetoothd.
final class ServedAttribute {
    // bluetoothd 5.66 counts the packet's header as part of the value.
    var longestWrite: Int { version > .v5_66 ? 512 : 510 }
    var longestPreparedWrite: Int { version > .v5_66 ? 512 : 508 }
    private var version: SimulatorVersion { application?.adapter.simulator.optionsState.version ?? .v5_66 }

    weak var application: Application?
    let path: ObjectPath
    let interface: String
    private let flags: Set<String>
    private let acquiresNotify: Bool
    private let acquiresWrite: Bool

    /// Subscriptions of all centrals, as bluetoothd counts them: a change from notifications to indications counts
    /// twice.
    private var subscriptions = 0
    /// The application was asked to start notifying.
    private var isStarted = false
    /// By subscriber, the oldest first; up to 5.75 there is one for all, under nil.
    private var notifySockets: [(subscriber: ObjectIdentifier?, socket: AcquiredSocket)] = []
    private var writeSocket: AcquiredSocket?

    init(
        application: Application, path: ObjectPath, interface: String, flags: [String], acquiresNotify: Bool = false,
        acquiresWrite: Bool = false
    ) {
        (self.application, self.path, self.interface) = (application, path, interface)
        self.flags = Set(flags)
        (self.acquiresNotify, self.acquiresWrite) = (acquiresNotify, acquiresWrite)
    }

    var isReliable: Bool { flags.contains("reliable-write") }
    private var answersWrites: Bool { !flags.contains("write-without-response") }

    // MARK: Permissions

    private enum Access { case read, write, subscribe }

    /// The error that forbids the access, or nil. An attribute whose flags name neither reading nor writing allows
    /// both.
    private func refusal(_ access: Access, on link: Link) -> ATTFailure? {
        let reads = flags.contains { $0 == "read" || $0.hasSuffix("-read") }
        let writes = flags.contains {
            ["write", "write-without-response", "reliable-write", "authenticated-signed-writes"].contains($0)
                || $0.hasSuffix("-write")
        }
        let kinds: [String]
        switch access {
        case .read:
            if !reads, writes { return .readNotPermitted }
            kinds = ["read"]
        case .write:
            if !writes, reads { return .writeNotPermitted }
            kinds = ["write"]
        case .subscribe: kinds = ["notify", "indicate"]
        }
        func requires(_ prefix: String) -> Bool { kinds.contains { flags.contains("\(prefix)-\($0)") } }
        if requires("encrypt-authenticated") || requires("secure"), !link.isAuthenticated {
            return .insufficientAuthentication
        }
        if requires("encrypt"), !link.isEncrypted { return .insufficientEncryption }
        return nil
    }

    // MARK: Reading and writing

    func read(on link: Link, offset: Int, completion: @escaping Link.Answer<[UInt8]>) {
        if let refusal = refusal(.read, on: link) { return completion(.failure(refusal)) }
        let options = options(link, offset: offset)
        call("ReadValue", [options], isRead: true) { result in
            completion(
                result.flatMap { values in
                    guard let bytes = values.first?.bytesValue else { return .failure(.requestNotSupported) }
                    return .success(Array(bytes.prefix(512)))
                })
        }
    }

    func write(_ value: [UInt8], on link: Link, offset: Int, completion: @escaping Link.Answer<Void>) {
        if let refusal = refusal(.write, on: link) { return completion(.failure(refusal)) }
        if acquiresWrite { return writeToSocket(value, link, offset, completion) }
        callWrite(value, link, offset, completion)
    }

    private func callWrite(_ value: [UInt8], _ link: Link, _ offset: Int, _ completion: @escaping Link.Answer<Void>) {
        let arguments = [.bytes(value), options(link, offset: offset)]
        guard answersWrites else {
            // Acknowledged at once: the application cannot refuse it.
            tell("WriteValue", arguments)
            return completion(.success(()))
        }
        call("WriteValue", arguments, isRead: false) { completion($0.map { _ in () }) }
    }

    /// A prepared write is about to be stored.
    func authorize(on link: Link, completion: @escaping Link.Answer<Void>) {
        if let refusal = refusal(.write, on: link) { return completion(.failure(refusal)) }
        guard flags.contains("authorize") else { return completion(.success(())) }
        let arguments = [Value.bytes([]), options(link, offset: 0, isAuthorization: true)]
        call("WriteValue", arguments, isRead: false) { completion($0.map { _ in () }) }
    }

    private func options(_ link: Link, offset: Int, isAuthorization: Bool = false) -> Value {
        if let malformed = application?.adapter.simulator.failures.malformedOptions { return malformed }
        var entries: [(String, Value)] = []
        if let device = application?.adapter.inboundDevice(of: link) { entries.append(("device", .path(device.path))) }
        if offset != 0 { entries.append(("offset", .uint16(UInt16(truncatingIfNeeded: offset)))) }
        entries.append(("link", .string("LE")))
        if isAuthorization { entries.append(("prepare-authorize", .bool(true))) }
        entries.append(("mtu", .uint16(link.mtu)))
        return .properties(entries)
    }

    // MARK: Calls to the application

    private func method(_ member: String, _ arguments: [Value]) -> MethodCall {
        MethodCall(destination: application?.client ?? "", path: path, interface: interface, member: member) {
            (writer) throws(BusError) in for argument in arguments { try writer.write(argument) }
        }
    }

    private func call(
        _ member: String, _ arguments: [Value], isRead: Bool, completion: @escaping Link.Answer<[Value]>
    ) {
        guard let simulator = application?.adapter.simulator, simulator.connection != nil else {
            return completion(.failure(.unlikely))
        }
        simulator.server?.flush()
        simulator.call(method(member, arguments), deadline: simulator.timing.applicationTimeout) { result in
            switch result {
            case .success(let reply): completion(.success((try? reply.values()) ?? []))
            case .failure(let error): completion(.failure(ATTFailure(error, isRead: isRead)))
            }
        }
    }

    private func tell(_ member: String, _ arguments: [Value] = []) {
        guard let simulator = application?.adapter.simulator else { return }
        simulator.server?.flush()
        try? simulator.connection?.send(method(member, arguments))
    }

    // MARK: Subscriptions

    /// A central writes its configuration.
    func configure(
        _ value: UInt16, of characteristic: GATTTable.Characteristic, on link: Link,
        completion: @escaping Link.Answer<Void>
    ) {
        if let refusal = refusal(.subscribe, on: link) { return completion(.failure(refusal)) }
        let handle = characteristic.handle + 1, old = link.configurations[handle] ?? 0
        guard value != old else { return completion(.success(())) }
        let flags = characteristic.definition.flags
        guard value == 0 || value == 1 && flags.contains(.notify) || value == 2 && flags.contains(.indicate) else {
            return completion(.failure(ATTFailure(0xFD)))  // CCC Improperly Configured
        }
        link.configurations[handle] = value
        if value == 0 {
            unsubscribed(link)
            return completion(.success(()))
        }
        subscriptions += 1
        guard acquiresNotify, notifySocket(of: key(of: link)) == nil else {
            if notifySockets.isEmpty { start() }
            return completion(.success(()))
        }
        acquireNotify(link, characteristic) { completion(.success(())) }
    }

    /// A central wrote 0, or the link of one that is not bonded has ended: then bluetoothd looks for the socket of any
    /// subscriber, and finds the oldest (src/gatt-database.c, `clear_ccc_state`, `match_client_att`).
    func unsubscribed(_ link: Link, hasEnded: Bool = false) {
        let own = key(of: link).flatMap { notifySocket(of: $0) }
        defer { if hasEnded { own?.close() } }
        guard subscriptions > 0 else { return }
        subscriptions -= 1
        if version >= .v5_79, let socket = hasEnded ? notifySockets.first?.socket : own { return socket.close() }
        guard subscriptions == 0 else { return }
        if version < .v5_79 { for (_, socket) in notifySockets { socket.close() } }
        if isStarted || version >= .v5_79 { tell("StopNotify") }
        isStarted = false
    }

    private func notifySocket(of subscriber: ObjectIdentifier?) -> AcquiredSocket? {
        notifySockets.first { $0.subscriber == subscriber }?.socket
    }

    private func key(of link: Link) -> ObjectIdentifier? { version >= .v5_79 ? ObjectIdentifier(link) : nil }

    private func start() {
        isStarted = true
        tell("StartNotify")
    }

    /// The application signalled a value: sent to all subscribers, the newest link first.
    func signalled(_ value: [UInt8], of characteristic: GATTTable.Characteristic) {
        guard let adapter = application?.adapter else { return }
        for link in adapter.controller.presence.links.reversed() {
            send(value, of: characteristic, on: link) { [weak self] in self?.tell("Confirm") }
        }
    }

    private func send(
        _ value: [UInt8], of characteristic: GATTTable.Characteristic, on link: Link, confirmed: @escaping () -> Void
    ) {
        let cut = Array(value.prefix(min(512, Int(link.mtu) - 3)))
        switch link.configurations[characteristic.handle + 1] {
        case 1?: link.deliver(cut, of: characteristic)
        case 2?: link.indicate(Indication(characteristic: characteristic, value: cut, confirmed: confirmed))
        default: break
        }
    }

    // MARK: Sockets

    private func acquire(
        _ member: String, _ link: Link, completion: @escaping (Result<AcquiredSocket, BusError>) -> Void
    ) {
        guard let simulator = application?.adapter.simulator else { return }
        simulator.server?.flush()
        let call = method(member, [options(link, offset: 0)])
        simulator.call(call, deadline: simulator.timing.applicationTimeout) { result in
            completion(
                result.flatMap { reply in
                    var reader = reply.reader
                    do throws(BusError) {
                        return .success(AcquiredSocket(try reader.readFileDescriptor(), of: simulator))
                    } catch {
                        return .failure(error)
                    }
                })
        }
    }

    private func acquireNotify(
        _ link: Link, _ characteristic: GATTTable.Characteristic, _ completion: @escaping () -> Void
    ) {
        let key = key(of: link)
        acquire("AcquireNotify", link) { [weak self, weak characteristic, weak link] result in
            defer { completion() }
            guard let self else { return }
            switch result {
            case .success(let socket):
                notifySockets.append((key, socket))
                socket.onPacket = { [weak self, weak socket] packet in
                    guard let self, let characteristic else { return }
                    guard key != nil else { return signalled(packet, of: characteristic) }
                    guard let link else { return }
                    send(packet, of: characteristic, on: link) { [weak self] in
                        if self?.version ?? .v5_66 >= .v5_82 { socket?.send([1]) }
                    }
                }
                socket.onClosed = { [weak self, weak socket] in self?.notifySockets.removeAll { $0.socket === socket } }
            case .failure(let error):
                if ["org.bluez.Error.Failed", "org.freedesktop.DBus.Error.NoReply"].contains(error.name) { return }
                start()
            }
        }
    }

    private func writeToSocket(
        _ value: [UInt8], _ link: Link, _ offset: Int, _ completion: @escaping Link.Answer<Void>
    ) {
        if let writeSocket {
            writeSocket.send(value)
            return completion(.success(()))
        }
        acquire("AcquireWrite", link) { [weak self] result in
            guard let self else { return completion(.failure(.unlikely)) }
            switch result {
            case .success(let socket):
                writeSocket = socket
                socket.onClosed = { [weak self] in self?.writeSocket = nil }
                socket.send(value)
                completion(.success(()))
            case .failure(let error):
                let failure = ATTFailure(error, isRead: false)
                if failure.code != 0x0E { return completion(.failure(failure)) }
                callWrite(value, link, offset, completion)
            }
        }
    }

    func close() {
        for (_, socket) in notifySockets { socket.close() }
        writeSocket?.close()
    }
}

extension ATTFailure {
    /// The ATT error for an application's error.
    fileprivate init(_ error: BusError, isRead: Bool) {
        self.init(Self.code(error, isRead))
    }

    private static func code(_ error: BusError, _ isRead: Bool) -> UInt8 {
        switch error.name {
        case "org.bluez.Error.Failed":
            guard let number = integer(error.message) else { return 0x80 }
            return (0x80...0x9F).contains(number) ? UInt8(number) : 0x0E
        case "org.bluez.Error.NotSupported": return 0x06
        case "org.bluez.Error.NotAuthorized": return 0x08
        case "org.bluez.Error.InvalidValueLength": return 0x0D
        case "org.bluez.Error.InvalidOffset": return 0x07
        case "org.bluez.Error.InProgress": return 0xFE
        case "org.bluez.Error.NotPermitted": return isRead ? 0x02 : 0x03
        default: return 0x0E
        }
    }

    /// Parsed like strtol: no digits at all is 0.
    private static func integer(_ text: String) -> Int? {
        if text.isEmpty { return 0 }
        return text.lowercased().hasPrefix("0x") ? Int(text.dropFirst(2), radix: 16) : Int(text)
    }
}
