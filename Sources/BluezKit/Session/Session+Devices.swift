import DBus
import Dispatch
import Foundation

/// BlueZ's devices as far as somebody is interested in them.
extension Session {
    /// The device with this identity, known or not. It gets the path that BlueZ would give it.
    func device(_ identity: DeviceIdentity) -> Device? {
        let identity = originals[identity] ?? identity
        if let device = devicesByIdentity[identity] { return device }
        guard let path = adapterPath?.appending(identity.pathElement) else { return nil }
        return insert(Device(identity: identity, path: path))
    }

    @discardableResult
    private func insert(_ device: Device) -> Device {
        devicesByIdentity[device.identity] = device
        devicesByPath[device.path.rawValue] = device
        return device
    }

    /// InterfacesAdded of a device: a new one, or one that is wanted and has come.
    func deviceAdded(_ path: ObjectPath, _ properties: inout MessageReader) throws(BusError) {
        guard isOurs(path) else { return }
        var fields = DeviceProperties()
        var changes = try fields.apply(&properties, of: path, uuids: &uuids)
        // What BlueZ keeps of a device is no sign of it; its strength is known only while the device is heard.
        if fields.rssiDBm == nil { changes.remove(.advertisement) }
        guard let identity = fields.identity else { throw .malformed("\(path) has no address") }
        let device = known(identity, at: path)
        device.properties = fields
        device.isInBlueZ = true
        device.scanEpoch = scanEpoch
        process(changes, of: device)
    }

    /// A device may have got another path than we guessed, or another address than it had at this path.
    func known(_ identity: DeviceIdentity, at path: ObjectPath) -> Device {
        if let device = devicesByPath[path.rawValue], device.link != nil { return device }
        let identity = originals[identity] ?? identity
        if let device = devicesByIdentity[identity] {
            if device.path == path { return device }
            guard let link = device.link else {
                forget(device)
                return insert(Device(identity: identity, path: path))
            }
            // BlueZ does not have it where it was looked for.
            if link.machine.phase == .looking { move(device, link, to: path) }
            return device
        }
        if let other = devicesByPath[path.rawValue], other.link == nil { forget(other) }
        return insert(Device(identity: identity, path: path))
    }

    func isOurs(_ path: ObjectPath) -> Bool { adapterPath.map { path.isWithin($0) } ?? false }

    /// PropertiesChanged of a device, after its interface name.
    func receiveChange(of device: Device, _ reader: inout MessageReader) throws(BusError) {
        if device.link == nil {
            guard isFollowingDevices else { return }
            // Reported already, and nobody wants repetitions: look at the keys, decode nothing.
            if device.scanEpoch == scanEpoch, try isOldNews(device, reader) { return }
            if device.scanEpoch != scanEpoch {
                unknownPaths.add(device.path.rawValue)
                return readUnknownDevices()
            }
        }
        var changes = try device.properties.apply(&reader, of: device.path, uuids: &uuids)
        try device.properties.invalidate(&reader)
        // BlueZ does not signal an RSSI that has not changed; without a link names and services come from the air too.
        if device.link == nil, !changes.isDisjoint(with: [.name, .services]) { changes.insert(.advertisement) }
        process(changes, of: device)
    }

    /// What the changes of a device lead to, whoever brought them.
    func process(_ changes: DeviceProperties.Changes, of device: Device) {
        AdvertisedServices.recall(device)
        if changes.contains(.advertisement) {
            device.lastSeen = .now()
            scanWatch.hear()
            device.lastRSSI = device.properties.rssiDBm ?? device.lastRSSI
            report(device)
        }
        guard let link = device.link else { return }
        noteIdentity(of: device)
        if changes.contains(.bonded) {
            device.clients.forEach { $0.learnBond(device.properties.isBonded) }
            endQuestion(about: device)
        }
        if changes.contains(.name), let name = device.properties.name { nameChanged(name, of: device) }
        if changes.contains(.connected), link.machine.phase != .checking || !adapter.mayReportStaleLinks {
            apply(link.machine.handle(.connectedChanged(device.properties.isConnected)), to: device)
        }
        if changes.contains(.advertisement) {
            perform(turns.hear(device.identity))
            apply(link.machine.handle(.seen), to: device)
        }
        if changes.contains(.servicesResolved), device.properties.areServicesResolved { resolved(device, link) }
    }

    /// A device that bonds tells who it is; BlueZ then changes `Address`, and not the path.
    func noteIdentity(of device: Device) {
        guard let identity = device.properties.identity, note(device.identity, isReally: identity) else { return }
        for core in device.clients { core.manager.post { _ in core.peripheral?.learn(identity) } }
    }

    /// - Returns: Whether that is news.
    @discardableResult
    func note(_ address: DeviceIdentity, isReally identity: DeviceIdentity) -> Bool {
        guard address != identity, resolved.updateValue(identity, forKey: address) != identity else { return false }
        originals[identity] = address
        return true
    }

    // MARK: Other paths than the address gives

    /// BlueZ does not have the device where it was looked for. One that has bonded under a private address keeps the path
    /// of that until BlueZ is started again, and has that of its identity from then on.
    /// - Parameter then: Gets whether to look again: it may be elsewhere, or has come meanwhile.
    func follow(_ device: Device, _ link: Link, then: @escaping (_ mustLookAgain: Bool) -> Void) {
        // It takes looking at all that BlueZ knows: once, and not while an app waits for what it had preserved.
        if knowsHiddenPaths || device.identity.isResolvable || link.machine.phase != .checking {
            return then(follow(device, link))
        }
        let epoch = link.epoch
        awaitingHiddenPaths.append { [weak self, weak device] in
            guard let self, let device, let link = device.link, link.epoch == epoch else { return }
            _ = follow(device, link)
            then(true)
        }
        guard awaitingHiddenPaths.count == 1 else { return }
        bus?.call(Self.managedObjects, deadline: .seconds(2)) { [weak self] result in
            guard let self else { return }
            if case .success(let reply) = result { _ = devices(in: reply) { _ in false } }
            let waiting = awaitingHiddenPaths
            awaitingHiddenPaths = []
            for goOn in waiting { goOn() }
        }
    }

    private func follow(_ device: Device, _ link: Link) -> Bool {
        let identity = resolved[device.identity] ?? device.identity
        guard let path = hiddenPaths[identity] ?? adapterPath?.appending(identity.pathElement), path != device.path,
            devicesByPath[path.rawValue]?.link == nil
        else { return false }
        move(device, link, to: path)
        return true
    }

    private func move(_ device: Device, _ link: Link, to path: ObjectPath) {
        for rule in link.matchRules { bus?.removeMatch(rule) }
        move(device, to: path)
        link.matchRules = matchRules(for: device)
        for rule in link.matchRules { bus?.addMatch(rule) }
    }

    /// The object has gone: BlueZ has forgotten the device, and with it the link.
    func deviceRemoved(_ device: Device) {
        device.isInBlueZ = false
        device.properties.isConnected = false
        device.properties.areServicesResolved = false
        guard let link = device.link else { return forget(device) }
        link.tree = AttributeTree()
        apply(link.machine.handle(.connectedChanged(false)), to: device)
        // BlueZ 5.66 never answers a `Connect` to what it forgets meanwhile.
        if link.machine.phase == .attempting { link.failConnect?(ConnectFailure.forgotten) }
        if device.link == nil { forget(device) }
    }

    /// - Important: Only without a link.
    func forget(_ device: Device) {
        devicesByIdentity[device.identity] = nil
        if devicesByPath[device.path.rawValue] === device { devicesByPath[device.path.rawValue] = nil }
    }

    private func nameChanged(_ name: String, of device: Device) {
        for core in device.clients {
            core.manager.post { _ in
                guard let peripheral = core.peripheral, peripheral.takeName(name) else { return }
                peripheral.delegate?.peripheralDidUpdateName(peripheral)
            }
        }
    }

    // MARK: Devices that BlueZ knew before we looked

    /// Reads devices of which only a change is known, a few at a time.
    func readUnknownDevices() {
        guard let bus else { return }
        while let path = unknownPaths.next() {
            guard let objectPath = ObjectPath(path) else { continue }
            let epoch = scanEpoch
            blueZ.insist {
                BlueZProxy(bus: bus, path: objectPath, interface: BlueZ.device).getAll(completion: $0)
            } answered: {
                [weak self] result in
                guard let self else { return }
                // Asking took no longer than the answer is fresh: the change that made us ask is in it.
                if unknownPaths.finish(path), case .success(let reply) = result, epoch == scanEpoch {
                    var reader = reply.reader
                    do throws(BusError) { try deviceAdded(objectPath, &reader) } catch {
                        Log.warning("ignored \(path): \(error.message)")
                    }
                }
                readUnknownDevices()
            }
        }
    }

    /// Reports what a discovery that ran before our scan began has heard. BlueZ keeps the strength of a device only while
    /// one runs.
    func readHeardDevices() {
        guard let bus, managers.contains(where: { $0.scan != nil }) else { return }
        let epoch = scanEpoch
        blueZ.insist {
            bus.call(Self.managedObjects, deadline: .seconds(30), completion: $0)
        } answered: { [weak self] result in
            guard let self, epoch == scanEpoch, isFollowingDevices, case .success(let reply) = result else { return }
            forEachDevice(in: reply) { identity, path, fields in
                // Of a connected one the strength may be from before the link (SC-12).
                guard fields.rssiDBm != nil, !fields.isConnected else { return }
                let device = known(identity, at: path)
                guard device.scanEpoch != epoch else { return }
                device.scanEpoch = epoch
                device.lastSeen = .now()  // so that a connect does not wait for the next advertisement
                if device.link == nil { device.properties = fields }
                AdvertisedServices.recall(device)
                report(device)
            }
        }
    }

    // MARK: Synchronous questions

    /// Devices that BlueZ knows, for which `isWanted`; with the services that it knows of them. Blocks: the API
    /// answers synchronously. Not on the bus queue.
    func knownDevices(where isWanted: @escaping @Sendable (DeviceProperties) -> Bool) -> [KnownDevice] {
        dispatchPrecondition(condition: .notOnQueue(queue))
        let answered = DispatchSemaphore(value: 0)
        let found = Protected<[KnownDevice]>([])
        queue.async { [self] in
            guard let bus else { return _ = answered.signal() }
            bus.call(Self.managedObjects, deadline: .seconds(2)) { [self] result in
                if case .success(let reply) = result {
                    found.withLock { $0 = self.devices(in: reply, where: isWanted) }
                } else {
                    Log.warning("BlueZ did not tell its devices in time")
                }
                answered.signal()
            }
        }
        // A little more than the call's own deadline: the bus queue may be busy.
        _ = answered.wait(timeout: .now() + 4)
        return found.withLock { $0 }
    }

    private static var managedObjects: MethodCall {
        MethodCall(
            destination: BlueZ.busName, path: "/", interface: "org.freedesktop.DBus.ObjectManager",
            member: "GetManagedObjects")
    }

    typealias KnownDevice = (identity: DeviceIdentity, name: String?, services: [CBUUID])

    private func devices(in reply: Message, where isWanted: (DeviceProperties) -> Bool) -> [KnownDevice] {
        var result: [KnownDevice] = []
        forEachDevice(in: reply) { identity, _, fields in
            if isWanted(fields) { result.append((identity, fields.name, fields.services)) }
        }
        return result
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
                _ = try fields.apply(&interface, of: ObjectPath(at: path), uuids: &uuids)
                guard let identity = fields.identity else { return }
                let path = ObjectPath(at: path)
                if path.lastElement != identity.pathElement { hiddenPaths[identity] = path }
                body(identity, path, fields)
            }
        }
        knowsHiddenPaths = true
    }
}
