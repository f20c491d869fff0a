extension VirtualAdvertisement {
    /// What is in the bytes of an advertisement and its scan response: Core Specification Supplement, Part A, 1. What
    /// is cut off, or has a length that its type cannot have, is left out.
    init(data: [[UInt8]], isConnectable: Bool) {
        self.init(flags: nil, isConnectable: isConnectable)
        for part in data {
            var bytes = CapturedBytes(part[...])
            while let length = bytes.byte(), length > 0, let type = bytes.byte(),
                let value = bytes.take(Int(length) - 1)
            {
                take(type, value)
            }
        }
        // A sender may split a list.
        if !hasRoom { (serviceUUIDs, solicitedServiceUUIDs) = (Array(serviceUUIDs.prefix(15)), []) }
    }

    private mutating func take(_ type: UInt8, _ value: ArraySlice<UInt8>) {
        var bytes = CapturedBytes(value)
        switch type {
        case 0x01: flags = bytes.byte() ?? flags
        case 0x02, 0x03: add(value, 2, to: \.serviceUUIDs)
        case 0x04, 0x05: add(value, 4, to: \.serviceUUIDs)
        case 0x06, 0x07: add(value, 16, to: \.serviceUUIDs)
        // The complete name is better than a part of it.
        case 0x08: if localName == nil { localName = name(value) }
        case 0x09: localName = name(value) ?? localName
        case 0x0A: txPower = bytes.byte().map { Int16(Int8(bitPattern: $0)) } ?? txPower
        case 0x14: add(value, 2, to: \.solicitedServiceUUIDs)
        case 0x1F: add(value, 4, to: \.solicitedServiceUUIDs)
        case 0x15: add(value, 16, to: \.solicitedServiceUUIDs)
        case 0x16: addServiceData(&bytes, 2)
        case 0x20: addServiceData(&bytes, 4)
        case 0x21: addServiceData(&bytes, 16)
        case 0x19: appearance = bytes.word() ?? appearance
        case 0xFF: if let company = bytes.word() { manufacturerData[company] = Array(bytes.rest) }
        default: break
        }
    }

    private func name(_ value: ArraySlice<UInt8>) -> String? {
        let text = value.prefix { $0 != 0 }
        return text.isEmpty ? nil : String(decoding: text, as: UTF8.self).cut(to: 248)
    }

    private mutating func add(
        _ value: ArraySlice<UInt8>, _ size: Int, to list: WritableKeyPath<VirtualAdvertisement, [String]>
    ) {
        var bytes = CapturedBytes(value)
        while let next = bytes.take(size) {
            if let uuid = UUIDText.read(next), !self[keyPath: list].contains(uuid) { self[keyPath: list].append(uuid) }
        }
    }

    private mutating func addServiceData(_ bytes: inout CapturedBytes, _ size: Int) {
        // A UUID of four bytes takes sixteen when it is sent again.
        guard let uuid = bytes.take(size).flatMap({ UUIDText.read($0) }), bytes.rest.count <= 238 else { return }
        serviceData[uuid] = Array(bytes.rest)
    }
}

extension String {
    /// As many whole characters as fit into so many bytes.
    func cut(to count: Int) -> String {
        var text = self
        while text.utf8.count > count { text.removeLast() }
        return text
    }
}
