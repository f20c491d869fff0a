import Foundation

/// The events of one manager that its app has not been told yet, or whose callbacks have not returned. Pure.
struct EventLog {
    enum Kind: Equatable {
        case value
        case discovery(DeviceIdentity)
        /// Of a central, which does not wait long for the answer: its ticket.
        case request(UInt64)
        /// A subscription, and its end: together they mean nothing to an app that was not there.
        case begin(String)
        case end(String)
        /// Means nothing to another process of the app.
        case passing
        /// Likewise, and it has no place in the order.
        case unnumbered
        /// Is never dropped.
        case other
    }

    struct Entry {
        let number: UInt64
        let kind: Kind
        let frame: Frame
        /// Why an app that has died is started for it; nil: it is not.
        let startsApp: String?
        var isRequest: Bool { if case .request = kind { true } else { false } }
        var mayBeDropped: Bool {
            switch kind {
            case .value, .discovery, .request: true
            case .begin, .end, .passing, .unnumbered, .other: false
            }
        }
        /// Whether another process of the app needs it.
        var isOfUse: Bool { startsApp != nil || mayBeDropped }
        /// As it counts for ``Limits/bytes``.
        var size: Int { Frame.headSize + frame.body.count }
    }

    struct Limits: Codable, Equatable, Sendable {
        var events = 10_000
        var bytes = 1 << 20

        /// What an app may ask for.
        var bounded: Limits { Limits(events: min(max(events, 1), 1_000_000), bytes: min(max(bytes, 1), 256 << 20)) }
    }

    var limits: Limits
    private(set) var entries: [Entry] = []
    private(set) var size = 0
    /// The number of the last event.
    private(set) var last: UInt64 = 0
    /// Values and discoveries that did not fit, and the number of the last of them.
    private var dropped: (count: Int, last: UInt64) = (0, 0)

    init(limits: Limits = Limits()) { self.limits = limits }

    /// A number for the next event.
    mutating func newNumber() -> UInt64 {
        last += 1
        return last
    }

    mutating func append(_ entry: Entry) {
        entries.append(entry)
        size += entry.size
        while entries.count > limits.events || size > limits.bytes {
            // Requests are refused after some seconds.
            let found = entries.firstIndex(where: \.isRequest) ?? entries.firstIndex(where: \.mayBeDropped)
            guard let oldest = found else { return }
            dropped = (dropped.count + 1, entries[oldest].number)
            remove(at: oldest)
        }
    }

    private mutating func remove(at index: Int) { forget(entries.remove(at: index)) }

    private mutating func forget(_ entry: Entry) {
        size -= entry.size
        entry.frame.closeDescriptors()
    }

    /// The first event after that number.
    func entry(after number: UInt64) -> Entry? {
        let index = index(after: number)
        return index < entries.count ? entries[index] : nil
    }

    /// Numbers rise, with gaps.
    private func index(after number: UInt64) -> Int {
        var (low, high) = (0, entries.count)
        while low < high {
            let middle = (low + high) / 2
            if entries[middle].number > number { high = middle } else { low = middle + 1 }
        }
        return low
    }

    /// The callbacks of the events up to this one have returned.
    mutating func trim(upTo delivered: UInt64) {
        if delivered >= dropped.last { dropped = (0, 0) }
        let count = index(after: delivered)
        guard count > 0 else { return }
        for entry in entries[..<count] { forget(entry) }
        entries.removeFirst(count)
    }

    /// The app has died: what only that process could have used is gone, and of each peripheral that was discovered the
    /// last report counts.
    mutating func appDied() {
        var seen: Set<DeviceIdentity> = []
        var kept: [Entry] = []
        for entry in entries.reversed() {
            switch entry.kind {
            case .passing: forget(entry)
            case .discovery(let identity) where !seen.insert(identity).inserted: forget(entry)
            default: kept.append(entry)
            }
        }
        entries = kept.reversed()
    }

    /// An earlier report of the peripheral that a new one replaces, while there is no app.
    mutating func forgetDiscovery(of identity: DeviceIdentity) {
        if let index = entries.lastIndex(where: { $0.kind == .discovery(identity) }) { remove(at: index) }
    }

    /// What has begun, and ended, while there is no app.
    /// - Parameter begun: The app may have been told of the events up to this one.
    /// - Returns: Whether there was a beginning, which is gone now.
    mutating func forgetBegin(_ key: String, after begun: UInt64) -> Bool {
        guard let index = entries.lastIndex(where: { $0.kind == .begin(key) }), entries[index].number > begun else {
            return false
        }
        remove(at: index)
        return true
    }

    /// The app has ended its scan.
    mutating func forgetDiscoveries() {
        func isOne(_ entry: Entry) -> Bool { if case .discovery = entry.kind { true } else { false } }
        for entry in entries where isOne(entry) { forget(entry) }
        entries.removeAll(where: isOne)
    }

    /// Requests of centrals that cannot be answered any more.
    mutating func forgetRequests(but tickets: Set<UInt64>) {
        func isOver(_ entry: Entry) -> Bool {
            if case .request(let ticket) = entry.kind { !tickets.contains(ticket) } else { false }
        }
        for entry in entries where isOver(entry) { forget(entry) }
        entries.removeAll(where: isOver)
    }

    mutating func removeAll() {
        for entry in entries { forget(entry) }
        entries = []
    }

    /// How many events after this one did not fit.
    func dropped(after delivered: UInt64) -> Int {
        dropped.last > delivered ? min(dropped.count, Int(clamping: dropped.last - delivered)) : 0
    }
}

extension Frame {
    func closeDescriptors() { for descriptor in descriptors { close(descriptor) } }
}
