import BluezDBus
import Dispatch
import Foundation

/// BlueZ's devices as far as an app is interested in them. Confined to the bus queue.
final class DeviceStore {
    private let bus: BlueZBus
    private let adapter: AdapterController
    let uuids = UUIDPool()
    let links: LinkBearers
    private var byPath = PathTable<Device>()
    private var byIdentity: [DeviceIdentity: Device] = [:]
    /// Devices that were first seen under a private address, and the identities that they have told when they bonded.
    private var identities: [DeviceIdentity: DeviceIdentity] = [:]
    /// The reverse: under which address they were seen first, which stays their identifier here.
    private var firstAddresses: [DeviceIdentity: DeviceIdentity] = [:]
    /// Bonded devices that BlueZ has under the private address they were found with: the path of an object never
    /// changes.
    private var hiddenPaths: [DeviceIdentity: ObjectPath] = [:]
    /// Whether all of them were asked for, and what waits for that.
    private var knowsHiddenPaths = false
    private var awaitingHiddenPaths: [() -> Void] = []
    /// When links have ended, a moment ago. An app that connects again has a new ``Device`` if nothing else kept that.
    private var linkEnds: [ObjectPath: DispatchTime] = [:]
    /// Devices that BlueZ is made to forget, as often as it is asked to.
    private var leaving: [Device] = []

    init(_ bus: BlueZBus, _ adapter: AdapterController) {
        (self.bus, self.adapter, links) = (bus, adapter, LinkBearers(adapter))
    }

    var count: Int { byIdentity.count }
    var all: [Device] { Array(byIdentity.values) }
    /// Whether each device is known by its identity and by its path.
    var isConsistent: Bool { byIdentity.count == byPath.count }

    // MARK: Finding

    /// The device with this identity, known or not. It gets the path that BlueZ would give it.
    func device(_ identity: DeviceIdentity) -> Device? {
        bus.assertOnQueue()
        let identity = firstAddresses[identity] ?? identity
        if let device = byIdentity[identity] { return device }
        guard let path = adapter.path?.appending(identity.pathElement) else { return nil }
        return insert(Device(identity: identity, path: path))
    }

    func known(_ identity: DeviceIdentity) -> Device? { byIdentity[identity] }

    subscript(path: UnsafePointer<CChar>) -> Device? { byPath[path] }
    subscript(path: String) -> Device? { byPath[path] }

    /// The device whose path is the first `length` bytes of `path`.
    func find(_ path: UnsafePointer<CChar>, _ length: Int) -> Device? { byPath.find(path, length) }

    func isOurs(_ path: ObjectPath) -> Bool { adapter.path.map { path.isWithin($0) } ?? false }

    /// A device may have got another path than expected, or another address than it had at this path.
    func device(_ identity: DeviceIdentity, at path: ObjectPath) -> Device {
        if let device = byPath[path.rawValue], device.connection != nil { return device }
        let identity = firstAddresses[identity] ?? identity
        if let device = byIdentity[identity] {
            if device.path == path { return device }
            guard let connection = device.connection else {
                forget(device)
                return insert(Device(identity: identity, path: path))
            }
            // BlueZ does not have it where it was looked for.
            if connection.phase == .looking { move(device, to: path) }
            return device
        }
        if let other = byPath[path.rawValue], other.connection == nil { forget(other) }
        return insert(Device(identity: identity, path: path))
    }

    @discardableResult
    private func insert(_ device: Device) -> Device {
        byIdentity[device.identity] = device
        byPath[device.path.rawValue] = device
        return device
    }

    /// - Important: Only without a connection.
    func forget(_ device: Device) {
        byIdentity[device.identity] = nil
        if byPath[device.path.rawValue] === device { byPath[device.path.rawValue] = nil }
    }

    /// Bluetooth is off, or was reset.
    func removeAll() {
        byPath.removeAll()
        byIdentity.removeAll()
        (hiddenPaths, knowsHiddenPaths) = ([:], false)
        (linkEnds, leaving) = ([:], [])
    }

    // MARK: Devices that BlueZ is made to forget

    /// Its removal is noted from now on, also where no app uses it any longer: another program may find the device
    /// again before BlueZ's answer is here.
    func forgetting(_ device: Device) { leaving.append(device) }

    /// BlueZ has answered.
    func forgettingEnded(_ device: Device) {
        if let index = leaving.firstIndex(where: { $0 === device }) { leaving.remove(at: index) }
    }

    /// BlueZ's object at `path` has gone. To be called before the device that is known there hears of it.
    func noteRemoval(at path: UnsafePointer<CChar>) {
        guard !leaving.isEmpty else { return }
        let (path, known) = (ObjectPath(at: path), byPath[path])
        for device in leaving where device.path == path && device !== known { device.removed() }
    }

    // MARK: Links that have just ended

    /// BlueZ has signalled that a link of the device has ended, whichever program's, or has ended it for
    /// this one. (That there is none does not say so.)
    func linkEnded(_ path: ObjectPath) {
        linkEnds = linkEnds.filter { isRecent($0.value) }
        linkEnds[path] = DispatchQueue.now
    }

    /// Whether bluetoothd may not have finished with the end of the last link.
    func hadLink(_ path: ObjectPath) -> Bool { linkEnds[path].map(isRecent) ?? false }

    private func isRecent(_ end: DispatchTime) -> Bool {
        end.later(by: bus.timing.link.lateEnd) > DispatchQueue.now
    }

    // MARK: Identities

    /// A device that bonds tells its identity; BlueZ then changes `Address`, and not the path.
    func adoptIdentity(of device: Device) {
        guard let identity = device.properties.identity, associate(device.identity, withIdentity: identity) else {
            return
        }
        for core in device.connection?.clients ?? [] { core.updateIdentity(identity) }
    }

    /// - Returns: Whether that was not known.
    @discardableResult
    func associate(_ address: DeviceIdentity, withIdentity identity: DeviceIdentity) -> Bool {
        guard address != identity, identities.updateValue(identity, forKey: address) != identity else { return false }
        firstAddresses[identity] = address
        return true
    }

    // MARK: Other paths than the address gives

    /// BlueZ does not have the device where it was looked for. One that has bonded under a private address keeps the
    /// path of that until BlueZ is started again, and has that of its identity from then on.
    /// - Parameter then: Gets whether to look again: it may be elsewhere, or has come meanwhile. Not called if the
    ///   connection has another generation by then.
    func follow(_ device: Device, _ connection: DeviceConnection, then: @escaping (_ mustLookAgain: Bool) -> Void) {
        // It takes looking at all that BlueZ knows: once, and not while an app waits for what it had preserved.
        if knowsHiddenPaths || device.identity.isResolvable || connection.phase != .checking {
            return then(follow(device))
        }
        awaitingHiddenPaths.append { [weak self, weak device, weak client = connection.client] in
            guard let self, let device, let client, client.isCurrent else { return }
            _ = follow(device)
            then(true)
        }
        guard awaitingHiddenPaths.count == 1 else { return }
        bus.connection?.call(Self.managedObjects, deadline: BlueZTiming.Deadline.list) { [weak self] result in
            guard let self else { return }
            if case .success(let reply) = result { forEachDevice(in: reply) { _, _, _ in } }
            let waiting = awaitingHiddenPaths
            awaitingHiddenPaths = []
            for proceed in waiting { proceed() }
        }
    }

    private func follow(_ device: Device) -> Bool {
        let identity = identities[device.identity] ?? device.identity
        guard let path = hiddenPaths[identity] ?? adapter.path?.appending(identity.pathElement), path != device.path,
            byPath[path.rawValue]?.connection == nil
        else { return false }
        move(device, to: path)
        return true
    }

    /// BlueZ has the device under another path.
    private func move(_ device: Device, to path: ObjectPath) {
        device.connection?.pathChanges()
        if byPath[device.path.rawValue] === device { byPath[device.path.rawValue] = nil }
        device.move(to: path)
        byPath[path.rawValue] = device
        device.connection?.updateMatchRules()
    }

    // MARK: All devices of BlueZ

    /// Devices that BlueZ knows, with the services that it knows of them. Blocks: the API answers synchronously. Not on
    /// the bus queue.
    func knownDevices(_ query: DeviceQuery) -> [KnownDevice] {
        dispatchPrecondition(condition: .notOnQueue(bus.queue))
        let answered = DispatchSemaphore(value: 0)
        let found = Protected<[KnownDevice]>([])
        // holds: used on the bus queue only
        nonisolated(unsafe) let store = self
        bus.queue.async { [bus] in
            guard let connection = bus.connection else { return _ = answered.signal() }
            connection.call(Self.managedObjects, deadline: BlueZTiming.Deadline.list) { result in
                if case .success(let reply) = result {
                    var devices: [KnownDevice] = []
                    store.forEachDevice(in: reply) { identity, _, fields in
                        guard query == .connected ? store.isConnected(fields) : fields.isBonded else { return }
                        let services = fields.services.map(CodableUUID.init)
                        devices.append(KnownDevice(identity: identity, name: fields.name, services: services))
                    }
                    found.withLock { $0 = devices }
                } else {
                    Log.warning("timed out listing BlueZ's devices")
                }
                answered.signal()
            }
        }
        _ = answered.wait(timeout: .now().later(by: BlueZTiming.Deadline.blockedList))
        return found.withLock { $0 }
    }

    /// By LE, as far as can be known.
    private func isConnected(_ properties: DeviceProperties) -> Bool {
        properties.isConnected && links.bearers(of: properties) != .classic
    }

    /// Reads all devices of BlueZ.
    func readAll(
        _ body: @escaping (DeviceIdentity, ObjectPath, DeviceProperties) -> Void, isWanted: @escaping () -> Bool
    ) {
        guard let connection = bus.connection else { return }
        bus.insist({ connection.call(Self.managedObjects, deadline: BlueZTiming.Deadline.call, completion: $0) }) {
            [weak self] result in
            guard let self, isWanted(), case .success(let reply) = result else { return }
            forEachDevice(in: reply, body)
        }
    }

    private static var managedObjects: MethodCall {
        MethodCall(
            destination: BlueZ.busName, path: "/", interface: "org.freedesktop.DBus.ObjectManager",
            member: "GetManagedObjects")
    }

    private func forEachDevice(in reply: Message, _ body: (DeviceIdentity, ObjectPath, DeviceProperties) -> Void) {
        var reader = reply.reader
        try? reader.readDictionary { (entry) throws(BusError) in
            let path = try entry.readPathC()
            guard let length = BlueZ.devicePathLength(path), path[length] == 0, isOurs(ObjectPath(at: path)) else {
                return
            }
            try entry.readDictionary { (interface) throws(BusError) in
                guard try interface.readCString().matches("org.bluez.Device1") else { return }
                var fields = DeviceProperties()
                _ = try fields.apply(&interface, of: ObjectPath(at: path), uuids: uuids)
                guard let identity = fields.identity else { return }
                let path = ObjectPath(at: path)
                if path.lastElement != identity.pathElement { hiddenPaths[identity] = path }
                body(identity, path, fields)
            }
        }
        knowsHiddenPaths = true
    }
}
