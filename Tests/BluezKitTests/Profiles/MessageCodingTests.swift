import BluezKitProfiles
import Foundation
import Testing

@Suite("Messages in a byte stream")
struct MessageCodingTests {
    private let messages = [
        Data(), Data([0]), Data("hello".utf8), Data(repeating: 7, count: 300), Data(), Data([1, 2]),
    ]

    private func stream() throws -> [UInt8] {
        let encoder = MessageEncoder()
        return try messages.flatMap { [UInt8](try encoder.encode($0)) }
    }

    private func all(_ decoder: inout MessageDecoder) throws -> [Data] {
        var found: [Data] = []
        while let message = try decoder.next() { found.append(message) }
        return found
    }

    @Test("a message is its length in little-endian order, and its bytes")
    func bytes() throws {
        #expect(try MessageEncoder().encode(Data("hi".utf8)) == Data([2, 0, 0, 0, 0x68, 0x69]))
        #expect(try MessageEncoder().encode(Data(repeating: 0, count: 258)).prefix(4) == Data([2, 1, 0, 0]))
        #expect(try MessageEncoder().encode([]) == Data([0, 0, 0, 0]))
    }

    @Test("messages arrive whole and in order, wherever the stream is divided")
    func splits() throws {
        let bytes = try stream()
        for position in 0...bytes.count {
            var decoder = MessageDecoder()
            decoder.append(bytes[..<position])
            var found = try all(&decoder)
            decoder.append(bytes[position...])
            found += try all(&decoder)
            #expect(found == messages, "divided at \(position)")
            #expect(decoder.count == 0)
        }
        var decoder = MessageDecoder()
        var found: [Data] = []
        for byte in bytes {
            decoder.append(CollectionOfOne(byte))
            found += try all(&decoder)
        }
        #expect(found == messages, "byte by byte")
    }

    @Test("a message that is too long is an error at once and for good, and takes no memory")
    func limit() throws {
        var decoder = MessageDecoder(limit: 5)
        decoder.append(try MessageEncoder().encode(Data("fits.".utf8)) + [6, 0, 0, 0])
        #expect(try decoder.next() == Data("fits.".utf8))
        #expect(throws: MessageError.tooLong(6, limit: 5)) { try decoder.next() }
        decoder.append([UInt8](repeating: 0, count: 100_000))
        #expect(decoder.count == 0)
        #expect(throws: MessageError.tooLong(6, limit: 5)) { try decoder.next() }
        #expect(throws: MessageError.tooLong(6, limit: 5)) { try MessageEncoder(limit: 5).encode(Data(count: 6)) }
        var longest = MessageDecoder()
        longest.append([0xFF, 0xFF, 0xFF, 0xFF])
        #expect(throws: MessageError.self) { try longest.next() }
        #expect(MessageError.tooLong(6, limit: 5).localizedDescription.contains("6 bytes"))
    }

    @Test("arbitrary bytes, in any pieces, decode as messages within the limit or throw")
    func mutations() throws {
        let good = try stream()
        for _ in 0..<2000 {
            var bytes = good
            for _ in 0..<Int.random(in: 1...4) {
                switch Int.random(in: 0..<3) {
                case 0: bytes[.random(in: bytes.indices)] = .random(in: 0 ... .max)
                case 1: bytes.remove(at: .random(in: bytes.indices))
                default: bytes.insert(.random(in: 0 ... .max), at: .random(in: bytes.indices))
                }
            }
            var decoder = MessageDecoder(limit: 400)
            var (rest, total) = (bytes[...], 0)
            while !rest.isEmpty {
                let piece = rest.prefix(.random(in: 1...50))
                rest = rest.dropFirst(piece.count)
                decoder.append(piece)
                do {
                    while let message = try decoder.next() {
                        #expect(message.count <= 400)
                        total += message.count + MessageEncoder.headerLength
                    }
                } catch {
                    break
                }
                #expect(decoder.count < 400 + MessageEncoder.headerLength)
            }
            #expect(total + decoder.count <= bytes.count)
        }
    }
}
