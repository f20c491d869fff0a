import BluezKitRestore
import Dispatch
import Foundation

/// What the bus queue knows of one `CBCentralManager`. It outlives the manager where work is under way.
// holds: `central`, `inbox` and `manager` are set before others see this; the rest is confined to the bus queue
final class CentralManagerCore: Recipient, @unchecked Sendable {
    let central: CentralRole
    private let session: AnyObject
    let inbox: Inbox<CentralManagerCore>
    weak var manager: CBCentralManager?
    let isOnMainQueue: Bool
    /// For tests, which compare what an app asks with what it is answered: set before the first callback, and called
    /// in the app's call.
    var onRequest: (@Sendable (CBPeripheral, AttributeOperation.Kind) -> Void)?

    enum Event {
        case run((CBCentralManager) -> Void)
        /// A notification or indication: by far the most frequent, so it carries no closure.
        case value(Data, CBCharacteristic, PeripheralCore, connectionID: UInt64)
        /// The app waits for it, whether its manager is there or not.
        case answer(() -> Void)
    }

    /// What the app has set when it made the manager.
    struct Configuration: Sendable {
        /// Where its state is preserved.
        var statePath: String?
        /// Where other managers of this app may have left state, and how long they have to claim it.
        var claims: (directory: StateDirectory, period: Duration)?
        var mayPowerCycle = false
        /// Whether notifications come by sockets.
        var usesNotificationSockets = false
    }

    let configuration: Configuration
    private(set) var scan: Scan?
    private(set) var pairing = BluezPairing()
    private(set) var connectionEvents: ConnectionEventFilter?
    /// `hci0` or the like. Any thread.
    let adapterName = Protected<String?>(nil)
    /// What the app was told last.
    private(set) var announcedState = CBManagerState.unknown
    /// The restoration of what an earlier process left, while nothing is reported yet.
    private(set) var restoration: CentralRestoration?
    private var mustEndUnclaimed: Bool

    /// - Parameter session: Kept while the app has any of the manager's objects.
    init(
        central: CentralRole, of session: AnyObject, place: any CallbackPlace, preserved: Snapshot?,
        configuration: Configuration
    ) {
        (self.central, self.session, self.configuration) = (central, session, configuration)
        restoration = preserved.map { CentralRestoration($0) }
        mustEndUnclaimed = configuration.claims != nil
        inbox = Inbox(place)
        isOnMainQueue = (place as? DispatchQueue)?.isMain ?? false
    }

    deinit { inbox.end() }

    // MARK: What the app asks for

    func startScan(_ scan: Scan) { self.scan = scan }
    func endScan() { scan = nil }
    func setPairing(_ pairing: BluezPairing) { self.pairing = pairing }
    func setConnectionEvents(_ filter: ConnectionEventFilter?) { connectionEvents = filter }

    /// Whether the scan wants an advertisement of `device` to be reported.
    func admits(_ device: Device) -> Bool { scan?.admit(device) ?? false }

    /// What the scan has reported of `device`; nil: nothing, or there is no scan.
    func reportedKinds(of device: DeviceIdentity) -> DeviceProperties.Kinds? { scan?.reportedKinds(of: device) }

    // MARK: The adapter

    func use(adapter name: String?) { adapterName.withLock { $0 = name } }

    /// The app gets the callback for `state`.
    func announce(_ state: CBManagerState) { announcedState = state }

    /// - Returns: Where unclaimed state is to be looked for, and after which time; once.
    func takeClaims() -> (directory: StateDirectory, period: Duration)? {
        defer { mustEndUnclaimed = false }
        return mustEndUnclaimed ? configuration.claims : nil
    }

    func endRestoration() { restoration = nil }

    // MARK: To the app

    /// Adds an event to what is delivered when the bus queue has done its turn.
    func post(_ event: Event) {
        central.bus.assertOnQueue()
        if inbox.add(event) { central.bus.hasOutgoing(self) }
    }

    func post(_ body: @escaping (CBCentralManager) -> Void) { post(.run(body)) }

    func flush(mayDeliver: () -> Bool) -> (() -> Void)? { inbox.flush(to: self, mayDeliver: mayDeliver) }

    /// The app has released the manager.
    func abandon() { inbox.abandon() }

    static func outlivesManager(_ event: Event) -> Bool { if case .answer = event { true } else { false } }

    func deliver(_ event: Event) {
        switch event {
        case .run(let body): if let manager { body(manager) }
        case .value(let data, let characteristic, let peripheral, let connectionID):
            if manager != nil { peripheral.deliver(data, of: characteristic, connectionID: connectionID) }
        case .answer(let body): body()
        }
    }
}
