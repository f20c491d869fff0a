import BluezKitRestore
import Dispatch
import Foundation

/// What the bus queue knows of one `CBPeripheralManager`. It outlives the manager where work is under way.
// holds: what other threads use is set before they see this, or locked; the rest is confined to the bus queue
final class PublisherCore: Recipient, @unchecked Sendable {
    typealias Event = (CBPeripheralManager) -> Void

    let session: Session
    let inbox: Inbox<PublisherCore>
    weak var manager: CBPeripheralManager?
    /// Updates on their way to BlueZ. Any thread.
    let windows = Protected(UpdateWindows<ObjectIdentifier>())

    /// What an earlier process left, until the app is told.
    var preserved: Snapshot?
    /// What the app was told last.
    var announcedState = CBManagerState.unknown
    /// Commands that are answered in order, one after the other (O-33).
    var commands: [Command] = []
    var isAdding = false
    var applications: [Application] = []
    var advertiser = AdvertiserStateMachine()
    /// What the app wants to advertise, while it does.
    var advertisement: Advertisement?
    /// The start that is under way is not the app's: it hears of no answer.
    var isResumingAdvertising = false
    /// Which of the app's starts that was.
    var advertisingToken: UInt64 = 0
    /// Advertisements on the bus, by their attempts: one, and those that are being withdrawn.
    var onAir: [Int: PublishedAdvertisement] = [:]
    /// Counts the ends of Bluetooth: updates from before it are void.
    var epoch = 0

    /// Which of the app's starts, and in which life of Bluetooth the app was, as far as it had heard (`Session.era`).
    struct AdvertisingStart: Sendable {
        let token: UInt64
        let era: UInt64
    }

    enum Command {
        case add(PublishedService)
        case remove(CBMutableService)
        case removeAll
        /// Once the services before it are there, so that whoever hears it finds them.
        case advertise(Advertisement, AdvertisingStart, isResumed: Bool)
    }

    /// The app's wish not to be kept from services of the system (PB-7).
    let allowsSystemServices: Bool
    /// Whether centrals may pair without anybody being asked.
    let allowsJustWorks: Bool

    init(
        session: Session, queue: DispatchQueue?, allowsSystemServices: Bool, allowsJustWorks: Bool,
        preserved: Snapshot?
    ) {
        (self.session, self.preserved) = (session, preserved)
        (self.allowsSystemServices, self.allowsJustWorks) = (allowsSystemServices, allowsJustWorks)
        inbox = Inbox(queue: queue ?? .main)
    }

    deinit { inbox.end() }

    /// Adds an event to what is delivered when the bus queue has done its turn.
    func post(_ event: @escaping Event) {
        session.assertOnQueue()
        if inbox.add(event) { session.blueZ.hasOutgoing(self) }
    }

    func flush() { inbox.flush(to: self) }

    func deliver(_ event: Event) { if let manager { event(manager) } }

    var services: [PublishedService] { applications.flatMap(\.services) }
}
