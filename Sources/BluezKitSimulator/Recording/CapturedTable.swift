/// What is known of a device's attributes, by their handles: from the discovery in a capture, or from BlueZ's cache.
struct CapturedTable {
    struct Service {
        var end: UInt16
        var uuid: String
        var isPrimary: Bool
    }

    struct Characteristic {
        var flags: UInt8
        var valueHandle: UInt16
        var uuid: String
    }

    /// By the handles of their declarations.
    var services: [UInt16: Service] = [:]
    var characteristics: [UInt16: Characteristic] = [:]
    /// The handles of included services, by those of the declarations.
    var includes: [UInt16: UInt16] = [:]
    /// The types of all attributes.
    var types: [UInt16: String] = [:]
    var values: [UInt16: [UInt8]] = [:]
    /// With which reads were refused.
    var errors: [UInt16: UInt8] = [:]

    /// Adds what only the other one has.
    mutating func merge(_ other: CapturedTable) {
        services.merge(other.services) { mine, _ in mine }
        characteristics.merge(other.characteristics) { mine, _ in mine }
        includes.merge(other.includes) { mine, _ in mine }
        types.merge(other.types) { mine, _ in mine }
        values.merge(other.values) { mine, _ in mine }
        errors.merge(other.errors) { mine, _ in mine }
    }

    /// The value of Device Name.
    var deviceName: String? {
        let name = UUIDText.full("2A00")
        let declared = characteristics.values.first { $0.uuid == name }?.valueHandle
        guard let handle = declared ?? types.first(where: { $0.value == name })?.key else { return nil }
        let text = (values[handle] ?? []).prefix { $0 != 0 }
        return text.isEmpty ? nil : String(decoding: text, as: UTF8.self).cut(to: 248)
    }

    /// The services of a recording, and the place of each characteristic in them, by the handle of its value.
    func layout() -> (services: [Recording.Service], places: [UInt16: (service: Int, characteristic: Int)]) {
        let starts = services.keys.sorted()
        let declared = characteristics.keys.sorted()
        let described = types.keys.sorted()
        let including = includes.keys.sorted()
        let valueHandles = Set(characteristics.values.map(\.valueHandle))
        var result: [Recording.Service] = []
        var places: [UInt16: (service: Int, characteristic: Int)] = [:]
        for (index, start) in starts.enumerated() {
            guard let source = services[start] else { continue }
            // Where services overlap, which they must not, the later one has the handles.
            let next = index + 1 < starts.count ? starts[index + 1] - 1 : .max
            let end = min(source.end, next)
            var service = Recording.Service(source.uuid, isPrimary: source.isPrimary)
            guard start <= end else {
                result.append(service)
                continue
            }
            for handle in Self.part(including, start...end) {
                if let uuid = includes[handle].flatMap({ services[$0]?.uuid }) { service.includes.append(uuid) }
            }
            let own = Self.part(declared, start...end)
            for (number, handle) in own.enumerated() {
                guard let characteristic = characteristics[handle] else { continue }
                let last = number + 1 < own.count ? own[own.startIndex + number + 1] - 1 : end
                let value = characteristic.valueHandle
                var recorded = Recording.Characteristic(
                    characteristic.uuid, VirtualCharacteristic.Flags(rawValue: UInt16(characteristic.flags)),
                    value: values[value], error: values[value] == nil ? errors[value] : nil)
                let before = max(value, handle)
                if before < last {
                    recorded.descriptors = Self.part(described, before + 1...last).compactMap {
                        descriptor($0, besides: valueHandles)
                    }
                }
                if places[value] == nil { places[value] = (result.count, service.characteristics.count) }
                service.characteristics.append(recorded)
            }
            result.append(service)
        }
        return (result, places)
    }

    /// The handles within a range, of those in order.
    private static func part(_ handles: [UInt16], _ range: ClosedRange<UInt16>) -> ArraySlice<UInt16> {
        func place(_ isBefore: (UInt16) -> Bool) -> Int {
            var (low, high) = (0, handles.count)
            while low < high {
                let middle = (low + high) / 2
                if isBefore(handles[middle]) { low = middle + 1 } else { high = middle }
            }
            return low
        }
        return handles[place { $0 < range.lowerBound }..<place { $0 <= range.upperBound }]
    }

    private func descriptor(_ handle: UInt16, besides valueHandles: Set<UInt16>) -> Recording.Descriptor? {
        // Declarations, 2800 to 2803, are no descriptors.
        guard let uuid = types[handle], !valueHandles.contains(handle), !uuid.hasPrefix("0000280") else { return nil }
        return .init(uuid, value: values[handle], error: values[handle] == nil ? errors[handle] : nil)
    }
}
