import Testing

/// A text as a test's argument: the log shows how it begins and how long it is, not 100 kB of it.
struct Brief: CustomTestStringConvertible, ExpressibleByStringLiteral {
    let text: String
    init(_ text: String) { self.text = text }
    init(stringLiteral text: String) { self.text = text }

    var testDescription: String {
        text.utf8.count <= 100
            ? text.debugDescription : "\(text.prefix(60).debugDescription)… (\(text.utf8.count) bytes)"
    }
}
