import BluezKitRestore
import Foundation

/// What a reader knows of one manager: numbers in a message mean something only after the messages before it.
struct TracedManager {
    let number: Int
    /// Nil: its first line is missing.
    var role: TraceEntry.Role?
    var hidesValues = false
    var names: [DeviceIdentity: String] = [:]
    /// The UUIDs of what was found on the present link.
    var attributes: [DeviceIdentity: [AttributeID: String]] = [:]
    /// The connect or cancel, or the link, of which the app hears.
    var newest: [DeviceIdentity: ConnectionID] = [:]
    /// The UUIDs of the characteristics of published services, by the call that added these.
    var published: [UInt64: [String]] = [:]

    init(number: Int, role: TraceEntry.Role?) { (self.number, self.role) = (number, role) }

    /// - Returns: Nil: it is of no interest to an app.
    mutating func describe(_ message: TraceMessage, at place: TraceEntry.Place) -> TraceEntry? {
        var entry = TraceEntry(at: place)
        switch message {
        case .made(let manager):
            entry.name = "a \(manager.role.rawValue) manager"
            entry.facts = [
                "on \(manager.address)", manager.adapter.map { "for \($0)" }, manager.identifier.map { "\"\($0)\"" },
                manager.isKept ? "with a keeper" : nil,
            ].compactMap { $0 }
        case .released: (entry.name, entry.link) = ("the manager is released", .off)
        case .daemon(let version): entry.name = "BlueZ \(version)"
        case .centralRequest(let message):
            entry.direction = .toCore
            describe(message.request, &entry)
        case .centralEvent(let event):
            entry.direction = .toApp
            describe(event, &entry)
        case .peripheralRequest(let message):
            entry.direction = .toCore
            describe(message.request, &entry)
        case .peripheralEvent(let event):
            entry.direction = .toApp
            describe(event, &entry)
        case .noRoom(let id):
            entry.direction = .toApp
            (entry.name, entry.attribute, entry.facts) = ("updateValue", uuid(of: id), ["false: there is no room"])
        case .query(let query):
            entry.direction = .toCore
            entry.name = query == .connected ? "retrieveConnectedPeripherals" : "retrieveBondedPeripherals"
            entry.asks = question("devices")
        case .devices(let devices):
            entry.direction = .toApp
            entry.name = "known devices"
            for device in devices {
                learn(device.name, of: device.identity)
                entry.facts.append(label(of: device.identity))
            }
            if devices.isEmpty { entry.facts = ["none"] }
            entry.answers = question("devices")
        case .bytes(let bytes):
            entry.direction = bytes.isInput ? .toApp : .toCore
            entry.name = "\(bytes.isInput ? "read" : "write"), channel \(bytes.channel)"
            entry.value = TraceEntry.Value(bytes: bytes.first, count: bytes.count, isHidden: hidesValues)
        case .omitted(let what): (entry.name, entry.facts) = ("left out", [what])
        case .began, .log, .full: entry.name = "a message of the process"
        }
        return entry.name.isEmpty ? nil : entry
    }

    // MARK: Parts of an entry

    mutating func learn(_ name: String?, of identity: DeviceIdentity) {
        if let name, !name.isEmpty { names[identity] = name }
    }

    /// The name, with the end of the address where others have the same; otherwise the address.
    func label(of identity: DeviceIdentity) -> String {
        guard let name = names[identity] else { return identity.addressText }
        let isOnly = names.count { $0.value == name } == 1
        return isOnly ? name : "\(name) (\(identity.addressText.suffix(5)))"
    }

    func about(_ identity: DeviceIdentity, _ entry: inout TraceEntry) {
        (entry.peripheral, entry.device) = (identity.identifier, label(of: identity))
    }

    /// A central has no name.
    func about(central identifier: UUID, _ entry: inout TraceEntry) {
        entry.peripheral = identifier
        entry.device = DeviceIdentity(identifier: identifier)?.addressText ?? String(identifier.uuidString.prefix(8))
    }

    func uuid(of id: AttributeID, of identity: DeviceIdentity) -> String {
        attributes[identity]?[id] ?? "attribute \(id.rawValue)"
    }

    func uuid(of id: LocalAttributeID) -> String {
        guard let known = published[id.call], known.indices.contains(id.index) else {
            return "service \(id.call).\(id.index)"
        }
        return known[id.index]
    }

    func value(_ bytes: some Collection<UInt8>) -> TraceEntry.Value {
        TraceEntry.Value(bytes: Data(bytes), count: bytes.count, isHidden: hidesValues)
    }

    func question(_ text: String, _ peripheral: UUID? = nil) -> TraceEntry.Question {
        TraceEntry.Question(manager: number, peripheral: peripheral, text: text)
    }

    /// An error as `print(error as NSError)` has it, shorter: text, code, and what BlueZ said.
    static func words(_ error: AppError) -> String {
        let error = error.error as NSError
        let kind = error.domain.hasSuffix("Domain") ? String(error.domain.dropLast(6)) : error.domain
        var words = "\(error.localizedDescription) (\(kind) \(error.code)"
        if let cause = error.userInfo[NSUnderlyingErrorKey] as? NSError {
            let texts = [BluezErrorNameKey, BluezErrorMessageKey].compactMap { cause.userInfo[$0] as? String }
            words += ", " + texts.filter { !$0.isEmpty }.joined(separator: ": ")
            if texts.isEmpty { words += "\(cause.domain) \(cause.code)" }
        }
        return words + ")"
    }

    static func list(_ uuids: [CodableUUID]?) -> String {
        guard let uuids, !uuids.isEmpty else { return "all" }
        return uuids.map(\.uuid.uuidString).joined(separator: ", ")
    }

    static func list(_ uuids: [AttributeUUID]?) -> String { list(uuids?.map { CodableUUID($0.cbUUID) }) }
}
