import BluezKitRestore
import Synchronization
import BluezDBus
import Foundation

/// Updates of what the app sees. They happen on the delegate's queue, just before the callback that announces the
/// change, except for `beginConnecting` and `beginDisconnecting`, which happen within the app's call.
extension CBPeripheral {
    var isInvalid: Bool { shared.withLock { $0.isInvalid } }

    /// ATT_MTU of the link, in bytes; nil until it is known.
    var mtuBytes: Int? { shared.withLock { $0.mtuBytes } }

    /// - Returns: The generation of this connect, and the state before it: `.connecting` or `.connected` if it is a
    ///   further one (CN-4).
    func beginConnecting(_ request: ConnectRequest) -> (connectionID: UInt64, previous: CBPeripheralState) {
        shared.withLock { shared in
            switch shared.state {
            case .connecting, .connected:
                shared.connectRequest = request
                return (core.connectionID.load(ordering: .relaxed), shared.state)
            default:
                shared.state = .connecting
                shared.connectRequest = request
                (shared.commands, shared.mtuBytes) = (CommandFlow(), nil)
                return (core.begin(), .disconnected)
            }
        }
    }

    /// - Returns: Whether there is anything to end (CN-7).
    func beginDisconnecting() -> Bool {
        shared.withLock { shared in
            guard shared.state == .connecting || shared.state == .connected else { return false }
            shared.state = .disconnecting
            core.begin()
            return true
        }
    }

    /// - Parameter mtuBytes: ATT_MTU, if it is known already.
    /// - Returns: Whether `didConnect` is due: not if the app has cancelled in the meantime.
    func enterConnected(connectionID: UInt64, mtuBytes: Int?) -> Bool {
        shared.withLock { shared in
            guard core.connectionID.load(ordering: .relaxed) == connectionID else { return false }
            if shared.state != .connected {
                (shared.services, shared.attributes, shared.subscribed) = (nil, [:], [])
                shared.commands = CommandFlow()
            }
            shared.state = .connected
            if let mtuBytes { shared.mtuBytes = mtuBytes }
            return true
        }
    }

    func update(mtuBytes: Int, connectionID: UInt64) {
        shared.withLock { shared in
            if core.connectionID.load(ordering: .relaxed) == connectionID { shared.mtuBytes = mtuBytes }
        }
    }

    /// The link or the attempt ended without a request: services and everything below them are invalid (CN-11).
    /// - Parameter next: The generation of the next link, if it reconnects automatically.
    /// - Returns: Whether a callback is due: not if the app has begun a new connect in the meantime.
    func leave(connectionID: UInt64, for next: UInt64? = nil) -> Bool {
        let ended: [CBAttribute]? = shared.withLock { shared in
            guard core.connectionID.load(ordering: .relaxed) == connectionID else { return nil }
            if let next { core.connectionID.store(next, ordering: .relaxed) }
            shared.state = next == nil ? .disconnected : .connecting
            return endLink(&shared)
        }
        if let ended { linkEnded(ended) }
        return ended != nil
    }

    /// A connection that the app cancelled has ended. It may be connecting again.
    func leave() {
        let ended = shared.withLock { shared in
            if shared.state == .disconnecting { shared.state = .disconnected }
            return endLink(&shared)
        }
        linkEnded(ended)
    }

    /// Bluetooth is off, or was reset: no callback is made, and after a reset the object cannot be used again.
    func lostBluetooth(invalidates: Bool) {
        let ended = shared.withLock { shared in
            core.begin()
            shared.state = .disconnected
            shared.isInvalid = invalidates
            return endLink(&shared)
        }
        linkEnded(ended)
    }

    /// - Returns: The known attributes.
    func endLink(_ shared: inout Shared) -> [CBAttribute] {
        defer { (shared.services, shared.attributes, shared.subscribed) = (nil, [:], []) }
        shared.commands.end()
        shared.mtuBytes = nil
        shared.channels = []
        return Array(shared.attributes.values)
    }

    /// After ``endLink(_:)``, without the lock.
    func linkEnded(_ attributes: [CBAttribute]) {
        stopNotifying(attributes)
        logDroppedCommands()
    }

    /// NT-7: objects that the app still holds must not show `isNotifying`.
    private func stopNotifying(_ attributes: [CBAttribute]) {
        for case let characteristic as CBCharacteristic in attributes where characteristic.isNotifying {
            characteristic.setNotifying(false)
        }
    }

    /// - Returns: Whether the name has changed.
    func updateName(_ name: String) -> Bool {
        shared.withLock { shared in
            defer { shared.name = name }
            return shared.name != name
        }
    }

    /// `setNotifyValue` was called, or has failed.
    func updateSubscription(_ enabled: Bool, to characteristic: CBCharacteristic) {
        shared.withLock { shared in
            if enabled {
                shared.subscribed.insert(characteristic.objectPath)
            } else {
                shared.subscribed.remove(characteristic.objectPath)
            }
        }
        preserve(characteristic)
    }

    /// An L2CAP channel was opened, or has ended.
    func updateChannel(_ psm: CBL2CAPPSM, isOpen: Bool) {
        shared.withLock { shared in
            if isOpen {
                shared.channels.append(psm)
            } else if let index = shared.channels.firstIndex(of: psm) {
                shared.channels.remove(at: index)
            }
        }
        preserve()
    }

    func setRSSI(_ rssi: NSNumber) { shared.withLock { $0.rssi = rssi } }

    // MARK: Attributes

    /// The object for an attribute: the one returned before, if any (GD-4).
    private func object<A: CBAttribute>(_ path: String, make: () -> A) -> A {
        if let known = shared.withLock({ $0.attributes[path] as? A }) { return known }
        let new = make()
        shared.withLock { $0.attributes[path] = new }
        return new
    }

    private func object(_ service: AttributeTable.Service) -> CBService {
        object(service.path.rawValue) {
            CBService(
                uuid: service.uuid, isPrimary: service.isPrimary, objectPath: service.path.rawValue, peripheral: self,
                layout: service.layout, version: service.version)
        }
    }

    /// Results accumulate, once each, in table order (GD-3).
    private func merge<A: CBAttribute>(_ old: [A]?, _ found: [A]) -> [A] {
        let known = Set((old ?? []).map(ObjectIdentifier.init))
        return ((old ?? []) + found.filter { !known.contains(ObjectIdentifier($0)) })
            .sorted { $0.objectPath < $1.objectPath }
    }

    func addDiscovered(services found: [AttributeTable.Service]) {
        let objects = found.map(object)
        let merged = merge(services, objects)
        shared.withLock { $0.services = merged }
        preserve()
    }

    func addDiscovered(includedServices found: [AttributeTable.Service], of service: CBService) {
        // The file can have a known service replaced, and gets a new one with the whole table only.
        let areKnown = shared.withLock { shared in found.allSatisfy { shared.attributes[$0.path.rawValue] != nil } }
        service.addDiscovered(includedServices: merge(service.includedServices, found.map(object)))
        if areKnown { preserve(service) } else { preserve() }
    }

    func addDiscovered(characteristics found: [AttributeTable.Characteristic], of service: CBService) {
        let objects = found.map { node in
            object(node.path.rawValue) {
                CBCharacteristic(
                    uuid: node.uuid, properties: node.properties, value: node.value.map { Data($0) },
                    objectPath: node.path.rawValue, service: service)
            }
        }
        service.addDiscovered(characteristics: merge(service.characteristics, objects))
        preserve(service)
    }

    func addDiscovered(descriptors found: [AttributeTable.Descriptor], of characteristic: CBCharacteristic) {
        let objects = found.map { node in
            object(node.path.rawValue) {
                CBDescriptor(uuid: node.uuid, objectPath: node.path.rawValue, characteristic: characteristic)
            }
        }
        characteristic.addDiscovered(descriptors: merge(characteristic.descriptors, objects))
        preserve(characteristic)
    }

    /// Whether it is an attribute that this object has returned, and that is still valid.
    func knows(_ attribute: CBAttribute) -> Bool {
        shared.withLock { $0.attributes[attribute.objectPath] === attribute }
    }

    /// The table has changed in these services, which now have these versions: removes older versions of them, and
    /// everything below (IV-1). What the app has discovered since is current.
    /// - Returns: The services that the app knew.
    func invalidate(services versions: [String: Int]) -> [CBService] {
        func isGone(_ attribute: CBAttribute) -> Bool {
            versions[AttributeTable.service(of: attribute.objectPath)].map { $0 != attribute.version } ?? false
        }
        let gone = shared.withLock { shared in
            let gone = shared.attributes.values.filter(isGone)
            for attribute in gone {
                shared.attributes[attribute.objectPath] = nil
                shared.subscribed.remove(attribute.objectPath)
            }
            shared.services?.removeAll(where: isGone)
            return gone
        }
        stopNotifying(gone)
        preserve()
        return gone.compactMap { $0 as? CBService }.sorted { $0.objectPath < $1.objectPath }
    }
}
