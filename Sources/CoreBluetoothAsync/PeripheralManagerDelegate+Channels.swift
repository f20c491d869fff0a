import CoreBluetooth

/// L2CAP channels that are published.
extension PeripheralManagerDelegate {
    func begin(_ channelRequest: ChannelRequest, _ request: UInt64, _ continuation: Continuation) {
        continuations[request] = continuation
        perform(publishing.add(request, channelRequest), .success(.done))
    }

    func cancelPublishing(_ request: UInt64) { perform(publishing.cancel(request), .failure(CancellationError())) }

    private func perform(_ actions: [RequestQueue<ChannelRequest>.Action], _ result: Result<Answer, any Error>) {
        for action in actions {
            switch action {
            case .make(let request):
                publishing.didMake()
                switch request.content {
                case .publish(let isEncrypted): publish(request.number, withEncryption: isEncrypted)
                case .unpublish(let psm): manager?.unpublishL2CAPChannel(psm)
                }
            case .resume(let request, _): resume(request.number, result)
            }
        }
    }

    /// The answer to a request to publish a channel.
    func didPublish(_ result: Result<CBL2CAPPSM, any Error>, by request: UInt64) {
        let isAwaited = publishing.made?.number == request
        // Its task was cancelled, or Bluetooth was off meanwhile.
        if case .success(let psm) = result, !isAwaited || continuations[request] == nil {
            callOff { $0.channels.insert(psm) }
        }
        if isAwaited { perform(publishing.didAnswer(), result.map { .psm($0) }) }
    }

    /// A restored channel is published again.
    func didRestore(_ result: Result<CBL2CAPPSM, any Error>) {
        for task in restoredChannels.didPublish(result) { resume(task, result.map { .psm($0) }) }
    }

    func psm(of channel: RestoredL2CAPChannel, _ request: UInt64, _ continuation: Continuation) {
        if let result = restoredChannels.psm(of: channel, for: request) {
            continuation.resume(with: result.map { .psm($0) })
        } else {
            continuations[request] = continuation
        }
    }

    /// Withdraws a restored channel before it is published again, which it is when Bluetooth is on.
    /// - Returns: Whether there is one.
    func withdrawRestored(_ psm: CBL2CAPPSM) -> Bool {
        guard manager?.state != .poweredOn, restoredChannels.isDue(psm) else { return false }
        forgetRestored(psm)
        callOff { $0.channels.insert(psm) }
        return true
    }

    private func forgetRestored(_ psm: CBL2CAPPSM) {
        for task in restoredChannels.didUnpublish(psm) { resume(task, .failure(CBError(.operationCancelled))) }
    }

    func cancelWaiting(_ request: UInt64) { resume(request, .failure(CancellationError())) }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, didPublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) {
        let result: Result<CBL2CAPPSM, any Error> = error.map { .failure($0) } ?? .success(PSM)
        if let request = requestOfPublication { didPublish(result, by: request) } else { didRestore(result) }
    }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) {
        if error == nil { forgetRestored(PSM) }
        guard case .unpublish(PSM) = publishing.made?.content else { return }
        perform(publishing.didAnswer(), error.map { .failure($0) } ?? .success(.done))
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
        guard let channel, let core, !openedChannels.isEmpty else { return }
        openedChannels.send(channels.add(channel, core))
    }
}
