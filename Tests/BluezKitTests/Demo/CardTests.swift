import Foundation
import Testing

@testable import bluez_demo

@Suite struct CardTests {
    private func card(_ size: Int) -> Card {
        Card(Data((0..<size).map { _ in UInt8.random(in: 0 ... .max) }), name: "a.vcf")
    }

    /// Carries all values that one end has to send to the other one.
    private func carry(_ from: inout TransferPipe, _ to: inout TransferPipe, upTo length: Int) throws {
        var values: [Data] = []
        try from.sendValues(upTo: length) {
            values.append($0)
            return true
        }
        for value in values { try to.take(value: value) }
    }

    /// What arrives of a card, if all goes well.
    private func received(_ card: Card, limit: Int = 100_000, path: String? = nil, upTo length: Int) throws -> Data? {
        let sender = TransferSender(card, confirmsEnd: false)
        let receiver = TransferReceiver(limit: limit, asks: true) { Card($0, path: path) }
        var (central, peripheral) = (
            TransferPipe(receiver, isPeripheral: false), TransferPipe(sender, isPeripheral: true)
        )
        central.begin()
        // It is requested, offered, accepted, sent and confirmed.
        for _ in 0..<3 {
            try carry(&central, &peripheral, upTo: length)
            try carry(&peripheral, &central, upTo: length)
        }
        #expect(sender.isDone && receiver.isSettled)
        return (receiver.file as? Card)?.bytes
    }

    @Test(
        "a card of any size arrives byte for byte over a link of any MTU",
        arguments: [0, 1, 18, 19, 20, 21, 511, 512, 513, 100_000])
    func arrives(_ size: Int) throws {
        for length in [20, 21, 100, 182, 244, 512] {
            let card = card(size)
            #expect(try received(card, upTo: length) == card.bytes)
        }
    }

    @Test(
        "a stranger's card that is folded 300,000 times is read as fast as another one", .timeLimit(.minutes(1)),
        arguments: ["A;ENCODING=QUOTED-PRINTABLE:", "A;ENCODING=QUOTED-PRINTABLE", "A", "A;B=\""])
    func folded(_ property: String) {
        for line in ["x=\n", " x=\n", " =\n"] {
            let text =
                "BEGIN:VCARD\n\(property)" + String(repeating: line, count: thorough(300_000)) + "\nFN:n\nEND:VCARD\n"
            #expect(VCard(text).name == "n")
        }
    }

    @Test("a card that is larger than the limit is refused before any of it is sent, in words at both ends")
    func refuses() throws {
        #expect(throws: TransferError.refused("it has 101 bytes, more than the 100 that --max-size permits")) {
            try received(card(101), limit: 100, upTo: 100)
        }
        #expect(try received(card(100), limit: 100, upTo: 100)?.count == 100)
    }

    @Test("a card is written when it has arrived, and not if it is another one than was offered")
    func writes() throws {
        let folder = try TemporaryDirectory()
        let (card, path) = (card(5000), folder.path + "/b.vcf")
        #expect(try received(card, path: path, upTo: 100) == card.bytes)
        #expect(FileManager.default.contents(atPath: path) == card.bytes)
        let other = Card(card.offer, path: folder.path + "/c.vcf")
        other.append(Data(count: 5000))
        #expect(try !other.finish())
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == ["b.vcf"])
        #expect(throws: TransferError.refused("it cannot be stored")) {
            try received(card, path: folder.path + "/none/b.vcf", upTo: 100)
        }
    }

    @Test("a file that is larger than a card may be is not sent")
    func readsLimited() throws {
        let folder = try TemporaryDirectory()
        let path = folder.path + "/a.vcf"
        try Data(count: Card.sizeLimit).write(to: URL(fileURLWithPath: path))
        #expect(try CardFile.read(path).count == 1_000_000)
        try Data(count: Card.sizeLimit + 1).write(to: URL(fileURLWithPath: path))
        #expect(throws: CardFile.Failure.self) { try CardFile.read(path) }
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

    @Test("progress fits the terminal")
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
