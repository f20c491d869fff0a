import Foundation

/// The events of one manager that its app has not been told yet, or whose callbacks have not returned. Pure.
struct EventLog {
    enum Kind: Equatable {
        case value
        case discovery(DeviceIdentity)
        /// Means nothing to another process of the app.
        case passing
        /// Is never dropped.
        case other
    }

    struct Entry {
        let number: UInt64
        let kind: Kind
        let frame: Frame
        /// Whether an app that has died is started for it.
        let startsApp: Bool
        var mayBeDropped: Bool { kind != .other && kind != .passing }
        /// As it counts for ``Limits/bytes``.
        var size: Int { Frame.headSize + frame.body.count }
    }

    struct Limits {
        var events = 10_000
        var bytes = 1 << 20
    }

    let limits: Limits
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
            guard let oldest = entries.firstIndex(where: \.mayBeDropped) else { return }
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

    /// How many events after this one did not fit.
    func dropped(after delivered: UInt64) -> Int {
        dropped.last > delivered ? min(dropped.count, Int(clamping: dropped.last - delivered)) : 0
    }
}

extension Frame {
    func closeDescriptors() { for descriptor in descriptors { close(descriptor) } }
}
