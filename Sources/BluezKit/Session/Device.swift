import DBus
import Dispatch
import Foundation

/// BlueZ's object for a remote device, or the one that we wait for. Confined to the bus queue.
final class Device {
    let identity: DeviceIdentity
    /// Changes if BlueZ makes its object anew under another one.
    fileprivate(set) var path: ObjectPath
    var properties = DeviceProperties()
    /// Whether BlueZ has an object for it: it tells when that goes.
    var isInBlueZ = false
    /// The peripherals that have something to do with its link. Few: one for each manager at most.
    var clients: [PeripheralCore] = []
    /// Made when somebody connects; thousands of devices that are only scanned have none.
    var link: Link?
    /// Of which scan `properties` are: what has changed between two scans was not followed.
    var scanEpoch = 0
    var lastSeen: DispatchTime?
    /// What BlueZ measured last, also after the scan that it was measured in.
    var lastRSSI: Int16?
    /// How BlueZ is to be told to connect by LE. A device that has both it connects to as it likes.
    enum Bearer { case any, le, preferred, refused }
    var bearer = Bearer.any
    /// Attempts to connect that have failed since the last link, the last one last.
    var attempts: [BluezConnectAttempt] = []
    /// `Device1.Disconnected`, which comes right before the link ends.
    var disconnectReason: (name: String, message: String)?

    init(identity: DeviceIdentity, path: ObjectPath) {
        (self.identity, self.path) = (identity, path)
    }

    /// A controller that filters duplicates reports a device once in a scan cycle, about 10 s.
    var wasHeardOfLate: Bool { lastSeen.map { $0 + DispatchTimeInterval.seconds(12) > .now() } ?? false }

    var isWanted: Bool { clients.contains { $0.wish != nil } }
}

extension Session {
    /// BlueZ has the device under another path.
    func move(_ device: Device, to path: ObjectPath) {
        if devicesByPath[device.path.rawValue] === device { devicesByPath[device.path.rawValue] = nil }
        device.path = path
        devicesByPath[path.rawValue] = device
    }
}

/// What devices advertised that this process has connected to. BlueZ 5.66 forgets it if a link is ended while it discovers
/// the services, and then no scan for one of them would find the device until it is connected again.
enum AdvertisedServices {
    private static let known = Protected<[DeviceIdentity: [CBUUID]]>([:])

    static func note(_ device: Device) {
        let services = device.properties.services
        guard !services.isEmpty else { return }
        known.withLock { known in
            if known.count >= 1000 { known.removeAll() }
            known[device.identity] = services
        }
    }

    static func recall(_ device: Device) {
        guard device.properties.services.isEmpty, let services = known.withLock({ $0[device.identity] }) else { return }
        device.properties.services = services
    }
}

/// What a device needs once somebody wants to connect to it. Confined to the bus queue.
final class Link {
    var machine = LinkStateMachine()
    var tree = AttributeTree()
    var queue = AttributeQueue<AttributeOperation>()
    /// The operation that begins next, and whether one is beginning: see `execute`.
    var nextEntry: AttributeQueue<AttributeOperation>.Entry?
    var isExecuting = false
    /// Sockets for writes without response, by characteristic.
    var writers: [String: CommandSocket] = [:]
    /// Characteristics whose socket BlueZ does not give us.
    var withoutSocket: Set<String> = []
    var timer: (any DispatchSourceTimer)?
    /// Attributes that BlueZ had before we looked: they are not announced, so they are read.
    var unreadObjects = PathQueue()
    /// Whether the ATT_MTU may still be asked for.
    var mayAskMTU = true
    /// Whether `ServicesResolved` is true and ``tree`` complete.
    var isDiscovered = false
    /// Whether an app was told why ``tree`` is not complete: the next discovery asks again.
    var isFlawTold = false
    /// Whether it was there before this process: attributes may be in use before ``tree`` is complete.
    var isAdopted = false
    /// Services that have changed since the app was told last, and whether a report is due.
    var changedServices: Set<String> = []
    var isChangeReportDue = false
    /// BlueZ said that the attempt had failed, though the link was up.
    var failedWhileUp: DispatchTime?
    /// When the last link has ended.
    var downSince = CFAbsoluteTime(0)
    /// Answers `Connect` in BlueZ's place.
    var failConnect: ((BusError) -> Void)?
    /// Answers the running operation, also in BlueZ's place; nil: BlueZ is not asked anything for it.
    var answerRunning: ((Result<Message, BusError>) -> Void)?
    /// The operation that ran when its attribute went.
    var lostOperation: Int?
    /// Our part in the link or the attempt, if a program with BluezKit has made it.
    var lease: LinkLease?
    /// `Disconnect` is on its way, which keeps the session.
    var ending: Session?
    /// Whether `Pair` is on its way.
    var isPairing = false
    var isPausingDiscovery = false
    var isLooking = false
    var matchRules: [MatchRule] = []
    /// Counts the links: answers to calls made for an earlier one are void.
    var epoch = 0

    /// Whether it is still to be answered: not if the link has ended, or the attribute has gone.
    func isRunning(_ id: Int) -> Bool { queue.running?.id == id }

    /// The operation, if it is still to be answered. For what waits for BlueZ, which may never answer: until then it keeps
    /// nothing of the app.
    func running(_ id: Int) -> AttributeQueue<AttributeOperation>.Entry? { isRunning(id) ? queue.running : nil }

    /// The link has ended, or the attempt has.
    func endLease() {
        lease?.end()
        lease = nil
    }
}

/// What an app asked of a peripheral, in the order of the calls (RW-1).
struct AttributeOperation {
    enum Kind {
        case discoverServices([CBUUID]?)
        case discoverIncludedServices([CBUUID]?, CBService)
        case discoverCharacteristics([CBUUID]?, CBService)
        case discoverDescriptors(CBCharacteristic)
        case read(CBCharacteristic)
        case readDescriptor(CBDescriptor)
        case write([UInt8], CBCharacteristic)
        case writeWithoutResponse([UInt8], CBCharacteristic)
        case writeDescriptor([UInt8], CBDescriptor)
        case setNotify(Bool, CBCharacteristic)
        /// As an earlier process had it; nobody is told of success.
        case resubscribe(CBCharacteristic)
        case readRSSI
    }

    let core: PeripheralCore
    let link: UInt64
    let kind: Kind

    /// What it is about; nil: the peripheral.
    var attribute: CBAttribute? {
        switch kind {
        case .discoverServices, .readRSSI: nil
        case .discoverIncludedServices(_, let service), .discoverCharacteristics(_, let service): service
        case .readDescriptor(let descriptor), .writeDescriptor(_, let descriptor): descriptor
        case .discoverDescriptors(let characteristic), .read(let characteristic), .write(_, let characteristic),
            .writeWithoutResponse(_, let characteristic), .setNotify(_, let characteristic),
            .resubscribe(let characteristic):
            characteristic
        }
    }

    /// Posts an answer to it, unless the app has begun another connection meanwhile.
    func answer(_ body: @escaping (CBPeripheral, (any CBPeripheralDelegate)?) -> Void) {
        if core.wish?.link == link { core.post(body) }
    }
}

/// A subscription to one characteristic and who shares it.
final class Subscription {
    /// One peripheral object's characteristic object, on one link.
    struct Subscriber: Hashable {
        let core: PeripheralCore
        let characteristic: CBCharacteristic
        let link: UInt64

        static func == (a: Subscriber, b: Subscriber) -> Bool { a.core === b.core }
        func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(core)) }
    }

    let device: Device
    let path: ObjectPath
    /// Of which state of its service it is: another attribute may get this path (IV-1).
    let version: Int
    var machine = SubscriptionStateMachine<Subscriber>()

    init(device: Device, path: ObjectPath, version: Int) {
        (self.device, self.path, self.version) = (device, path, version)
    }
}
