import CBluezL2CAP
import Foundation

/// What an app and its keeper send each other, as one piece: the length of what follows its head (4 bytes, the lowest
/// first), its kind, the number of descriptors that go with it, and its body.
struct Frame {
    enum Kind: UInt8 {
        // By the app.
        case hello = 1
        case request = 2
        case query = 3
        /// The app has released the manager.
        case release = 4
        // By a program that asks what the keeper does.
        case status = 5
        /// Ends what it does for the app with the state file at this path.
        case discard = 6
        // By the keeper.
        /// Its version (4 bytes), before anything else.
        case greeting = 15
        case welcome = 16
        case refusal = 17
        /// An event, after its number (8 bytes; 0: it has none).
        case event = 18
        /// Likewise, ``CentralEvent/value(_:_:_:_:)`` in a form of its own.
        case value = 19
        case answer = 20
    }

    static let headSize = 6
    /// In bytes: a hello has all that an app has preserved. More is not believed.
    static let longestBody = 24 << 20

    let kind: Kind
    var body: Data
    /// Owned by the frame.
    var descriptors: [Int32] = []

    /// As it is sent.
    var bytes: Data {
        var bytes = Data(capacity: Self.headSize + body.count)
        bytes.append(littleEndian: UInt32(body.count))
        bytes.append(kind.rawValue)
        bytes.append(UInt8(descriptors.count))
        bytes.append(body)
        return bytes
    }
}

/// Cuts what is received into frames.
struct FrameReader {
    enum Failure: Error { case malformed }

    private static let mostDescriptors = 256

    private var bytes = Data()
    /// How many of the bytes were cut off already.
    private var start = 0
    private var descriptors: [Int32] = []

    /// Adds what was received. The descriptors are taken over.
    mutating func add(_ received: UnsafeRawBufferPointer, _ descriptors: ArraySlice<Int32>) {
        if start > 0 {
            // A copy: a slice would keep all that was ever received.
            bytes = Data(bytes.dropFirst(start))
            start = 0
        }
        bytes.append(contentsOf: received)
        self.descriptors += descriptors
    }

    /// The next frame that is complete.
    mutating func next() throws(Failure) -> Frame? {
        let rest = bytes.dropFirst(start)
        // Those of a few frames.
        guard descriptors.count <= Self.mostDescriptors else { throw .malformed }
        guard rest.count >= Frame.headSize else { return nil }
        let (length, count) = (Int(clamping: rest.littleEndian(UInt32.self, at: 0)), Int(rest[rest.startIndex + 5]))
        guard length <= Frame.longestBody, let kind = Frame.Kind(rawValue: rest[rest.startIndex + 4]) else {
            throw .malformed
        }
        guard rest.count >= Frame.headSize + length else { return nil }
        // They come with the first byte of their frame.
        guard descriptors.count >= count else { throw .malformed }
        defer {
            start += Frame.headSize + length
            descriptors.removeFirst(count)
        }
        return Frame(
            kind: kind, body: Data(rest.dropFirst(Frame.headSize).prefix(length)),
            descriptors: Array(descriptors.prefix(count)))
    }

    /// Nothing more is read.
    mutating func end() {
        for descriptor in descriptors { close(descriptor) }
        (bytes, start, descriptors) = (Data(), 0, [])
    }
}

extension Data {
    mutating func append<Number: FixedWidthInteger>(littleEndian number: Number) {
        Swift.withUnsafeBytes(of: number.littleEndian) { append(contentsOf: $0) }
    }

    /// - Parameter offset: From the first byte. There are enough bytes.
    func littleEndian<Number: FixedWidthInteger>(_ type: Number.Type, at offset: Int) -> Number {
        var number: Number = 0
        for index in (0..<MemoryLayout<Number>.size).reversed() {
            number = number << 8 | Number(truncatingIfNeeded: self[startIndex + offset + index])
        }
        return number
    }
}

extension Frame {
    static let greetingSize = headSize + 4

    static var greeting: Frame {
        var body = Data()
        body.append(littleEndian: UInt32(BorderFormat.version))
        return Frame(kind: .greeting, body: body)
    }

    /// The version in it; 0: there is none.
    var greeting: Int {
        kind == .greeting && body.count == 4 ? Int(clamping: body.littleEndian(UInt32.self, at: 0)) : 0
    }

    /// A value: its number, the attribute, the connect, the link, the peripheral, and the bytes.
    private static let valueHead = 8 + 4 + 4 + 4 + 8

    /// The event with this number.
    static func event(_ number: UInt64, _ event: some Codable) throws -> Frame {
        if case .value(let value, let attribute, let identity, let connectionID)? = event as? CentralEvent {
            var body = Data(capacity: valueHead + value.count)
            body.append(littleEndian: number)
            body.append(littleEndian: attribute.rawValue)
            body.append(littleEndian: connectionID.request)
            body.append(littleEndian: connectionID.link)
            body.append(littleEndian: identity.address | (identity.isRandom ? 1 << 48 : 0))
            body.append(value)
            return Frame(kind: .value, body: body)
        }
        let (bytes, descriptors) = try BorderFormat.encode(event)
        var body = Data(capacity: 8 + bytes.count)
        body.append(littleEndian: number)
        body.append(bytes)
        return Frame(kind: .event, body: body, descriptors: descriptors)
    }

    /// The event in a frame of the kind `event` or `value`. The descriptors are taken over.
    func event<Event: Codable>(_ type: Event.Type) throws -> (number: UInt64, event: Event) {
        guard body.count >= 8 else { throw FrameReader.Failure.malformed }
        let number = body.littleEndian(UInt64.self, at: 0)
        guard kind == .value else {
            return (number, try BorderFormat.decode(Event.self, from: Data(body.dropFirst(8)), descriptors))
        }
        guard body.count >= Self.valueHead else { throw FrameReader.Failure.malformed }
        let peer = body.littleEndian(UInt64.self, at: 20)
        let event = CentralEvent.value(
            Data(body.dropFirst(Self.valueHead)), AttributeID(rawValue: body.littleEndian(UInt32.self, at: 8)),
            DeviceIdentity(address: peer, isRandom: peer >> 48 & 1 == 1),
            ConnectionID(
                request: body.littleEndian(UInt32.self, at: 12), link: body.littleEndian(UInt32.self, at: 16)))
        guard let event = event as? Event else { throw FrameReader.Failure.malformed }
        return (number, event)
    }
}
