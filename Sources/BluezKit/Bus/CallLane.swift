import BluezDBus

/// The connection over which those calls about a link go that BlueZ may never answer: they count on it for as long as
/// it lasts.
///
/// The first lane is the connection that also has the signals, the agent, the discovery and all published objects. When
/// many of its calls are lost, or wait for long, new links get another lane, and so on; it is closed with the last link
/// that uses it.
final class CallLane {
    let connection: Connection
    /// How many of its calls were given up, and are neither answered nor overdue.
    var abandoned = 0
    /// How many of its calls BlueZ may never answer.
    var lost: Int { abandoned + connection.overdueCalls }
    /// The connection that has the signals; nil: it is this one.
    private let signals: Connection?

    /// Whether other links are to use another one.
    func isCrowded(_ timing: BlueZTiming.Unanswered) -> Bool {
        lost >= timing.lane || connection.openCalls(for: timing.late) >= timing.lane
    }

    init(_ connection: Connection, signals: Connection? = nil) {
        (self.connection, self.signals) = (connection, signals)
    }

    deinit {
        // Not in the middle of a turn of it.
        if signals != nil { connection.queue.async { [connection] in connection.close() } }
    }

    /// - Returns: `completion`, which gets an answer after all signals that BlueZ had sent before it.
    func inOrder(_ completion: @escaping Connection.Completion) -> Connection.Completion {
        guard let signals else { return completion }
        let question = MethodCall(
            destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus",
            member: "GetId")
        // The bus answers after what it has for that connection already.
        return { result in signals.call(question, deadline: .seconds(30)) { _ in completion(result) } }
    }
}
