import Foundation

/// What comes of the app's requests, on the delegate's queue: changes what the app sees, then calls the delegate.
extension CBPeripheral {
    /// Whether the app has not begun another connection, or ended this one, in the meantime.
    func isCurrent(_ connectionID: ConnectionID) -> Bool { shared.withLock { $0.connectionID == connectionID } }

    /// A notification or indication.
    func deliver(_ value: Data, of id: AttributeID, _ connectionID: ConnectionID) {
        let (attribute, delegate) = shared.withLock { shared in
            shared.connectionID == connectionID ? (shared.attributes[id], shared.delegate) : (nil, nil)
        }
        guard let characteristic = attribute as? CBCharacteristic else { return }
        characteristic.setValue(value)
        delegate?.peripheral(self, didUpdateValueFor: characteristic, error: nil)
    }

    /// The attribute of a request that is answered now. It may not be valid any longer.
    private func takeRequested(_ id: AttributeID) -> CBAttribute? {
        shared.withLock { shared in
            guard let requested = shared.requested[id] else { return shared.attributes[id] }
            shared.requested[id]?.count -= 1
            if requested.count == 1 { shared.requested[id] = nil }
            return requested.attribute
        }
    }

    func receive(_ answer: AttributeAnswer) {
        func service(_ id: AttributeID) -> CBService? { takeRequested(id) as? CBService }
        func characteristic(_ id: AttributeID) -> CBCharacteristic? { takeRequested(id) as? CBCharacteristic }
        switch answer {
        case .services(let found):
            addDiscovered(services: found)
            delegate?.peripheral(self, didDiscoverServices: nil)
        case .includedServices(let found, let id):
            guard let service = service(id) else { return }
            addDiscovered(includedServices: found, of: service)
            delegate?.peripheral(self, didDiscoverIncludedServicesFor: service, error: nil)
        case .characteristics(let found, let id):
            guard let service = service(id) else { return }
            addDiscovered(characteristics: found, of: service)
            delegate?.peripheral(self, didDiscoverCharacteristicsFor: service, error: nil)
        case .descriptors(let found, let id):
            guard let characteristic = characteristic(id) else { return }
            addDiscovered(descriptors: found, of: characteristic)
            delegate?.peripheral(self, didDiscoverDescriptorsFor: characteristic, error: nil)
        case .value(let value, let id):
            guard let characteristic = characteristic(id) else { return }
            characteristic.setValue(value)
            delegate?.peripheral(self, didUpdateValueFor: characteristic, error: nil)
        case .descriptorValue(let value, let id):
            guard let descriptor = takeRequested(id) as? CBDescriptor else { return }
            descriptor.setValue(value)
            delegate?.peripheral(self, didUpdateValueFor: descriptor, error: nil)
        case .written(let id):
            guard let characteristic = characteristic(id) else { return }
            delegate?.peripheral(self, didWriteValueFor: characteristic, error: nil)
        case .descriptorWritten(let id):
            guard let descriptor = takeRequested(id) as? CBDescriptor else { return }
            delegate?.peripheral(self, didWriteValueFor: descriptor, error: nil)
        case .notifying(let isNotifying, let id):
            guard let characteristic = characteristic(id) else { return }
            characteristic.setNotifying(isNotifying)
            delegate?.peripheral(self, didUpdateNotificationStateFor: characteristic, error: nil)
        case .rssi(let measured):
            let rssi = NSNumber(value: measured ?? 127)
            let error: (any Error)? = measured == nil ? CBError(.operationNotSupported) : nil
            if error == nil { setRSSI(rssi) }
            delegate?.peripheral(self, didReadRSSI: rssi, error: error)
            delegate?.peripheralDidUpdateRSSI(self, error: error)
        case .failed(let request, let error): fail(request, error.error)
        }
    }

    private func fail(_ request: AttributeRequest, _ error: any Error) {
        let isAsked = if case .resubscribe = request { false } else { true }
        switch (request, request.attribute.flatMap(isAsked ? takeRequested : attribute)) {
        case (.discoverServices, _): delegate?.peripheral(self, didDiscoverServices: error)
        case (.discoverIncludedServices, let service as CBService):
            delegate?.peripheral(self, didDiscoverIncludedServicesFor: service, error: error)
        case (.discoverCharacteristics, let service as CBService):
            delegate?.peripheral(self, didDiscoverCharacteristicsFor: service, error: error)
        case (.discoverDescriptors, let characteristic as CBCharacteristic):
            delegate?.peripheral(self, didDiscoverDescriptorsFor: characteristic, error: error)
        case (.read, let characteristic as CBCharacteristic):
            delegate?.peripheral(self, didUpdateValueFor: characteristic, error: error)
        case (.readDescriptor, let descriptor as CBDescriptor):
            delegate?.peripheral(self, didUpdateValueFor: descriptor, error: error)
        case (.write, let characteristic as CBCharacteristic):
            delegate?.peripheral(self, didWriteValueFor: characteristic, error: error)
        case (.writeDescriptor, let descriptor as CBDescriptor):
            delegate?.peripheral(self, didWriteValueFor: descriptor, error: error)
        case (.setNotify, let characteristic as CBCharacteristic),
            (.resubscribe, let characteristic as CBCharacteristic):
            updateSubscription(false, to: characteristic)
            characteristic.setNotifying(false)
            delegate?.peripheral(self, didUpdateNotificationStateFor: characteristic, error: error)
        default: break
        }
    }

    // MARK: L2CAP channels

    func endpoint(of number: UInt32) -> ChannelEndpoint? {
        shared.withLock { shared in shared.channels.first { $0.number == number }?.endpoint }
    }

    func endChannels() {
        let endpoints = shared.withLock { $0.channels.compactMap(\.endpoint) }
        for endpoint in endpoints { endpoint.end() }
    }

    func opened(_ number: UInt32, _ psm: CBL2CAPPSM, _ socket: ChannelSocket) {
        let (backend, identity) = (backend, identity)
        let ended = { @Sendable in backend.send(.channelEnded(number, identity)) }
        let trace = backend.channelTrace(number)
        guard let endpoint = ChannelEndpoint(socket, backend.timing.channel, trace: trace, onEnd: ended) else {
            ended()
            delegate?.peripheral(self, didOpen: nil, error: SocketFailure(.make, EMFILE).error)
            return
        }
        let channel = CBL2CAPChannel(peer: self, psm: psm, socket, endpoint)
        updateChannels { shared in
            shared.channels.append(
                OpenChannel(number: number, psm: psm, connectionID: shared.connectionID, endpoint: endpoint))
        }
        delegate?.peripheral(self, didOpen: channel, error: nil)
    }
}
