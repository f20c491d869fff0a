import BluezKitRestore
import BluezDBus
import Foundation

/// What BlueZ is given of what an app wants to advertise, and its size on air.
/// - SeeAlso: BlueZ doc/org.bluez.LEAdvertisement.rst; Core Specification Supplement, Part A, 1.
struct Advertisement: Sendable, Equatable {
    private let request: AdvertisementRequest
    private(set) var services: [CBUUID] = []
    /// The app's services that do not fit (AD-2).
    private(set) var omittedServices: [CBUUID] = []
    let solicitedServices: [CBUUID]
    let intervalMilliseconds: ClosedRange<UInt32>?
    let txPowerDBm: Int16?

    /// The size of a legacy advertisement; the name is in the scan response.
    static let room = 31
    /// What BlueZ adds: the flags.
    private static let flags = 3
    private static let longestName = room - 2

    /// - Throws: `CBError.invalidParameters`, with the fault, or the size of each field. Only values that Apple's API
    ///   does not have can be invalid: name and services are made to fit (AD-2).
    init(_ request: AdvertisementRequest) throws(CBError) {
        self.request = request
        guard request.manufacturerData.map({ $0.count >= 2 }) ?? true else { throw .invalidManufacturerData }
        intervalMilliseconds = try Self.interval(
            request.minimumIntervalMilliseconds, request.maximumIntervalMilliseconds)
        guard request.txPowerDBm.map((-127...20).contains) ?? true else { throw .invalidTxPower }
        txPowerDBm = request.txPowerDBm.map { Int16($0) }
        solicitedServices = request.solicitedServices?.map(\.cbUUID) ?? []
        let wanted = request.services?.map(\.cbUUID) ?? []
        if isPlain { fit(wanted) } else { try takeAll(wanted) }
    }

    /// Whether it uses only what Apple's API has.
    private var isPlain: Bool {
        request.manufacturerData == nil && serviceData.isEmpty && txPowerDBm == nil && solicitedServices.isEmpty
    }

    private static func interval(_ minimum: Double?, _ maximum: Double?) throws(CBError) -> ClosedRange<UInt32>? {
        guard let low = minimum ?? maximum, let high = maximum ?? minimum else { return nil }
        // The specification allows 20 ms to 10.24 s.
        guard low <= high, low >= 20, high <= 10_485 else { throw .invalidInterval }
        return UInt32(low)...UInt32(high)
    }

    /// Two bytes, before the manufacturer's own.
    var company: UInt16 {
        guard let data = request.manufacturerData else { return 0 }
        return data.prefix(2).reversed().reduce(0) { $0 << 8 | UInt16($1) }
    }

    /// In BlueZ's order, each service once: a file may contain anything.
    private var serviceData: [(uuid: CBUUID, data: [UInt8])] {
        Dictionary((request.serviceData ?? []).map { ($0.uuid.cbUUID, [UInt8]($0.data)) }) { $1 }
            .sorted { $0.key.bluezString < $1.key.bluezString }.map { ($0.key, $0.value) }
    }

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
            throw CBError(
                .invalidParameters,
                reason:
                    "the advertisement has \(size) bytes, but at most \(Self.room) are possible: \(list); the local name does not count"
            )
        }
    }

    /// The number of bytes it takes over the air, without the scan response.
    var size: Int { fields.reduce(0) { $0 + $1.bytes } }

    /// Each field with its length, its type and its content.
    private var fields: [(name: String, bytes: Int)] {
        var fields = [("flags", Self.flags)]
        for (kind, uuids) in [("service", services), ("solicited service", solicitedServices)] {
            for length in [2, 4, 16] {
                let count = uuids.count { Self.lengthOnAir($0) == length }
                if count > 0 { fields.append(("\(length * 8)-bit \(kind) UUIDs", 2 + count * length)) }
            }
        }
        if let data = request.manufacturerData { fields.append(("manufacturer data", 2 + data.count)) }
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
        guard var name = request.localName?.replacingOccurrences(of: "\0", with: "") else { return nil }
        while name.utf8.count > Self.longestName { name.removeLast() }
        return name.isEmpty ? nil : name
    }

    /// In BlueZ's form: a dictionary of one entry.
    var manufacturerDataValue: Value? {
        request.manufacturerData.map {
            .dictionary(key: "q", value: "v", [.init(.uint16(company), .variant(.bytes([UInt8]($0.dropFirst(2)))))])
        }
    }

    var serviceDataValue: Value? {
        serviceData.isEmpty ? nil : .properties(serviceData.map { ($0.uuid.bluezString, .bytes($0.data)) })
    }
}

/// What is wrong with an app's advertisement.
extension CBError {
    static let invalidManufacturerData = CBError(
        .invalidParameters, reason: "manufacturer data must be Data that begins with two bytes of company identifier")
    static let invalidSolicitedServices = CBError(
        .invalidParameters, reason: "solicited services must be a [CBUUID]")
    static let invalidServiceData = CBError(
        .invalidParameters, reason: "service data must be a [CBUUID: Data]")
    static let invalidInterval = CBError(
        .invalidParameters,
        reason: "advertising intervals must be numbers from 20 to 10485 ms, the minimum first")
    static let invalidTxPower = CBError(
        .invalidParameters, reason: "the transmission power must be a number from -127 to 20 dBm")
}
