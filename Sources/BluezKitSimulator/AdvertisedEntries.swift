/// Entries of one kind in an advertisement, in the order in which they are sent: that of a dictionary literal.
///
/// ```swift
/// peripheral.advertisement.manufacturerData = [0xEC88: [0, 3], 0x004C: [2, 0x15]]
/// ```
public struct AdvertisedEntries<Key: Hashable & Sendable>: Hashable, Sendable {
    private var keys: [Key] = []
    private var values: [Key: [UInt8]] = [:]

    /// These entries. Of several with an equal key the last one is sent, at the place of the first.
    public init(_ entries: some Sequence<(key: Key, value: [UInt8])>) {
        for (key, value) in entries { self[key] = value }
    }

    /// Whether there is none.
    public var isEmpty: Bool { keys.isEmpty }

    /// The value of an entry. A new one comes last; nil removes it.
    public subscript(key: Key) -> [UInt8]? {
        get { values[key] }
        set {
            if values.updateValue(newValue ?? [], forKey: key) == nil { keys.append(key) }
            guard newValue == nil else { return }
            values[key] = nil
            keys.removeAll { $0 == key }
        }
    }
}

extension AdvertisedEntries: Sequence {
    /// Goes through the entries in the order in which they are sent.
    public func makeIterator() -> some IteratorProtocol<(key: Key, value: [UInt8])> {
        keys.lazy.map { (key: $0, value: values[$0] ?? []) }.makeIterator()
    }
}

extension AdvertisedEntries: ExpressibleByDictionaryLiteral {
    /// Entries in the order of the literal.
    public init(dictionaryLiteral elements: (Key, [UInt8])...) {
        self.init(elements.lazy.map { (key: $0.0, value: $0.1) })
    }
}
