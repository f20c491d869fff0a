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
        /// Ends the keeper, so that one of the version in it (4 bytes) can take its place.
        case replace = 7
        // Requests in a form of their own.
        case write = 8
        case update = 9
        // By the keeper.
        /// Its version (4 bytes), before anything else.
        case greeting = 15
        /// What the keeper has of the manager, or nothing, with the page.
        case welcome = 16
        case refusal = 17
        /// An event, after its number (8 bytes; 0: it has none).
        case event = 18
        case answer = 20
        // Events in a form of their own, after their numbers.
        case value = 19
        case written = 21
        case sent = 22
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
        var bytes = Data(capacity: size)
        write(to: &bytes)
        return bytes
    }

    /// In bytes.
    var size: Int { Self.headSize + body.count }

    func write(to bytes: inout Data) {
        let count = UInt32(body.count).littleEndian
        Swift.withUnsafeBytes(of: (count, kind.rawValue, UInt8(descriptors.count))) {
            bytes.append(contentsOf: UnsafeRawBufferPointer(rebasing: $0[..<Self.headSize]))
        }
        bytes.append(body)
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

    /// Of the kind `greeting` or `replace`, with this program's version.
    static func version(as kind: Kind) -> Frame {
        var body = Data()
        body.append(littleEndian: UInt32(BorderFormat.version))
        return Frame(kind: kind, body: body)
    }

    /// The version in a frame of that kind; 0: there is none.
    func version(as kind: Kind) -> Int {
        self.kind == kind && body.count == 4 ? Int(clamping: body.littleEndian(UInt32.self, at: 0)) : 0
    }
}
