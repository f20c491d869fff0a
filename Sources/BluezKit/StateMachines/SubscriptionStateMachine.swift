/// The subscription to one characteristic, shared by all who asked for it in this process: BlueZ counts by bus
/// connection, and sends every value once for each. Pure: values in, values out.
///
/// Generic over who subscribes, so that tests need no peripheral.
struct SubscriptionStateMachine<Subscriber: Hashable> {
    enum Phase: Equatable { case off, starting, on, stopping }

    enum Action: Equatable {
        case startNotify, stopNotify
        /// `setNotifyValue` of this subscriber is done.
        case confirm(Subscriber, isNotifying: Bool)
        case fail(Subscriber)
        /// A value for all who are confirmed.
        case deliver([UInt8])
    }

    private(set) var phase = Phase.off
    private(set) var subscribers: Set<Subscriber> = []
    private var asking: Subscriber?
    private var held: [[UInt8]] = []
    private var readsRunning = 0
    private var possibleEcho: [UInt8]?

    var isReading: Bool { readsRunning > 0 }
    var isIdle: Bool { phase == .off && subscribers.isEmpty && readsRunning == 0 }

    // MARK: setNotifyValue

    /// The attribute queue runs one operation at a time, so a change is never asked for while another is on its way.
    mutating func set(_ enabled: Bool, for subscriber: Subscriber) -> [Action] {
        switch (enabled, phase) {
        case (true, .on):
            subscribers.update(with: subscriber)
            return [.confirm(subscriber, isNotifying: true)]
        case (true, _):
            (phase, asking) = (.starting, subscriber)
            return [.startNotify]
        case (false, .on) where !subscribers.contains(subscriber):
            return [.confirm(subscriber, isNotifying: false)]
        case (false, .on) where subscribers == [subscriber]:
            (phase, asking) = (.stopping, subscriber)
            return [.stopNotify]
        case (false, _):
            subscribers.remove(subscriber)
            return [.confirm(subscriber, isNotifying: false)]
        }
    }

    mutating func startReplied(_ succeeded: Bool) -> [Action] {
        guard phase == .starting else { return [] }
        let (asker, values) = (asking, held)
        (asking, held) = (nil, [])
        guard succeeded else {
            phase = .off
            return asker.map { [.fail($0)] } ?? []
        }
        guard let asker else {
            // It has gone meanwhile; no other one can have come.
            phase = .off
            return [.stopNotify]
        }
        phase = .on
        subscribers.update(with: asker)
        // NT-9: BlueZ may signal values before it answers; the app hears of the subscription first.
        return [.confirm(asker, isNotifying: true)] + values.map { .deliver($0) }
    }

    /// Whether BlueZ succeeds or not: it does not send for us any more.
    mutating func stopReplied() -> [Action] {
        guard phase == .stopping else { return [] }
        let asker = asking
        (phase, asking) = (.off, nil)
        guard let asker else { return [] }
        subscribers.remove(asker)
        return [.confirm(asker, isNotifying: false)]
    }

    /// A subscriber has gone without a word; or one that asked to be one, or not to be one any more.
    /// - Returns: Whether BlueZ has to end the subscription, because no subscriber is left. While a call runs, its
    ///   answer is awaited.
    mutating func drop(where hasGone: (Subscriber) -> Bool) -> Bool {
        if let asker = asking, hasGone(asker) { asking = nil }
        guard let subscriber = subscribers.first(where: hasGone) else { return false }
        subscribers.remove(subscriber)
        guard subscribers.isEmpty, phase == .on else { return false }
        phase = .off
        return true
    }

    // MARK: Values

    /// BlueZ announces the result of a read as it announces a notification, right before it answers the read. So
    /// while a read runs the latest value is kept back, until a further one or the answer shows what it was.
    mutating func readStarted() { readsRunning += 1 }

    /// - Parameter value: What the read returned; nil: it failed.
    mutating func readReplied(_ value: UnsafeRawBufferPointer?) -> [Action] {
        readsRunning -= 1
        guard readsRunning == 0, let last = possibleEcho else { return [] }
        possibleEcho = nil
        if let value, value.elementsEqual(last) { return [] }
        return receive(last)
    }

    /// A value that came by a socket, and so cannot be the result of a read.
    mutating func receivedBySocket(_ value: UnsafeRawBufferPointer) -> [Action] { receive([UInt8](value)) }

    mutating func received(_ value: UnsafeRawBufferPointer) -> [Action] {
        guard phase != .off else { return [] }
        guard readsRunning > 0 else { return receive([UInt8](value)) }
        let previous = possibleEcho
        possibleEcho = [UInt8](value)
        return previous.map { receive($0) } ?? []
    }

    private mutating func receive(_ value: [UInt8]) -> [Action] {
        if phase == .starting {
            held.append(value)
            return []
        }
        return phase == .off ? [] : [.deliver(value)]
    }
}
