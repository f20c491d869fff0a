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
        var size: Int { frame.size }
    }

    struct Limits: Codable, Equatable, Sendable {
        var events = 10_000
        var bytes = 1 << 20

        /// What an app may ask for.
        var bounded: Limits { Limits(events: min(max(events, 1), 1_000_000), bytes: min(max(bytes, 1), 256 << 20)) }
    }

    var limits: Limits
    /// In the order of their numbers. Those before `start` are gone.
    private var all: [Entry] = []
    private var start = 0
    var entries: ArraySlice<Entry> { all[start...] }
    private(set) var size = 0
    /// Of the entries.
    private var requests = 0
    /// The number of the last event.
    private(set) var last: UInt64 = 0
    /// Values and discoveries that did not fit, and the number of the last of them.
    private var dropped: (count: Int, last: UInt64) = (0, 0)

    init(limits: Limits = Limits()) { self.limits = limits }

    /// Connects and ends of links are not dropped, and there may be any number of them.
    var isOverfull: Bool { entries.count > 4 * limits.events || size > 4 * limits.bytes }
    /// There were so many that all are forgotten.
    private(set) var isGivenUp = false

    /// A number for the next event.
    mutating func newNumber() -> UInt64 {
        last += 1
        return last
    }

    mutating func append(_ entry: Entry) {
        all.append(entry)
        size += entry.size
        if entry.isRequest { requests += 1 }
    }

    /// Drops the oldest of what does not fit.
    mutating func shorten() {
        while entries.count > limits.events || size > limits.bytes {
            // Requests are refused after some seconds.
            let found = requests > 0 ? entries.firstIndex(where: \.isRequest) : nil
            guard let oldest = found ?? entries.firstIndex(where: \.mayBeDropped) else { return }
            dropped = (dropped.count + 1, all[oldest].number)
            remove(at: oldest)
        }
    }

    /// Most often it is one of the first.
    private mutating func remove(at index: Int) {
        forget(all[index])
        for place in stride(from: index, to: start, by: -1) { all[place] = all[place - 1] }
        removeFirst(1)
    }

    /// They are gone; their memory goes when they are the greater part.
    private mutating func removeFirst(_ count: Int) {
        start += count
        guard start > 256, start > all.count / 2 else { return }
        all.removeFirst(start)
        start = 0
    }

    private mutating func removeAll(where isGone: (Entry) -> Bool) {
        let rest = entries.filter { !isGone($0) }
        for entry in entries where isGone(entry) { forget(entry) }
        (all, start) = (rest, 0)
    }

    private mutating func forget(_ entry: Entry) {
        size -= entry.size
        if entry.isRequest { requests -= 1 }
        entry.frame.closeDescriptors()
    }

    /// The next events after that number: about `bytes` of them at most, and none after one with descriptors.
    func batch(after number: UInt64, bytes: Int) -> ArraySlice<Entry> {
        let first = index(after: number)
        var (end, size) = (first, 0)
        while end < all.count, size < bytes {
            size += all[end].size
            end += 1
            if !all[end - 1].frame.descriptors.isEmpty { break }
        }
        return all[first..<end]
    }

    /// Numbers rise, with gaps.
    private func index(after number: UInt64) -> Int {
        var (low, high) = (start, all.count)
        while low < high {
            let middle = (low + high) / 2
            if all[middle].number > number { high = middle } else { low = middle + 1 }
        }
        return low
    }

    /// The callbacks of the events up to this one have returned.
    mutating func trim(upTo delivered: UInt64) {
        if delivered >= dropped.last { dropped = (0, 0) }
        let end = index(after: delivered)
        guard end > start else { return }
        for entry in all[start..<end] { forget(entry) }
        removeFirst(end - start)
    }

    /// The app has died: what only that process could have used is gone, and of each peripheral that was discovered the
    /// last report counts.
    mutating func appDied() {
        var seen: Set<DeviceIdentity> = []
        var old: Set<UInt64> = []
        for entry in entries.reversed() {
            switch entry.kind {
            case .passing: old.insert(entry.number)
            case .discovery(let identity) where !seen.insert(identity).inserted: old.insert(entry.number)
            default: break
            }
        }
        if !old.isEmpty { removeAll { old.contains($0.number) } }
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
        removeAll { if case .discovery = $0.kind { true } else { false } }
    }

    /// Requests of centrals that cannot be answered any more.
    mutating func forgetRequests(but tickets: Set<UInt64>) {
        if requests == 0 { return }
        removeAll { if case .request(let ticket) = $0.kind { !tickets.contains(ticket) } else { false } }
    }

    mutating func removeAll() { removeAll { _ in true } }

    mutating func giveUp() {
        removeAll()
        isGivenUp = true
    }

    /// How many events after this one did not fit.
    func dropped(after delivered: UInt64) -> Int {
        dropped.last > delivered ? min(dropped.count, Int(clamping: dropped.last - delivered)) : 0
    }
}

extension Frame {
    func closeDescriptors() { for descriptor in descriptors { close(descriptor) } }
}
