import BluezKitRestore
import Dispatch
import Foundation

/// What the core knows of one central manager. It outlives the manager where work is under way.
// holds: constants, and `inbox`, are safe; the rest is confined to the bus queue
final class CentralManagerCore: CentralBackend, EventSource, Recipient, @unchecked Sendable {
    let central: CentralRole
    private let session: AnyObject
    let inbox: Inbox<CentralManagerCore>
    private let receive: @Sendable ([CentralEvent]) -> Void
    let isOnMainQueue: Bool

    /// What the app has set when it made the manager.
    struct Configuration: Codable, Equatable, Sendable {
        /// Where its state is preserved.
        var statePath: String?
        /// Where other managers of this app may have left state, and how long they have to claim it.
        var claims: Claims?
        var mayPowerCycle = false
        /// Whether notifications come by sockets.
        var usesNotificationSockets = false

        struct Claims: Codable, Equatable, Sendable {
            let directory: StateDirectory
            /// Not a `Duration`: any number may come from another process.
            private let seconds: Double
            var period: Duration { .seconds(seconds.isFinite ? min(max(seconds, 0), 1e6) : 0) }

            init(directory: StateDirectory, seconds: Double) { (self.directory, self.seconds) = (directory, seconds) }
        }
    }

    let configuration: Configuration
    private(set) var scan: Scan?
    var abilities: PairingAbilities = []
    var connectionEvents: ConnectionEventFilter?
    /// Those that the app has connected, until it releases them.
    private var peripherals: [DeviceIdentity: PeripheralCore] = [:]
    /// The write that an app's call waits for, and what has become of it: the call returns that.
    private var replying: (connectionID: ConnectionID, progress: CommandProgress)?
    /// Peripherals whose writes without response have gone on in this turn.
    private var gathering: [PeripheralCore] = []
    private var channels: UInt32 = 0
    /// What the app was told last.
    private(set) var announcedState = CBManagerState.unknown
    /// The restoration of what an earlier process left, while nothing is reported yet.
    private(set) var restoration: CentralRestoration?
    private var mustEndUnclaimed: Bool

    /// - Parameter session: Kept while the app has any of the manager's objects.
    init(
        central: CentralRole, of session: AnyObject, receive: @escaping @Sendable ([CentralEvent]) -> Void,
        place: any CallbackPlace,
        preserved: Snapshot?, configuration: Configuration
    ) {
        (self.central, self.session, self.receive) = (central, session, receive)
        self.configuration = configuration
        restoration = preserved.map { CentralRestoration($0) }
        mustEndUnclaimed = configuration.claims != nil
        inbox = Inbox(place, time: central.bus.time)
        isOnMainQueue = (place as? DispatchQueue)?.isMain ?? false
    }

    deinit { inbox.end() }

    // MARK: What the app asks for

    func send(_ request: CentralRequest, generation: UInt64?) { central.bus.run(carryOut(request, generation)) }

    func sendHere(_ request: CentralRequest, generation: UInt64?) { central.bus.runHere(carryOut(request, generation)) }

    private func carryOut(_ request: CentralRequest, _ generation: UInt64?) -> @Sendable () -> Void {
        let message = BorderFormat.passed(CentralMessage(request: request, generation: generation))
        return { [self] in central.carryOut(message, of: self) }
    }

    func write(_ request: CentralRequest, on connectionID: ConnectionID) -> CommandProgress? {
        let message = BorderFormat.passed(CentralMessage(request: request))
        let progress = central.bus.runIfIdle { [self] in
            replying = (connectionID, CommandProgress())
            central.carryOut(message, of: self)
            defer { replying = nil }
            return replying?.progress
        }
        if progress == nil { central.bus.run { [self] in central.carryOut(message, of: self) } }
        return progress.flatMap { $0 }
    }

    /// Not on the bus queue.
    func knownDevices(_ query: DeviceQuery) -> [KnownDevice] {
        BorderFormat.passed(central.store.knownDevices(BorderFormat.passed(query)))
    }

    /// The peripheral with this identity; made if there is none.
    func peripheral(_ identity: DeviceIdentity) -> PeripheralCore {
        if let known = peripherals[identity] { return known }
        let new = PeripheralCore(identity: identity, manager: self)
        peripherals[identity] = new
        return new
    }

    func known(_ identity: DeviceIdentity) -> PeripheralCore? { peripherals[identity] }

    /// A number that no other L2CAP channel of this manager's peripherals has.
    func newChannelNumber() -> UInt32 {
        channels &+= 1
        return channels
    }

    /// The app has released the manager.
    func end() {
        endScan()
        (peripherals, restoration) = ([:], nil)
    }

    /// The app has released it.
    func forget(_ peripheral: PeripheralCore) { peripherals[peripheral.identity] = nil }

    func startScan(_ scan: Scan) { self.scan = scan }
    func endScan() { scan = nil }

    /// Whether the scan wants an advertisement of `device` to be reported.
    func admits(_ device: Device) -> Bool { scan?.admit(device) ?? false }

    /// What the scan has reported of `device`; nil: nothing, or there is no scan.
    func reportedKinds(of device: DeviceIdentity) -> DeviceProperties.Kinds? { scan?.reportedKinds(of: device) }

    // MARK: A keeper

    /// What continues for an app that has died.
    struct Kept: Sendable {
        let work: KeptCentralWork
        /// The app has not heard yet what an earlier process left.
        let isRestoring: Bool
    }

    /// Whether anything is under way that the app has asked for.
    var continues: Bool {
        scan != nil || restoration != nil || peripherals.values.contains { $0.request != nil || $0.delayedStart != nil }
    }

    /// The events so far are followed by this one. For a keeper.
    func postCheckpoint(_ number: UInt32) { if inbox.add(.checkpoint(number)) { central.bus.hasOutgoing(self) } }

    func kept() -> Kept {
        let work = KeptCentralWork(
            lastRequest: peripherals.values.map { max($0.newest.request, $0.lastCancel.request) }.max() ?? 0,
            scan: scan?.request, scanToken: scan?.token ?? 0,
            peripherals: peripherals.values.map { peripheral in
                KeptPeripheral(
                    identity: peripheral.identity, newest: peripheral.newest,
                    isWanted: peripheral.request != nil || peripheral.delayedStart != nil,
                    isUp: peripheral.isUp, mtuBytes: peripheral.device?.connection?.client.reader.table.mtuBytes)
            })
        return Kept(work: work, isRestoring: restoration != nil)
    }

    // MARK: The adapter

    /// The app gets the callback for `state`.
    func announce(_ state: CBManagerState) { announcedState = state }

    /// - Returns: Where unclaimed state is to be looked for, and after which time; once.
    func takeClaims() -> Configuration.Claims? {
        defer { mustEndUnclaimed = false }
        return mustEndUnclaimed ? configuration.claims : nil
    }

    /// The app hears what was restored.
    func endRestoration(_ restored: CentralEvent) {
        restoration = nil
        post(restored)
    }

    // MARK: To the app

    /// Adds an event to what is delivered when the bus queue has done its turn.
    func post(_ event: CentralEvent) {
        central.bus.assertOnQueue()
        if let restoration, !event.outlivesManager { return restoration.hold(event) }
        if inbox.add(event) { central.bus.hasOutgoing(self) }
    }

    /// What has become of writes without response: the app's call returns it, if that still runs.
    func report(_ progress: CommandProgress, of peripheral: PeripheralCore, _ connectionID: ConnectionID) {
        if replying?.connectionID == connectionID {
            replying?.progress.add(progress)
        } else {
            peripheral.gathered.add(progress, connectionID)
            gathering.append(peripheral)
            if gathering.count == 1 { central.bus.hasOutgoing(self) }
        }
    }

    func flush(mayDeliver: () -> Bool) -> (() -> Void)? {
        for peripheral in gathering {
            guard let (progress, connectionID) = peripheral.gathered.take() else { continue }
            _ = inbox.add(.peripheral(peripheral.identity, .written(progress, connectionID)))
        }
        gathering.removeAll(keepingCapacity: true)
        return inbox.flush(to: self, mayDeliver: mayDeliver)
    }

    func report(_ event: CentralEvent) { central.bus.run { [self] in post(event) } }

    func release() {
        inbox.abandon()
        central.bus.run { [self] in central.remove(self) }
    }

    func die() { inbox.abandon() }

    var timing: BlueZTiming { central.bus.timing }
    var isKept: Bool { false }

    func daemonVersion(_ answer: @escaping @Sendable (String) -> Void) {
        central.bus.run { [self] in if let version = central.adapter.daemon.version { answer(version.description) } }
    }

    static func outlivesManager(_ event: CentralEvent) -> Bool { event.outlivesManager }

    func deliver(_ events: [CentralEvent]) { receive(BorderFormat.passed(events)) }
}
