/// The tasks that connect and disconnect one peripheral. An event goes in, actions come out; every task that was taken
/// in is named in one `resume`. A connection is cancelled before anyone hears of that, so that the peripheral's state
/// is what the error says.
struct ConnectionMachine {
    typealias Task = UInt64

    enum Action: Equatable {
        case connect
        case cancelConnection
        case resume(Task, Outcome)
        /// The link is gone, and with it everything that depended on it.
        case linkEnded
    }

    enum Outcome: Equatable {
        case success
        /// The task was cancelled.
        case cancelled
        /// The event's error, or that the app ended the connection itself.
        case failure
    }

    private enum State {
        case idle
        case connecting([Task])
        case connected
        /// The system tries again automatically.
        case reconnecting([Task])
        /// `didDisconnectPeripheral` is awaited, by those who want it and by those who want to connect again.
        case cancelling([Task], next: [Task])
    }
    private var state = State.idle

    var isConnected: Bool { if case .connected = state { true } else { false } }
    var isIdle: Bool { if case .idle = state { true } else { false } }
    /// Whether a task that connects now is the first one, after the end of any connection before.
    var startsOver: Bool {
        switch state {
        case .idle: true
        case .cancelling(_, let next): next.isEmpty
        case .connecting, .connected, .reconnecting: false
        }
    }
    /// Whether there is a connection, or an attempt, that is not being ended.
    var isPursued: Bool {
        switch state {
        case .connecting, .connected, .reconnecting: true
        case .idle, .cancelling: false
        }
    }

    mutating func connect(_ task: Task) -> [Action] {
        switch state {
        case .idle:
            state = .connecting([task])
            return [.connect]
        case .connecting(let tasks): state = .connecting(tasks + [task])
        case .reconnecting(let tasks): state = .reconnecting(tasks + [task])
        case .connected: return [.resume(task, .success)]
        // What ends the old connection could be taken for the end of the new one.
        case .cancelling(let tasks, let next): state = .cancelling(tasks, next: next + [task])
        }
        return []
    }

    mutating func disconnect(_ task: Task) -> [Action] {
        switch state {
        case .idle: return [.resume(task, .success)]
        case .connecting(let tasks), .reconnecting(let tasks):
            state = .cancelling([task], next: [])
            return [.cancelConnection] + tasks.map { .resume($0, .failure) }
        case .connected:
            state = .cancelling([task], next: [])
            return [.cancelConnection, .linkEnded]
        case .cancelling(let tasks, let next):
            state = .cancelling(tasks + [task], next: [])
            return next.map { .resume($0, .failure) }
        }
    }

    /// A task that waits here was cancelled.
    mutating func cancel(_ task: Task) -> [Action] {
        func without(_ tasks: [Task]) -> [Task]? { tasks.contains(task) ? tasks.filter { $0 != task } : nil }
        switch state {
        case .connecting(let tasks):
            guard let rest = without(tasks) else { return [] }
            state = rest.isEmpty ? .cancelling([], next: []) : .connecting(rest)
            return (rest.isEmpty ? [.cancelConnection] : []) + [.resume(task, .cancelled)]
        case .reconnecting(let tasks):
            guard let rest = without(tasks) else { return [] }
            state = rest.isEmpty ? .cancelling([], next: []) : .reconnecting(rest)
            return (rest.isEmpty ? [.cancelConnection] : []) + [.resume(task, .cancelled)]
        case .cancelling(let tasks, let next):
            if let rest = without(tasks) {
                state = .cancelling(rest, next: next)
            } else if let rest = without(next) {
                state = .cancelling(tasks, next: rest)
            } else {
                return []
            }
        case .idle, .connected: return []
        }
        return [.resume(task, .cancelled)]
    }

    mutating func didConnect() -> [Action] {
        switch state {
        case .connecting(let tasks), .reconnecting(let tasks):
            state = .connected
            return tasks.map { .resume($0, .success) }
        case .idle:
            state = .connected
            return []
        case .connected, .cancelling: return []
        }
    }

    /// `didFailToConnect`, or `didDisconnectPeripheral`.
    mutating func didEnd(isReconnecting: Bool = false) -> [Action] {
        switch state {
        case .idle: return []
        case .connecting(let tasks):
            state = .idle
            return tasks.map { .resume($0, .failure) }
        case .reconnecting(let tasks):
            if isReconnecting { return [] }
            state = .idle
            return tasks.map { .resume($0, .failure) }
        case .connected:
            state = isReconnecting ? .reconnecting([]) : .idle
            return [.linkEnded]
        case .cancelling(let tasks, let next):
            state = next.isEmpty ? .idle : .connecting(next)
            return tasks.map { .resume($0, .success) } + (next.isEmpty ? [] : [.connect])
        }
    }

    /// It was restored in this state.
    mutating func restore(isConnected: Bool) { state = isConnected ? .connected : .reconnecting([]) }

    /// It is being disconnected, as an object of the app that has been released wanted.
    mutating func restoreEnding() { state = .cancelling([], next: []) }

    /// Bluetooth is off or gone, or the manager was released: no callback comes any more.
    mutating func reset() -> [Action] {
        defer { state = .idle }
        switch state {
        case .idle: return []
        case .connected: return [.linkEnded]
        case .connecting(let tasks), .reconnecting(let tasks): return tasks.map { .resume($0, .failure) }
        case .cancelling(let tasks, let next):
            return tasks.map { .resume($0, .success) } + next.map { .resume($0, .failure) }
        }
    }
}
