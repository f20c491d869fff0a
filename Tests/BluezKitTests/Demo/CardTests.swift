import Foundation
import Testing

@testable import bluez_demo

@Suite struct CardTests {
    private static let sizes = [0, 1, 18, 19, 20, 21, 511, 512, 513, 100_000]

    private func card(_ size: Int) -> Data { Data((0..<size).map { _ in UInt8.random(in: 0 ... .max) }) }

    /// All frames of a message.
    private func frames(_ card: Data, upTo length: Int) -> [Data] {
        var frames: [Data] = []
        var sender = CardSender(card)
        sender.send(upTo: length) {
            frames.append($0)
            return true
        }
        #expect(sender.isDone && sender.sent == card.count)
        return frames
    }

    private func error(_ frames: [Data], limit: Int = 1000) -> CardError? {
        var receiver = CardReceiver(limit: limit)
        do throws(CardError) {
            for frame in frames { _ = try receiver.take(frame) }
            return nil
        } catch {
            return error
        }
    }

    @Test("a card of any size arrives byte for byte over a link of any MTU, in order or not", arguments: sizes)
    func arrives(_ size: Int) throws {
        for length in [20, 21, 100, 182, 244, 512] {
            let card = card(size)
            let frames = frames(card, upTo: length)
            #expect(frames.allSatisfy { $0.count <= length && !$0.isEmpty })
            #expect(frames.count == 2 + (size + length - 6) / (length - 5))
            var receiver = CardReceiver(limit: 100_000)
            var received = 0
            for frame in frames.dropLast() {
                received += frame.first == 2 ? frame.count - 5 : 0
                #expect(try receiver.take(frame) == .received(received, of: size))
            }
            #expect(receiver.missing == nil)
            #expect(try receiver.take(try #require(frames.last)) == .complete(card))
            // BlueZ's bearers overtake each other.
            let mixed = frames.shuffled()
            for frame in mixed.dropLast() {
                if case .complete = try receiver.take(frame) { Issue.record("too early") }
            }
            #expect(try receiver.take(try #require(mixed.last)) == .complete(card))
        }
    }

    @Test("frames of a card have the documented layout")
    func layout() {
        // The check value of CRC-32: "123456789" gives CBF43926.
        #expect(
            frames(Data("123456789".utf8), upTo: 20) == [
                Data([1, 9, 0, 0, 0, 0x26, 0x39, 0xF4, 0xCB]), Data([2, 0, 0, 0, 0] + "123456789".utf8), Data([3]),
            ])
        #expect(frames(Data(), upTo: 20) == [Data([1, 0, 0, 0, 0, 0, 0, 0, 0]), Data([3])])
    }

    @Test("when there is no room the same frame is sent again later, and nothing is lost or duplicated")
    func waitsForRoom() throws {
        let card = card(5_000)
        var sender = CardSender(card)
        var receiver = CardReceiver(limit: 5_000)
        var result: Data?
        var refusals = 0
        // Room for none, or for a few; and the MTU may grow in the meantime.
        while !sender.isDone {
            var room = Int.random(in: 0...4)
            var refused = false
            sender.send(upTo: [20, 182, 509].randomElement() ?? 20) { frame in
                guard room > 0 else {
                    refused = true
                    return false
                }
                room -= 1
                if case .complete(let card)? = try? receiver.take(frame) { result = card }
                return true
            }
            #expect(refused || sender.isDone)
            refusals += refused ? 1 : 0
        }
        #expect(result == card && refusals > 0)
        sender.send(upTo: 20) { _ in
            Issue.record("there was nothing left to send")
            return true
        }
    }

    @Test("a lost frame is detected, and arrives when the card is requested again; an altered one is detected")
    func findsLosses() throws {
        let card = card(500)
        let frames = frames(card, upTo: 100)
        #expect(frames.count == 8)
        for lost in 1..<7 {
            var receiver = CardReceiver(limit: 1000)
            for (index, frame) in frames.enumerated() where index != lost { _ = try receiver.take(frame) }
            #expect(receiver.missing == frames[lost].count - 5)
            receiver.askAgain()
            #expect(receiver.missing == nil)
            #expect(try receiver.take(frames[lost]) == .received(500, of: 500))
            #expect(try receiver.take(frames[7]) == .complete(card))
            var doubled = frames
            doubled.insert(frames[lost], at: lost)
            #expect(error(doubled) == nil)
            var altered = frames
            altered[lost][altered[lost].startIndex + 5] ^= 1
            #expect(error(altered) == .damaged)
        }
    }

    @Test("frames of another central's message belong to the same card, and are used; another card replaces it")
    func severalMessages() throws {
        let card = card(300), other = self.card(200)
        let (small, large) = (frames(card, upTo: 50), frames(card, upTo: 100))
        var receiver = CardReceiver(limit: 1000)
        #expect(try receiver.take(small[3]) == .unannounced)
        #expect(try receiver.take(Data([3])) == .unannounced)
        for frame in large.dropLast(2) { _ = try receiver.take(frame) }
        var result: CardReceiver.Progress?
        for frame in frames(other, upTo: 50) { result = try receiver.take(frame) }
        #expect(result == .complete(other))
    }

    @Test("a hostile sender gets an error at once, not memory")
    func limits() {
        #expect(error([Data([1, 0xE9, 3, 0, 0, 0, 0, 0, 0])]) == .tooLarge(1001, limit: 1000))
        #expect(error([Data([1, 0xE8, 3, 0, 0, 0, 0, 0, 0])]) == nil)
        #expect(error([Data([1, 255, 255, 255, 255, 0, 0, 0, 0])]) == .tooLarge(4_294_967_295, limit: 1000))
        #expect(error([Data([1, 2, 0, 0, 0, 0, 0, 0, 0]), Data([2, 0, 0, 0, 0, 1, 1, 1])]) == .tooMuch(of: 2))
        #expect(error([Data([2, 0xE7, 3, 0, 0, 1])]) == nil)
        #expect(error([Data([2, 0xE7, 3, 0, 0, 1, 1])]) == .tooMuch(of: 1000))
        #expect(error([Data([2, 255, 255, 255, 255, 1])]) == .tooMuch(of: 1000))
        #expect(error([Data([2, 0, 0, 0, 0])]) == .malformedFrame([2, 0, 0, 0, 0]))
        #expect(error([Data([1, 2, 0, 0, 0])]) == .malformedFrame([1, 2, 0, 0, 0]))
        #expect(error([Data([3, 0])]) == .malformedFrame([3, 0]))
        #expect(error([Data()]) == .unknownFrame(nil))
        #expect(error([Data([0])]) == .unknownFrame(0) && error([Data("EOM".utf8)]) == .unknownFrame(0x45))
    }

    @Test("arbitrary frames neither trap nor make the receiver keep more than the limit")
    func survivesAnything() {
        var receiver = CardReceiver(limit: 300)
        var events = [0, 0, 0]
        for number in 0..<50_000 {
            if number % 1000 == 0 { receiver = CardReceiver(limit: 300) }
            var frame = Data((0..<Int.random(in: 0...30)).map { _ in UInt8.random(in: 0 ... .max) })
            if !frame.isEmpty { frame[0] = UInt8.random(in: 1...4) }
            switch frame.first {
            case 1: frame = Data([1, UInt8.random(in: 0 ... .max), 0, 0, 0, 0, 0, 0, 0])
            case 2 where frame.count > 4: (frame[2], frame[3], frame[4]) = (0, 0, 0)
            case 3: frame = Data([3])
            default: break
            }
            switch try? receiver.take(frame) {
            case .unannounced?: events[0] += 1
            case .received(let count, let size)?:
                events[1] += 1
                #expect(count <= size && size <= 300)
            case .complete(let card)?: #expect(card.count <= 300)
            case nil: events[2] += 1
            }
        }
        #expect(events.allSatisfy { $0 > 0 })
    }

    // A device or a named pipe was replaced by the card, and `cards/` was taken for the file `cards`.
    @Test("only a regular file is replaced by a card, and a name that ends with a slash is a folder's")
    func targets() throws {
        let folder = try TemporaryDirectory()
        let pipe = folder.path + "/pipe"
        try #require(mkfifo(pipe, 0o600) == 0)
        for path in [pipe, "/dev/null", folder.path, folder.path + "/new/"] {
            #expect(throws: CardFile.Failure.self) { try CardFile.checkWritable(path) }
        }
        try Data("old".utf8).write(to: URL(fileURLWithPath: folder.path + "/card"))
        for name in ["card", "new"] {
            #expect(throws: Never.self) { try CardFile.checkWritable("\(folder.path)/\(name)") }
        }
    }

    @Test("errors about cards name the cause and the remedy")
    func sentences() {
        #expect(
            CardError.tooLarge(2000, limit: 1000).sentence
                == "the card has 2000 bytes, more than the 1000 that are accepted; --max-size 2000 would take it")
        #expect(CardError.damaged.sentence == "the card was damaged on the way: its checksum is wrong")
    }

    @Test("the name on a card is found, and control characters are removed")
    func names() {
        func name(_ text: String) -> String? { CardText.name(Data(text.utf8)) }
        #expect(name("BEGIN:VCARD\r\nVERSION:4.0\r\nFN:Ada Lovelace\r\nEND:VCARD\r\n") == "Ada Lovelace")
        #expect(name("N:x\nitem1.fn;LANGUAGE=en: Ada: Countess\n") == "Ada: Countess")
        #expect(name("FN:\u{1B}[31mAda") == "\u{FFFD}[31mAda")
        #expect(name("FN:\nFN:Ada") == "Ada" && name("FN:\n") == nil && name("FNX:Ada") == nil)
        #expect(name("") == nil && name(":") == nil && name(";:x") == nil)
        #expect(CardText.name(Data([0x46, 0x4E, 0x3A, 0xFF])) == nil)
        #expect(name("FN:" + String(repeating: "x", count: 1000))?.count == 60)
    }

    @Test("the name on a card of any version is found: folded, escaped, quoted-printable, in parts")
    func writtenNames() {
        func name(_ lines: String...) -> String? { CardText.name(Data(lines.joined(separator: "\r\n").utf8)) }
        #expect(name("VERSION:3.0", #"FN:Example\, Sons \; Daughters"#) == "Example, Sons ; Daughters")
        #expect(name(#"FN:a\nb\\c"#) == #"a b\c"#)
        let folded = ["FN:Dr. Hubert Blaine Wolfe", " schlegelsteinhausen"]
        #expect(name("VERSION:4.0", folded[0], folded[1]) == "Dr. Hubert Blaine Wolfeschlegelsteinhausen")
        #expect(name("VERSION:2.1", folded[0], folded[1]) == "Dr. Hubert Blaine Wolfe schlegelsteinhausen")
        let quoted = "FN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:=41=6E=6E=61=20=4D=C3=BC=6C=6C=65=72"
        #expect(name("VERSION:2.1", quoted) == "Anna Müller")
        #expect(name("VERSION:2.1", "FN;QUOTED-PRINTABLE;CHARSET=ISO-8859-1:Anna =", "M=FCller") == "Anna Müller")
        #expect(name("FN;ENCODING=QUOTED-PRINTABLE:100=", "=25=2G=") == "100%=2G=")
        #expect(name("VERSION:2.1", "N:Müller;Anna;;;", "TEL:1") == "Anna Müller")
        #expect(name(#"FN;SORT-AS="a:b;c";LANGUAGE=en:Ada"#) == "Ada")
        #expect(name("N:;;;;", "FN:Ada") == "Ada" && name("N:;;;;") == nil)
        #expect(name("FN;ENCODING=QUOTED-PRINTABLE:=1B[31mAda") == "\u{FFFD}[31mAda")
    }

    @Test("the progress of a card fits the terminal")
    func progress() {
        #expect(
            CardText.progress(50_000, of: 100_000, width: 80).text
                == "  " + String(repeating: "\u{2588}", count: 20) + String(repeating: "\u{2591}", count: 20)
                + "  50 %  50,000 of 100,000 bytes")
        #expect(CardText.progress(0, of: 0, width: 80).text.hasSuffix("  100 %  0 of 0 bytes"))
        #expect(CardText.progress(1, of: 1, width: 20).text == "    100 %  1 of 1 byte")
        for width in 0...100 { #expect(CardText.progress(3, of: 7, width: width).width <= max(width, 26)) }
    }
}
