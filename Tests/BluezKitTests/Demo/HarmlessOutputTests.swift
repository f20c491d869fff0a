import Foundation
import Testing

@testable import bluez_demo

// A character can have any number of combining marks, none of which counts as a column: a card printed a line of 20,000
// of them. `--json` passed marks that change the direction of text, and invisible characters, to the terminal. And a
// card in one-byte frames with gaps took quadratic time. Now characters end after 32 parts, JSON escapes invisible
// characters, and the time for a frame depends only on its bytes.
@Suite struct HarmlessOutputTests {
    @Test("a character from another device has a limited number of combining marks")
    func combiningMarks() {
        let marks = String(repeating: "\u{301}", count: 20_000)
        #expect(("a" + marks).harmless.unicodeScalars.count <= 32)
        #expect(marks.harmless.unicodeScalars.count <= 32)
        #expect(("a" + marks + "b" + marks).harmless.unicodeScalars.filter { $0 == "a" || $0 == "b" }.count == 2)
        let joined = String(repeating: "👩\u{200D}", count: 20_000)
        #expect(joined.harmless.unicodeScalars.count <= 32)
        #expect("Zoe\u{308}'s 👨‍👩‍👧 नमस्ते".harmless == "Zoe\u{308}'s 👨‍👩‍👧 नमस्ते")
        #expect(("FN:" + marks).clipped(to: 200).harmless.unicodeScalars.count < 100)
        for line in CardText.lines(Data(("FN:x" + marks + "\n" + marks).utf8)) ?? [] {
            #expect(line.unicodeScalars.count < 100)
        }
    }

    @Test("JSON escapes direction marks, invisible and private characters")
    func json() throws {
        let text = "a\u{202E}b\u{2066}\u{200B}\u{FEFF}\u{AD}\u{115F}\u{E000}\u{10FFFF}\u{E0041}é心👩🏽"
        let json = JSONValue.string(text).description
        #expect(
            json
                == #""a\u202eb\u2066\u200b\ufeff\u00ad\u115f\ue000\udbff\udfff\udb40\udc41é心👩🏽""#)
        #expect(try JSONDecoder().decode([String].self, from: Data("[\(json)]".utf8)) == [text])
    }

    @Test(
        "a card in frames of one byte, with gaps, is put together in time that grows with its size",
        .timeLimit(.minutes(2)))
    func gaps() throws {
        let size = 400_000
        var receiver = CardReceiver(limit: size)
        func number(_ number: Int) -> [UInt8] { (0..<4).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) } }
        var checksum = CRC32()
        checksum.take(repeatElement(7, count: size))
        _ = try receiver.take(Data([1] + number(size) + number(Int(checksum.value))))
        for offset in stride(from: 0, to: size, by: 2) { _ = try receiver.take(Data([2] + number(offset) + [7])) }
        #expect(try receiver.take(Data([3])) == .received(size / 2, of: size))
        #expect(receiver.missing == size / 2)
        // The same again is nothing new.
        #expect(try receiver.take(Data([2] + number(0) + [7])) == .received(size / 2, of: size))
        var last: CardReceiver.Progress?
        for offset in stride(from: 1, to: size, by: 2) { last = try receiver.take(Data([2] + number(offset) + [7])) }
        #expect(last == .complete(Data(repeating: 7, count: size)))
    }
}
