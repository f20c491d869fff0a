import CoreBluetooth

/// The channels that an earlier process had published. The system publishes them again one after the other, in this
/// order.
struct RestoredChannels {
    private var channels: [(channel: RestoredL2CAPChannel, result: Result<CBL2CAPPSM, any Error>?)]
    /// The tasks that wait for a channel to be published again, by its number.
    private var waiting: [UInt64: [UInt64]] = [:]

    init(_ channels: [RestoredL2CAPChannel] = []) { self.channels = channels.map { ($0, nil) } }

    /// - Returns: The answer; nil if it comes later.
    mutating func psm(of channel: RestoredL2CAPChannel, for task: UInt64) -> Result<CBL2CAPPSM, any Error>? {
        guard let known = channels.first(where: { $0.channel.number == channel.number }) else {
            return .failure(CBError(.invalidHandle))
        }
        if known.result == nil { waiting[channel.number, default: []].append(task) }
        return known.result
    }

    /// - Returns: The tasks that have waited for it.
    mutating func didPublish(_ result: Result<CBL2CAPPSM, any Error>) -> [UInt64] {
        guard let index = channels.firstIndex(where: { $0.result == nil }) else { return [] }
        channels[index].result = result
        return waiting.removeValue(forKey: channels[index].channel.number) ?? []
    }

    /// Whether there is a channel that had this PSM, and is not published yet.
    func isDue(_ psm: CBL2CAPPSM) -> Bool { channels.contains { $0.result == nil && $0.channel.psm == psm } }

    /// A channel was withdrawn, perhaps before it was published again.
    /// - Returns: The tasks that have waited for it.
    mutating func didUnpublish(_ psm: CBL2CAPPSM) -> [UInt64] {
        let index =
            channels.firstIndex { if case .success(psm) = $0.result { true } else { false } }
            ?? channels.firstIndex { $0.result == nil && $0.channel.psm == psm }
        guard let index else { return [] }
        return waiting.removeValue(forKey: channels.remove(at: index).channel.number) ?? []
    }

    /// No task waits any more.
    mutating func end() { waiting = [:] }
}
