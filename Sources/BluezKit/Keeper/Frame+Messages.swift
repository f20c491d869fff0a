import Foundation

/// Requests and events as frames. What comes often, values in either direction and what has become of them, has a form
/// of its own, because to encode and decode JSON costs more than all the rest. Numbers have the lowest byte first.
extension Frame {
    static func message(_ kind: Kind, _ message: some Codable) throws -> Frame {
        let (bytes, descriptors) = try BorderFormat.encode(message)
        return Frame(kind: kind, body: bytes, descriptors: descriptors)
    }

    static func request(_ message: RequestMessage<some Codable>) throws -> Frame {
        if message.generation == nil {
            if case .perform(.writeWithoutResponse(let bytes, let attribute), let identity, let connectionID)? = message
                .request as? CentralRequest
            {
                var body = Data(capacity: Place.size + bytes.count)
                body.append(Place(attribute, identity, connectionID))
                body.append(contentsOf: bytes)
                return Frame(kind: .write, body: body)
            }
            if case .update(let attribute, let bytes, let centrals)? = message.request as? PublishRequest {
                var body = Data(capacity: 17 + 16 * (centrals?.count ?? 0) + bytes.count)
                body.append(attribute)
                body.append(littleEndian: centrals.map { UInt32(clamping: $0.count) } ?? .max)
                for central in centrals ?? [] { withUnsafeBytes(of: central.uuid) { body.append(contentsOf: $0) } }
                body.append(contentsOf: bytes)
                return Frame(kind: .update, body: body)
            }
        }
        return try .message(.request, message)
    }

    /// The request in a frame of the kind `request`, `write` or `update`. The descriptors are taken over.
    func request<Request: Codable>(_ type: Request.Type) throws -> RequestMessage<Request> {
        var reader = BodyReader(body)
        switch kind {
        case .write:
            let place = try reader.place()
            let request = CentralRequest.perform(
                .writeWithoutResponse([UInt8](reader.rest), place.attribute), place.identity, place.connectionID)
            return RequestMessage(request: try Self.its(request))
        case .update:
            let (attribute, count) = (try reader.localAttribute(), try reader.number(UInt32.self))
            var centrals: Set<UUID>?
            if count != .max {
                centrals = []
                for _ in 0..<count { centrals?.insert(try reader.uuid()) }
            }
            return RequestMessage(
                request: try Self.its(PublishRequest.update(attribute, [UInt8](reader.rest), centrals: centrals)))
        default: return try BorderFormat.decode(from: body, descriptors)
        }
    }

    /// The event with this number.
    static func event(_ number: UInt64, _ event: some Codable) throws -> Frame {
        if let event = event as? CentralEvent {
            switch event {
            case .value(let value, let attribute, let identity, let connectionID):
                var body = Data(capacity: 8 + Place.size + value.count)
                body.append(Place(attribute, identity, connectionID), after: number)
                body.append(value)
                return Frame(kind: .value, body: body)
            case .peripheral(let identity, .written(let progress, let connectionID)):
                var body = Data(capacity: 8 + Place.size + 13)
                body.append(Place(.none, identity, connectionID), after: number)
                for count in [progress.writes, progress.bytes, progress.dropped] {
                    body.append(littleEndian: UInt32(clamping: count))
                }
                body.append(progress.isSocketFull ? 1 : 0)
                return Frame(kind: .written, body: body)
            default: break
            }
        } else if case .sent(let attribute)? = event as? PublishEvent {
            var body = Data(capacity: 20)
            body.append(littleEndian: number)
            body.append(attribute)
            return Frame(kind: .sent, body: body)
        }
        let (bytes, descriptors) = try BorderFormat.encode(event)
        var body = Data(capacity: 8 + bytes.count)
        body.append(littleEndian: number)
        body.append(bytes)
        return Frame(kind: .event, body: body, descriptors: descriptors)
    }

    /// The event in a frame of the kind `event`, `value`, `written` or `sent`. The descriptors are taken over.
    func event<Event: Codable>(_ type: Event.Type) throws -> (number: UInt64, event: Event) {
        var reader = BodyReader(body)
        guard let number = try? reader.number(UInt64.self) else {
            closeDescriptors()
            throw FrameReader.Failure.malformed
        }
        switch kind {
        case .value:
            let place = try reader.place()
            let value = CentralEvent.value(Data(reader.rest), place.attribute, place.identity, place.connectionID)
            return (number, try Self.its(value))
        case .written:
            let place = try reader.place()
            let progress = CommandProgress(
                writes: Int(clamping: try reader.number(UInt32.self)),
                bytes: Int(clamping: try reader.number(UInt32.self)),
                dropped: Int(clamping: try reader.number(UInt32.self)), isSocketFull: try reader.number(UInt8.self) != 0
            )
            return (
                number, try Self.its(CentralEvent.peripheral(place.identity, .written(progress, place.connectionID)))
            )
        case .sent: return (number, try Self.its(PublishEvent.sent(try reader.localAttribute())))
        default: return (number, try BorderFormat.decode(from: Data(reader.rest), descriptors))
        }
    }

    /// One of the role that it is read for.
    private static func its<Message>(_ message: some Any) throws -> Message {
        guard let message = message as? Message else { throw FrameReader.Failure.malformed }
        return message
    }
}

/// An attribute of a link of a peripheral: 20 bytes.
private struct Place {
    static let size = 20
    let attribute: AttributeID
    let identity: DeviceIdentity
    let connectionID: ConnectionID

    init(_ attribute: AttributeID, _ identity: DeviceIdentity, _ connectionID: ConnectionID) {
        (self.attribute, self.identity, self.connectionID) = (attribute, identity, connectionID)
    }

    fileprivate func write(to bytes: UnsafeMutableRawBufferPointer, at offset: Int) {
        bytes.storeBytes(of: attribute.rawValue.littleEndian, toByteOffset: offset, as: UInt32.self)
        bytes.storeBytes(of: connectionID.request.littleEndian, toByteOffset: offset + 4, as: UInt32.self)
        bytes.storeBytes(of: connectionID.link.littleEndian, toByteOffset: offset + 8, as: UInt32.self)
        let peer = identity.address | (identity.isRandom ? 1 << 48 : 0)
        bytes.storeBytes(of: peer.littleEndian, toByteOffset: offset + 12, as: UInt64.self)
    }
}

extension Data {
    /// - Parameter number: Of an event, which goes before the place; nil: of a request.
    fileprivate mutating func append(_ place: Place, after number: UInt64? = nil) {
        // As one piece: to append one costs more than to make it.
        let start = number == nil ? 0 : 8
        withUnsafeTemporaryAllocation(byteCount: start + Place.size, alignment: 8) { bytes in
            if let number { bytes.storeBytes(of: number.littleEndian, as: UInt64.self) }
            place.write(to: bytes, at: start)
            append(contentsOf: UnsafeRawBufferPointer(bytes))
        }
    }

    fileprivate mutating func append(_ attribute: LocalAttributeID) {
        append(littleEndian: attribute.call)
        append(littleEndian: UInt32(clamping: attribute.index))
    }
}

/// Reads what the other side has written, which may be anything.
private struct BodyReader {
    private(set) var rest: Data.SubSequence

    init(_ body: Data) { rest = body[...] }

    mutating func number<Number: FixedWidthInteger>(_ type: Number.Type) throws -> Number {
        let size = MemoryLayout<Number>.size
        guard rest.count >= size else { throw FrameReader.Failure.malformed }
        defer { rest = rest.dropFirst(size) }
        return rest.littleEndian(type, at: 0)
    }

    mutating func place() throws -> Place {
        let attribute = AttributeID(rawValue: try number(UInt32.self))
        let connectionID = ConnectionID(request: try number(UInt32.self), link: try number(UInt32.self))
        let peer = try number(UInt64.self)
        return Place(
            attribute, DeviceIdentity(address: peer, isRandom: peer >> 48 & 1 == 1), connectionID)
    }

    mutating func localAttribute() throws -> LocalAttributeID {
        let call = try number(UInt64.self)
        return LocalAttributeID(call: call, index: Int(clamping: try number(UInt32.self)))
    }

    mutating func uuid() throws -> UUID {
        let (high, low) = (try number(UInt64.self).littleEndian, try number(UInt64.self).littleEndian)
        return withUnsafeBytes(of: (high, low)) { UUID(uuid: $0.loadUnaligned(as: uuid_t.self)) }
    }
}
