public import Dispatch

extension DispatchQueue {
    // holds: a key never changes; later versions of Dispatch declare it so
    private struct TimeKey: @unchecked Sendable {
        let key = DispatchSpecificKey<VirtualTime>()
    }
    private static let time = TimeKey()

    /// The time in which who waits on this queue waits. Nil: real time.
    package var virtualTime: VirtualTime? {
        get { getSpecific(key: Self.time.key) }
        set { setSpecific(key: Self.time.key, value: newValue) }
    }

    /// The time on the queue on which the caller runs.
    package static var now: DispatchTime { getSpecific(key: time.key)?.now ?? .now() }

    /// Runs `body` on this queue, after the current work. Call it on this queue, which must be serial: `body` may then
    /// hold what only this queue may use.
    public func later(_ body: @escaping () -> Void) {
        let confined = Confined(run: body)
        guard let time = virtualTime else { return async { confined.run() } }
        time.began()
        async {
            confined.run()
            time.ended()
        }
    }

    /// The same, but not before `delay` has passed.
    public func later(_ delay: Duration, _ body: @escaping () -> Void) { later(delay, isRoutine: false, body) }

    /// - Parameter isRoutine: Of virtual time: nothing follows from it, unless it sends a message.
    package func later(_ delay: Duration, isRoutine: Bool, _ body: @escaping () -> Void) {
        let confined = Confined(run: body)
        if let time = virtualTime {
            time.schedule(at: time.now.later(by: delay), on: self, isRoutine: isRoutine) { confined.run() }
        } else {
            asyncAfter(deadline: .now().later(by: delay)) { confined.run() }
        }
    }

    // holds: made on the queue and run on the queue
    private struct Confined: @unchecked Sendable {
        let run: () -> Void
    }
}
