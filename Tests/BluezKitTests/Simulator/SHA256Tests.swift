import BluezKitSimulator
import Foundation
import Testing

@Suite("SHA-256")
struct SHA256Tests {
    /// - SeeAlso: NIST, "Descriptions of SHA-256" (FIPS 180-4 examples) and the long message of the Secure Hash
    ///   Standard.
    @Test(
        "SHA-256 gives NIST's digests of its examples",
        arguments: [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
            ),
        ])
    func examples(_ text: String, _ digest: String) {
        #expect(self.digest(of: text) == digest)
    }

    // Not an argument of the test above: arguments are printed.
    @Test("SHA-256 gives NIST's digest of a million times the letter a")
    func longExample() {
        let text = String(repeating: "a", count: 1_000_000)
        #expect(digest(of: text) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0")
    }

    private func digest(of text: String) -> String {
        var hash = SHA256()
        hash.update(text.utf8)
        return Data(hash.digest).hex
    }

    @Test("SHA-256 of pieces of any length is the same digest")
    func pieces() {
        let bytes = (0..<1000).map { _ in UInt8.random(in: 0 ... .max) }
        var whole = SHA256()
        whole.update(bytes)
        for length in [1, 3, 63, 64, 65, 127, 128, 500] {
            var hash = SHA256()
            for start in stride(from: 0, to: bytes.count, by: length) {
                hash.update(bytes[start..<min(start + length, bytes.count)])
            }
            #expect(hash.digest == whole.digest)
        }
    }
}
