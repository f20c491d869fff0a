import BluezDBus
import BluezKitRestore
import Dispatch
public import Foundation

/// Scans for, and connects to, peripherals.
///
/// ```swift
/// import CoreBluetooth
///
/// final class SensorFinder: NSObject, CBCentralManagerDelegate {
///     var central: CBCentralManager?, sensor: CBPeripheral?  // releasing one of them ends what it does
///
///     func start() { central = CBCentralManager(delegate: self, queue: nil) }
///
///     func centralManagerDidUpdateState(_ central: CBCentralManager) {
///         if central.state == .poweredOn { central.scanForPeripherals(withServices: [CBUUID(string: "180D")]) }
///     }
///     func centralManager(
///         _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
///         rssi RSSI: NSNumber
///     ) {
///         central.stopScan()
///         sensor = peripheral
///         central.connect(peripheral)  // then `didConnect`, when the sensor can be reached
///     }
/// }
/// ```
///
/// **Queue:** All callbacks, also those of its peripherals' delegates, are made on the queue given to `init`, one at a
/// time and in order, never inside a call by the app. Every method may be called from any thread, and commands return
/// at once (with a keeper, see <doc:Keeper>, which may have to be waited for).
///
/// **Lifetime:** Keep the manager, its delegate, and each peripheral that you connect to: the manager holds delegate
/// and peripherals weakly. Releasing the manager ends its scan and its connections, without callbacks (CN-15).
///
/// **State:** Commands are accepted while the state is `.poweredOn`. Others are dropped with a log line, and not made
/// up for later (MIS-1). When the state changes to another one, the scan, attempts and connections end, and
/// ``CBCentralManagerDelegate/centralManagerDidUpdateState(_:)`` is the only callback (ST-4). After `.poweredOff`
/// peripherals can be connected again; after the other states they are invalid and must be retrieved or discovered
/// again. ``BluezManagerOptionResumeAfterResetKey`` says when a manager resumes instead.
///
/// **Errors:** No method throws, and a scan reports no errors. An attempt that cannot succeed is reported by
/// ``CBCentralManagerDelegate/centralManager(_:didFailToConnect:error:)``, the end of a connection by
/// ``CBCentralManagerDelegate/centralManager(_:didDisconnectPeripheral:timestamp:isReconnecting:error:)``. Which errors
/// there are, and what they mean, is in `Docs/ERRORS.md`.
/// - SeeAlso: Apple, `CBCentralManager`; Core Spec 5.4, Vol 3, Part C (GAP). Rules such as CN-15 are in
///   `Docs/CONTRACT.md`.
open class CBCentralManager: CBManager, @unchecked Sendable {  // holds: what changes is under `shared`'s lock
    /// What carries out what the app asks for.
    let backend: any CentralBackend
    let mirror = CentralMirror()
    /// What this manager was asked to do, if that outlives a reset or the process.
    let book: IntentBook?

    struct Shared {
        weak var delegate: (any CBCentralManagerDelegate)?
        var scan: ScanRequest?
        var scanToken: UInt64 = 0
        var peripherals: [DeviceIdentity: WeakPeripheral] = [:]
        var pruneAt = 64
        /// Scan and connections wait for Bluetooth to be available again.
        var resumesAtPowerOn = false
        var restoration: BluezRestoration?
        var pairing = BluezPairing()
        /// `hci0` or the like.
        var adapter: String?
        /// The generation of Bluetooth that the app has seen (``AdapterController/generation``).
        var generation: UInt64 = 0
    }

    struct WeakPeripheral { weak var peripheral: CBPeripheral? }

    let shared = Protected(Shared())

    /// Receives the events of this manager. An event goes to the delegate at the time of delivery; without a delegate
    /// it is lost.
    open weak var delegate: (any CBCentralManagerDelegate)? {
        get { shared.withLock { $0.delegate } }
        set { shared.withLock { $0.delegate = newValue } }
    }

    /// Whether a scan is running: true from `scanForPeripherals` on, false from `stopScan` on.
    open var isScanning: Bool { shared.withLock { $0.scan != nil } }

    /// A manager without a delegate, on the main queue.
    public convenience init() { self.init(delegate: nil, queue: nil, options: nil) }

    /// A manager with no options.
    public convenience init(delegate: (any CBCentralManagerDelegate)?, queue: DispatchQueue?) {
        self.init(delegate: delegate, queue: queue, options: nil)
    }

    /// Creates a manager. ``CBCentralManagerDelegate/centralManagerDidUpdateState(_:)`` is always called after this has
    /// returned; no command is accepted before.
    ///
    /// With a restore identifier the manager's work survives the process:
    ///
    /// ```swift
    /// central = CBCentralManager(
    ///     delegate: self, queue: queue, options: [CBCentralManagerOptionRestoreIdentifierKey: "heart"])
    /// ```
    /// If an earlier process has left some, the first callback is
    /// ``CBCentralManagerDelegate/centralManager(_:willRestoreState:)``, and the state is the second one (RS-8). Of two
    /// managers with one identifier that exist at a time, in this process or another, the second runs without
    /// preservation, with a log line (RS-2). See <doc:StateRestoration>.
    /// - Parameters:
    ///   - delegate: Held weakly.
    ///   - queue: The queue for callbacks; nil: the main queue, which the program must then run
    ///     (`RunLoop.main.run()` or `dispatchMain()`). A concurrent queue is used for one callback at a time.
    ///   - options: `CBCentralManagerOption…` keys, and the BluezKit additions ``BluezManagerOptionBusAddressKey``,
    ///     ``BluezManagerOptionAdapterKey``, ``BluezManagerOptionStateDirectoryKey``,
    ///     ``BluezManagerOptionResumeAfterResetKey``, ``BluezManagerOptionClaimPeriodKey``,
    ///     ``BluezManagerOptionMayPowerCycleKey``, ``BluezManagerOptionNotificationSocketsKey``,
    ///     ``BluezManagerOptionKeeperKey``, ``BluezManagerOptionAtMostOnceKey``,
    ///     ``BluezManagerOptionKeptEventsKey`` and ``BluezManagerOptionKeptBytesKey``. Unknown keys are ignored.
    public init(delegate: (any CBCentralManagerDelegate)?, queue: DispatchQueue?, options: [String: Any]? = nil) {
        let identifier = options?[CBCentralManagerOptionRestoreIdentifierKey] as? String
        let (book, preserved) = IntentBook.open(.central, identifier: identifier, options: options)
        self.book = book
        var configuration = CentralManagerCore.Configuration()
        configuration.statePath = book?.path
        if let directory = book?.directory {
            let choice = (options?[BluezManagerOptionClaimPeriodKey] as? NSNumber)?.doubleValue
            let seconds = choice.flatMap { $0.isFinite ? $0 : nil } ?? BlueZTiming.Preservation().claims / .seconds(1)
            configuration.claims = .init(directory: directory, seconds: seconds)
        }
        configuration.mayPowerCycle = bool(options?[BluezManagerOptionMayPowerCycleKey])
        configuration.usesNotificationSockets = bool(options?[BluezManagerOptionNotificationSocketsKey])
        let place = callbackPlace(queue, options)
        var hello = KeeperHello(.central, identifier: identifier, options: options, book, preserved)
        hello?.central = configuration
        let key = Session.Key(options: options)
        let trace = ManagerTrace.make(.central, key, identifier, isKept: hello != nil)
        let (backend, start) = CentralSide.backend(
            hello, book?.path, key, configuration, preserved, place,
            trace?.receiving(mirror.receive) { .centralEvent($0) } ?? mirror.receive)
        self.backend = trace?.tracing(backend) ?? backend
        super.init(state: .unknown)
        self.delegate = delegate
        mirror.manager = self
        LocalApps.add(self, .manager, on: key.address, adapter: key.adapter?.text)
        start()
    }

    deinit {
        LocalApps.remove(ObjectIdentifier(self))
        book?.end()
        // No event tells of the end of their links.
        let peripherals = shared.withLock { $0.peripherals.values.compactMap(\.peripheral) }
        for peripheral in peripherals { peripheral.endChannels() }
        backend.release()
    }

    /// **BluezKit addition.** A human-readable report of what was restored from an earlier process: nil before
    /// `willRestoreState`, and if nothing was preserved.
    public var restoration: BluezRestoration? { shared.withLock { $0.restoration } }

    /// Whether the hardware supports `features`. False for each feature, because BlueZ does not report them; true for
    /// the empty set.
    @discardableResult
    open class func supports(_ features: CBCentralManager.Feature) -> Bool { features.isEmpty }

    /// Optional abilities of the hardware.
    public struct Feature: OptionSet, Sendable {
        /// The bits of the set.
        public let rawValue: UInt
        /// A set with these bits.
        public init(rawValue: UInt) { self.rawValue = rawValue }
        /// Bluetooth 5 extended advertising and the LE Coded and 2M PHYs.
        public static let extendedScanAndConnect = Feature(rawValue: 1 << 0)
    }

    // MARK: Scanning

    /// Scans until ``stopScan()`` is called or Bluetooth is switched off, without a time limit.
    /// ``CBCentralManagerDelegate/centralManager(_:didDiscover:advertisementData:rssi:)`` reports each peripheral once,
    /// and again when it advertises something new, such as a name in its scan response (SC-6); or, with
    /// ``CBCentralManagerScanOptionAllowDuplicatesKey``, each advertisement that BlueZ reports.
    ///
    /// ```swift
    /// func centralManagerDidUpdateState(_ central: CBCentralManager) {
    ///     guard central.state == .poweredOn else { return }  // before, the scan would be dropped
    ///     let options = [CBCentralManagerScanOptionAllowDuplicatesKey: true]
    ///     central.scanForPeripherals(withServices: [CBUUID(string: "180D")], options: options)
    /// }
    /// ```
    /// ``isScanning`` is true when this returns. A manager has one scan: calling this again with equal parameters has
    /// no effect; other parameters start a new scan, which reports again what the last one has reported.
    ///
    /// Scanning takes much of the radio's time: stop when you have found what you need. A peripheral whose identifier
    /// is known needs no scan: see ``retrievePeripherals(withIdentifiers:)``.
    /// - Parameters:
    ///   - serviceUUIDs: Report only peripherals that advertise one of these; nil or empty: all. Services that a
    ///     peripheral has and does not advertise do not count.
    ///   - options: `CBCentralManagerScanOption…` keys. With `AllowDuplicates` give the manager a queue of its own: on
    ///     the main queue there may be too many callbacks for it, which the log says (MIS-10).
    open func scanForPeripherals(withServices serviceUUIDs: [CBUUID]?, options: [String: Any]? = nil) {
        guard accepts("scanForPeripherals") else { return }
        let request = ScanRequest(
            services: serviceUUIDs.flatMap { $0.isEmpty ? nil : $0 },
            solicitedServices: options?[CBCentralManagerScanOptionSolicitedServiceUUIDsKey] as? [CBUUID] ?? [],
            allowsDuplicates: options?[CBCentralManagerScanOptionAllowDuplicatesKey].map { bool($0) })
        let isNew = shared.withLock { shared in
            guard shared.scan?.isEquivalent(to: request) != true else { return false }
            shared.scan = request
            shared.scanToken += 1
            return true
        }
        guard isNew else { return }
        if request.wantsDuplicates, backend.isOnMainQueue {
            Log.warning(
                "\(Self.self): AllowDuplicates on the main queue floods it: give the manager its own queue")
        }
        preserveScan()
        startScan()
    }

    /// Starts the scan in ``shared`` on the bus queue.
    func startScan() {
        let (scan, token) = shared.withLock { ($0.scan, $0.scanToken) }
        if let scan { command(.startScan(scan, token: token)) }
    }

    /// Ends the scan. ``isScanning`` is false when this returns, and connections and attempts are not affected. If
    /// called on the delegate's queue, no `didDiscover` follows; on another thread, one may be running already.
    open func stopScan() {
        guard accepts("stopScan") else { return }
        let wasScanning = shared.withLock { shared in
            defer { shared.scan = nil }
            shared.scanToken += 1
            return shared.scan != nil
        }
        guard wasScanning else { return }
        preserveScan()
        command(.endScan)
    }

    // MARK: Retrieving

    /// The peripherals with these identifiers, in range or not: `connect` waits until they are. BlueZ is not asked,
    /// because BluezKit's identifiers contain the address. Identifiers that BluezKit did not create are omitted.
    ///
    /// So a peripheral that was found once is connected without a scan, also by a later process:
    ///
    /// ```swift
    /// // When it was found: UserDefaults.standard.set(peripheral.identifier.uuidString, forKey: "sensor")
    /// if let text = UserDefaults.standard.string(forKey: "sensor"), let identifier = UUID(uuidString: text),
    ///     let sensor = central.retrievePeripherals(withIdentifiers: [identifier]).first
    /// {
    ///     peripherals.append(sensor)
    ///     central.connect(sensor)
    /// }
    /// ```
    /// Of a peripheral that changes its private address, store ``CBPeripheral/identityIdentifier`` once it has bonded.
    /// - Returns: The objects that the app has of them already, otherwise new ones, in the order of the identifiers;
    ///   nothing unless the state is `.poweredOn`.
    @discardableResult
    open func retrievePeripherals(withIdentifiers identifiers: [UUID]) -> [CBPeripheral] {
        guard accepts("retrievePeripherals") else { return [] }
        return identifiers.compactMap { DeviceIdentity(identifier: $0).map(peripheral) }
    }

    /// The peripherals that are connected to this machine, by any program, and have one of these services. To use one,
    /// `connect` to it, which completes at once: its `state` is `.disconnected` unless this manager has connected it.
    ///
    /// - Important: Asks BlueZ and waits for the answer, usually some milliseconds, at most 4 s if BlueZ hangs; then
    ///   nothing is returned. No other method asks BlueZ and waits, except ``retrieveBondedPeripherals()``.
    /// - Parameter serviceUUIDs: At least one; for an empty array nothing is returned.
    @discardableResult
    open func retrieveConnectedPeripherals(withServices serviceUUIDs: [CBUUID]) -> [CBPeripheral] {
        guard accepts("retrieveConnectedPeripherals"), !serviceUUIDs.isEmpty else { return [] }
        let wanted = Set(serviceUUIDs.map(CodableUUID.init))
        return backend.knownDevices(.connected).filter { !wanted.isDisjoint(with: $0.services) }.map(peripheral)
    }

    // MARK: Connecting

    /// Connects, without a time limit (CN-2). `peripheral.state` is `.connecting` when this returns. Keep the
    /// peripheral: releasing it cancels the attempt.
    ///
    /// The attempt ends with one of these, on the delegate's queue:
    /// - ``CBCentralManagerDelegate/centralManager(_:didConnect:)``: the peripheral is connected;
    /// - ``CBCentralManagerDelegate/centralManager(_:didFailToConnect:error:)``: no attempt can succeed;
    /// - `didDisconnectPeripheral` without an error: it was cancelled with ``cancelPeripheralConnection(_:)``;
    /// - ``CBCentralManagerDelegate/centralManagerDidUpdateState(_:)``: Bluetooth is not on any more.
    ///
    /// An app that does not want to wait sets a time limit of its own:
    ///
    /// ```swift
    /// func connect(_ peripheral: CBPeripheral, by central: CBCentralManager) {
    ///     central.connect(peripheral)
    ///     queue.asyncAfter(deadline: .now() + 30) {  // the delegate's queue
    ///         if peripheral.state == .connecting { central.cancelPeripheralConnection(peripheral) }
    ///     }
    /// }
    /// ```
    /// Any number of attempts may be pending. While a peripheral is connecting or connected, a further call replaces
    /// the options of the one before, and its start delay if that is not over yet. There is one `didConnect` for a
    /// pending connect, however many calls there were; each call while it is connected is answered by another one.
    /// Apple does not document this.
    /// - Parameters:
    ///   - peripheral: One that this manager has discovered or retrieved. With another manager's, or one from before
    ///     Bluetooth was reset, the call is dropped with a log line (MIS-3).
    ///   - options: `CBConnectPeripheralOption…` keys. ``CBConnectPeripheralOptionStartDelayKey``, in seconds, 0 to
    ///     1,000,000, and ``CBConnectPeripheralOptionEnableAutoReconnect`` have an effect; the others are for Apple's
    ///     services.
    open func connect(_ peripheral: CBPeripheral, options: [String: Any]? = nil) {
        let request = ConnectRequest(options)
        guard accepts("connect"), isMine(peripheral) else { return }
        let (connectionID, previous) = peripheral.beginConnecting(request)
        preserve(peripheral)
        let identity = peripheral.identity
        command(
            previous == .disconnected
                ? .connect(identity, connectionID, request)
                : .connectAgain(identity, connectionID, request, isAnswered: previous == .connected))
    }

    /// Ends a connection or an attempt. `peripheral.state` is `.disconnecting` when this returns, and the peripheral's
    /// L2CAP channels are closed. One `didDisconnectPeripheral` without an error follows (CN-7), even if `connect` was
    /// called again in the meantime, in which case its `didConnect` follows later. Does nothing to a peripheral that is
    /// disconnected, or disconnecting already.
    ///
    /// For this app the link ends at once: requests that are not answered yet get no answer, and may not be carried
    /// out. The physical link stays up while another manager of this process, or another program with BluezKit, uses
    /// it. Otherwise BlueZ ends it, about 2 s later, and the callback comes then.
    ///
    /// To be sure that the last write has arrived, wait for its answer:
    ///
    /// ```swift
    /// func peripheral(
    ///     _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    /// ) {
    ///     central.cancelPeripheralConnection(peripheral)
    /// }
    /// ```
    /// The error tells the end that the app has asked for from a loss of the link: see
    /// ``CBCentralManagerDelegate/centralManager(_:didDisconnectPeripheral:error:)``.
    open func cancelPeripheralConnection(_ peripheral: CBPeripheral) {
        guard accepts("cancelPeripheralConnection"), isMine(peripheral),
            let connectionID = peripheral.beginDisconnecting()
        else { return }
        preserve(peripheral)
        command(.cancel(peripheral.identity, connectionID), isHere: true)
        peripheral.endChannels()
    }

    /// Reports, as `connectionEventDidOccur`, when a peer connects to this system or disconnects from it, through any
    /// program. To use the peer this app must `connect` to it as well. Peers that are already connected are not
    /// reported. A new call replaces the last one; nil ends the reports.
    /// - Parameter options: `.serviceUUIDs`, `[CBUUID]`, and `.peripheralUUIDs`, `[UUID]`: peers that match one of them
    ///   are reported. BlueZ knows the services of a new peer only after it has discovered them.
    open func registerForConnectionEvents(options: [CBConnectionEventMatchingOption: Any]? = nil) {
        guard accepts("registerForConnectionEvents") else { return }
        backend.send(.setConnectionEvents(options.map { ConnectionEventFilter($0) }))
    }
}

/// Option values may be `Bool`, `Int`, `Double` or `NSNumber` (LX-6).
func bool(_ value: Any?) -> Bool { (value as? NSNumber)?.boolValue ?? (value as? Bool) ?? false }
