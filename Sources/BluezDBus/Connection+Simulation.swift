/// For simulators and tests: what becomes of a connection whose process is stopped or killed, and whether everything
/// has arrived.
extension Connection {
    /// As SIGSTOP to its process: nothing is received any more, and what is sent waits, until ``goOn()``.
    package func stop() {
        assertOnQueue()
        guard presence.isOpen, !presence.isStopped else { return }
        presence.held = []
        // Their answers stay unread, and a clock that waits for them could not get to the moment at which it continues.
        for body in open.removeEchoes() { body() }
    }

    /// As SIGCONT.
    package func goOn() {
        assertOnQueue()
        let bodies = presence.held ?? []
        presence.held = nil
        for body in bodies { body() }
    }

    /// Calls `body` when the bus has answered a question: see ``VirtualTime/settle()``, for which that is no activity.
    func echo(_ body: @escaping () -> Void) {
        let time = open.time
        guard presence.isOpen, !presence.isStopped, let message = try? message(for: .bus("GetId")),
            let serial = try? send(message)
        else { return body() }
        time?.note(-1)
        open.addEcho(serial) {
            time?.note(-1)
            body()
        }
    }

    package var isStopped: Bool { presence.isStopped }

    /// Calls `body` at once; while the process is stopped, as soon as it continues, and not if it is killed before.
    package func whenRunning(_ body: @escaping () -> Void) {
        assertOnQueue()
        guard presence.isStopped else { return body() }
        hold { [self] in if presence.isOpen { body() } }
    }

    func hold(_ body: @escaping () -> Void) { presence.held?.append(body) }

    /// As SIGKILL to its process: this process leaves the bus at once, whatever the bus or a receiver still has to do
    /// with what was asked. Otherwise as ``close()``.
    package func kill() {
        end(Self.closed)
        disconnect()
    }
}
