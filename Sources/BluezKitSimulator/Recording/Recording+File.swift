public import Foundation

/// The file format, JSON; Docs/RECORDING.md describes it.
extension Recording {
    /// The version of the format that is written. Files of this version and of earlier ones can be read.
    public static let version = 1

    /// Reads the content of a file.
    /// - Throws: ``RecordingError``, which says what is wrong, and where.
    public init(fileContent: Data) throws(RecordingError) {
        guard fileContent.count <= Self.sizeLimit else {
            throw RecordingError("a recording has at most \(Self.sizeLimit >> 20) MiB")
        }
        do {
            #if compiler(<6.1)
            // The decoder traps where a key is no valid string (swiftlang/swift-foundation#1043).
            let parsed = try JSONSerialization.jsonObject(with: fileContent)
            let fileContent = try JSONSerialization.data(withJSONObject: parsed)
            #endif
            self = try JSONDecoder().decode(Recording.self, from: fileContent)
        } catch let error as RecordingError {
            throw error
        } catch {
            throw RecordingError(RecordingFormat.sentence(error))
        }
    }

    /// The content of a file.
    /// - Throws: ``RecordingError`` if the recording has what no file may have.
    public func fileContent() throws(RecordingError) -> Data {
        try check()
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        let content: Data
        do { content = try encoder.encode(self) + Data("\n".utf8) } catch {
            throw RecordingError("the recording cannot be written: \(error)")
        }
        guard content.count <= Self.sizeLimit else {
            throw RecordingError("a recording has at most \(Self.sizeLimit >> 20) MiB: record for a shorter time")
        }
        return content
    }
}

extension Recording: Codable {
    /// Reads a recording of this version of the format or an earlier one.
    /// - Throws: ``RecordingError``, or a `DecodingError`.
    public init(from decoder: any Decoder) throws {
        // A later version may have anything else.
        let version = try RecordingFormat.Version(from: decoder).version
        guard version >= 1 else { throw RecordingError("version: there is no version \(version)") }
        guard version <= Self.version else {
            throw RecordingError(
                "it has version \(version) of the format, and this program reads up to \(Self.version): use a later one"
            )
        }
        self = try RecordingFormat(from: decoder).recording()
        try check()
    }

    /// Writes the recording in the format of its files.
    public func encode(to encoder: any Encoder) throws { try RecordingFormat(self).encode(to: encoder) }
}

/// A recording as it is in a file: bytes are hexadecimal texts, and what is not known is left out.
struct RecordingFormat: Codable {
    struct Version: Codable { var version: Int }

    struct Advertisement: Codable {
        var time: Double
        var rssi: Int?
        var localName: String?
        var services: [String]?
        var solicitedServices: [String]?
        var serviceData: [String: String]?
        var manufacturerData: [String]?
        var txPower: Int?
        var appearance: Int?
        var flags: Int?
        var connectable: Bool?
    }

    struct Service: Codable {
        var uuid: String
        var primary: Bool?
        var includes: [String]?
        var characteristics: [Characteristic]?
    }

    struct Characteristic: Codable {
        var uuid: String
        var properties: [String]
        var value: String?
        var error: Int?
        var descriptors: [Descriptor]?
    }

    struct Descriptor: Codable {
        var uuid: String
        var value: String?
        var error: Int?
    }

    struct Event: Codable {
        var time: Double
        var characteristic: String
        var value: String
    }

    var version: Int
    var address: String?
    var addressType: String?
    var name: String?
    var mtu: Int?
    var advertisements: [Advertisement]?
    var services: [Service]?
    var notifications: [Event]?
    var writes: [Event]?

    /// As in `bluez-demo inspect --json`.
    static let properties: [(name: String, flag: VirtualCharacteristic.Flags)] = [
        ("broadcast", .broadcast), ("read", .read), ("writeWithoutResponse", .writeWithoutResponse), ("write", .write),
        ("notify", .notify), ("indicate", .indicate), ("authenticatedSignedWrites", .signedWrites),
        ("extendedProperties", .extendedProperties),
    ]

    // MARK: Writing

    init(_ recording: Recording) {
        func some<T>(_ list: [T]) -> [T]? { list.isEmpty ? nil : list }
        func event(_ event: Recording.Event) -> Event {
            Event(time: Self.rounded(event.time), characteristic: event.characteristic, value: Hex.text(event.value))
        }
        version = Recording.version
        (address, addressType, name) = (recording.address, recording.addressType, recording.name)
        mtu = recording.mtu.map { Int($0) }
        advertisements = some(recording.advertisements.map(Self.advertisement))
        services = some(recording.services.map(Self.service))
        notifications = some(recording.notifications.map(event))
        writes = some(recording.writes.map(event))
    }

    /// To a tenth of a millisecond: what is left over is the computer's, not the device's.
    private static func rounded(_ time: Double) -> Double { (time * 10_000).rounded() / 10_000 }

    private static func advertisement(_ heard: Recording.Advertisement) -> Advertisement {
        func uuids(_ list: [String]) -> [String]? { list.isEmpty ? nil : list.map(UUIDText.shortest) }
        let content = heard.content
        var file = Advertisement(time: rounded(heard.time), rssi: heard.rssi.map { Int($0) })
        file.localName = content.localName
        file.services = uuids(content.serviceUUIDs)
        file.solicitedServices = uuids(content.solicitedServiceUUIDs)
        if !content.serviceData.isEmpty {
            file.serviceData = Dictionary(
                content.serviceData.map { (UUIDText.shortest($0.key), Hex.text($0.value)) }, uniquingKeysWith: { $1 })
        }
        if !content.manufacturerData.isEmpty {
            file.manufacturerData = content.manufacturerData.map {
                Hex.text([UInt8($0.key & 0xFF), UInt8($0.key >> 8)] + $0.value)
            }
        }
        file.txPower = content.txPower.map { Int($0) }
        file.appearance = content.appearance.map { Int($0) }
        file.flags = content.flags.map { Int($0) }
        file.connectable = content.isConnectable
        return file
    }

    private static func service(_ service: Recording.Service) -> Service {
        func uuid(_ full: String) -> String { UUIDText.shortest(full) }
        let characteristics = service.characteristics.map { characteristic in
            let descriptors = characteristic.descriptors.map {
                Descriptor(uuid: uuid($0.uuid), value: $0.value.map { Hex.text($0) }, error: $0.error.map { Int($0) })
            }
            return Characteristic(
                uuid: uuid(characteristic.uuid),
                properties: properties.filter { characteristic.flags.contains($0.flag) }.map(\.name),
                value: characteristic.value.map { Hex.text($0) }, error: characteristic.error.map { Int($0) },
                descriptors: descriptors.isEmpty ? nil : descriptors)
        }
        return Service(
            uuid: uuid(service.uuid), primary: service.isPrimary ? nil : false,
            includes: service.includes.isEmpty ? nil : service.includes.map(uuid),
            characteristics: characteristics.isEmpty ? nil : characteristics)
    }

    // MARK: Reading

    func recording() throws(RecordingError) -> Recording {
        var recording = Recording(address: address, addressType: addressType ?? "random", name: name)
        recording.mtu = try Self.number(mtu, "mtu")
        for (index, advertisement) in (advertisements ?? []).enumerated() {
            recording.advertisements.append(try Self.read(advertisement, "advertisements[\(index)]"))
        }
        for (index, service) in (services ?? []).enumerated() {
            recording.services.append(try Self.read(service, "services[\(index)]"))
        }
        recording.notifications = try Self.read(notifications, "notifications")
        recording.writes = try Self.read(writes, "writes")
        return recording
    }

    private static func read(_ events: [Event]?, _ key: String) throws(RecordingError) -> [Recording.Event] {
        var read: [Recording.Event] = []
        for (index, event) in (events ?? []).enumerated() {
            let value = try bytes(event.value, "\(key)[\(index)].value")
            read.append(.init(time: event.time, characteristic: event.characteristic, value: value))
        }
        return read
    }

    private static func read(
        _ file: Advertisement, _ place: String
    ) throws(RecordingError) -> Recording.Advertisement {
        var content = VirtualAdvertisement(localName: file.localName, flags: nil)
        content.serviceUUIDs = try uuids(file.services, place)
        content.solicitedServiceUUIDs = try uuids(file.solicitedServices, place)
        for (text, value) in (file.serviceData ?? [:]).sorted(by: { $0.key < $1.key }) {
            content.serviceData[try uuid(text, place)] = try bytes(value, place)
        }
        for text in file.manufacturerData ?? [] {
            let data = try bytes(text, place)
            guard data.count >= 2 else {
                throw RecordingError("\(place): manufacturer data begin with two bytes for the company")
            }
            content.manufacturerData[UInt16(data[0]) | UInt16(data[1]) << 8] = Array(data.dropFirst(2))
        }
        content.txPower = try number(file.txPower, place)
        content.appearance = try number(file.appearance, place)
        content.flags = try number(file.flags, place)
        content.isConnectable = file.connectable ?? true
        return .init(time: file.time, rssi: try number(file.rssi, place), content: content)
    }

    private static func read(_ file: Service, _ place: String) throws(RecordingError) -> Recording.Service {
        var service = Recording.Service(try uuid(file.uuid, place), isPrimary: file.primary ?? true)
        service.includes = try uuids(file.includes, place)
        for (index, characteristic) in (file.characteristics ?? []).enumerated() {
            service.characteristics.append(try read(characteristic, "\(place).characteristics[\(index)]"))
        }
        return service
    }

    private static func read(
        _ file: Characteristic, _ place: String
    ) throws(RecordingError) -> Recording.Characteristic {
        var flags: VirtualCharacteristic.Flags = []
        for name in file.properties {
            guard let known = properties.first(where: { $0.name == name }) else {
                throw RecordingError("\(place): there is no property '\(name)'")
            }
            flags.insert(known.flag)
        }
        var characteristic = Recording.Characteristic(try uuid(file.uuid, place), flags)
        if let value = file.value { characteristic.value = try bytes(value, place) }
        characteristic.error = try number(file.error, place)
        for descriptor in file.descriptors ?? [] {
            var read = Recording.Descriptor(try uuid(descriptor.uuid, place))
            if let value = descriptor.value { read.value = try bytes(value, place) }
            read.error = try number(descriptor.error, place)
            characteristic.descriptors.append(read)
        }
        return characteristic
    }

    private static func uuids(_ texts: [String]?, _ place: String) throws(RecordingError) -> [String] {
        var read: [String] = []
        for text in texts ?? [] { read.append(try uuid(text, place)) }
        return read
    }

    private static func uuid(_ text: String, _ place: String) throws(RecordingError) -> String {
        guard let uuid = UUIDText.read(text) else { throw RecordingError("\(place): '\(text)' is not a UUID") }
        return uuid
    }

    private static func bytes(_ text: String, _ place: String) throws(RecordingError) -> [UInt8] {
        guard let bytes = Hex.bytes(text) else {
            throw RecordingError("\(place): '\(text.prefix(40))' is not hexadecimal")
        }
        return bytes
    }

    private static func number<N: FixedWidthInteger>(_ number: Int?, _ place: String) throws(RecordingError) -> N? {
        guard let number else { return nil }
        guard let exact = N(exactly: number) else { throw RecordingError("\(place): \(number) is out of range") }
        return exact
    }

    /// What a decoder says, with the place.
    static func sentence(_ error: any Error) -> String {
        func place(_ context: DecodingError.Context) -> String {
            context.codingPath.reduce("") { path, key in
                if let index = key.intValue { return path + "[\(index)]" }
                return path.isEmpty ? key.stringValue : path + "." + key.stringValue
            }
        }
        switch error as? DecodingError {
        case .keyNotFound(let key, let context)?:
            let place = place(context)
            return place.isEmpty ? "it has no '\(key.stringValue)'" : "\(place): there is no '\(key.stringValue)'"
        case .typeMismatch(_, let context)?: return "\(place(context)): a value of another type is expected"
        case .valueNotFound(_, let context)?: return "\(place(context)): null is not expected"
        case .dataCorrupted(let context)? where !context.codingPath.isEmpty:
            return "\(place(context)): \(context.debugDescription)"
        default: return "it is not JSON"
        }
    }
}
