import BluezDBus
import Foundation

/// What a manager advertises, in the form that BlueZ accepts, and its size. A value made from the app's dictionary.
/// - SeeAlso: BlueZ doc/org.bluez.LEAdvertisement.rst; Core Specification Supplement, Part A, 1.
struct Advertisement: Sendable, Equatable {
    struct ServiceData: Sendable, Equatable {
        let uuid: CBUUID
        let data: [UInt8]
    }

    private(set) var localName: String?
    private(set) var services: [CBUUID] = []
    /// The app's services that do not fit (AD-2).
    private(set) var omittedServices: [CBUUID] = []
    private(set) var company: UInt16 = 0
    private(set) var manufacturerData: [UInt8]?
    private(set) var serviceData: [ServiceData] = []
    private(set) var intervalMilliseconds: ClosedRange<UInt32>?
    private(set) var txPowerDBm: Int16?

    /// The size of a legacy advertisement; the name is in the scan response.
    static let room = 31
    /// What BlueZ adds: the flags.
    private static let flags = 3
    private static let longestName = room - 2

    /// - Throws: `CBError.invalidParameters`, with the fault, or the size of each field. Only values that Apple's API
    ///   does not have can be invalid: name and services are made to fit (AD-2), and other values of wrong types are
    ///   ignored.
    init(_ dictionary: [String: Any]?) throws(CBError) {
        let dictionary = dictionary ?? [:]
        localName = (dictionary[CBAdvertisementDataLocalNameKey] as? String).flatMap { $0.isEmpty ? nil : $0 }
        let wanted = dictionary[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID] ?? []
        try readManufacturerData(dictionary[BluezAdvertisementManufacturerDataKey])
        try readServiceData(dictionary[BluezAdvertisementServiceDataKey])
        try readIntervals(
            dictionary[BluezAdvertisementMinimumIntervalKey], dictionary[BluezAdvertisementMaximumIntervalKey])
        try readTxPower(dictionary[BluezAdvertisementTxPowerKey])
        if isPlain { fit(wanted) } else { try takeAll(wanted) }
    }

    /// Whether it uses only what Apple's API has.
    private var isPlain: Bool { manufacturerData == nil && serviceData.isEmpty && txPowerDBm == nil }

    // MARK: Reading the dictionary

    private mutating func readManufacturerData(_ value: Any?) throws(CBError) {
        guard let value else { return }
        guard let data = value as? Data, data.count >= 2 else {
            throw Self.invalid("manufacturer data must be Data that begins with two bytes of company identifier")
        }
        let bytes = [UInt8](data)
        company = UInt16(bytes[0]) | UInt16(bytes[1]) << 8
        manufacturerData = Array(bytes[2...])
    }

    private mutating func readServiceData(_ value: Any?) throws(CBError) {
        guard let value else { return }
        guard let entries = value as? [CBUUID: Data] else {
            throw Self.invalid("service data must be a [CBUUID: Data]")
        }
        serviceData = entries.map { ServiceData(uuid: $0.key, data: [UInt8]($0.value)) }
            .sorted { $0.uuid.bluezString < $1.uuid.bluezString }
    }

    private mutating func readIntervals(_ minimum: Any?, _ maximum: Any?) throws(CBError) {
        guard minimum != nil || maximum != nil else { return }
        // The specification allows 20 ms to 10.24 s.
        func milliseconds(_ value: Any?) -> Double? { (value as? NSNumber)?.doubleValue }
        guard let low = milliseconds(minimum ?? maximum), let high = milliseconds(maximum ?? minimum), low <= high,
            low >= 20, high <= 10_485
        else { throw Self.invalid("advertising intervals must be numbers from 20 to 10485 ms, the minimum first") }
        intervalMilliseconds = UInt32(low)...UInt32(high)
    }

    private mutating func readTxPower(_ value: Any?) throws(CBError) {
        guard let value else { return }
        guard let power = (value as? NSNumber)?.intValue, (-127...20).contains(power) else {
            throw Self.invalid("the transmission power must be a number from -127 to 20 dBm")
        }
        txPowerDBm = Int16(power)
    }

    private static func invalid(_ reason: String) -> CBError { CBError(.invalidParameters, reason: reason) }

    // MARK: Size

    /// The first services of `wanted` for which there is room.
    private mutating func fit(_ wanted: [CBUUID]) {
        for uuid in wanted {
            services.append(uuid)
            if size > Self.room { omittedServices.append(services.removeLast()) }
        }
    }

    private mutating func takeAll(_ wanted: [CBUUID]) throws(CBError) {
        services = wanted
        guard size <= Self.room else {
            let list = fields.map { "\($0.name) \($0.bytes)" }.joined(separator: ", ")
            throw Self.invalid(
                "the advertisement has \(size) bytes, but at most \(Self.room) are possible: \(list); the local name does not count"
            )
        }
    }

    /// The number of bytes it takes over the air, without the scan response.
    var size: Int { fields.reduce(0) { $0 + $1.bytes } }

    /// Each field with its length, its type and its content.
    private var fields: [(name: String, bytes: Int)] {
        var fields = [("flags", Self.flags)]
        for length in [2, 4, 16] {
            let count = services.count { Self.lengthOnAir($0) == length }
            if count > 0 { fields.append(("\(length * 8)-bit service UUIDs", 2 + count * length)) }
        }
        if let manufacturerData { fields.append(("manufacturer data", 4 + manufacturerData.count)) }
        for entry in serviceData {
            fields.append(
                ("service data of \(entry.uuid.uuidString)", 2 + Self.lengthOnAir(entry.uuid) + entry.data.count))
        }
        if txPowerDBm != nil { fields.append(("transmission power", 3)) }
        return fields
    }

    /// BlueZ writes a UUID in the shortest form possible, however the app created it.
    private static func lengthOnAir(_ uuid: CBUUID) -> Int {
        uuid.numberOnBase.map { $0 > 0xFFFF ? 4 : 2 } ?? 16
    }

    // MARK: For BlueZ

    /// The name as far as it fits, in whole characters.
    var nameOnAir: String? {
        // D-Bus does not allow a zero in a text.
        guard var name = localName?.replacingOccurrences(of: "\0", with: "") else { return nil }
        while name.utf8.count > Self.longestName { name.removeLast() }
        return name.isEmpty ? nil : name
    }

    /// In BlueZ's form: a dictionary of one entry.
    var manufacturerDataValue: Value? {
        manufacturerData.map {
            .dictionary(key: "q", value: "v", [.init(.uint16(company), .variant(.bytes($0)))])
        }
    }

    var serviceDataValue: Value? {
        serviceData.isEmpty ? nil : .properties(serviceData.map { ($0.uuid.bluezString, .bytes($0.data)) })
    }
}
