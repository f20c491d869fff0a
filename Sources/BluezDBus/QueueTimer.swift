public import Dispatch

/// A timer of a queue: fires there once each time that it is set. Confined to the queue, on which it is released.
public final class QueueTimer {
    private enum Kind {
        case real(any DispatchSourceTimer)
        case virtual(VirtualTime)
    }

    private let queue: DispatchQueue
    private let kind: Kind
    /// Of a virtual one, while it is set.
    private var number: Int?
    /// How often it was set, or cancelled.
    private var settings = 0
    private var onFire: () -> Void = {}

    /// A timer that is not set.
    public init(queue: DispatchQueue) {
        self.queue = queue
        guard let time = queue.virtualTime else {
            let timer = DispatchSource.makeTimerSource(queue: queue)
            kind = .real(timer)
            timer.schedule(deadline: .distantFuture)
            timer.setEventHandler {}  // libdispatch complains of none
            timer.activate()
            return
        }
        kind = .virtual(time)
    }

    deinit { cancel() }

    /// What happens when it fires.
    public func setHandler(_ body: @escaping () -> Void) {
        switch kind {
        case .real(let timer): timer.setEventHandler(handler: body)
        case .virtual: onFire = body
        }
    }

    /// Sets it to this time, instead of the one before.
    public func set(_ deadline: DispatchTime, leeway: DispatchTimeInterval = .nanoseconds(0)) {
        switch kind {
        case .real(let timer): timer.schedule(deadline: deadline, leeway: leeway)
        case .virtual(let time):
            if let number { time.cancel(number) }
            settings += 1
            let setting = settings
            // holds: made on the queue, and run there
            nonisolated(unsafe) let fire = { [weak self] in
                // It may have been set again while this one waited for the queue.
                guard let self, settings == setting else { return }
                number = nil
                onFire()
            }
            number = time.schedule(at: deadline, on: queue) { fire() }
        }
    }

    /// It fires no more.
    public func cancel() {
        switch kind {
        case .real(let timer): timer.cancel()
        case .virtual(let time):
            if let number { time.cancel(number) }
            number = nil
            settings += 1
        }
    }
}
