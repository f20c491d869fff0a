import CoreBluetooth

/// The requests of centrals that are not answered, and who hears of them.
struct ReceivedRequests {
    private struct Unanswered {
        let request: CBATTRequest
        let isRead: Bool
        /// How many consumers were sent it, and have neither dropped it nor given it back.
        var holders = 0
    }
    private var open: [UInt64: Unanswered] = [:]
    private var consumers = EventHub<ATTRequest, Never>()
    /// Those that came before there was a consumer, the last ones; nil when there has been one.
    private var early: [ATTRequest]? = []

    // MARK: Consumers

    mutating func add(_ subscription: EventSubscription<ATTRequest, Never>) {
        consumers.add(subscription)
        guard let waiting = early else { return }
        early = waiting.filter { request in
            // Without an entry, it has ended meanwhile.
            guard open[request.number] != nil else { return false }
            guard subscription.send(request) else { return true }
            open[request.number]?.holders += 1
            return false
        }
        if !subscription.isEnded { early = nil }
    }

    /// A consumer has ended without taking these. Those that no other one was sent, or that all have given back, go to
    /// the consumers that have come since, in their order. If there is none they wait for the next one, or are refused
    /// if this one has taken others.
    mutating func giveBack(_ untaken: [ATTRequest], hasTaken: Bool) {
        let free = untaken.filter { request in
            open[request.number]?.holders -= 1
            return open[request.number]?.holders == 0
        }
        guard !free.isEmpty else { return }
        consumers.prune()
        // A consumer may end meanwhile.
        let rest = free.filter { !send($0) }
        if hasTaken || rest.isEmpty { return }
        let all = (rest + (early ?? [])).sorted { $0.number < $1.number }
        early = all.suffix(PeripheralManagerCore.bufferSize)
    }

    /// In the order of their numbers, in which they were received: one that was given back may be older than others.
    /// - Returns: Whether there is a consumer for it.
    @discardableResult
    private mutating func send(_ request: ATTRequest) -> Bool {
        let number = request.number
        let (takers, dropped) = consumers.insert(request) { $0.number < number }
        open[number]?.holders = takers
        for other in dropped { open[other.number]?.holders -= 1 }
        return takers > 0
    }

    mutating func prune() { consumers.prune() }

    mutating func close() {
        consumers.close()
        early = nil
    }

    // MARK: Requests

    var count: Int { open.count }

    mutating func receive(_ received: ATTRequest, as request: CBATTRequest) {
        let isRead = if case .read = received.kind { true } else { false }
        open[received.number] = Unanswered(request: request, isRead: isRead)
        if early == nil {
            send(received)
        } else {
            if early?.count == PeripheralManagerCore.bufferSize { early?.removeFirst() }
            early?.append(received)
        }
    }

    /// - Returns: What is to be answered, and how; nil: it was answered, or has ended.
    mutating func answer(
        _ number: UInt64, _ result: CBATTError.Code, _ value: Data
    ) -> (CBATTRequest, CBATTError.Code)? {
        guard let entry = open.removeValue(forKey: number) else { return nil }
        let request = entry.request
        guard entry.isRead, case .success = result else { return (request, result) }
        if request.offset > value.count { return (request, .invalidOffset) }
        request.value = Data(value.dropFirst(request.offset))
        return (request, result)
    }

    /// Bluetooth is off, or was reset: none is answered any more.
    mutating func forget() { open = [:] }
}
