import Foundation

/// A message that a client of the broker has sent to `…/PERIPHERAL/set`. Any of it may be wrong.
struct Command {
    struct Refusal: Error { let description: String }

    /// What is to be written: `01ff`, or a text in double quotes, as in JSON.
    let value: Data

    init(_ message: Broker.Message) throws(Refusal) {
        // It would be carried out again after each connection.
        guard !message.isRetained else { throw Refusal(description: "a retained message is not carried out") }
        let payload = message.payload
        guard !payload.isEmpty else { throw Refusal(description: "the message is empty") }
        guard payload.count <= Broker.longestPayload else { throw Refusal(description: "the message is too long") }
        if payload.first == UInt8(ascii: "\"") {
            guard let text = try? JSONDecoder().decode(String.self, from: payload) else {
                throw Refusal(description: "the message is no text in double quotes, as JSON has it")
            }
            value = Data(text.utf8)
        } else {
            guard let bytes = Self.bytes(payload) else {
                throw Refusal(
                    description: "the message is neither an even number of hexadecimal digits nor a text in quotes")
            }
            value = bytes
        }
        // Core Specification 5.4, Vol 3, Part F, 3.2.9: the longest value of an attribute.
        guard value.count <= 512 else {
            throw Refusal(description: "a value has 512 bytes at most, not \(value.count)")
        }
    }

    private static func bytes(_ text: Data) -> Data? {
        let digits = text.compactMap { Character(UnicodeScalar($0)).hexDigitValue.map(UInt8.init) }
        guard digits.count == text.count, digits.count.isMultiple(of: 2) else { return nil }
        return Data(stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] })
    }
}
