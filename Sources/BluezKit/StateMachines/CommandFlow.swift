/// The writes without response of one connection that wait for BlueZ: how many are accepted, and when the app hears
/// that there is room again (RW-9, RW-10). Pure.
struct CommandFlow {
    /// From this number of waiting writes on the app is asked to wait…
    static let fullAt = 64
    /// …until no more than this number wait.
    static let roomAt = fullAt / 2
    /// What waits at most, for an app that does not wait: each write counts for its bytes and ``overheadBytes``.
    static let limitBytes = 1 << 20
    /// About what a waiting write takes besides its value, so that short values cannot fill the memory.
    static let overheadBytes = 64

    private var waiting = 0
    private var waitingBytes = 0
    /// Whether the app is asked to wait.
    private(set) var isFull = false
    /// Whether the app is about to hear that there is room.
    private var isRoomAnnounced = false
    /// Whether the app hears of it right now. Nothing but the app's own writes may fill the room then.
    private var isAnnouncing = false
    /// BlueZ's socket had no room meanwhile.
    private var isFullAfterwards = false
    /// How many writes were dropped.
    private(set) var dropped = 0
    /// How many of those have to be logged.
    private var unlogged = 0

    /// A write of the app.
    /// - Returns: Whether it waits. If not it is dropped, as the queue is full.
    mutating func add(_ size: Int) -> Bool {
        guard waitingBytes + Self.overheadBytes + size <= Self.limitBytes else {
            dropped += 1
            unlogged += 1
            return false
        }
        waiting += 1
        waitingBytes += Self.overheadBytes + size
        if waiting >= Self.fullAt { isFull = true }
        return true
    }

    /// BlueZ's socket has no room for a write that waits. If none does any more, this comes late, and nothing would
    /// announce room.
    mutating func socketIsFull() {
        guard waiting > 0 else { return }
        if isAnnouncing { isFullAfterwards = true } else { isFull = true }
    }

    /// Writes do not wait any more.
    /// - Parameters:
    ///   - bytes: Of all of them.
    ///   - writes: How many.
    ///   - dropped: How many BlueZ has not taken.
    ///   - isSocketFull: BlueZ's socket has no room for the one that follows them.
    /// - Returns: Whether ``announceRoom()`` is due, on the app's queue.
    mutating func remove(_ bytes: Int, writes: Int = 1, dropped: Int = 0, isSocketFull: Bool = false) -> Bool {
        waiting = max(0, waiting - writes)
        waitingBytes = max(0, waitingBytes - Self.overheadBytes * writes - bytes)
        self.dropped += dropped
        if isSocketFull, waiting > 0 {
            socketIsFull()  // the one that waits announces the room
            return false
        }
        guard isFull, !isRoomAnnounced, waiting <= Self.roomAt else { return false }
        isRoomAnnounced = true
        return true
    }

    /// - Returns: Whether the app is to continue: not if as many writes as before wait by now. This is due again when
    ///   there is room for them.
    mutating func announceRoom() -> Bool {
        isRoomAnnounced = false
        guard isFull, waiting < Self.fullAt else { return false }
        (isFull, isAnnouncing) = (false, true)
        return true
    }

    /// The app has heard of the room.
    mutating func roomAnnounced() {
        if isFullAfterwards, waiting > 0 { isFull = true }
        (isAnnouncing, isFullAfterwards) = (false, false)
    }

    /// A write that never waited, as it could not be sent.
    mutating func drop() { dropped += 1 }

    /// - Returns: How many writes the full queue has dropped since the last call.
    mutating func takeUnlogged() -> Int {
        defer { unlogged = 0 }
        return unlogged
    }

    /// The link has ended: nothing waits for it any more.
    mutating func end() {
        (waiting, waitingBytes, isFull, isRoomAnnounced) = (0, 0, false, false)
        isFullAfterwards = false
    }
}
