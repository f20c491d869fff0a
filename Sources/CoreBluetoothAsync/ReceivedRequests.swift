import CoreBluetooth

/// The requests of centrals that are not answered, and who hears of them.
struct ReceivedRequests {
    private var open: [UInt64: (CBATTRequest, isRead: Bool)] = [:]
    private var consumers = EventHub<ATTRequest, Never>()
    /// Those that came before there was a consumer, the last ones; nil when there has been one.
    private var early: [ATTRequest]? = []

    // MARK: Consumers

    mutating func add(_ subscription: EventSubscription<ATTRequest, Never>) {
        consumers.add(subscription)
        early?.removeAll { open[$0.number] == nil }  // it has ended meanwhile
        early?.removeAll { subscription.send($0) }
        if !subscription.isEnded { early = nil }
    }

    mutating func giveBack(_ untaken: [ATTRequest]) {
        let unanswered = untaken.filter { one in
            open[one.number] != nil && early?.contains { $0.number == one.number } != true
        }
        guard consumers.isEmpty, !unanswered.isEmpty else { return }
        early = (unanswered + (early ?? [])).suffix(PeripheralManagerCore.bufferSize)
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
        open[received.number] = (request, isRead)
        if early == nil {
            consumers.send(received)
        } else {
            if early?.count == PeripheralManagerCore.bufferSize { early?.removeFirst() }
            early?.append(received)
        }
    }

    /// - Returns: What is to be answered, and how; nil: it was answered, or has ended.
    mutating func answer(
        _ number: UInt64, _ result: CBATTError.Code, _ value: Data
    ) -> (CBATTRequest, CBATTError.Code)? {
        guard let (request, isRead) = open.removeValue(forKey: number) else { return nil }
        guard isRead, case .success = result else { return (request, result) }
        if request.offset > value.count { return (request, .invalidOffset) }
        request.value = Data(value.dropFirst(request.offset))
        return (request, result)
    }

    /// Bluetooth is off, or was reset: none is answered any more.
    mutating func forget() { open = [:] }
}
