import BluezKitRestore
import BluezDBus
import Foundation

/// Messages between the app's objects and the core as bytes: JSON with a version. In one process they are passed as
/// they are; test builds run with `BLUEZKIT_BORDER=encoded` encode and decode each, and with `BLUEZKIT_BORDER=keeper`
/// send them to a keeper in the same process.
enum BorderFormat {
    #if DEBUG
    /// Tests have some that are newer.
    static let version = environment("BLUEZKIT_BORDER_VERSION").flatMap { Int($0) } ?? 1
    #else
    static let version = 1
    #endif

    /// Of a message in another version of the format.
    struct Refusal: Error, Equatable { let version: Int }

    // An app may give any number, and JSON has neither.
    private static let infinity = "infinity"
    private static let notANumber = "nan"

    private struct Envelope<Message: Codable>: Codable {
        let version: Int
        let message: Message

        init(_ message: Message) { (version, self.message) = (BorderFormat.version, message) }

        init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            version = try container.decode(Int.self, forKey: .version)
            guard version == BorderFormat.version else { throw Refusal(version: version) }
            message = try container.decode(Message.self, forKey: .message)
        }
    }

    static func encoder() -> JSONEncoder {
        let encoder = JSONEncoder()
        encoder.nonConformingFloatEncodingStrategy = .convertToString(
            positiveInfinity: infinity, negativeInfinity: "-" + infinity, nan: notANumber)
        return encoder
    }

    static func decoder() -> JSONDecoder {
        let decoder = JSONDecoder()
        decoder.nonConformingFloatDecodingStrategy = .convertFromString(
            positiveInfinity: infinity, negativeInfinity: "-" + infinity, nan: notANumber)
        return decoder
    }

    /// - Returns: The descriptors belong to the caller, who hands them over beside the bytes.
    static func encode(_ message: some Codable) throws -> (bytes: Data, descriptors: [Int32]) {
        let descriptors = Descriptors([])
        let encoder = encoder()
        encoder.userInfo[.descriptors] = descriptors
        do { return (try encoder.encode(Envelope(message)), descriptors.list) } catch {
            for descriptor in descriptors.list { close(descriptor) }
            throw error
        }
    }

    /// - Parameter descriptors: Taken over.
    static func decode<Message: Codable>(
        _ type: Message.Type = Message.self, from bytes: Data, _ descriptors: [Int32] = []
    ) throws -> Message {
        let descriptors = Descriptors(descriptors)
        defer { for descriptor in descriptors.list where descriptor >= 0 { close(descriptor) } }
        let decoder = decoder()
        decoder.userInfo[.descriptors] = descriptors
        return try decoder.decodeSafely(Envelope<Message>.self, from: bytes).message
    }

    #if DEBUG
    private static let isEncoded = environment("BLUEZKIT_BORDER") == "encoded"
    /// Whether each manager has a keeper.
    static let isHosted = environment("BLUEZKIT_BORDER") == "keeper"
    #endif

    /// The message as the other side gets it.
    static func passed<Message: Codable>(_ message: Message) -> Message {
        #if DEBUG
        guard isEncoded else { return message }
        do {
            let (bytes, descriptors) = try encode(message)
            return try decode(from: bytes, descriptors)
        } catch {
            // holds: in test builds only, which are to end here; both sides are this program.
            fatalError("a message cannot be encoded and decoded: \(error) (\(message))")
        }
        #else
        return message
        #endif
    }
}

/// The descriptors that go with a message, by their places. One that was taken is -1.
// holds: used by one coder at a time
private final class Descriptors: @unchecked Sendable {
    fileprivate var list: [Int32]
    init(_ list: [Int32]) { self.list = list }
}

extension CodingUserInfoKey {
    // `!`: not nil for any text.
    fileprivate static let descriptors = CodingUserInfoKey(rawValue: "org.bluezkit.descriptors")!
}

/// The socket of a channel. Its descriptor goes beside the message; a trace has none.
struct PassedSocket: Codable, Sendable {
    let socket: ChannelSocket

    init(_ socket: ChannelSocket) { self.socket = socket }

    init(from decoder: any Decoder) throws {
        let index = try decoder.singleValueContainer().decode(Int.self)
        if index == -1, decoder.userInfo[.descriptors] == nil {
            socket = ChannelSocket(descriptor: -1)
            return
        }
        guard let descriptors = decoder.userInfo[.descriptors] as? Descriptors,
            descriptors.list.indices.contains(index), descriptors.list[index] >= 0
        else { throw decoder.corrupted("there is no descriptor \(index)") }
        socket = ChannelSocket(descriptor: descriptors.list[index])
        descriptors.list[index] = -1
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        guard let descriptors = encoder.userInfo[.descriptors] as? Descriptors else { return try container.encode(-1) }
        let duplicate = fcntl(socket.descriptor, F_DUPFD_CLOEXEC, 0)
        guard duplicate >= 0 else {
            throw EncodingError.invalidValue(
                socket.descriptor, .init(codingPath: encoder.codingPath, debugDescription: "it cannot be duplicated"))
        }
        descriptors.list.append(duplicate)
        try container.encode(descriptors.list.count - 1)
    }
}

/// A UUID in a message: `CBUUID` is a class of the API, which is not `Codable`.
struct CodableUUID: Codable, Hashable, Sendable {
    let uuid: CBUUID

    init(_ uuid: CBUUID) { self.uuid = uuid }

    init(from decoder: any Decoder) throws { uuid = try AttributeUUID(from: decoder).cbUUID }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(uuid.uuidString)
    }
}

/// A value of the API in a message, as its number: the API's types are not `Codable`.
struct Coded<Value: RawRepresentable & Sendable>: Codable, Sendable where Value.RawValue: Codable {
    let value: Value

    init(_ value: Value) { self.value = value }

    init(from decoder: any Decoder) throws {
        let number = try decoder.singleValueContainer().decode(Value.RawValue.self)
        guard let value = Value(rawValue: number) else { throw decoder.corrupted("\(number) is no \(Value.self)") }
        self.value = value
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(value.rawValue)
    }
}
