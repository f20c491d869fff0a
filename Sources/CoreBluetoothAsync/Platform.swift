import CoreBluetooth

// What BluezKit adds to CoreBluetooth, and what takes its place where the system's CoreBluetooth does not have it. No
// other file of this module depends on the platform.

#if canImport(BluezKit)

/// After a reset an async manager's work has ended, whether or not it is preserved: its tasks have been told so, and
/// begin again. So nothing resumes below them.
func withoutResuming(_ options: [String: Any]?) -> [String: Any]? {
    (options ?? [:]).merging([BluezManagerOptionResumeAfterResetKey: false]) { $1 }
}

extension CBCentralManager {
    /// In `willRestoreState`: the channels of the earlier process, by peripheral.
    func endedChannels(in dictionary: [String: Any]) -> [UUID: [CBL2CAPPSM]] {
        let channels = dictionary[BluezCentralManagerRestoredStateEndedChannelsKey] as? [UUID: [NSNumber]]
        return (channels ?? [:]).mapValues { $0.map(\.uint16Value) }
    }
}

extension PeripheralManagerDelegate {
    /// Publishes a channel, and has ``didPublish(_:by:)`` called.
    func publish(_ request: UInt64, withEncryption isEncrypted: Bool) {
        manager?.publishL2CAPChannel(withEncryption: isEncrypted) { [weak core] result in
            core?.assumeIsolated { $0.delegate.didPublish(result.mapError { $0 }, by: request) }
        }
    }

    /// The request that the delegate's callback answers; nil: none, it is about a restored channel.
    var requestOfPublication: UInt64? { nil }
}

extension CentralDelegate {
    func setPairing(_ pairing: Pairing) {
        var answers = BluezPairing()
        answers.allowsJustWorks = pairing.allowsJustWorks
        if let consent = pairing.consent {
            answers.consent = { [weak core] peripheral, decide in
                core?.ask(peripheral) { decide(await consent($0)) }
            }
        }
        if let enterPasskey = pairing.enterPasskey {
            answers.enterPasskey = { [weak core] peripheral, enter in
                core?.ask(peripheral) { enter(await enterPasskey($0)) }
            }
        }
        if let displayPasskey = pairing.displayPasskey {
            answers.displayPasskey = { [weak core] peripheral, passkey in
                core?.ask(peripheral) { await displayPasskey($0, passkey) }
            }
        }
        if let comparePasskey = pairing.comparePasskey {
            answers.comparePasskey = { [weak core] peripheral, passkey, decide in
                core?.ask(peripheral) { decide(await comparePasskey($0, passkey)) }
            }
        }
        answers.ended = { [weak core] peripheral in
            core?.assumeIsolated { $0.delegate.endQuestion(of: peripheral.identifier) }
        }
        manager?.pairing = answers
    }
}

extension CentralCore {
    /// On the queue, where handlers are called.
    fileprivate nonisolated func ask(
        _ peripheral: CBPeripheral, _ answer: @escaping @Sendable (Peripheral) async -> Void
    ) {
        assumeIsolated { $0.delegate.ask(peripheral, answer) }
    }

    /// Not on the queue, where everything else would wait for the answer, which takes seconds if bluetoothd hangs.
    /// Managers may be asked on any thread.
    func ask(
        _ manager: CBCentralManager, _ request: UInt64,
        _ body: @escaping @Sendable (CBCentralManager) -> [CBPeripheral]
    ) {
        DispatchQueue.global().async {
            let found = body(manager)
            self.post { $0.delegate.didRetrieve(found, request) }
        }
    }
}

extension CBCentralManager {
    func bondedPeripherals() -> [CBPeripheral] { retrieveBondedPeripherals() }
}

extension CBPeripheral {
    var storableIdentifier: UUID { identityIdentifier }
}

extension [CBMutableService] {
    /// In `willRestoreState`: the restored services that are the same as one of these. Others of their types are
    /// withdrawn.
    func restored(from state: [String: Any]) -> [CBMutableService] {
        var restored: [ObjectIdentifier: CBMutableService] = [:]
        for service in self {
            // Included services are compared as objects.
            service.includedServices = service.includedServices?.map { restored[ObjectIdentifier($0)] ?? $0 }
            restored[ObjectIdentifier(service)] = service.restored(from: state)
        }
        return Array(restored.values)
    }
}

extension CBPeripheralManager {
    /// In `willRestoreState`.
    var channelsToRestore: [RestoredL2CAPChannel] {
        publishedChannels.map {
            RestoredL2CAPChannel(number: Number.next(), psm: $0.psm, isEncryptionRequired: $0.isEncryptionRequired)
        }
    }
}

#else

func withoutResuming(_ options: [String: Any]?) -> [String: Any]? { options }

extension CentralDelegate {
    func setPairing(_ pairing: Pairing) {}
}

extension CentralCore {
    func ask(_ manager: CBCentralManager, _ request: UInt64, _ body: @Sendable (CBCentralManager) -> [CBPeripheral]) {
        delegate.didRetrieve(body(manager), request)
    }
}

extension CBCentralManager {
    func endedChannels(in dictionary: [String: Any]) -> [UUID: [CBL2CAPPSM]] { [:] }

    func bondedPeripherals() -> [CBPeripheral] { [] }

    func removeBond(with peripheral: CBPeripheral, completion: @escaping @Sendable ((any Error)?) -> Void) {
        completion(CBError(.operationNotSupported))
    }
}

extension CBPeripheral {
    var storableIdentifier: UUID { identifier }
}

extension PeripheralManagerDelegate {
    func publish(_ request: UInt64, withEncryption isEncrypted: Bool) {
        manager?.publishL2CAPChannel(withEncryption: isEncrypted)
    }

    /// One is made at a time.
    var requestOfPublication: UInt64? {
        if let made = publishing.made, case .publish = made.content { made.number } else { nil }
    }
}

extension [CBMutableService] {
    /// The system does not tell in which version of a program a service was published.
    func restored(from state: [String: Any]) -> [CBMutableService] {
        state[CBPeripheralManagerRestoredStateServicesKey] as? [CBMutableService] ?? []
    }
}

extension CBPeripheralManager {
    var channelsToRestore: [RestoredL2CAPChannel] { [] }
}

extension CBL2CAPChannel {
    /// Delivers the events of both streams on a queue.
    func schedule(on queue: DispatchQueue?) {
        CFReadStreamSetDispatchQueue(inputStream as CFReadStream, queue)
        CFWriteStreamSetDispatchQueue(outputStream as CFWriteStream, queue)
    }
}

#endif
