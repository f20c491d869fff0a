/// How many updates of one characteristic may be on their way to BlueZ: what makes `updateValue` return false, and when
/// it may be called again (UP-2, UP-3). Pure.
struct UpdateWindow {
    /// Enough to keep BlueZ busy while its answer travels, few enough to stay honest.
    static let limit = 64

    private(set) var inFlight = 0
    /// The app was refused, and has not been told yet that there is room.
    private var needsReadyCallback = false

    /// - Returns: Whether there is room for one more, which then counts.
    mutating func admit() -> Bool {
        guard inFlight < Self.limit else {
            needsReadyCallback = true
            return false
        }
        inFlight += 1
        return true
    }

    /// BlueZ has taken one. - Returns: whether the app must be told that there is room: when half of it is free, so
    /// that it is not told for each single update.
    mutating func release() -> Bool {
        inFlight = max(0, inFlight - 1)
        guard needsReadyCallback, inFlight <= Self.limit / 2 else { return false }
        needsReadyCallback = false
        return true
    }
}

/// A window for each characteristic that has updates on their way, so that a central that confirms no indications holds
/// up no other characteristic. Pure; generic over how a characteristic is named.
struct UpdateWindows<Characteristic: Hashable> {
    private var windows: [Characteristic: UpdateWindow] = [:]

    var inFlight: Int { windows.values.reduce(0) { $0 + $1.inFlight } }

    mutating func admit(_ characteristic: Characteristic) -> Bool {
        windows[characteristic, default: UpdateWindow()].admit()
    }

    mutating func release(_ characteristic: Characteristic) -> Bool {
        guard var window = windows.removeValue(forKey: characteristic) else { return false }
        let isReady = window.release()
        if window.inFlight > 0 { windows[characteristic] = window }
        return isReady
    }

    /// Bluetooth is gone; nothing is owed.
    mutating func reset() { windows = [:] }
}
