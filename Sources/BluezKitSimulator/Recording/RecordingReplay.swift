/// How fast a ``VirtualPeripheral`` that was made of a ``Recording`` advertises and notifies.
public enum ReplayPace: Hashable, Sendable {
    /// As recorded.
    case recorded
    /// This many times as fast, such as 10. A number that is not above zero counts as 1.
    case faster(Double)
    /// Each call of ``VirtualPeripheral/replayNext()`` sends one notification. It advertises as other peripherals do.
    case stepwise

    /// The time to wait for what came so many seconds later in the recording.
    func delay(_ seconds: Double) -> Duration {
        guard case .faster(let factor) = self, factor > 0, factor.isFinite else { return .seconds(seconds) }
        // The quotient of a small number may be infinite.
        return .seconds(min(seconds / factor, 1e9))
    }
}

/// What an app has asked of a ``VirtualPeripheral`` that its ``Recording`` does not have.
public enum ReplayDeviation: Hashable, Sendable, CustomStringConvertible {
    /// The value was never written to this characteristic. It was accepted, as if it had been.
    case write(characteristic: String, value: [UInt8])
    /// The value of this characteristic, or of this descriptor of one, `180D/2A37/2901`, was never read. The answer
    /// was the error 0x0E.
    case read(String)

    /// As in events: `write 180D/2A39 01`, `read 180F/2A19`.
    public var description: String {
        switch self {
        case .write(let characteristic, let value): "write \(characteristic) \(Hex.text(value))"
        case .read(let attribute): "read \(attribute)"
        }
    }
}

/// The rest of a recording while it is replayed: what is advertised and notified next, and which writes are awaited.
final class RecordingReplay: @unchecked Sendable {  // holds: used on the simulator's queue, as peripherals are
    /// A notification, or a write of the recording, in the order of their times.
    private struct Entry {
        let event: Recording.Event
        let isWrite: Bool
        /// The last write before it.
        let gate: Int?
    }

    /// The notifications of one characteristic.
    private final class Chain {
        let characteristic: GATTTable.Characteristic
        var entries: [Int] = []
        /// The number of those that were sent.
        var position = 0
        var alarm: Alarm?

        init(_ characteristic: GATTTable.Characteristic) { self.characteristic = characteristic }
    }

    /// Deviations that are kept; further ones are counted.
    private static let mostDeviations = 1_000
    /// The longest interval between two advertisements: Core Specification, Vol 6, Part B, 4.4.2.2.
    private static let longestInterval = 10.24

    let pace: ReplayPace
    private weak var peripheral: VirtualPeripheral?
    private let advertisements: [Recording.Advertisement]
    private var turn = 0
    private let entries: [Entry]
    private var chains: [String: Chain] = [:]
    private var characteristics: [String: GATTTable.Characteristic] = [:]
    /// Writes that were not made yet.
    private var openWrites: [String: [Int]] = [:]
    private var recordedWrites: [String: Set<[UInt8]>] = [:]
    private var made: Set<Int> = []
    /// Characteristics of which no value is recorded, and to which the app has written one.
    private var written: Set<String> = []
    private var nextStep = 0
    /// While bluetoothd reads what no app has asked for.
    var isReadByDaemon = false
    private(set) var deviations: [ReplayDeviation] = []
    private(set) var deviationCount = 0

    init(_ recording: Recording, _ pace: ReplayPace) {
        self.pace = pace
        advertisements = recording.advertisements
        // To the Generic Attribute service a computer or phone writes on its own, when it is connected: no app does.
        let writes = recording.writes.filter { !$0.characteristic.hasPrefix("1801/") }
        let events = writes.map { ($0, true) } + recording.notifications.map { ($0, false) }
        let order = events.indices.sorted { (events[$0].0.time, $0) < (events[$1].0.time, $1) }
        var entries: [Entry] = []
        var gate: Int?
        for (event, isWrite) in order.map({ events[$0] }) {
            if isWrite {
                openWrites[event.characteristic, default: []].append(entries.count)
                recordedWrites[event.characteristic, default: []].insert(event.value)
            }
            entries.append(Entry(event: event, isWrite: isWrite, gate: gate))
            if isWrite { gate = entries.count - 1 }
        }
        self.entries = entries
    }

    /// The peripheral that acts, and its characteristics by their names in the recording.
    func start(_ peripheral: VirtualPeripheral, _ characteristics: [String: GATTTable.Characteristic]) {
        (self.peripheral, self.characteristics) = (peripheral, characteristics)
        for (index, entry) in entries.enumerated() where !entry.isWrite {
            guard let characteristic = characteristics[entry.event.characteristic] else { continue }
            let chain = chains[entry.event.characteristic] ?? Chain(characteristic)
            chain.entries.append(index)
            chains[entry.event.characteristic] = chain
        }
    }

    // MARK: Advertisements

    /// The next one; after the last one the first. Nil: none was recorded.
    func nextAdvertisement() -> Recording.Advertisement? {
        guard !advertisements.isEmpty else { return nil }
        defer { turn = (turn + 1) % advertisements.count }
        return advertisements[turn]
    }

    /// The time until the next one; nil: as long as for other peripherals.
    var advertisingInterval: Duration? {
        guard turn > 0, pace != .stepwise else { return nil }
        let gap = advertisements[turn].time - advertisements[turn - 1].time
        return max(pace.delay(min(gap, Self.longestInterval)), .milliseconds(1))
    }

    // MARK: Notifications

    /// A central has subscribed: its notifications continue, or begin again if all were sent.
    func subscribed(_ characteristic: GATTTable.Characteristic) {
        guard pace != .stepwise, let chain = chains.values.first(where: { $0.characteristic === characteristic }) else {
            return
        }
        if chain.position == chain.entries.count { chain.position = 0 }
        proceed(chain)
    }

    /// Sends the next notification when its time has come, unless it waits for a write.
    private func proceed(_ chain: Chain) {
        guard chain.alarm == nil, chain.position < chain.entries.count, let simulator = peripheral?.simulator else {
            return
        }
        let entry = entries[chain.entries[chain.position]]
        let previous = chain.position > 0 ? chain.entries[chain.position - 1] : nil
        var start = previous.map { entries[$0].event.time }
        if let gate = entry.gate, gate > previous ?? -1 {
            guard made.contains(gate) else { return }
            start = entries[gate].event.time
        }
        let delay = start.map { pace.delay(entry.event.time - $0) } ?? .zero
        chain.alarm = simulator.afterAlways(delay) { [weak self, weak chain] in
            guard let self, let chain else { return }
            chain.alarm = nil
            // Otherwise it waits for the next subscription.
            guard peripheral?.send(entry.event.value, of: chain.characteristic) == true else { return }
            chain.position += 1
            proceed(chain)
        }
    }

    /// Sends the next notification now.
    /// - Returns: Whether there is one, and a central is subscribed.
    func step() -> Bool {
        guard pace == .stepwise,
            let next = entries.indices.first(where: { $0 >= nextStep && !entries[$0].isWrite }),
            let characteristic = characteristics[entries[next].event.characteristic],
            peripheral?.send(entries[next].event.value, of: characteristic) == true
        else { return false }
        nextStep = next + 1
        return true
    }

    // MARK: Requests

    /// A central has written a value. It is stored, and notifications that came after such a write may follow.
    func write(_ value: [UInt8], _ name: String) {
        guard let characteristic = characteristics[name] else { return }
        characteristic.value = value
        written.insert(name)
        peripheral?.event("written \(characteristic.definition.uuid.shortNumber) \(Hex.text(value))")
        let isRecorded = recordedWrites[name]?.contains(value) == true
        if !isRecorded { deviate(.write(characteristic: name, value: value)) }
        // Another value than the recorded one counts as that: it may contain a time, or a random number.
        var open = openWrites[name] ?? []
        let same = open.firstIndex { entries[$0].event.value == value }
        guard let index = same ?? (isRecorded || open.isEmpty ? nil : 0) else { return }
        made.insert(open.remove(at: index))
        openWrites[name] = open
        for chain in chains.values where peripheral?.hasSubscriber(to: chain.characteristic) == true { proceed(chain) }
    }

    /// The value of a characteristic that the recording does not have.
    /// - Parameter error: With which the device refused it.
    func unknownValue(_ name: String, _ error: UInt8?) throws(ATTFailure) -> [UInt8] {
        if written.contains(name), let characteristic = characteristics[name] { return characteristic.value }
        throw refusal(of: name, error)
    }

    /// The answer to a read of what the recording does not have.
    func refusal(of name: String, _ error: UInt8?) -> ATTFailure {
        if let error { return ATTFailure(error) }
        if !isReadByDaemon { deviate(.read(name)) }
        return .unlikely
    }

    private func deviate(_ deviation: ReplayDeviation) {
        deviationCount += 1
        if deviations.count < Self.mostDeviations { deviations.append(deviation) }
        peripheral?.event("deviates \(deviation)")
    }
}
