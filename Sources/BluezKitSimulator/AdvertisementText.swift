/// An advertisement as sent over the air, and as the control line `advertisement` shows it.
extension VirtualAdvertisement {
    private static func field(_ type: UInt8, _ bytes: [UInt8]) -> [UInt8] { [UInt8(bytes.count + 1), type] + bytes }

    private static func fields(_ uuids: [String], short: UInt8, long: UInt8) -> [[UInt8]] {
        let bytes = uuids.map(UUIDText.bytes)
        return [(short, bytes.filter { $0.count == 2 }), (long, bytes.filter { $0.count == 16 })]
            .filter { !$0.1.isEmpty }.map { field($0.0, $0.1.flatMap { $0 }) }
    }

    /// All fields except the name, which is in the scan response.
    var dataFields: [[UInt8]] {
        var result: [[UInt8]] = []
        if let flags { result.append(Self.field(0x01, [flags])) }
        result += Self.fields(serviceUUIDs, short: 0x03, long: 0x07)
        result += Self.fields(solicitedServiceUUIDs, short: 0x14, long: 0x15)
        for (company, bytes) in manufacturerData {
            result.append(Self.field(0xFF, [UInt8(company & 0xFF), UInt8(company >> 8)] + bytes))
        }
        for (uuid, bytes) in serviceData {
            let short = UUIDText.bytes(uuid)
            result.append(Self.field(short.count == 2 ? 0x16 : 0x21, short + bytes))
        }
        for (type, bytes) in other.sorted(by: { $0.key < $1.key }) { result.append(Self.field(type, bytes)) }
        if let appearance { result.append(Self.field(0x19, [UInt8(appearance & 0xFF), UInt8(appearance >> 8)])) }
        if let txPower { result.append(Self.field(0x0A, [UInt8(truncatingIfNeeded: txPower)])) }
        return result
    }

    /// The name as far as it fits, and whether it is complete.
    private var shownName: (text: String, isWhole: Bool)? {
        guard let localName else { return nil }
        let bytes = Array(localName.utf8)
        return (String(decoding: bytes.prefix(29), as: UTF8.self), bytes.count <= 29)
    }

    /// All fields on one line.
    var line: String {
        let size = dataFields.reduce(0) { $0 + $1.count }
        let response = shownName.map { $0.text.utf8.count + 2 } ?? 0
        var words = ["connectable=\(isConnectable ? 1 : 0)", "size=\(size)+\(response)"]
        func add(_ key: String, _ parts: [String]) {
            if !parts.isEmpty { words.append("\(key)=\(parts.joined(separator: ","))") }
        }
        if let flags { words.append("flags=\(Hex.byte(flags))") }
        if let appearance { words.append("appearance=\(Hex.handle(appearance))") }
        if let txPower { words.append("txpower=\(txPower)") }
        add("uuids", serviceUUIDs.map(UUIDText.short))
        add("solicited", solicitedServiceUUIDs.map(UUIDText.short))
        add(
            "manufacturer",
            manufacturerData.map { "\(Hex.handle($0.key)):\(Hex.text($0.value))" })
        add(
            "service",
            serviceData.map { "\(UUIDText.short($0.key)):\(Hex.text($0.value))" })
        add("other", other.sorted { $0.key < $1.key }.map { "\(Hex.byte($0.key)):\(Hex.text($0.value))" })
        if let name = shownName { words.append("\(name.isWhole ? "name" : "shortname")=\(name.text)") }
        return words.joined(separator: " ")
    }
}

extension UUIDText {
    /// Four digits where possible.
    static func short(_ full: String) -> String {
        let base = "-0000-1000-8000-00805f9b34fb"
        return full.hasPrefix("0000") && full.hasSuffix(base) ? full.shortNumber : full
    }
}
