/// The updates of one manager that are on their way to BlueZ. Any thread.
final class UpdatesInFlight: Sendable {
    private struct State {
        var windows = UpdateWindows<LocalAttributeID>()
        /// Counts the ends of Bluetooth: no update survives one.
        var generation = 0
    }

    private let state = Protected(State())

    var count: Int { state.withLock { $0.windows.inFlight } }
    var generation: Int { state.withLock { $0.generation } }

    /// - Returns: Whether there is room for one more of the characteristic, which then counts.
    func admit(_ characteristic: LocalAttributeID) -> Bool {
        state.withLock { $0.windows.admit(characteristic) }
    }

    /// BlueZ has taken one. - Returns: whether the app must be told that there is room.
    /// - Parameter generation: When it was admitted; nil: that is known to be the present one.
    func release(_ characteristic: LocalAttributeID, of generation: Int? = nil) -> Bool {
        state.withLock { state in
            (generation ?? state.generation) == state.generation && state.windows.release(characteristic)
        }
    }

    /// Bluetooth is not on any more.
    func reset() {
        state.withLock { state in
            state.windows.reset()
            state.generation += 1
        }
    }
}

/// One update on its way to BlueZ: it counts until it has left by all its ways. Confined to the bus queue.
final class Delivery {
    private let core: PeripheralManagerCore
    private let characteristic: LocalAttributeID
    private let generation: Int
    private var openWays: Int

    init(of characteristic: LocalAttributeID, by core: PeripheralManagerCore, ways: Int) {
        (self.core, self.characteristic, openWays) = (core, characteristic, ways)
        generation = core.updatesInFlight.generation
    }

    /// Done by one way.
    func finish() {
        openWays -= 1
        guard openWays == 0 else { return }
        if core.isHosted {
            if core.updatesInFlight.generation == generation { core.post(.sent(characteristic)) }
        } else if core.updatesInFlight.release(characteristic, of: generation) {
            core.post(.ready)
        }
    }
}
