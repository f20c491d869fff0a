import BluezKitProfiles
import Foundation
import Testing

@Suite("Apple Notification Center Service")
struct ANCSTests {
    private static let asked: [ANCSCommand.Attribute] = [.appIdentifier, .title, .message]
    private static let command = ANCSCommand.attributes(0x0102_0304, asked)

    private static func attribute(_ number: UInt8, _ text: String) -> [UInt8] {
        [number, UInt8(truncatingIfNeeded: text.utf8.count), UInt8(text.utf8.count >> 8)] + Array(text.utf8)
    }

    private static let answer =
        [0, 4, 3, 2, 1] + attribute(0, "com.apple.MobileSMS") + attribute(1, "Ada Löwe") + attribute(3, "")

    private static let event = ANCSEvent {
        ($0.kind, $0.category, $0.count, $0.notification) = (.modified, .email, 3, 0x0102_0304)
        $0.flags = [.important, .negativeAction]
    }

    @Test("events have Apple's layout; unknown categories are other, unknown kinds errors")
    func events() throws {
        #expect(Self.event.data == Data([1, 0x12, 6, 3, 4, 3, 2, 1]))
        #expect(try ANCSEvent(Self.event.data) == Self.event)
        let later = try ANCSEvent(Data([0, 0xE0, 200, 0, 0, 0, 0, 0]))
        #expect(later.category == .other && later.categoryNumber == 200 && later.flags.isEmpty && later.data[2] == 200)
        #expect(try ANCSEvent(Data([0, 0, 12, 1, 1, 0, 0, 0])).category == .activeCall)
        #expect(throws: CharacteristicValueError.reserved(field: "event ID", value: 3)) {
            try ANCSEvent(Data([3, 0, 0, 0, 0, 0, 0, 0]))
        }
        #expect(throws: CharacteristicValueError.truncated(field: "notification UID")) {
            try ANCSEvent(Data([0, 0, 0, 0, 0, 0, 0]))
        }
    }

    @Test("commands to a phone have Apple's layout")
    func commands() {
        #expect(Self.command.data == Data([0, 4, 3, 2, 1, 0, 1, 0, 1, 3, 0, 4]))
        #expect(ANCSCommand.appName("a.b").data == Data([1, 0x61, 0x2E, 0x62, 0, 0]))
        #expect(ANCSCommand.appName("a\0b").data == Data([1, 0x61, 0, 0]))
        #expect(ANCSCommand.perform(.negative, 5).data == Data([2, 5, 0, 0, 0, 1]))
    }

    @Test("an answer is put together, wherever it is divided")
    func pieces() throws {
        for size in 1...Self.answer.count {
            var response = ANCSResponse(to: Self.command)
            for start in stride(from: 0, to: Self.answer.count, by: size) {
                #expect(!response.isComplete)
                try response.append(Data(Self.answer[start..<min(start + size, Self.answer.count)]))
            }
            #expect(response.isComplete, "\(size)")
            #expect(response.texts == [.appIdentifier: "com.apple.MobileSMS", .title: "Ada Löwe", .message: ""])
        }
        var name = ANCSResponse(to: .appName("a.b"))
        try name.append(Data([1, 0x61, 0x2E, 0x62]))
        try name.append(Data([0] + Self.attribute(0, "Mail")))
        #expect(name.isComplete && name.appName == "Mail")
        #expect(ANCSResponse(to: .perform(.positive, 1)).isComplete)
    }

    @Test("a text that the phone has cut within a character ends with the one before", arguments: 253...256)
    func cut(_ length: Int) throws {
        let title = Data(String(repeating: "通", count: 120).utf8.prefix(length))
        var response = ANCSResponse(to: .attributes(1, [.title]))
        try response.append(Data([0, 1, 0, 0, 0, 1, UInt8(length & 0xFF), UInt8(length >> 8)]) + title)
        #expect(response.texts[.title] == String(repeating: "通", count: length / 3))
    }

    @Test("an answer that was not requested is an error")
    func hostile() {
        func error(_ bytes: [UInt8]) -> ANCSResponse.Invalid? {
            var response = ANCSResponse(to: Self.command)
            do throws(ANCSResponse.Invalid) { try response.append(Data(bytes)) } catch { return error }
            return nil
        }
        #expect(error(Self.answer) == nil && error([]) == nil)
        #expect(error([0, 4, 3, 2, 2]) == .otherCommand && error([1]) == .otherCommand)
        #expect(error([0, 4, 3, 2, 1, 9]) == .unexpectedAttribute(9))
        #expect(error([0, 4, 3, 2, 1] + Self.attribute(1, "a") + [1]) == .unexpectedAttribute(1))
        #expect(
            error([0, 4, 3, 2, 1, 3, 1, 4]) == .tooLong(1025) && error([0, 4, 3, 2, 1, 0, 1, 4]) == .tooLong(1025))
        // Of a title 256 bytes were asked for.
        #expect(error([0, 4, 3, 2, 1, 1, 1, 1]) == .tooLong(257) && error([0, 4, 3, 2, 1, 1, 0, 1]) == nil)
        #expect(error(Self.answer + [0]) == .trailingBytes)
    }

    @Test("mutated events and answers are read or refused")
    func mutated() {
        let rounds = ProcessInfo.processInfo.environment["BLUEZKIT_MUTATIONS"].flatMap { Int($0) } ?? 1_000
        var changed = 0
        for _ in 0..<rounds {
            var bytes = Data((0..<Int.random(in: 0...9)).map { _ in UInt8.random(in: 0...2) })
            if let event = try? ANCSEvent(bytes), (try? ANCSEvent(event.data)) != event { changed += 1 }
            bytes = Data(Self.answer)
            for _ in 0..<Int.random(in: 1...3) { bytes[.random(in: bytes.indices)] = .random(in: 0 ... .max) }
            bytes += Data(count: .random(in: 0...1200))
            var response = ANCSResponse(to: Self.command)
            while !bytes.isEmpty {
                let piece = bytes.prefix(.random(in: 1...100))
                bytes = Data(bytes.dropFirst(piece.count))
                guard (try? response.append(piece)) != nil else { break }
            }
        }
        #expect(changed == 0)
    }
}
