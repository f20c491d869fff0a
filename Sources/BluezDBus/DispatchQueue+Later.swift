public import Dispatch

extension DispatchQueue {
    /// Runs `body` on this queue, after the current work. Call it on this queue, which must be serial: `body` may then
    /// hold what only this queue may use.
    public func later(_ body: @escaping () -> Void) {
        let confined = Confined(run: body)
        async { confined.run() }
    }

    /// The same, but not before `delay` has passed.
    public func later(_ delay: Duration, _ body: @escaping () -> Void) {
        let confined = Confined(run: body)
        asyncAfter(deadline: .now().later(by: delay)) { confined.run() }
    }

    // holds: made on the queue and run on the queue
    private struct Confined: @unchecked Sendable {
        let run: () -> Void
    }
}
