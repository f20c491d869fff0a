import BluezDBus
import Dispatch
import Foundation

/// BlueZ's object for a remote device, or the one that is expected. Confined to the bus queue.
final class Device {
    let identity: DeviceIdentity
    /// Changes if BlueZ makes its object again under another one.
    private(set) var path: ObjectPath
    private(set) var properties = DeviceProperties()
    /// Whether BlueZ has an object for it: it reports the removal of that.
    private(set) var isInBlueZ = false
    /// Made when an app connects; thousands of devices that are only scanned have none.
    private(set) var connection: DeviceConnection?
    /// Of which scan ``properties`` are: changes between two scans were not followed.
    private(set) var scanGeneration = 0
    /// How often BlueZ has removed it.
    private(set) var removals = 0
    private var lastSeen: DispatchTime?
    /// What BlueZ measured last, also after the scan that it was measured in.
    private(set) var lastRSSI: Int16?
    private var bearer = ConnectBearer.any
    /// Attempts to connect that have failed since the last link, the last one last.
    private var attempts: [BluezConnectAttempt] = []

    /// What the kernel has its links by: ``identity`` may be a private address.
    var linkIdentity: DeviceIdentity { properties.identity ?? identity }

    init(identity: DeviceIdentity, path: ObjectPath) {
        (self.identity, self.path) = (identity, path)
    }

    /// Whether it advertised within `period`.
    func wasHeard(within period: Duration) -> Bool {
        lastSeen.map { $0.later(by: period) > DispatchQueue.now } ?? false
    }

    // MARK: What BlueZ says

    /// BlueZ has an object for it, with these properties.
    func found(_ properties: DeviceProperties, scan generation: Int) {
        (self.properties, isInBlueZ, scanGeneration) = (properties, true, generation)
    }

    /// The discovery of another program has heard it before the scan began.
    func heardEarlier(_ properties: DeviceProperties, scan generation: Int) {
        (scanGeneration, lastSeen) = (generation, DispatchQueue.now)
        if connection == nil { (self.properties, isInBlueZ) = (properties, true) }
        AdvertisedServices.recall(self)
    }

    /// PropertiesChanged, or the answer to GetAll.
    func apply(
        _ reader: inout MessageReader, uuids: UUIDPool, links: LinkBearers
    ) throws(BusError) -> DeviceProperties.Changes {
        let old = (properties.isConnected, properties.areServicesResolved)
        let changes = try properties.apply(&reader, of: path, uuids: uuids)
        return links.leaveOutClassic(of: &properties, changes, old: old)
    }

    /// The rest of PropertiesChanged: what is not known any longer.
    func invalidate(_ reader: inout MessageReader) throws(BusError) { try properties.invalidate(&reader) }

    func markPresent() { isInBlueZ = true }

    /// BlueZ's object is gone, and the link with it.
    func removed() {
        removals += 1
        (isInBlueZ, properties.hasOnlyClassicLink) = (false, false)
        markDisconnected()
    }

    func markConnected() { properties.isConnected = true }

    /// The services of its LE link are known, although `ServicesResolved` is false (``TableReader/linkUp()``).
    func markResolved() { properties.areServicesResolved = true }

    /// The LE link has ended, and the one of classic Bluetooth stays.
    func markOnlyClassic() {
        markDisconnected()
        properties.hasOnlyClassicLink = true
    }

    func markDisconnected() { (properties.isConnected, properties.areServicesResolved) = (false, false) }

    /// An advertisement was received.
    func heard() {
        lastSeen = DispatchQueue.now
        lastRSSI = properties.rssiDBm ?? lastRSSI
    }

    /// It must advertise again before it counts as being in range.
    func clearLastSeen() { lastSeen = nil }

    func measured(_ rssi: Int16) { lastRSSI = rssi }

    fileprivate func setServices(_ services: [CBUUID]) { properties.services = services }

    /// Bluetooth is off, or away.
    func markLinkLost() { properties.isConnected = false }

    // MARK: Connecting

    func linkUp() {
        properties.isConnected = true
        attempts = []
    }

    /// `Connect` lets BlueZ choose between LE and classic Bluetooth. ``ConnectBearer`` says when not to.
    func connect(by proxy: BlueZProxy, completion: @escaping BlueZProxy.Completion) {
        switch bearer {
        case .any, .refused: proxy.connect(completion: completion)
        case .le:
            BlueZProxy(bus: proxy.bus, path: proxy.path, interface: BlueZ.bearerLE).connect(completion: completion)
        case .preferred: proxy.set("PreferredBearer", .string("le")) { _ in proxy.connect(completion: completion) }
        }
    }

    /// - Returns: What that means for the next attempt.
    func attemptFailed(_ error: BusError) -> LinkStateMachine.Failure {
        let failure = bearer.failed(error, isRandom: identity.isRandom)
        attempts = attempts.suffix(9)
        attempts.append(BluezConnectAttempt(date: Date(), name: error.name, message: error.message))
        clearLastSeen()
        return failure
    }

    /// No attempt will succeed.
    func forgetAttempts() -> [BluezConnectAttempt] {
        defer { (attempts, bearer) = ([], .any) }
        return attempts
    }

    /// What ends its link, or an attempt to make it, was refused until the end.
    func warnStillConnected(_ error: BusError) {
        let text = "\(identity.addressText) may stay connected: \(error.name) \(error.message)"
        Log.warning(from: path.rawValue, text)
    }

    // MARK: Its place

    func move(to path: ObjectPath) { self.path = path }

    func attach(_ connection: DeviceConnection?) { self.connection = connection }
}

/// What devices advertised that this process has connected to. BlueZ 5.66 forgets it if a link is ended while it
/// discovers the services, and then no scan for one of them would find the device until it is connected again.
enum AdvertisedServices {
    private static let known = Protected<[DeviceIdentity: [CBUUID]]>([:])

    static func record(_ device: Device) {
        let services = device.properties.services
        guard !services.isEmpty else { return }
        known.withLock { known in
            if known.count >= 1000 { known.removeAll() }
            known[device.identity] = services
        }
    }

    /// For tests: what a process that has just begun knows.
    static func forgetAll() { known.withLock { $0 = [:] } }

    static func recall(_ device: Device) {
        guard device.properties.services.isEmpty, let services = known.withLock({ $0[device.identity] }) else { return }
        device.setServices(services)
    }
}
