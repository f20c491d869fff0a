import BluezDBus

/// Hears of the links of centrals. On the bus queue.
protocol RemoteCentralsObserver: AnyObject {
    func connected(_ central: RemoteCentral)
    /// - Returns: Whether it stays subscribed, so that its next link matters.
    func disconnected(_ central: RemoteCentral) -> Bool
}

/// Centrals, by the paths that BlueZ names them with. Confined to the bus queue.
final class RemoteCentrals {
    private let bus: BlueZBus
    /// Set once, before the first central.
    weak var observer: (any RemoteCentralsObserver)?
    private var centrals = PathTable<RemoteCentral>()

    init(_ bus: BlueZBus) { self.bus = bus }

    var count: Int { centrals.count }

    /// Nil also for one whose address is not known yet.
    func central(at path: String) -> CBCentral? { centrals[path]?.central }

    /// Does `body` with the central at `path`, in the order of the calls; at once, but for the first time.
    /// - Parameter identity: Of the central, if it is known from elsewhere: BlueZ may have it at another path, that of
    ///   a private address which it had when it was first seen.
    func withCentral(
        _ path: ObjectPath, mtuBytes: Int? = nil, identity: DeviceIdentity? = nil,
        _ body: @escaping (CBCentral) -> Void
    ) {
        bus.assertOnQueue()
        let known = identity.flatMap { identity in
            centrals.values.first { $0.central?.identifier == identity.identifier }
        }
        let central = known ?? centrals[path.rawValue] ?? follow(path, identity)
        if let mtuBytes { central.setMTU(mtuBytes) }
        central.perform(body)
    }

    private func follow(_ path: ObjectPath, _ identity: DeviceIdentity?) -> RemoteCentral {
        let central = RemoteCentral(path, identity: identity)
        centrals[path.rawValue] = central
        guard let connection = bus.connection else { return central }
        connection.addMatch(central.rule)
        bus.ask(path, BlueZ.device) {
            $0.getAll(completion: $1)
        } answered: { [weak self, weak central] result in
            guard let self, let central, centrals[path.rawValue] === central else { return }
            var properties = DeviceProperties()
            if case .success(let reply) = result {
                var reader = reply.reader
                _ = try? properties.apply(&reader, of: path, uuids: UUIDPool())
            }
            central.introduce(properties)
            // It may have come and gone while BlueZ was asked.
            if !properties.isConnected { disconnected(central) }
        }
        return central
    }

    private func disconnected(_ central: RemoteCentral) {
        if observer?.disconnected(central) != true { forget(central) }
    }

    private func forget(_ central: RemoteCentral) {
        centrals[central.path.rawValue] = nil
        bus.connection?.removeMatch(central.rule)
    }

    /// Bluetooth is not on any more.
    func removeAll() {
        for central in centrals.values { forget(central) }
    }

    // MARK: Signals

    /// PropertiesChanged of a device.
    func receiveChange(_ message: Message, at path: UnsafePointer<CChar>) throws(BusError) {
        guard centrals.count > 0, let central = centrals[path] else { return }
        bus.assertOnQueue()
        var reader = message.reader
        guard try reader.readCString().matches("org.bluez.Device1") else { return }
        let isConnected = try central.apply(&reader)
        guard central.central != nil, let isConnected else { return }
        if isConnected { observer?.connected(central) } else { disconnected(central) }
    }

    /// InterfacesRemoved of a device.
    func receiveRemoval(_ message: Message, at path: UnsafePointer<CChar>) throws(BusError) {
        guard centrals.count > 0, let central = centrals[path] else { return }
        bus.assertOnQueue()
        var reader = message.reader
        _ = try reader.readPathC()
        var isDevice = false
        try reader.readArray { (name) throws(BusError) in
            if try name.readCString().matches("org.bluez.Device1") { isDevice = true }
        }
        guard isDevice else { return }
        central.removeBond()
        disconnected(central)
    }
}
