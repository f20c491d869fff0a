import Foundation

/// What bluetoothd stores about a device, in the format of GLib's key files: `info`, or a file of its cache.
///
/// BlueZ src/device.c, `store_gatt_db`, writes the cache: each attribute by its handle.
struct BlueZStorage {
    private(set) var name: String?
    /// `random` or `public`.
    private(set) var addressType: String?
    private(set) var table = CapturedTable()

    /// - Throws: ``RecordingError``, with the number of the line.
    init(_ content: String) throws(RecordingError) {
        var section = ""
        var isKnown = false
        for (index, line) in content.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            let line = line.trimmingCharacters(in: .whitespaces)
            if line.isEmpty || line.hasPrefix("#") { continue }
            if line.hasPrefix("["), line.hasSuffix("]") {
                section = String(line.dropFirst().dropLast())
                isKnown = isKnown || ["General", "Attributes"].contains(section)
                continue
            }
            let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            guard parts.count == 2, !section.isEmpty else {
                throw RecordingError("line \(index + 1) is neither a section nor a key with a value")
            }
            switch (section, parts[0]) {
            case ("General", "Name"): name = parts[1].replacing("\0", with: "").cut(to: 248)
            case ("General", "AddressType"): addressType = parts[1] == "public" ? "public" : "random"
            case ("Attributes", let handle):
                guard let number = Self.number(handle[...]), add(parts[1], at: number) else {
                    throw RecordingError("line \(index + 1) is not an attribute as BlueZ stores it")
                }
            default: break
            }
        }
        guard isKnown else { throw RecordingError("it is neither a capture nor a file of BlueZ") }
    }

    /// - Returns: Whether it is one.
    private mutating func add(_ text: String, at handle: UInt16) -> Bool {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        guard let uuid = parts.last.flatMap({ UUIDText.read(String($0)) }) else { return false }
        switch (parts[0], parts.count) {
        case ("2800", 3), ("2801", 3):
            guard let end = Self.number(parts[1]) else { return false }
            table.services[handle] = .init(end: end, uuid: uuid, isPrimary: parts[0] == "2800")
        case ("2802", 4):
            guard let start = Self.number(parts[1]) else { return false }
            table.includes[handle] = start
        case ("2803", 4), ("2803", 5):
            guard let value = Self.number(parts[1]), let flags = Self.number(parts[2]), flags <= 0xFF else {
                return false
            }
            table.characteristics[handle] = .init(flags: UInt8(flags), valueHandle: value, uuid: uuid)
            guard parts.count == 5 else { return true }
            // Of the Database Hash also the value.
            guard let bytes = Hex.bytes(String(parts[3])), bytes.count == 16 else { return false }
            table.values[value] = bytes
        case (_, 1): table.types[handle] = uuid
        // The extended properties with their value.
        case (_, 2):
            guard let value = Self.number(parts[0]) else { return false }
            table.types[handle] = uuid
            table.values[handle] = [UInt8(value & 0xFF), UInt8(value >> 8)]
        default: return false
        }
        return true
    }

    /// One to four hexadecimal digits.
    private static func number(_ text: Substring) -> UInt16? {
        text.first == "+" ? nil : UInt16(text, radix: 16)
    }
}
