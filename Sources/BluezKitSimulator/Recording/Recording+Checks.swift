/// Why a recording, or what one is to be made of, cannot be used.
public struct RecordingError: Error, Hashable, Sendable, CustomStringConvertible {
    /// One sentence, without a full stop.
    public let description: String

    init(_ description: String) { self.description = description }
}

extension Recording {
    /// Files are at most this large, in bytes.
    public static let sizeLimit = 64 << 20

    static let mostAdvertisements = 100_000
    /// Of notifications, and of writes.
    static let mostEvents = 1_000_000
    /// BluezKit accepts no larger table; see Docs/LIMITS.md.
    static let mostAttributes = 20_000
    static let mostValueBytes = 512
    private static let mostNameBytes = 248
    private static let times = 0.0...1e9

    /// Checks what other code relies on: that a table can be made of it, and an advertisement.
    func check() throws(RecordingError) {
        if let address, !Self.isAddress(address) {
            throw RecordingError("address: '\(address)' is not like F0:00:00:00:00:01")
        }
        guard ["random", "public"].contains(addressType) else {
            throw RecordingError("addressType: '\(addressType)' is neither random nor public")
        }
        try Self.checkName(name, "name")
        if let mtu, !(23...517).contains(mtu) { throw RecordingError("mtu: \(mtu) is not between 23 and 517") }
        try checkAdvertisements()
        try checkTable()
        let names = Set(characteristicNames.joined())
        try check(notifications, "notifications", names)
        try check(writes, "writes", names)
    }

    private static func checkName(_ name: String?, _ place: String) throws(RecordingError) {
        // D-Bus has no zero in a text.
        guard let bytes = name?.utf8, bytes.count > mostNameBytes || bytes.contains(0) else { return }
        throw RecordingError("\(place): a name has at most \(mostNameBytes) bytes, none of which is zero")
    }

    /// Six bytes in upper case, with colons.
    static func isAddress(_ text: String) -> Bool {
        let bytes = text.utf8.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false)
        let digits = Array("0123456789ABCDEF".utf8)
        return bytes.count == 6 && bytes.allSatisfy { $0.count == 2 && $0.allSatisfy(digits.contains) }
    }

    private func checkAdvertisements() throws(RecordingError) {
        guard advertisements.count <= Self.mostAdvertisements else {
            throw RecordingError("advertisements: there are more than \(Self.mostAdvertisements)")
        }
        var last = 0.0
        for (index, advertisement) in advertisements.enumerated() {
            let place = "advertisements[\(index)]"
            try Self.check(advertisement.time, after: &last, place)
            try Self.checkName(advertisement.content.localName, place)
            guard advertisement.content.hasRoom else {
                throw RecordingError("\(place): a field of an advertisement has at most 254 bytes")
            }
        }
    }

    private func checkTable() throws(RecordingError) {
        var count = 0
        for (index, service) in services.enumerated() {
            count += 1 + service.includes.count
            for (number, characteristic) in service.characteristics.enumerated() {
                let place = "services[\(index)].characteristics[\(number)]"
                count += 3 + characteristic.descriptors.count
                for value in [characteristic.value] + characteristic.descriptors.map(\.value) {
                    try Self.check(value ?? [], place)
                }
                guard characteristic.flags.rawValue <= 0xFF else {
                    throw RecordingError("\(place): there is no such property")
                }
            }
            guard count <= Self.mostAttributes else {
                throw RecordingError("services: there are more than \(Self.mostAttributes) attributes")
            }
        }
    }

    private func check(_ events: [Event], _ key: String, _ names: Set<String>) throws(RecordingError) {
        guard events.count <= Self.mostEvents else {
            throw RecordingError("\(key): there are more than \(Self.mostEvents)")
        }
        var last = 0.0
        for (index, event) in events.enumerated() {
            let place = "\(key)[\(index)]"
            try Self.check(event.time, after: &last, place)
            try Self.check(event.value, place)
            guard names.contains(event.characteristic) else {
                throw RecordingError("\(place): there is no characteristic '\(event.characteristic)'")
            }
        }
    }

    private static func check(_ value: [UInt8], _ place: String) throws(RecordingError) {
        guard value.count <= mostValueBytes else {
            throw RecordingError("\(place): a value has at most \(mostValueBytes) bytes")
        }
    }

    private static func check(_ time: Double, after last: inout Double, _ place: String) throws(RecordingError) {
        // Not so for what is not a number.
        guard times.contains(time), time >= last else {
            throw RecordingError("\(place): a time is neither negative, nor less than the one before, nor above 1e9 s")
        }
        last = time
    }
}

extension VirtualAdvertisement {
    /// Whether each of its fields has at most 254 bytes, so that it can be sent.
    var hasRoom: Bool {
        let most = 254
        let lists = [serviceUUIDs, solicitedServiceUUIDs].map { $0.map { UUIDText.bytes($0).count } }
        return lists.allSatisfy { sizes in
            [2, 16].allSatisfy { size in sizes.count { $0 == size } * size <= most }
        } && manufacturerData.allSatisfy { $0.value.count + 2 <= most }
            && serviceData.allSatisfy { UUIDText.bytes($0.key).count + $0.value.count <= most }
    }
}
