import Foundation

extension Recording {
    /// A device of no one: BluezKit's, with a random static address.
    static let anonymousAddress = "F0:5E:00:00:00:01"

    /// The same without what identifies the device.
    ///
    /// The address becomes `F0:5E:00:00:00:01`, also where its bytes, or its text, are part of a value or an
    /// advertisement. The values of Serial Number String, System ID and Unique Device Identifier become zeros, and the
    /// serial number also where it is part of another value. In names, groups of four or more hexadecimal digits, of
    /// which one is a decimal digit, become zeros. What else identifies a device or its owner stays, such as a name
    /// given to it.
    public func anonymized() -> Recording {
        let hidden = Disguise(self)
        var recording = self
        recording.name = name.map(hidden.name)
        recording.address = address == nil ? nil : Self.anonymousAddress
        for index in recording.advertisements.indices { hidden.apply(to: &recording.advertisements[index].content) }
        for service in recording.services.indices {
            for index in recording.services[service].characteristics.indices {
                hidden.apply(to: &recording.services[service].characteristics[index])
            }
        }
        for index in recording.notifications.indices { hidden.apply(to: &recording.notifications[index]) }
        for index in recording.writes.indices { hidden.apply(to: &recording.writes[index]) }
        return recording
    }
}

/// What is replaced, and by what.
private struct Disguise {
    /// Bytes that identify the device, and others of the same number.
    private var pairs: [(secret: [UInt8], other: [UInt8])] = []
    /// Those that may be part of a text.
    private var texts: [(secret: [UInt8], other: [UInt8])] = []
    private let identifying = Set(["2A25", "2A23", "2BFF"].map(UUIDText.full))

    init(_ recording: Recording) {
        let new = Hex.bytes(Recording.anonymousAddress.filter { $0 != ":" }) ?? []
        if let old = recording.address.flatMap({ Hex.bytes($0.filter { $0 != ":" }) }), old.count == new.count {
            pairs = [(old, new), (old.reversed(), new.reversed())]
            // As text, as some devices advertise it.
            for separator in ["", ":", "-"] {
                func text(_ bytes: [UInt8]) -> [UInt8] {
                    Array(bytes.map { Hex.byte($0).uppercased() }.joined(separator: separator).utf8)
                }
                texts.append((text(old), text(new)))
            }
        }
        for characteristic in recording.services.flatMap(\.characteristics)
        where characteristic.uuid == UUIDText.full("2A25") {
            // Shorter ones are found everywhere.
            guard let serial = characteristic.value?.prefix(while: { $0 != 0 }), serial.count >= 4 else { continue }
            texts.append((Array(serial), Self.zeros(serial.count)))
        }
    }

    private static func zeros(_ count: Int) -> [UInt8] { Array(repeating: UInt8(ascii: "0"), count: count) }

    func apply(to bytes: inout [UInt8]) {
        Self.replace(pairs, in: &bytes) { $0 == $1 }
        replaceTexts(in: &bytes)
    }

    private func replaceTexts(in bytes: inout [UInt8]) {
        func lowercase(_ byte: UInt8) -> UInt8 { (0x41...0x5A).contains(byte) ? byte | 0x20 : byte }
        Self.replace(texts, in: &bytes) { lowercase($0) == lowercase($1) }
    }

    private static func replace(
        _ pairs: [(secret: [UInt8], other: [UInt8])], in bytes: inout [UInt8], _ isSame: (UInt8, UInt8) -> Bool
    ) {
        for (secret, other) in pairs where !secret.isEmpty && bytes.count >= secret.count {
            var place = 0
            while place + secret.count <= bytes.count {
                let range = place..<place + secret.count
                if bytes[range].elementsEqual(secret, by: isSame) {
                    bytes.replaceSubrange(range, with: other)
                    place += secret.count
                } else {
                    place += 1
                }
            }
        }
    }

    /// A value that was notified or written.
    func apply(to event: inout Recording.Event) {
        // `180A/2A23`, or `…#2` for the second one.
        let name = event.characteristic.split(separator: "/").last?.split(separator: "#").first ?? ""
        event.value = replaced(event.value, of: UUIDText.full(String(name)))
    }

    private func replaced(_ value: [UInt8], of uuid: String) -> [UInt8] {
        if uuid == UUIDText.full("2A23") { return Array(repeating: 0, count: value.count) }
        if identifying.contains(uuid) { return Self.zeros(value.count) }
        if uuid == UUIDText.full("2A00"), let text = String(validating: value, as: UTF8.self) {
            return Array(name(text).utf8)
        }
        return replaced(value)
    }

    func apply(to characteristic: inout Recording.Characteristic) {
        characteristic.value = characteristic.value.map { replaced($0, of: characteristic.uuid) }
        for index in characteristic.descriptors.indices {
            characteristic.descriptors[index].value = characteristic.descriptors[index].value.map(replaced)
        }
    }

    private func replaced(_ value: [UInt8]) -> [UInt8] {
        var value = value
        apply(to: &value)
        return value
    }

    func apply(to content: inout VirtualAdvertisement) {
        content.localName = content.localName.map(name)
        content.manufacturerData = AdvertisedEntries(content.manufacturerData.map { ($0.key, replaced($0.value)) })
        content.serviceData = AdvertisedEntries(content.serviceData.map { ($0.key, replaced($0.value)) })
    }

    /// `Polar H10 00000000`: what looks like a number of the device is replaced.
    func name(_ name: String) -> String {
        var result = "", group = "", bytes = Array(name.utf8)
        replaceTexts(in: &bytes)
        func end() {
            let isNumber = group.count >= 4 && group.contains(where: \.isNumber)
            result += isNumber ? String(repeating: "0", count: group.count) : group
            group = ""
        }
        for character in String(decoding: bytes, as: UTF8.self) {
            if character.isASCII, character.isHexDigit {
                group.append(character)
            } else {
                end()
                result.append(character)
            }
        }
        end()
        // A serial number that ends within a character has left a part of it, which is repaired.
        return result.cut(to: name.utf8.count)
    }
}
