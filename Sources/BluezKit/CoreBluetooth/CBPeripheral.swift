import BluezKitRestore
public import Foundation

/// A remote peripheral: its link, its services and their values.
///
/// ```swift
/// import CoreBluetooth
/// final class BatteryReader: NSObject, CBPeripheralDelegate {
///     func read(_ peripheral: CBPeripheral) {  // it is connected
///         peripheral.delegate = self
///         peripheral.discoverServices([CBUUID(string: "180F")])
///     }
///     func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
///         for service in peripheral.services ?? [] { peripheral.discoverCharacteristics(nil, for: service) }
///     }
///     func peripheral(
///         _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
///     ) {
///         for characteristic in service.characteristics ?? [] { peripheral.readValue(for: characteristic) }
///     }
///     func peripheral(
///         _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
///     ) {
///         if error == nil, let percent = characteristic.value?.first { print("\(percent) %") }
///     }
/// }
/// ```
///
/// **Lifetime:** A manager has one object for each peripheral, and holds it weakly: keep it as long as you need it, and
/// keep its delegate. Releasing it cancels the attempt or ends the connection, without a callback (CN-1). Services,
/// characteristics and descriptors are valid until the link ends or
/// ``CBPeripheralDelegate/peripheral(_:didModifyServices:)`` lists their service; requests about invalid
/// ones are dropped with a log line (MIS-4).
///
/// **Queue:** All callbacks are made on the queue of its manager. Every method may be called from any thread, and none
/// waits for BlueZ. What the app can see, such as a characteristic's `value`, changes on that queue, just before the
/// callback that announces it.
///
/// **Order:** Requests need a connection; without one they are dropped with a log line (MIS-2). Each request gets
/// exactly one answer, in the order of the calls (RW-1), unless the link ends: then it gets none, and the manager's
/// delegate gets `didDisconnectPeripheral`. So the app need not wait for one answer before the next request.
/// ``openL2CAPChannel(_:)`` is the exception: its answers do not wait for those of other requests.
///
/// **Errors:** An answer carries the error: a ``CBATTError`` with the peer's code if the peer has refused the request,
/// otherwise a ``CBError`` (ERR-1).
/// - SeeAlso: Apple, `CBPeripheral`; Core Spec 5.4, Vol 3, Part G (GATT). Rules such as CN-1 are in `Docs/CONTRACT.md`.
open class CBPeripheral: CBPeer, @unchecked Sendable {  // holds: what changes is under `shared`'s lock
    let identity: DeviceIdentity
    /// Its manager's.
    let backend: any CentralBackend
    let mirror: CentralMirror

    struct Shared {
        /// The app's present connect, cancel or link: what belongs to an earlier one is of no interest.
        var connectionID = ConnectionID.none
        /// The first one that this object had: another object may have been connected to the same device before.
        var firstConnectionID = ConnectionID.none
        weak var delegate: (any CBPeripheralDelegate)?
        var state = CBPeripheralState.disconnected
        var device = DeviceFacts()
        var services: [CBService]?
        /// All attributes that were returned on this link (GD-4).
        var attributes: [AttributeID: CBAttribute] = [:]
        /// Those that the app has asked something about that is not answered yet, and how often.
        var requested: [AttributeID: (attribute: CBAttribute, count: Int)] = [:]
        var mtuBytes: Int?
        /// Whether programs with BluezKit have made the link.
        var isOurs: Bool?
        var isInvalid = false
        /// Writes without response that BlueZ has not taken yet.
        var commands = CommandFlow()
        /// The app's options for `connect`, as far as they are numbers.
        var connectRequest = ConnectRequest(options: [:])
        /// Characteristics that the app is subscribed to, from `setNotifyValue` on.
        var subscribed: Set<AttributeID> = []
        var channels: [OpenChannel] = []
    }

    /// What is known of the device, connected or not.
    struct DeviceFacts {
        var name: String?
        var rssi: NSNumber?
        var isBonded = false
        /// The address of the adapter with which it is, or was.
        var bondAdapter: String?
        /// Its identity, if `identifier` was derived from a private address.
        var resolved: DeviceIdentity?
    }

    let shared = Protected(Shared())

    /// An L2CAP channel that was opened on this link.
    struct OpenChannel {
        let number: UInt32
        let psm: CBL2CAPPSM
        let connectionID: ConnectionID
        weak var endpoint: ChannelEndpoint?
    }

    init(identity: DeviceIdentity, manager: CBCentralManager) {
        (self.identity, backend, mirror) = (identity, manager.backend, manager.mirror)
        super.init(identifier: identity.identifier)
    }

    deinit {
        // Most peripherals are only discovered.
        let (connectionID, state) = shared.withLock { ($0.connectionID, $0.state) }
        guard connectionID != .none else { return }
        let isInUse = state == .connecting || state == .connected
        if isInUse { mirror.manager?.book?.forget(identifier, of: self) }
        backend.send(.release(identity, connectionID))
        if isInUse {
            mirror.logRelease(of: identity, wasConnected: state == .connected, after: backend.timing.link.release)
        }
    }

    /// Receives the events of this peripheral. Held weakly.
    open weak var delegate: (any CBPeripheralDelegate)? {
        get { shared.withLock { $0.delegate } }
        set { shared.withLock { $0.delegate = newValue } }
    }

    /// The device's name: the advertised one until its GAP name is known, then that. Nil if neither is known.
    open var name: String? { shared.withLock { $0.device.name } }

    /// The value of the last successful ``readRSSI()``.
    @available(*, deprecated, message: "Use readRSSI() and peripheral(_:didReadRSSI:error:)")
    open var rssi: NSNumber? { shared.withLock { $0.device.rssi } }

    /// The connection from this app's point of view. Connections of other programs are not considered. It changes in
    /// ``CBCentralManager/connect(_:options:)`` and ``CBCentralManager/cancelPeripheralConnection(_:)``, and otherwise
    /// just before the callback that announces the change.
    open var state: CBPeripheralState { shared.withLock { $0.state } }

    /// The primary services discovered on this link; nil before the first service discovery and after the end of the
    /// link.
    open var services: [CBService]? { shared.withLock { $0.services } }

    /// Whether a write without response can be accepted now. While true, none is dropped. After it was false, continue
    /// in ``CBPeripheralDelegate/peripheralIsReady(toSendWriteWithoutResponse:)``, which is called once each time.
    ///
    /// ```swift
    /// func sendMore() {  // call it to begin with, and in `peripheralIsReady`
    ///     while !data.isEmpty, peripheral.canSendWriteWithoutResponse {
    ///         let chunk = data.prefix(peripheral.maximumWriteValueLength(for: .withoutResponse))
    ///         peripheral.writeValue(chunk, for: characteristic, type: .withoutResponse)
    ///         data.removeFirst(chunk.count)
    ///     }
    /// }
    /// ```
    /// It is false while BlueZ's socket is full, and from 64 waiting writes until half of them are gone; and without a
    /// connection. Where BlueZ gives no socket, a write waits until BlueZ has answered the previous ones: BlueZ itself
    /// takes any number of them, and does not tell when they are sent.
    open var canSendWriteWithoutResponse: Bool { shared.withLock { $0.state == .connected && !$0.commands.isFull } }

    /// Apple Notification Center Service, which does not exist on Linux: false.
    open var ancsAuthorized: Bool { false }

    open override var description: String {
        let (name, state, mtu) = shared.withLock { ($0.device.name, $0.state, $0.mtuBytes) }
        let address = String(UInt(bitPattern: ObjectIdentifier(self)), radix: 16)
        return "<CBPeripheral: 0x\(address), identifier = \(identifier.uuidString), name = \(name ?? "(null)"), "
            + "mtu = \(mtu ?? 23), state = \(state)>"
    }

    // MARK: Requests

    /// Checks MIS-2 and MIS-4, and passes the request to the bus queue.
    /// - Parameters:
    ///   - attribute: What it is about; nil: the peripheral.
    ///   - change: Changes what is preserved of the attribute, before that.
    private func request(
        _ attribute: CBAttribute? = nil, _ command: StaticString = #function, change: ((inout Shared) -> Void)? = nil,
        _ make: (AttributeID) -> AttributeRequest
    ) {
        // In one step: the number means another attribute on another link.
        let connectionID = shared.withLock { shared -> ConnectionID? in
            guard shared.state == .connected, shared.knows(attribute) else { return nil }
            if let attribute { shared.requested[attribute.id, default: (attribute, 0)].count += 1 }
            change?(&shared)
            return shared.connectionID
        }
        guard let connectionID else { return refuse(attribute, command) }
        if change != nil, let characteristic = attribute as? CBCharacteristic { preserve(characteristic) }
        let request = make(attribute?.id ?? .none)
        mirror.onRequest?(self, request)
        backend.sendHere(.perform(request, identity, connectionID), generation: nil)
    }

    func refuse(_ attribute: CBAttribute?, _ command: StaticString) {
        guard let attribute, state == .connected else {
            return Log.misuse("\(self) \(command): can only accept commands while in the connected state")
        }
        Log.misuse("\(command): \(attribute) is not an attribute of \(self), or was invalidated")
    }

    private func warnWithoutDelegate(_ command: StaticString = #function) {
        if delegate == nil { Log.misuse("\(self) \(command): delegate is nil, so the answer will be lost") }
    }

    /// Reads the signal strength. Answered by `didReadRSSI`.
    ///
    /// - Important: BlueZ reports the signal strength of advertisements, not of links: the answer is the last one
    ///   received, or an error (`CBError.operationNotSupported`, RSSI 127) if there was none in this process.
    open func readRSSI() {
        warnWithoutDelegate()
        request { _ in .readRSSI }
    }

    /// Discovers primary services. Answered by ``CBPeripheralDelegate/peripheral(_:didDiscoverServices:)``, once BlueZ
    /// has resolved the table, for which it waits as long as the link lasts.
    ///
    /// Results are added to ``services``, in the order of the peer's table. Their characteristics are not discovered:
    /// ask for them with ``discoverCharacteristics(_:for:)``.
    /// - Parameter serviceUUIDs: The services to discover; nil or empty: all. One that the peer does not have is
    ///   missing in the result, and no error (GD-5).
    open func discoverServices(_ serviceUUIDs: [CBUUID]?) {
        warnWithoutDelegate()
        request { _ in .discoverServices(serviceUUIDs?.map(CodableUUID.init)) }
    }

    /// Discovers the services that `service` includes. Answered by `didDiscoverIncludedServicesFor`.
    open func discoverIncludedServices(_ includedServiceUUIDs: [CBUUID]?, for service: CBService) {
        request(service) { .discoverIncludedServices(includedServiceUUIDs?.map(CodableUUID.init), $0) }
    }

    /// Discovers characteristics. Answered by `didDiscoverCharacteristicsFor`.
    /// - Parameters:
    ///   - characteristicUUIDs: The characteristics to discover; nil or empty: all.
    ///   - service: A service that was discovered.
    open func discoverCharacteristics(_ characteristicUUIDs: [CBUUID]?, for service: CBService) {
        warnWithoutDelegate()
        request(service) { .discoverCharacteristics(characteristicUUIDs?.map(CodableUUID.init), $0) }
    }

    /// Discovers descriptors. Answered by `didDiscoverDescriptorsFor`.
    open func discoverDescriptors(for characteristic: CBCharacteristic) {
        request(characteristic) { .discoverDescriptors($0) }
    }

    /// Reads the whole value, at most 512 bytes. Answered by `didUpdateValueFor`; a refusal by the peer is a
    /// `CBATTError`. If the peer demands encryption, pairing comes first, and the answer after that (CN-14): see
    /// ``CBCentralManager/pairing``.
    open func readValue(for characteristic: CBCharacteristic) {
        request(characteristic) { .read($0) }
    }

    /// Reads a descriptor. Answered by `didUpdateValueFor`.
    open func readValue(for descriptor: CBDescriptor) {
        request(descriptor) { .readDescriptor($0) }
    }

    /// The largest value, in bytes, that one write can carry.
    ///
    /// `.withResponse`: 512, the largest attribute. `.withoutResponse`: ATT_MTU - 3, at most 512; 20 until the MTU is
    /// known. When that is:
    /// - in `didConnect`, if there was a link already, of another program or manager;
    /// - for a restored peripheral whose link is still there, milliseconds after `willRestoreState`;
    /// - otherwise before `didDiscoverServices`, and without service discovery at about the same time: BlueZ exchanges
    ///   the MTU after it has reported the link, and tells the result with the attributes.
    ///
    /// It never becomes smaller while the link is up, and changes on the manager's queue only.
    /// - Important: Check it before each write: the value may grow once after `didConnect`.
    /// - SeeAlso: Core Spec 5.4, Vol 3, Part F, 3.2.9 and 3.4.5.3; BlueZ doc/org.bluez.GattCharacteristic.rst, `MTU`.
    @discardableResult
    open func maximumWriteValueLength(for type: CBCharacteristicWriteType) -> Int {
        switch type {
        case .withResponse: 512
        case .withoutResponse: min((mtuBytes ?? 23) - 3, 512)
        }
    }

    /// Writes a value. `.withResponse` is answered by `didWriteValueFor`; long values are automatically written in
    /// several parts. `.withoutResponse` is not answered: a write that is too long, or to a characteristic that does
    /// not allow it, is dropped and logged. Writes of both types reach the peripheral in the order of the calls.
    ///
    /// ```swift
    /// func switchOn() { peripheral.writeValue(Data([1]), for: characteristic, type: .withResponse) }
    ///
    /// func peripheral(
    ///     _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    /// ) {
    ///     if let error { print("not written: \(error.localizedDescription)") }  // `characteristic.value` is unchanged
    /// }
    /// ```
    /// An error of a write with response is a ``CBATTError`` if the peer refuses: `.requestNotSupported` for a
    /// characteristic without the property `.write`, `.writeNotPermitted` where the peer does not allow writing,
    /// `.invalidAttributeValueLength` above 512 bytes, or another code of the peer. Otherwise it is a ``CBError``, such
    /// as `.invalidHandle` if the characteristic has gone; `Docs/ERRORS.md` lists them all.
    ///
    /// How to send much without response is shown at ``canSendWriteWithoutResponse``.
    /// While ``canSendWriteWithoutResponse`` is false, writes without response wait in a queue of 1 MiB, in which each
    /// counts for 64 bytes more than its value has. Beyond that they are dropped, logged together, and counted in
    /// ``droppedWritesWithoutResponse``.
    /// - Parameters:
    ///   - data: The value, copied in the call; it may be empty. At most ``maximumWriteValueLength(for:)`` bytes.
    ///   - characteristic: One that was discovered on this link.
    ///   - type: One that `characteristic.properties` has, `.write` or `.writeWithoutResponse`.
    open func writeValue(_ data: Data, for characteristic: CBCharacteristic, type: CBCharacteristicWriteType) {
        switch type {
        // A value that is too long is refused in its turn (RW-1); one extra byte is enough to detect it.
        case .withResponse: request(characteristic) { .write([UInt8](data.prefix(513)), $0) }
        case .withoutResponse: writeCommand(data, characteristic)
        }
    }

    /// Writes a descriptor. Answered by `didWriteValueFor`. The Client Characteristic Configuration, 2902, is written
    /// by `setNotifyValue`: writing it directly is a programming error, as on Apple's systems.
    open func writeValue(_ data: Data, for descriptor: CBDescriptor) {
        precondition(
            descriptor.uuid != CBUUID(string: CBUUIDClientCharacteristicConfigurationString),
            "Client Characteristic Configuration descriptors must be configured using setNotifyValue(_:for:)")
        request(descriptor) { .writeDescriptor([UInt8](data), $0) }
    }

    /// Subscribes to notifications or indications, or unsubscribes. Answered by
    /// ``CBPeripheralDelegate/peripheral(_:didUpdateNotificationStateFor:error:)``, with `isNotifying` updated; each
    /// value is then delivered by `didUpdateValueFor`, none merged with another (NT-4). The answer comes before the
    /// first value, and after the answer to `false` there are no more values.
    ///
    /// ```swift
    /// func peripheral(
    ///     _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    /// ) {
    ///     for characteristic in service.characteristics ?? [] where characteristic.properties.contains(.notify) {
    ///         peripheral.setNotifyValue(true, for: characteristic)
    ///     }
    /// }
    ///
    /// func peripheral(
    ///     _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
    ///     error: (any Error)?
    /// ) {
    ///     if let error { print("no values from \(characteristic.uuid): \(error.localizedDescription)") }
    /// }
    /// ```
    /// A subscription ends with the link: subscribe again after each `didConnect` and discovery (NT-7). The error is
    /// `CBATTError.requestNotSupported` for a characteristic with neither `.notify` nor `.indicate`,
    /// `.attributeNotFound` for one without a descriptor 2902, also when unsubscribing (NT-3);
    /// `CBError.invalidHandle` for one that has gone; or what the peer has answered.
    /// - Parameters:
    ///   - enabled: Whether to subscribe. Asking for what is the case already is answered as well (NT-6).
    ///   - characteristic: One that was discovered on this link. If it has both properties, notifications are chosen.
    open func setNotifyValue(_ enabled: Bool, for characteristic: CBCharacteristic) {
        let id = characteristic.id
        request(characteristic) { shared in
            if enabled { shared.subscribed.insert(id) } else { shared.subscribed.remove(id) }
        } _: {
            .setNotify(enabled, $0)
        }
    }

    /// Opens an L2CAP channel: a stream of bytes in each direction, without the limits of attributes. Answered by
    /// ``CBPeripheralDelegate/peripheral(_:didOpen:error:)``, once for each call, unless the link ends. Several may be
    /// opened at a time; their answers come as the peer accepts them.
    ///
    /// The PSM of a standard profile is fixed; any other one must be read from the peer on each connection, as it
    /// changes:
    ///
    /// ```swift
    /// func peripheral(
    ///     _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    /// ) {
    ///     if let psm = characteristic.l2capPSM { peripheral.openL2CAPChannel(psm) }  // nil: another characteristic
    /// }
    ///
    /// func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
    ///     guard let channel else { return print("no channel: \(error?.localizedDescription ?? "")") }
    ///     channels.append(channel)  // then open its streams, see CBL2CAPChannel
    /// }
    /// ```
    /// A peer that demands encryption leads to pairing first, if the app allows that (``CBCentralManager/pairing``).
    ///
    /// Errors, a `CBError` with the kernel's error as the underlying one: `.connectionFailed` if the peer has no
    /// channel with this PSM or refuses it, `.encryptionTimedOut` if it demands encryption and there was no pairing,
    /// `.connectionTimeout` without an answer for 40 s, and `.operationNotSupported` where the process may not use
    /// Bluetooth sockets, with the cause and the cure (`bluez-demo doctor` shows them, too). They are listed in
    /// `Docs/ERRORS.md`. A link has room for 64 channels.
    /// - Parameter PSM: Where the peer listens, 0x0001 to 0x00FF; others end in `.invalidParameters`.
    /// - SeeAlso: Core Spec 5.4, Vol 3, Part A, 4.22.
    open func openL2CAPChannel(_ PSM: CBL2CAPPSM) {
        guard let connectionID = shared.withLock({ $0.state == .connected ? $0.connectionID : nil }) else {
            return Log.misuse("\(self) openL2CAPChannel: can only accept commands while in the connected state")
        }
        warnWithoutDelegate()
        backend.send(.openChannel(PSM, identity, connectionID))
    }
}
