/// How many updates may be on their way to BlueZ: what makes `updateValue` return false, and when it may be called
/// again (UP-2, UP-3). Pure.
struct UpdateWindow {
    /// Enough to keep BlueZ busy while its answer travels, few enough to stay honest.
    static let limit = 64

    private(set) var inFlight = 0
    /// The app was refused, and has not been told yet that there is room.
    private var isOwedReadiness = false

    /// - Returns: Whether there is room for one more, which then counts.
    mutating func admit() -> Bool {
        guard inFlight < Self.limit else {
            isOwedReadiness = true
            return false
        }
        inFlight += 1
        return true
    }

    /// BlueZ has taken one. - Returns: whether the app must be told that there is room: when half of it is free, so
    /// that it is not told for each single update.
    mutating func release() -> Bool {
        inFlight = max(0, inFlight - 1)
        guard isOwedReadiness, inFlight <= Self.limit / 2 else { return false }
        isOwedReadiness = false
        return true
    }

    /// Bluetooth is gone; nothing is owed.
    mutating func reset() { self = UpdateWindow() }
}
