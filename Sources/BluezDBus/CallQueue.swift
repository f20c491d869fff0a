/// The calls of one connection that wait until the bus accepts more. A bus refuses calls from a connection that has 128
/// open ones (dbus-daemon's `max_replies_per_connection`), so fewer are made and the others wait. Pure.
///
/// Calls are made in the order in which they were requested. Urgent calls, which end something, go first, but never
/// before an earlier call to the same object: a `Disconnect` must not overtake its `Connect`.
struct CallQueue<Call> {
    /// From this number of open calls on, further ones wait…
    static var limit: Int { 100 }
    /// …and from this number on, urgent ones too.
    static var urgentLimit: Int { 120 }

    private typealias Entry = (path: ObjectPath, call: Call)
    private var urgent: [Entry] = []
    private var others: [Entry] = []
    /// How many of ``others`` have been made.
    private var first = 0

    mutating func add(_ call: Call, to path: ObjectPath, isUrgent: Bool) {
        guard isUrgent else { return others.append((path, call)) }
        if first < others.count {
            urgent += others[first...].filter { $0.path == path }
            others.removeSubrange(..<first)
            others.removeAll { $0.path == path }
            first = 0
        }
        urgent.append((path, call))
    }

    /// - Parameter open: The number of open calls.
    /// - Returns: The call to make now, if any.
    mutating func next(open: Int) -> Call? {
        if !urgent.isEmpty { return open < Self.urgentLimit ? urgent.removeFirst().call : nil }
        guard first < others.count, open < Self.limit else { return nil }
        defer {
            first += 1
            if first == others.count || first > 256 {
                others.removeFirst(first)
                first = 0
            }
        }
        return others[first].call
    }

    /// - Returns: All waiting calls, in the order in which they would have been made.
    mutating func removeAll() -> [Call] {
        defer { self = CallQueue() }
        return (urgent + others[first...]).map(\.call)
    }
}
