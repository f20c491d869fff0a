/// What a scan has reported of which device, so that each is reported once (SC-6).
///
/// Addresses rotate and a scan may last for days, so this forgets: what is certain to be remembered are the last
/// ``generation`` devices that were asked about. One that comes back after so many others is new again.
struct ScanMemory {
    static let generation = 16_384

    private var recent: [DeviceIdentity: DeviceProperties.Kinds] = [:]
    private var older: [DeviceIdentity: DeviceProperties.Kinds] = [:]

    var count: Int { recent.count + older.count }

    /// Nil: it was not reported, or is forgotten.
    mutating func kinds(of device: DeviceIdentity) -> DeviceProperties.Kinds? {
        if let kinds = recent[device] { return kinds }
        guard let kinds = older.removeValue(forKey: device) else { return nil }
        record(kinds, of: device)
        return kinds
    }

    mutating func record(_ kinds: DeviceProperties.Kinds, of device: DeviceIdentity) {
        recent[device] = kinds
        if recent.count >= Self.generation { (older, recent) = (recent, [:]) }
    }
}
