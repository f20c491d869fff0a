import CoreBluetooth

// What BluezKit adds to CoreBluetooth, and what takes its place where the system's CoreBluetooth does not have it. No other file of
// this module depends on the platform.

#if canImport(BluezKit)

/// After a reset an async manager's work has ended, whether or not it is preserved: its tasks have been told so, and begin again.
/// So nothing resumes below them.
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

extension PeripheralManagerLink {
    /// Publishes a channel, and has ``didPublish(_:by:)`` called.
    func publish(_ request: UInt64, withEncryption isEncrypted: Bool) {
        manager?.publishL2CAPChannel(withEncryption: isEncrypted) { [weak core] result in
            core?.assumeIsolated { $0.link.didPublish(result.mapError { $0 }, by: request) }
        }
    }

    /// The request that the delegate's callback answers; nil: none, it is about a restored channel.
    var requestOfPublication: UInt64? { nil }
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

extension CBCentralManager {
    func endedChannels(in dictionary: [String: Any]) -> [UUID: [CBL2CAPPSM]] { [:] }
}

extension PeripheralManagerLink {
    func publish(_ request: UInt64, withEncryption isEncrypted: Bool) {
        manager?.publishL2CAPChannel(withEncryption: isEncrypted)
    }

    /// One is made at a time.
    var requestOfPublication: UInt64? {
        if let made = publishing.made, case .publish = made.content { made.number } else { nil }
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
