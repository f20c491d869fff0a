public import CoreBluetooth
import Synchronization

/// A remote peripheral of a ``CentralManager``. There is one object for each peripheral of a manager, as long as it is
/// kept.
///
/// Operations are carried out one after the other in the order of their calls. They need a connection, and throw
/// `CBError.notConnected` without one. If it ends, each operation under way, and each sequence of values, throws the
/// error with which the connection has ended.
///
/// Cancelling a task removes its operation from the queue. If the operation has begun, the task does not wait for its
/// answer, which is discarded; whether a write has taken effect is then unknown.
///
/// Releasing the peripheral ends its connection, as with `CBPeripheral`; while one of its channels is open, when that
/// is closed.
public final class Peripheral: Sendable {
    /// Identifies the peripheral: the same each time that this computer sees it.
    public let identifier: UUID
    let core: CentralCore
    private let known = Mutex<(name: String?, state: CBPeripheralState)>((nil, .disconnected))

    init(identifier: UUID, core: CentralCore) { (self.identifier, self.core) = (identifier, core) }

    deinit {
        let identifier = identifier
        core.post { $0.delegate.release(identifier) }
    }

    func update(name: String?, state: CBPeripheralState) { known.withLock { $0 = (name, state) } }

    /// The name of the device, if it is known. Renewed when the peripheral is found or retrieved, while it is
    /// connected, and by each awaited call of it, or of the manager about it.
    public var name: String? { known.withLock { $0.name } }

    /// Whether it is connected to its manager.
    public var state: CBPeripheralState { known.withLock { $0.state } }

    // MARK: Discovery

    /// Discovers services.
    /// - Parameters:
    ///   - serviceUUIDs: Which; nil: all.
    ///   - isolation: The caller's isolation; do not pass it.
    /// - Returns: All services known so far, including those from earlier calls.
    @discardableResult
    public func discoverServices(
        _ serviceUUIDs: [CBUUID]? = nil, isolation: isolated (any Actor)? = #isolation
    ) async throws -> [Service] {
        let answer = try await core.perform(.discoverServices(serviceUUIDs?.map(\.data)), on: self)
        return if case .services(let services) = answer { services } else { [] }
    }

    /// Discovers the services that a service includes.
    /// - Parameters:
    ///   - includedServiceUUIDs: Which; nil: all.
    ///   - service: The service that includes them.
    ///   - isolation: The caller's isolation; do not pass it.
    /// - Returns: All included services known so far, including those from earlier calls.
    @discardableResult
    public func discoverIncludedServices(
        _ includedServiceUUIDs: [CBUUID]? = nil, for service: Service, isolation: isolated (any Actor)? = #isolation
    ) async throws -> [Service] {
        let operation = Operation.discoverIncludedServices(includedServiceUUIDs?.map(\.data), service.number)
        let answer = try await core.perform(operation, on: self)
        return if case .services(let services) = answer { services } else { [] }
    }

    /// Discovers the characteristics of a service.
    /// - Parameters:
    ///   - characteristicUUIDs: Which; nil: all.
    ///   - service: The service that has them.
    ///   - isolation: The caller's isolation; do not pass it.
    /// - Returns: All characteristics known so far, including those from earlier calls.
    @discardableResult
    public func discoverCharacteristics(
        _ characteristicUUIDs: [CBUUID]? = nil, for service: Service, isolation: isolated (any Actor)? = #isolation
    ) async throws -> [Characteristic] {
        let operation = Operation.discoverCharacteristics(characteristicUUIDs?.map(\.data), service.number)
        let answer = try await core.perform(operation, on: self)
        return if case .characteristics(let characteristics) = answer { characteristics } else { [] }
    }

    /// Discovers the descriptors of a characteristic.
    @discardableResult
    public func discoverDescriptors(for characteristic: Characteristic) async throws -> [Descriptor] {
        let answer = try await core.perform(.discoverDescriptors(characteristic.number), on: self)
        return if case .descriptors(let descriptors) = answer { descriptors } else { [] }
    }

    /// Discovers a service and one of its characteristics.
    /// - Throws: ``BluetoothError/notFound`` if the peripheral does not have it.
    public func discoverCharacteristic(
        _ characteristicUUID: CBUUID, in serviceUUID: CBUUID, isolation: isolated (any Actor)? = #isolation
    ) async throws -> Characteristic {
        for service in try await discoverServices([serviceUUID]) where service.uuid == serviceUUID {
            let found = try await discoverCharacteristics([characteristicUUID], for: service)
            if let characteristic = found.first(where: { $0.uuid == characteristicUUID }) { return characteristic }
        }
        throw BluetoothError.notFound
    }

    /// The services that have been discovered; nil if none were asked for, and without a connection. Of a restored
    /// peripheral those that were known before.
    public var services: [Service]? { get async { await core.read(self) { $0.knownServices() } } }

    /// The characteristics of a service that have been discovered; nil if none were asked for.
    public func characteristics(of service: Service) async -> [Characteristic]? {
        await core.read(self) { $0.knownCharacteristics(of: service) }
    }

    /// The descriptors of a characteristic that have been discovered; nil if none were asked for.
    public func descriptors(of characteristic: Characteristic) async -> [Descriptor]? {
        await core.read(self) { $0.knownDescriptors(of: characteristic) }
    }

    /// Services that have become invalid because the peripheral has changed them. Discover services again after that.
    public var serviceChanges: EventSequence<[Service], Never> {
        let identifier = identifier
        return core.sequence {
            if let delegate = $0.peripherals[identifier] {
                delegate.addServiceChanges($1)
            } else {
                $1.finish(throwing: nil)
            }
        } onEnd: { [self] in
            $0.peripherals[self.identifier]?.pruneServiceChanges()
        }
    }

    // MARK: Values

    /// Reads a value, whatever its length.
    ///
    /// CoreBluetooth does not tell the answer to a read from a notification. If the characteristic notifies, the read
    /// may return a value that was notified meanwhile; and ``values(for:bufferSize:)`` gets the values of reads as
    /// well.
    /// - Throws: `CBATTError` if the peripheral refuses.
    public func readValue(for characteristic: Characteristic) async throws -> Data {
        let answer = try await core.perform(.read(characteristic.number), on: self)
        return if case .data(let data) = answer { data } else { Data() }
    }

    /// Reads a descriptor.
    /// - Throws: `CBATTError` if the peripheral refuses.
    public func readValue(for descriptor: Descriptor) async throws -> Descriptor.Value {
        let answer = try await core.perform(.readDescriptor(descriptor.number), on: self)
        return if case .value(let value) = answer { value } else { .data(Data()) }
    }

    /// Writes a value.
    ///
    /// With response, it returns when the peripheral has confirmed. Without response, it returns when the system has
    /// taken the value, and waits while there is no room for it: nothing is lost on this side, so a file can be sent in
    /// a loop.
    /// - Throws: `CBATTError` if the peripheral refuses; without response also if the characteristic does not permit
    ///   it, or `data` is longer than ``maximumWriteValueLength(for:)``.
    public func writeValue(
        _ data: Data, for characteristic: Characteristic, type: CBCharacteristicWriteType = .withResponse
    ) async throws {
        let number = characteristic.number
        _ = try await core.perform(
            type == .withResponse ? .write(data, number) : .writeWithoutResponse(data, number), on: self)
    }

    /// Writes a descriptor. The configuration (2902) is refused; use ``setNotifyValue(_:for:)``.
    /// - Throws: `CBATTError` if the peripheral refuses.
    public func writeValue(_ data: Data, for descriptor: Descriptor) async throws {
        _ = try await core.perform(.writeDescriptor(data, descriptor.number), on: self)
    }

    /// How many bytes a write can have. Grows when the two sides have agreed on packets of another length, so ask right
    /// before use; 0 without a connection.
    public func maximumWriteValueLength(for type: CBCharacteristicWriteType) async -> Int {
        await core.read(self) { $0.isConnected ? $0.peripheral.maximumWriteValueLength(for: type) : nil } ?? 0
    }

    // MARK: Notifications

    /// The values that a characteristic notifies or indicates, each of them once and in order.
    ///
    /// Subscribes before anything that is asked of the peripheral after this call. So the answer to a request that is
    /// written next cannot be missed:
    ///
    /// ```swift
    /// let answers = peripheral.values(for: response)
    /// try await peripheral.writeValue(request, for: command)
    /// for try await answer in answers { ... }
    /// ```
    ///
    /// When the last of its consumers is gone, it unsubscribes, unless ``setNotifyValue(_:for:)`` has subscribed as
    /// well. The peripheral is kept as long as the sequence is. The values of a restored subscription, the last 10,000,
    /// wait for its first consumer.
    /// - Parameters:
    ///   - characteristic: One that notifies or indicates.
    ///   - bufferSize: How many values wait at most: the newest ones. By default all wait, and none is lost; give a
    ///     size where only the last values count, or memory does.
    /// - Returns: A sequence that throws why there can be no subscription, or why the connection has ended.
    public func values(
        for characteristic: Characteristic, bufferSize: Int = .max
    ) -> EventSequence<Data, any Error> {
        core.sequence(bufferSize: bufferSize) { [self] central, subscription in
            if let delegate = central.peripherals[identifier] {
                delegate.addValues(subscription, of: characteristic)
            } else {
                subscription.finish(throwing: BluetoothError.managerReleased)
            }
        } onEnd: { [self] in
            $0.peripherals[identifier]?.pruneValues(of: characteristic)
        }
    }

    /// Switches notifications or indications on or off, apart from those that ``values(for:bufferSize:)`` needs.
    /// - Throws: `CBATTError.requestNotSupported` if the characteristic has neither, `CBATTError.attributeNotFound` if
    ///   it has no descriptor 2902, or another `CBATTError` if the peripheral refuses.
    public func setNotifyValue(_ enabled: Bool, for characteristic: Characteristic) async throws {
        _ = try await core.perform(.setNotify(enabled, characteristic.number), on: self)
    }

    /// Whether the characteristic notifies or indicates now.
    public func isNotifying(_ characteristic: Characteristic) async -> Bool {
        await core.read(self) { $0.isNotifying(characteristic) } ?? false
    }

    // MARK: Link

    /// Reads the signal strength, in dBm: on Linux that of the last advertisement, as BlueZ tells none of a connection.
    /// - Throws: `CBError.operationNotSupported` if there was no advertisement (Linux), `CBError.notConnected` without
    ///   a connection.
    public func readRSSI() async throws -> Int {
        let answer = try await core.perform(.readRSSI, on: self)
        return if case .rssi(let value) = answer { value } else { 127 }
    }

    /// Opens an L2CAP channel.
    /// - Parameter psm: What the peripheral serves, usually read from a characteristic just before.
    /// - Throws: `CBError`, see `CBPeripheral.openL2CAPChannel(_:)`.
    public func openL2CAPChannel(_ psm: CBL2CAPPSM) async throws -> L2CAPChannel {
        guard case .channel(let channel) = try await core.perform(.openChannel(psm), on: self) else {
            throw CBError(.unknown)
        }
        return channel
    }
}

extension Peripheral: Hashable, Identifiable {
    /// Its ``identifier``.
    public var id: UUID { identifier }
    /// Whether both are the same object. Those of two managers are not.
    public static func == (a: Peripheral, b: Peripheral) -> Bool { a === b }
    /// Hashes the object.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
