import Foundation
import Testing

@testable import bluez_demo

// A character can have any number of combining marks, none of which counts as a column: a card printed a line of 20,000
// of them. `--json` passed marks that change the direction of text, and invisible characters, to the terminal. Now
// characters end after 32 parts, and JSON escapes invisible characters.
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
}
