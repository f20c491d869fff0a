import BluezKitRestore
import Foundation

/// **BluezKit addition.** In the dictionary of `peripheralManager(_:willRestoreState:)`: the PSMs under which the
/// earlier process had published L2CAP channels, an array of `NSNumber`. They are published again when Bluetooth is on,
/// and `peripheralManager(_:didPublishL2CAPChannel:error:)` says for each of them, in the same order, which PSM it has
/// now: the same, unless another program has taken it meanwhile.
public let BluezPeripheralManagerRestoredStateChannelsKey: String = "BluezRestoredChannels"

/// **BluezKit addition.** In the dictionary of `centralManager(_:willRestoreState:)`: the L2CAP channels that were open
/// when the earlier process ended, which ended them. A dictionary from the identifiers of the peripherals (`UUID`) to
/// arrays of PSMs (`NSNumber`); open them again when you need them.
///
/// ```swift
/// let ended = dict[BluezCentralManagerRestoredStateEndedChannelsKey] as? [UUID: [NSNumber]] ?? [:]
/// for (identifier, psms) in ended { print("\(identifier): \(psms.count) channels are to be opened again") }
/// ```
/// A peer may have given a channel another PSM since: read it again, as on a new connection.
public let BluezCentralManagerRestoredStateEndedChannelsKey: String = "BluezRestoredEndedChannels"

/// **BluezKit addition.** An L2CAP channel that a `CBPeripheralManager` publishes.
public struct BluezPublishedChannel: Hashable, Sendable {
    /// Its PSM.
    public let psm: CBL2CAPPSM
    /// Whether only a central on an encrypted link may open it.
    public let isEncryptionRequired: Bool
}

extension CBPeripheralManager {
    /// **BluezKit addition.** The L2CAP channels that are published, in the order in which they were. In
    /// `peripheralManager(_:willRestoreState:)`, and until they are published again, the restored ones are in it with
    /// the PSMs that they had. A version of the app that wants another encryption unpublishes the channel in that
    /// callback, and publishes one when Bluetooth is on:
    ///
    /// ```swift
    /// func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any]) {
    ///     for channel in peripheral.publishedChannels where !channel.isEncryptionRequired {
    ///         peripheral.unpublishL2CAPChannel(channel.psm)  // no central can open it any more
    ///     }
    /// }
    /// ```
    public var publishedChannels: [BluezPublishedChannel] {
        shared.withLock { $0.channels }.map { BluezPublishedChannel(psm: $0.psm, isEncryptionRequired: $0.isEncrypted) }
    }

    /// **BluezKit addition.** Listens for L2CAP channels like ``publishL2CAPChannel(withEncryption:)``, and answers
    /// this call instead of the delegate, which cannot tell the answer from that to another call, or from a restored
    /// channel. Channels that centrals open are reported to the delegate.
    ///
    /// ```swift
    /// manager.publishL2CAPChannel(withEncryption: true) { result in
    ///     switch result {
    ///     case .success(let psm): print("centrals may open", psm)
    ///     case .failure(let error): print("no channel: \(error.localizedDescription)")
    ///     }
    /// }
    /// ```
    /// - Parameters:
    ///   - encryptionRequired: Whether only a central on an encrypted link may open the channel.
    ///   - completion: Called once, on the delegate's queue, with the PSM; with `CBError.notConnected` if Bluetooth is
    ///     not on. Not called if the manager is released, or if Bluetooth goes away, of which the state tells.
    public func publishL2CAPChannel(
        withEncryption encryptionRequired: Bool,
        completion: @escaping @Sendable (Result<CBL2CAPPSM, CBError>) -> Void
    ) {
        guard !publishChannel(isEncrypted: encryptionRequired, ticket: { mirror.await(completion) }) else { return }
        let ticket = mirror.await(isRefused: true, completion)
        backend.report(.channelNotPublished(AppError(CBError(.notConnected)), ticket: ticket))
    }
}

extension CBMutableCharacteristic {
    /// **BluezKit addition.** A characteristic of the type `CBUUIDL2CAPPSMCharacteristicString`, from which centrals
    /// read the PSM of a published L2CAP channel. Publish the channel, then a service with this characteristic. If the
    /// channel is published again under another PSM, after restoration, replace that service. An example is at
    /// ``CBPeripheralManager/publishL2CAPChannel(withEncryption:)``. The value has two bytes, the low one first.
    /// - Parameters:
    ///   - psm: The PSM, from `peripheralManager(_:didPublishL2CAPChannel:error:)`.
    ///   - permissions: `.readable`, or `.readEncryptionRequired` where the channel demands an encrypted link as well.
    public convenience init(l2capPSM psm: CBL2CAPPSM, permissions: CBAttributePermissions = .readable) {
        let value = Data([UInt8(truncatingIfNeeded: psm), UInt8(truncatingIfNeeded: psm >> 8)])
        self.init(
            type: CBUUID(string: CBUUIDL2CAPPSMCharacteristicString), properties: .read, value: value,
            permissions: permissions)
    }
}

extension CBCharacteristic {
    /// **BluezKit addition.** The PSM in the value of a characteristic of the type
    /// `CBUUIDL2CAPPSMCharacteristicString`: 2 bytes, the low one first. Nil if it has another type, was not read yet,
    /// or has another length. An example is at ``CBPeripheral/openL2CAPChannel(_:)``.
    public var l2capPSM: CBL2CAPPSM? {
        guard uuid == CBUUID(string: CBUUIDL2CAPPSMCharacteristicString), let value, value.count == 2 else {
            return nil
        }
        return CBL2CAPPSM(value[value.startIndex]) | CBL2CAPPSM(value[value.startIndex + 1]) << 8
    }
}
