import BluezKitRestore
import Foundation

/// Updates of what the app sees. They happen on the delegate's queue, just before the callback that announces the
/// change, except for `beginConnecting` and `beginDisconnecting`, which happen within the app's call.
extension CBPeripheral {
    var isInvalid: Bool { shared.withLock { $0.isInvalid } }

    /// ATT_MTU of the link, in bytes; nil until it is known.
    var mtuBytes: Int? { shared.withLock { $0.mtuBytes } }

    /// Begins a connect, a cancel, or what has come of an earlier process.
    /// - Parameter connectionID: Nil: the manager's next one.
    @discardableResult
    func begin(_ shared: inout Shared, _ connectionID: ConnectionID? = nil) -> ConnectionID {
        let connectionID = connectionID ?? mirror.newConnectionID()
        shared.connectionID = connectionID
        if shared.firstConnectionID == .none { shared.firstConnectionID = connectionID }
        return connectionID
    }

    /// - Returns: Which connect this is, and the state before it: `.connecting` or `.connected` if it is a further one
    ///   (CN-4).
    func beginConnecting(_ request: ConnectRequest) -> (connectionID: ConnectionID, previous: CBPeripheralState) {
        shared.withLock { shared in
            shared.connectRequest = request
            switch shared.state {
            case .connecting, .connected: return (shared.connectionID, shared.state)
            default:
                shared.state = .connecting
                (shared.commands, shared.mtuBytes) = (CommandFlow(), nil)
                return (begin(&shared), .disconnected)
            }
        }
    }

    /// - Returns: Which cancel this is; nil if there is nothing to end (CN-7).
    func beginDisconnecting() -> ConnectionID? {
        shared.withLock { shared in
            guard shared.state == .connecting || shared.state == .connected else { return nil }
            shared.state = .disconnecting
            return begin(&shared)
        }
    }

    /// - Parameters:
    ///   - mtuBytes: ATT_MTU, if it is known already.
    ///   - isOurs: Whether programs with BluezKit have made the link.
    /// - Returns: Whether `didConnect` is due: not if the app has cancelled in the meantime.
    func enterConnected(connectionID: ConnectionID, mtuBytes: Int?, isOurs: Bool?) -> Bool {
        shared.withLock { shared in
            guard shared.connectionID == connectionID else { return false }
            if shared.state != .connected {
                shared.forgetAttributes()
                shared.commands = CommandFlow()
            }
            (shared.state, shared.isOurs) = (.connected, isOurs)
            if let mtuBytes { shared.mtuBytes = mtuBytes }
            return true
        }
    }

    func update(mtuBytes: Int, connectionID: ConnectionID) {
        shared.withLock { if $0.connectionID == connectionID { $0.mtuBytes = mtuBytes } }
    }

    /// The link or the attempt ended without a request: services and everything below them are invalid (CN-11).
    /// - Parameter next: That of the next link, if it reconnects automatically.
    /// - Returns: Whether a callback is due: not if the app has begun a new connect in the meantime.
    func leave(connectionID: ConnectionID, for next: ConnectionID? = nil) -> Bool {
        let ended: [CBAttribute]? = shared.withLock { shared in
            guard shared.connectionID == connectionID else { return nil }
            if let next { shared.connectionID = next }
            shared.state = next == nil ? .disconnected : .connecting
            return endLink(&shared)
        }
        if let ended { linkEnded(ended) }
        return ended != nil
    }

    /// A connection that the app cancelled has ended. It may be connecting again.
    /// - Returns: Whether it was this object's.
    func leave(after cancel: ConnectionID) -> Bool {
        let ended: [CBAttribute]? = shared.withLock { shared in
            let first = shared.firstConnectionID
            guard first != .none, first.request <= cancel.request else { return nil }
            if shared.state == .disconnecting { shared.state = .disconnected }
            // Another thread's connect may have come before that cancel: the app has another link.
            return shared.state == .connected ? [] : endLink(&shared)
        }
        if let ended { linkEnded(ended) }
        return ended != nil
    }

    /// Bluetooth is off, or was reset: no callback is made, and after a reset the object cannot be used again.
    func lostBluetooth(invalidates: Bool) {
        let ended = shared.withLock { shared in
            begin(&shared)
            shared.state = .disconnected
            shared.isInvalid = invalidates
            return endLink(&shared)
        }
        linkEnded(ended)
    }

    /// - Returns: The known attributes.
    func endLink(_ shared: inout Shared) -> [CBAttribute] {
        defer { shared.forgetAttributes() }
        shared.commands.end()
        shared.mtuBytes = nil
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
            defer { shared.device.name = name }
            return shared.device.name != name
        }
    }

    /// `setNotifyValue` was called, or has failed.
    func updateSubscription(_ enabled: Bool, to characteristic: CBCharacteristic) {
        shared.withLock { shared in
            if enabled {
                shared.subscribed.insert(characteristic.id)
            } else {
                shared.subscribed.remove(characteristic.id)
            }
        }
        preserve(characteristic)
    }

    /// An L2CAP channel was opened, or has ended.
    func updateChannels(_ change: (inout Shared) -> Void) {
        shared.withLock(change)
        preserve()
    }

    func setRSSI(_ rssi: NSNumber) { shared.withLock { $0.device.rssi = rssi } }

    // MARK: Attributes

    func attribute(_ id: AttributeID) -> CBAttribute? { shared.withLock { $0.attributes[id] } }

    /// The object for an attribute: the one returned before, if any (GD-4).
    private func object<A: CBAttribute>(_ id: AttributeID, make: () -> A) -> A {
        if let known = attribute(id) as? A { return known }
        let new = make()
        shared.withLock { $0.attributes[id] = new }
        return new
    }

    private func object(_ service: FoundService) -> CBService {
        object(service.id) {
            CBService(
                uuid: service.uuid.uuid, isPrimary: service.isPrimary, id: service.id, element: service.element,
                peripheral: self, layout: service.layout)
        }
    }

    /// Results accumulate, once each, in table order (GD-3).
    private func merge<A: CBAttribute>(_ old: [A]?, _ found: [A]) -> [A] {
        let known = Set((old ?? []).map(ObjectIdentifier.init))
        return ((old ?? []) + found.filter { !known.contains(ObjectIdentifier($0)) }).inTableOrder
    }

    func addDiscovered(services found: [FoundService]) {
        let objects = found.map(object)
        let merged = merge(services, objects)
        shared.withLock { $0.services = merged }
        preserve()
    }

    func addDiscovered(includedServices found: [FoundService], of service: CBService) {
        // The file can have a known service replaced, and gets a new one with the whole table only.
        let areKnown = shared.withLock { shared in found.allSatisfy { shared.attributes[$0.id] != nil } }
        service.addDiscovered(includedServices: merge(service.includedServices, found.map(object)))
        if areKnown { preserve(service) } else { preserve() }
    }

    func addDiscovered(characteristics found: [FoundCharacteristic], of service: CBService) {
        let objects = found.map { found in
            object(found.id) {
                CBCharacteristic(
                    uuid: found.uuid.uuid, properties: found.properties.value, value: found.value.map { Data($0) },
                    id: found.id, element: found.element, service: service)
            }
        }
        service.addDiscovered(characteristics: merge(service.characteristics, objects))
        preserve(service)
    }

    func addDiscovered(descriptors found: [FoundDescriptor], of characteristic: CBCharacteristic) {
        let objects = found.map { found in
            object(found.id) {
                CBDescriptor(
                    uuid: found.uuid.uuid, id: found.id, element: found.element, characteristic: characteristic)
            }
        }
        characteristic.addDiscovered(descriptors: merge(characteristic.descriptors, objects))
        preserve(characteristic)
    }

    /// These attributes are not valid any longer (IV-1).
    /// - Returns: The services among them.
    func invalidate(_ ids: [AttributeID]) -> [CBService] {
        let gone = shared.withLock { shared in
            let gone = ids.compactMap { shared.attributes.removeValue(forKey: $0) }
            shared.subscribed.subtract(ids)
            shared.services?.removeAll { service in gone.contains { $0 === service } }
            return gone
        }
        stopNotifying(gone)
        preserve()
        return gone.compactMap { $0 as? CBService }.inTableOrder
    }
}

extension CBPeripheral.Shared {
    /// Whether it is an attribute that the peripheral has returned, and that is still valid; or none.
    func knows(_ attribute: CBAttribute?) -> Bool { attribute.map { attributes[$0.id] === $0 } ?? true }

    fileprivate mutating func forgetAttributes() { (services, attributes, requested, subscribed) = (nil, [:], [:], []) }
}

extension Array where Element: CBAttribute {
    /// BlueZ writes handles as four hexadecimal digits, so text order is handle order.
    var inTableOrder: [Element] { sorted { ($0.element?.text ?? "") < ($1.element?.text ?? "") } }
}
