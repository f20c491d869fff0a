import BluezKitRestore
import Synchronization
import BluezDBus
public import Foundation

/// A remote peripheral: its link, its services and their values.
///
/// Keep a reference as long as you need it: releasing it cancels the attempt or ends the connection. All callbacks are
/// made on the queue of its manager. Every method may be called from any thread, and none waits for BlueZ. Each request
/// gets exactly one answer, in the order of the calls, unless the link ends: then it gets none.
/// - SeeAlso: Apple, `CBPeripheral`; Core Spec 5.4, Vol 3, Part G (GATT).
open class CBPeripheral: CBPeer, @unchecked Sendable {  // holds: what changes is under `shared`'s lock
    let core: PeripheralCore

    struct Shared {
        weak var delegate: (any CBPeripheralDelegate)?
        var state = CBPeripheralState.disconnected
        var name: String?
        var rssi: NSNumber?
        var services: [CBService]?
        /// All attributes that were returned on this link, by BlueZ's path (GD-4).
        var attributes: [String: CBAttribute] = [:]
        var mtuBytes: Int?
        var isInvalid = false
        /// Writes without response that BlueZ has not taken yet.
        var commands = CommandFlow()
        /// The app's options for `connect`, as far as they are numbers.
        var connectRequest = ConnectRequest(options: [:])
        /// Characteristics that the app is subscribed to, by path, from `setNotifyValue` on.
        var subscribed: Set<String> = []
        var isBonded = false
        /// The PSMs of its open L2CAP channels.
        var channels: [CBL2CAPPSM] = []
        /// Its identity, if `identifier` was derived from a private address.
        var resolved: DeviceIdentity?
    }

    let shared = Protected(Shared())

    init(identity: DeviceIdentity, manager: CBCentralManager) {
        core = PeripheralCore(identity: identity, manager: manager.core)
        super.init(identifier: identity.identifier)
        core.peripheral = self
    }

    deinit {
        // Most peripherals are only discovered.
        guard core.connectionID.load(ordering: .relaxed) > 0 else { return }
        let (core, state) = (core, state)
        // The app may have cancelled and connected again, or wait for a start delay: the bus queue knows what to end.
        core.begin()
        let isInUse = state == .connecting || state == .connected
        if isInUse { core.manager.manager?.book?.forget(identifier, of: core) }
        core.manager.central.bus.run {
            core.manager.central.release(core)
            if isInUse { CBPeripheral.logRelease(core, wasConnected: state == .connected) }
        }
    }

    /// MIS-5. An app that releases its manager as well is at its end.
    private static func logRelease(_ core: PeripheralCore, wasConnected: Bool) {
        let bus = core.manager.central.bus
        bus.after(bus.timing.link.release) {
            guard core.manager.manager != nil else { return }
            let address = core.identity.addressText
            Log.misuse(
                wasConnected
                    ? "Forcing disconnection of unused peripheral \(address), "
                        + "Did you forget to cancel the connection?"
                    : "Cancelling connection for unused peripheral \(address), "
                        + "Did you forget to keep a reference to it?")
        }
    }

    /// Receives the events of this peripheral. Held weakly.
    open weak var delegate: (any CBPeripheralDelegate)? {
        get { shared.withLock { $0.delegate } }
        set { shared.withLock { $0.delegate = newValue } }
    }

    /// The device's name: the advertised one until its GAP name is known, then that. Nil if neither is known.
    open var name: String? { shared.withLock { $0.name } }

    /// The value of the last successful ``readRSSI()``.
    @available(*, deprecated, message: "Use readRSSI() and peripheral(_:didReadRSSI:error:)")
    open var rssi: NSNumber? { shared.withLock { $0.rssi } }

    /// The connection from this app's point of view. Connections of other programs are not considered.
    open var state: CBPeripheralState { shared.withLock { $0.state } }

    /// The primary services discovered on this link; nil before the first discovery and after the end of the link.
    open var services: [CBService]? { shared.withLock { $0.services } }

    /// Whether a write without response can be accepted now. While true, none is dropped. After it was false, continue
    /// in `peripheralIsReady(toSendWriteWithoutResponse:)`.
    ///
    /// It is false while BlueZ's socket is full, and from 64 waiting writes until half of them are gone; and without a
    /// connection. Where BlueZ gives no socket, a write waits until BlueZ has answered the previous ones: BlueZ itself
    /// takes any number of them, and does not tell when they are sent.
    open var canSendWriteWithoutResponse: Bool { shared.withLock { $0.state == .connected && !$0.commands.isFull } }

    /// Apple Notification Center Service, which does not exist on Linux: false.
    open var ancsAuthorized: Bool { false }

    open override var description: String {
        let (name, state, mtu) = shared.withLock { ($0.name, $0.state, $0.mtuBytes) }
        let address = String(UInt(bitPattern: ObjectIdentifier(self)), radix: 16)
        return "<CBPeripheral: 0x\(address), identifier = \(identifier.uuidString), name = \(name ?? "(null)"), "
            + "mtu = \(mtu ?? 23), state = \(state)>"
    }

    // MARK: Requests

    /// Checks MIS-2, and passes the request to the bus queue.
    private func request(_ kind: AttributeOperation.Kind, _ command: StaticString = #function) {
        guard state == .connected else {
            return Log.misuse("\(self) \(command): can only accept commands while in the connected state")
        }
        core.manager.onRequest?(self, kind)
        handOver(kind)
    }

    func handOver(_ kind: AttributeOperation.Kind) {
        let core = core
        let operation = AttributeOperation(
            core: core, connectionID: core.connectionID.load(ordering: .relaxed), kind: kind)
        core.manager.central.bus.runHere {
            core.manager.central.perform(operation.kind, for: core, connectionID: operation.connectionID)
        }
    }

    /// MIS-4: an attribute of another peripheral, or of a link that has ended.
    private func isMine(_ attribute: CBAttribute, _ command: StaticString = #function) -> Bool {
        if knows(attribute) { return true }
        guard state == .connected else { return true }  // reported by MIS-2
        Log.misuse("\(command): \(attribute) is not an attribute of \(self), or was invalidated")
        return false
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
        request(.readRSSI)
    }

    /// Discovers primary services. Answered by `didDiscoverServices`, once BlueZ has resolved the table.
    /// - Parameter serviceUUIDs: The services to discover; nil or empty: all.
    open func discoverServices(_ serviceUUIDs: [CBUUID]?) {
        warnWithoutDelegate()
        request(.discoverServices(serviceUUIDs))
    }

    /// Discovers the services that `service` includes. Answered by `didDiscoverIncludedServicesFor`.
    open func discoverIncludedServices(_ includedServiceUUIDs: [CBUUID]?, for service: CBService) {
        guard isMine(service) else { return }
        request(.discoverIncludedServices(includedServiceUUIDs, service))
    }

    /// Discovers characteristics. Answered by `didDiscoverCharacteristicsFor`.
    /// - Parameters:
    ///   - characteristicUUIDs: The characteristics to discover; nil or empty: all.
    ///   - service: A service that was discovered.
    open func discoverCharacteristics(_ characteristicUUIDs: [CBUUID]?, for service: CBService) {
        guard isMine(service) else { return }
        warnWithoutDelegate()
        request(.discoverCharacteristics(characteristicUUIDs, service))
    }

    /// Discovers descriptors. Answered by `didDiscoverDescriptorsFor`.
    open func discoverDescriptors(for characteristic: CBCharacteristic) {
        guard isMine(characteristic) else { return }
        request(.discoverDescriptors(characteristic))
    }

    /// Reads the whole value. Answered by `didUpdateValueFor`; a refusal by the peer is a `CBATTError`.
    open func readValue(for characteristic: CBCharacteristic) {
        guard isMine(characteristic) else { return }
        request(.read(characteristic))
    }

    /// Reads a descriptor. Answered by `didUpdateValueFor`.
    open func readValue(for descriptor: CBDescriptor) {
        guard isMine(descriptor) else { return }
        request(.readDescriptor(descriptor))
    }

    /// The largest value, in bytes, that one write can carry.
    ///
    /// `.withResponse`: 512, the largest attribute. `.withoutResponse`: ATT_MTU - 3, at most 512; 20 until the MTU is
    /// known. When that is:
    /// - in `didConnect`, if there was a link already, of another program or manager;
    /// - for a restored peripheral whose link is still there, milliseconds after `willRestoreState`;
    /// - otherwise before `didDiscoverServices`, and without discovery at about the same time: BlueZ exchanges the MTU
    ///   after it has reported the link, and tells the result with the attributes.
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
    /// While ``canSendWriteWithoutResponse`` is false, writes without response wait in a queue of 1 MiB, in which each
    /// counts for 64 bytes more than its value has. Beyond that they are dropped, logged together, and counted in
    /// ``droppedWritesWithoutResponse``.
    open func writeValue(_ data: Data, for characteristic: CBCharacteristic, type: CBCharacteristicWriteType) {
        guard isMine(characteristic) else { return }
        switch type {
        // A value that is too long is refused in its turn (RW-1); one extra byte is enough to detect it.
        case .withResponse: request(.write([UInt8](data.prefix(513)), characteristic))
        case .withoutResponse: writeCommand(data, characteristic)
        }
    }

    /// Writes a descriptor. Answered by `didWriteValueFor`. The Client Characteristic Configuration, 2902, is written
    /// by `setNotifyValue`: writing it directly is a programming error, as on Apple's systems.
    open func writeValue(_ data: Data, for descriptor: CBDescriptor) {
        precondition(
            descriptor.uuid != CBUUID(string: CBUUIDClientCharacteristicConfigurationString),
            "Client Characteristic Configuration descriptors must be configured using setNotifyValue(_:for:)")
        guard isMine(descriptor) else { return }
        request(.writeDescriptor([UInt8](data), descriptor))
    }

    /// Subscribes to notifications or indications, or unsubscribes. Answered by `didUpdateNotificationStateFor`, with
    /// `isNotifying` updated; each value is then delivered by `didUpdateValueFor`. A subscription ends with the link.
    open func setNotifyValue(_ enabled: Bool, for characteristic: CBCharacteristic) {
        guard isMine(characteristic) else { return }
        if state == .connected { updateSubscription(enabled, to: characteristic) }
        request(.setNotify(enabled, characteristic))
    }

    /// Opens an L2CAP channel: a stream of bytes in each direction, without the limits of attributes. Answered by
    /// `didOpen`.
    ///
    /// A peer that demands encryption leads to pairing first, if the app allows that (``CBCentralManager/pairing``).
    /// The PSM of a standard profile is fixed; any other one must be read from the peer on each connection, as it
    /// changes.
    ///
    /// Errors, a `CBError` with the kernel's error as the underlying one: `.connectionFailed` if the peer has no
    /// channel with this PSM or refuses it, `.encryptionTimedOut` if it demands encryption and there was no pairing,
    /// `.connectionTimeout` without an answer for 40 s, and `.operationNotSupported` where the process may not use
    /// Bluetooth sockets, with the cause and the cure (`bluez-demo doctor` shows them, too). They are listed in
    /// `Docs/ERRORS.md`.
    /// - SeeAlso: Core Spec 5.4, Vol 3, Part A, 4.22.
    open func openL2CAPChannel(_ PSM: CBL2CAPPSM) {
        guard state == .connected else {
            return Log.misuse("\(self) openL2CAPChannel: can only accept commands while in the connected state")
        }
        warnWithoutDelegate()
        let core = core
        let connectionID = core.connectionID.load(ordering: .relaxed)
        core.manager.central.bus.run { core.manager.central.openChannel(PSM, for: core, connectionID: connectionID) }
    }
}
