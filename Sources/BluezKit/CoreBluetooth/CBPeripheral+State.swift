import Synchronization
import BluezDBus
import Foundation

/// How the library changes what the app sees. On the delegate's queue, right before the callback that tells, but for the
/// first two, which happen within the app's call.
extension CBPeripheral {
    var isInvalid: Bool { shared.withLock { $0.isInvalid } }

    /// ATT_MTU of the link, in bytes; nil until it is known.
    var mtuBytes: Int? {
        get { shared.withLock { $0.mtuBytes } }
        set { shared.withLock { $0.mtuBytes = newValue } }
    }

    /// - Returns: Which connect this is, and whether it is the one that has connected already; nil if one is under way
    ///   (CN-4).
    func beginConnecting(_ options: [String: Double]) -> (token: UInt64, isRepeated: Bool)? {
        shared.withLock { shared in
            switch shared.state {
            case .connecting: return nil
            case .connected: return (core.link.load(ordering: .relaxed), true)
            default:
                shared.state = .connecting
                shared.connectOptions = options
                (shared.commands, shared.isFull, shared.mtuBytes) = (0, false, nil)
                return (core.begin(), false)
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

    /// - Returns: Whether `didConnect` is due: not if the app has cancelled meanwhile.
    func enterConnected(link token: UInt64) -> Bool {
        shared.withLock { shared in
            guard core.link.load(ordering: .relaxed) == token else { return false }
            if shared.state != .connected {
                (shared.services, shared.attributes, shared.subscribed) = (nil, [:], [])
            }
            shared.state = .connected
            return true
        }
    }

    /// The link or the attempt has ended by itself: services and all below are invalid (CN-11).
    /// - Parameter next: Which link is the next one, if it connects again by itself.
    /// - Returns: Whether the app is to be told: not if it has begun something new meanwhile.
    func leave(link token: UInt64, for next: UInt64? = nil) -> Bool {
        let ended: [CBAttribute]? = shared.withLock { shared in
            guard core.link.load(ordering: .relaxed) == token else { return nil }
            if let next { core.link.store(next, ordering: .relaxed) }
            shared.state = next == nil ? .disconnected : .connecting
            return endLink(&shared)
        }
        if let ended { stopNotifying(ended) }
        return ended != nil
    }

    /// What the app has cancelled has ended. It may be connecting again.
    func leave() {
        let ended = shared.withLock { shared in
            if shared.state == .disconnecting { shared.state = .disconnected }
            return endLink(&shared)
        }
        stopNotifying(ended)
    }

    /// Bluetooth is off, or was reset: no callback tells, and after a reset the object cannot be used again.
    func lostBluetooth(invalidates: Bool) {
        let ended = shared.withLock { shared in
            core.begin()
            shared.state = .disconnected
            shared.isInvalid = invalidates
            return endLink(&shared)
        }
        stopNotifying(ended)
    }

    /// - Returns: The attributes that were known.
    func endLink(_ shared: inout Shared) -> [CBAttribute] {
        defer { (shared.services, shared.attributes, shared.subscribed) = (nil, [:], []) }
        (shared.commands, shared.isFull, shared.mtuBytes) = (0, false, nil)
        return Array(shared.attributes.values)
    }

    /// NT-7: objects that the app still holds do not claim to notify.
    func stopNotifying(_ attributes: [CBAttribute]) {
        for case let characteristic as CBCharacteristic in attributes where characteristic.isNotifying {
            characteristic.setNotifying(false)
        }
    }

    /// - Returns: Whether the name is another one than was known.
    func takeName(_ name: String) -> Bool {
        shared.withLock { shared in
            defer { shared.name = name }
            return shared.name != name
        }
    }

    /// `setNotifyValue` was called, or has failed.
    func noteSubscription(_ enabled: Bool, to characteristic: CBCharacteristic) {
        shared.withLock { shared in
            if enabled {
                shared.subscribed.insert(characteristic.objectPath)
            } else {
                shared.subscribed.remove(characteristic.objectPath)
            }
        }
        preserve(characteristic)
    }

    func setRSSI(_ rssi: NSNumber) { shared.withLock { $0.rssi = rssi } }

    // MARK: Attributes

    /// The object for an attribute: the one that was handed out before, if it was (GD-4).
    private func object<A: CBAttribute>(_ path: String, make: () -> A) -> A {
        if let known = shared.withLock({ $0.attributes[path] as? A }) { return known }
        let new = make()
        shared.withLock { $0.attributes[path] = new }
        return new
    }

    private func object(_ service: AttributeTree.Service) -> CBService {
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

    func reveal(services found: [AttributeTree.Service]) {
        let objects = found.map(object)
        let merged = merge(services, objects)
        shared.withLock { $0.services = merged }
        preserve()
    }

    func reveal(includedServices found: [AttributeTree.Service], of service: CBService) {
        service.reveal(includedServices: merge(service.includedServices, found.map(object)))
        preserve()
    }

    func reveal(characteristics found: [AttributeTree.Characteristic], of service: CBService) {
        let objects = found.map { node in
            object(node.path.rawValue) {
                CBCharacteristic(
                    uuid: node.uuid, properties: node.properties, value: node.value.map { Data($0) },
                    objectPath: node.path.rawValue, service: service)
            }
        }
        service.reveal(characteristics: merge(service.characteristics, objects))
        preserve(service)
    }

    func reveal(descriptors found: [AttributeTree.Descriptor], of characteristic: CBCharacteristic) {
        let objects = found.map { node in
            object(node.path.rawValue) {
                CBDescriptor(uuid: node.uuid, objectPath: node.path.rawValue, characteristic: characteristic)
            }
        }
        characteristic.reveal(descriptors: merge(characteristic.descriptors, objects))
        preserve(characteristic)
    }

    /// Whether it is one that this object has handed out, and that is still valid.
    func knows(_ attribute: CBAttribute) -> Bool {
        shared.withLock { $0.attributes[attribute.objectPath] === attribute }
    }

    /// The table has changed in these services, which have these versions now: forgets what is older of them, and all below
    /// (IV-1). What the app has discovered since is what is there.
    /// - Returns: Those that the app knew.
    func invalidate(services versions: [String: Int]) -> [CBService] {
        func isGone(_ attribute: CBAttribute) -> Bool {
            versions[AttributeTree.service(of: attribute.objectPath)].map { $0 != attribute.version } ?? false
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
