import BluezKitRestore
import Dispatch
import Foundation

/// What the bus queue knows of one `CBCentralManager`. It outlives the manager where work is under way.
// holds: `session`, `inbox` and `manager` are set before anybody else sees this; the rest is confined to the bus queue
final class ManagerCore: Recipient, @unchecked Sendable {
    let session: Session
    let inbox: Inbox<ManagerCore>
    weak var manager: CBCentralManager?
    let isOnMainQueue: Bool
    /// For tests, which compare what an app asks with what it is answered: set before the first callback, and called
    /// in the app's call.
    var onRequest: (@Sendable (CBPeripheral, AttributeOperation.Kind) -> Void)?

    enum Event {
        case run((CBCentralManager) -> Void)
        /// A notification or indication: by far the most frequent, so it carries no closure.
        case value(Data, CBCharacteristic, PeripheralCore, link: UInt64)
        /// The app waits for it, whether its manager is there or not.
        case answer(() -> Void)
    }

    /// A running scan, and what it has reported.
    struct Scan {
        let token: UInt64
        /// Nil: everything.
        let services: Set<CBUUID>?
        let solicitedServices: Set<CBUUID>
        let wantsDuplicates: Bool
        var reported = ScanMemory()
    }

    var scan: Scan?
    /// What an earlier process left, until it is looked into.
    var preserved: Snapshot?
    /// The looking into it: nothing is told before that is over.
    var survey: Session.Survey?
    /// Where other managers of this app may have left state, and how long they have to claim it.
    var claims: (directory: StateDirectory, period: Duration)?
    var pairing = BluezPairing()
    var mayPowerCycle = false
    var connectionEvents: ConnectionEventFilter?
    /// `hci0` or the like. Any thread.
    let adapterName = Protected<String?>(nil)
    /// What the app was told last.
    var announcedState = CBManagerState.unknown

    /// Where its state is preserved.
    let statePath: String?

    init(session: Session, queue: DispatchQueue?, preserved: Snapshot? = nil, statePath: String? = nil) {
        (self.session, self.statePath) = (session, statePath)
        self.preserved = preserved
        inbox = Inbox(queue: queue ?? .main)
        // By name: every mention of `.main` makes an object of its own.
        isOnMainQueue = queue == nil || queue?.label == DispatchQueue.main.label
    }

    deinit { inbox.end() }

    /// Adds an event to what is delivered when the bus queue has done its turn.
    func post(_ event: Event) {
        session.assertOnQueue()
        if inbox.add(event) { session.blueZ.hasOutgoing(self) }
    }

    func post(_ body: @escaping (CBCentralManager) -> Void) { post(.run(body)) }

    func flush() { inbox.flush(to: self) }

    func deliver(_ event: Event) {
        switch event {
        case .run(let body): if let manager { body(manager) }
        case .value(let data, let characteristic, let peripheral, let link):
            if manager != nil { peripheral.deliver(data, of: characteristic, link: link) }
        case .answer(let body): body()
        }
    }
}
