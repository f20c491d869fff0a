public import CoreBluetooth
import Synchronization

/// The peripheral role with Swift concurrency: publishes services, advertises, and answers centrals.
///
/// ```swift
/// let manager = PeripheralManager()
/// let level = CBMutableCharacteristic(
///     type: CBUUID(string: "2A6E"), properties: [.read, .notify], value: nil, permissions: .readable)
/// let service = CBMutableService(type: CBUUID(string: "181A"), primary: true)
/// service.characteristics = [level]
/// let requests = manager.requests
/// let published = try await manager.add(service)
/// try await manager.startAdvertising([CBAdvertisementDataServiceUUIDsKey: [CBUUID(string: "181A")]])
/// for await request in requests { request.respond(with: Data([0x34, 0x08])) }
/// ```
///
/// All methods may be called from any task and any actor. Cancelling a task cancels what it waits for: an advertisement
/// is stopped, a service that is being added is removed, an update that waits for room is not sent. Releasing the
/// manager ends everything, and all its sequences.
public final class PeripheralManager: Sendable {
    let core: PeripheralManagerCore

    /// Makes a `CBPeripheralManager`. It works at once; the first operation waits until the state of Bluetooth is
    /// known.
    /// - Parameter options: As in `CBPeripheralManager(delegate:queue:options:)`.
    public init(options: sending [String: Any]? = nil) {
        core = PeripheralManagerCore()
        core.start(options: options, restoring: [])
    }

    /// Makes a `CBPeripheralManager` for a program whose services may differ from those of its earlier version.
    /// - Parameters:
    ///   - options: With `CBPeripheralManagerOptionRestoreIdentifierKey`, otherwise nothing is restored.
    ///   - services: The services of this version, included ones before those that include them. They are not published
    ///     by this. A restored service of the same type with other contents, which an earlier version may have
    ///     protected less, is withdrawn before a central sees it, and is not among
    ///     ``RestoredPeripheralState/services``: add this version's. No effect on Apple's systems.
    public init(options: sending [String: Any]? = nil, restoring services: sending [CBMutableService]) {
        core = PeripheralManagerCore()
        core.start(options: options, restoring: services)
    }

    deinit { core.post { $0.delegate.shutDown() } }

    // MARK: State

    /// The current state. ``states`` has its changes.
    public var state: CBManagerState { core.state.withLock { $0 } }

    /// The current state of Bluetooth, and then each change. In a state below `.poweredOff` what was published before
    /// is gone, with a restore identifier as well, and must be published again; only what was restored, while Bluetooth
    /// has not been on yet, is published when it is.
    public var states: EventSequence<CBManagerState, Never> { core.sequence { $0.addStates($1) } }

    /// Waits until Bluetooth is on.
    /// - Throws: ``BluetoothError/unavailable(_:)`` if it is switched off, not permitted, or does not exist.
    public func waitUntilReady() async throws { try await states.waitUntilReady() }

    /// What was preserved from an earlier run of this program, if it gave
    /// `CBPeripheralManagerOptionRestoreIdentifierKey` in both. Has one element or none, then ends. The first consumer
    /// that takes it gets it, however late it comes; not after a restart of bluetoothd, which has ended it.
    public var restoredState: EventSequence<RestoredPeripheralState, Never> {
        core.sequence(once: core.restored) { $0.addRestoration($1) }
    }

    // MARK: Services

    /// Publishes a service, and waits until centrals can see it.
    /// - Parameter service: A service with its characteristics. It belongs to the manager from now on. In place of an
    ///   included one that was not added, the restored one of its type is included.
    /// - Returns: What stands for it from now on.
    /// - Throws: `CBError` if the system refuses it.
    @discardableResult
    public func add(_ service: sending CBMutableService) async throws -> PublishedService {
        let service = Parcel(service)
        try await states.awaitKnownState(state)
        return try await core.add(service)
    }

    /// Withdraws a service.
    public func remove(_ service: PublishedService) async { await core.remove(service) }

    /// Withdraws all services.
    public func removeAllServices() async { await core.removeAllServices() }

    // MARK: Advertising

    /// Whether it advertises.
    public var isAdvertising: Bool { get async { await core.isAdvertising() } }

    /// Advertises until ``stopAdvertising()``, or until Bluetooth goes off.
    /// - Parameter advertisementData: `CBAdvertisementDataLocalNameKey` and `CBAdvertisementDataServiceUUIDsKey`.
    /// - Throws: `CBError.alreadyAdvertising` if it advertises, or is about to; other `CBError`s if the system refuses.
    public func startAdvertising(_ advertisementData: sending [String: Any]? = nil) async throws {
        let data = Parcel(advertisementData)
        try await states.awaitKnownState(state)
        try await core.startAdvertising(data)
    }

    /// Stops advertising. A ``startAdvertising(_:)`` under way throws `CBError.operationCancelled`.
    public func stopAdvertising() async { await core.stopAdvertising() }

    // MARK: Centrals

    /// What centrals read and write. Each request is answered exactly once, with its `respond` methods; one that is
    /// released without an answer, because there is no consumer or it does not keep up, is refused. On Linux the answer
    /// must come within 5 s of the request, also if that has waited for a consumer: after that the central gets an
    /// error (Unlikely Error, 0x0E).
    ///
    /// Several consumers get the same requests; the first answer counts. The last 256 requests that come before there
    /// is any consumer wait for it, or for the next one if it ends before it has taken any. What a consumer has not
    /// taken when it ends goes to those that have come since, before what is newer and waits for them. Those that come
    /// when one has ended, and no other one is there yet, are refused.
    public var requests: EventSequence<ATTRequest, Never> {
        core.sequence(add: { $0.addRequests($1) }, giveBack: { $0.giveBack($1, hasTaken: $2) })
    }

    /// Who subscribes to which characteristic, and who does so no more.
    public var subscriptions: EventSequence<SubscriptionChange, Never> { core.sequence { $0.subscriptions.add($1) } }

    /// The centrals that are subscribed to a characteristic.
    public func subscribedCentrals(of characteristic: PublishedCharacteristic) async -> [Central] {
        await core.subscribedCentrals(of: characteristic)
    }

    /// Sends a value to subscribers, by notification or indication, and waits while there is no room for it. Updates
    /// are sent in the order of their calls, and none is lost on this side.
    /// - Parameters:
    ///   - value: Each central gets as much of it as its ``Central/maximumUpdateValueLength`` permits.
    ///   - characteristic: One that is published.
    ///   - centrals: Which of the subscribers; nil: all.
    /// - Throws: `CBError.invalidHandle` if the characteristic is not published any more,
    ///   ``BluetoothError/unavailable(_:)`` if Bluetooth is not on, ``BluetoothError/managerReleased``.
    public func updateValue(
        _ value: Data, for characteristic: PublishedCharacteristic, onSubscribedCentrals centrals: [Central]? = nil
    ) async throws {
        try await core.update(
            Update(value: value, centrals: centrals?.map(\.identifier)), of: characteristic.number)
    }

    /// Publishes an L2CAP channel. The channels that centrals open come in ``openedChannels``.
    /// - Parameter encryptionRequired: Whether centrals must have paired.
    /// - Returns: The PSM that the system has chosen. Make it known to centrals, for instance as a characteristic's
    ///   value.
    /// - Throws: `CBError` if the system refuses, ``BluetoothError/unavailable(_:)`` if Bluetooth is not on.
    public func publishL2CAPChannel(withEncryption encryptionRequired: Bool) async throws -> CBL2CAPPSM {
        try await states.awaitKnownState(state)
        return try await core.publishChannel(withEncryption: encryptionRequired)
    }

    /// The PSM of a channel that an earlier process had published. Waits until it is published again: under the same
    /// PSM, unless another program has taken that meanwhile.
    /// - Throws: `CBError` if it cannot be published, or is withdrawn, or ``BluetoothError/unavailable(_:)`` if
    ///   Bluetooth is not on, or goes off.
    public func psm(of channel: RestoredL2CAPChannel) async throws -> CBL2CAPPSM {
        try await states.awaitKnownState(state)
        return try await core.psm(of: channel)
    }

    /// Withdraws a channel, and closes those that centrals have opened.
    /// - Parameter psm: What ``publishL2CAPChannel(withEncryption:)`` has returned, or a restored channel's. One that
    ///   is not published yet is withdrawn before a central can open it, also while Bluetooth has not been on.
    /// - Throws: `CBError` if this manager does not publish it.
    public func unpublishL2CAPChannel(_ psm: CBL2CAPPSM) async throws {
        try await states.awaitKnownState(state)
        try await core.unpublishChannel(psm)
    }

    /// The channels that centrals open. Without a consumer they are closed.
    public var openedChannels: EventSequence<L2CAPChannel, Never> { core.sequence { $0.openedChannels.add($1) } }

    /// Asks for a connection interval that suits a latency. The system may ignore it.
    public func setDesiredConnectionLatency(_ latency: CBPeripheralManagerConnectionLatency, for central: Central) async
    {
        await core.setLatency(latency, for: central)
    }
}

/// A service that a ``PeripheralManager`` has published.
public struct PublishedService: Hashable, Sendable {
    let number: UInt64
    private let uuidData: Data
    /// Its characteristics, in the order in which they were added.
    public let characteristics: [PublishedCharacteristic]

    init(number: UInt64, _ service: CBService, _ characteristics: [PublishedCharacteristic]) {
        (self.number, uuidData, self.characteristics) = (number, service.uuid.data, characteristics)
    }

    /// The kind of service.
    public var uuid: CBUUID { CBUUID(data: uuidData) }
}

/// A characteristic of a published service.
public struct PublishedCharacteristic: Hashable, Sendable {
    let number: UInt64
    private let uuidData: Data

    init(number: UInt64, _ characteristic: CBCharacteristic) {
        (self.number, uuidData) = (number, characteristic.uuid.data)
    }

    /// The kind of characteristic.
    public var uuid: CBUUID { CBUUID(data: uuidData) }
}

/// A remote device that uses the services of a ``PeripheralManager``.
public struct Central: Hashable, Identifiable, Sendable {
    /// Identifies the central: the same each time that this computer sees it.
    public let identifier: UUID
    /// How many bytes it gets of one update, at the time of the event that this came with.
    public let maximumUpdateValueLength: Int

    init(_ central: CBCentral) {
        (identifier, maximumUpdateValueLength) = (central.identifier, central.maximumUpdateValueLength)
    }

    /// Its ``identifier``.
    public var id: UUID { identifier }
    /// Whether both are the same device.
    public static func == (a: Central, b: Central) -> Bool { a.identifier == b.identifier }
    /// Hashes the identifier.
    public func hash(into hasher: inout Hasher) { hasher.combine(identifier) }
}

/// A central has subscribed to a characteristic, or has ended its subscription, or was disconnected.
public struct SubscriptionChange: Sendable {
    /// Who.
    public let central: Central
    /// To what.
    public let characteristic: PublishedCharacteristic
    /// Whether it is subscribed now.
    public let isSubscribed: Bool
}

/// What a ``PeripheralManager`` had published when its program ended.
public struct RestoredPeripheralState: Sendable {
    /// The services. They are published, and must not be added again. Those that an earlier version of the program has
    /// published with other contents are among them, unless ``PeripheralManager/init(options:restoring:)`` was told
    /// what this one has.
    public let services: [PublishedService]
    /// What is advertised; nil if nothing is.
    public let advertisementData: AdvertisementData?
    /// The L2CAP channels. They are published, and must not be published again; ``PeripheralManager/psm(of:)`` tells
    /// the PSMs that they have now. Empty on Apple's systems, which do not tell.
    public let channels: [RestoredL2CAPChannel]
}

/// An L2CAP channel that an earlier process had published.
public struct RestoredL2CAPChannel: Hashable, Sendable {
    let number: UInt64
    /// The PSM that it had.
    public let psm: CBL2CAPPSM
    /// Whether centrals must have paired.
    public let isEncryptionRequired: Bool
}

/// A central reads a value, or writes one or several.
public final class ATTRequest: Sendable {
    /// One value that is written.
    public struct Write: Hashable, Sendable {
        /// What is written.
        public let characteristic: PublishedCharacteristic
        /// Where in the value `value` begins. Long writes come in several parts.
        public let offset: Int
        /// The bytes.
        public let value: Data
    }

    /// What is asked for.
    public enum Kind: Hashable, Sendable {
        /// A value, from this offset on. ``ATTRequest/respond(with:)`` takes care of it.
        case read(offset: Int)
        /// To write all of these, or none of them.
        case write([Write])
    }

    /// What is asked for.
    public let kind: Kind
    /// By whom.
    public let central: Central
    /// The characteristic that is read, or the first one that is written.
    public let characteristic: PublishedCharacteristic
    let number: UInt64
    private let core: PeripheralManagerCore
    private let isAnswered = Mutex(false)

    init(
        _ kind: Kind, _ number: UInt64, _ central: Central, _ characteristic: PublishedCharacteristic,
        core: PeripheralManagerCore
    ) {
        (self.kind, self.number, self.central, self.characteristic) = (kind, number, central, characteristic)
        self.core = core
    }

    deinit { respond(.unlikelyError) }

    /// Answers a read.
    /// - Parameter value: The whole value, whatever part of it is asked for. If it is shorter than the offset, the
    ///   answer is `.invalidOffset`. With a write, it means success.
    public func respond(with value: Data) { answer(.success, value) }

    /// Answers a write, or refuses either.
    /// - Parameter result: The result that the central gets. Success for a read is an empty value.
    public func respond(_ result: CBATTError.Code = .success) { answer(result, Data()) }

    private func answer(_ result: CBATTError.Code, _ value: Data) {
        let isFirst = isAnswered.withLock { isAnswered in
            defer { isAnswered = true }
            return !isAnswered
        }
        guard isFirst else { return }
        let number = number
        core.post { $0.delegate.respond(number, result, value) }
    }
}
