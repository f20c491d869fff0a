import Foundation

/// What waits for the broker, and what is on its way to it. It only decides: ``Publisher`` acts.
///
/// Values and answers wait in a queue that drops the oldest ones. Of a topic that has a state, only the last one waits.
/// So there is a bound, whatever the broker does.
struct Outbox {
    struct Message {
        let topic: String
        let payload: Data
        var isRetained = true
        /// The topic's last message replaces it while it waits; nothing is counted.
        var isState = false
    }

    /// Of the queue.
    let capacity: Int
    /// How many messages may be with libmosquitto, where they would wait without a bound: `max_queued_messages` is an
    /// option of brokers, and not of the library.
    let window: Int
    /// Messages of the queue: acknowledged by the broker, and lost because there was no room, or the broker refused.
    private(set) var published = 0
    private(set) var dropped = 0

    // The queue: messages by number, from `first` up to `next`.
    private var queue: [Int: Message] = [:]
    private var first = 0
    private var next = 0
    /// The last message of each topic that the broker shall have: states, and values that it has acknowledged.
    private var last: [String: Message] = [:]
    /// The topics of states that are to be sent.
    private var due: [String] = []
    private var onTheirWay: [Int32: Message] = [:]

    init(capacity: Int, window: Int) { (self.capacity, self.window) = (capacity, window) }

    var waiting: Int { next - first }
    var isEmpty: Bool { waiting == 0 && due.isEmpty && onTheirWay.isEmpty }

    mutating func add(_ message: Message) {
        if message.isState {
            last[message.topic] = message
            if !due.contains(message.topic) { due.append(message.topic) }
            return
        }
        queue[next] = message
        next += 1
        if waiting > capacity {
            takeFirst()
            dropped += 1
        }
    }

    /// What is to be sent now; nil: nothing, or nothing more until an acknowledgement.
    mutating func take() -> Message? {
        guard onTheirWay.count < window else { return nil }
        return due.isEmpty ? takeFirst() : last[due.removeFirst()]
    }

    /// What ``take()`` returned is on its way, with this number; nil: it cannot be sent.
    mutating func sent(_ message: Message, as number: Int32?) {
        if let number {
            onTheirWay[number] = message
        } else if !message.isState {
            dropped += 1
        }
    }

    /// - Returns: The message.
    @discardableResult
    mutating func acknowledged(_ number: Int32, isRefused: Bool) -> Message? {
        guard let message = onTheirWay.removeValue(forKey: number) else { return nil }
        guard !message.isState else { return message }
        if isRefused {
            dropped += 1
        } else {
            published += 1
            var state = message
            state.isState = true
            if message.isRetained { last[message.topic] = state }
        }
        return message
    }

    /// The broker may have lost what it retained. What is on its way is sent again by libmosquitto.
    mutating func reconnected() {
        let coming = Set(queue.values.map(\.topic)).union(onTheirWay.values.map(\.topic)).union(due)
        due += last.keys.filter { !coming.contains($0) }.sorted()
    }

    @discardableResult
    private mutating func takeFirst() -> Message? {
        guard let message = queue.removeValue(forKey: first) else { return nil }
        first += 1
        return message
    }
}
