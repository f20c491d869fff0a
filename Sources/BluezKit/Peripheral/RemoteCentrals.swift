import BluezDBus

/// Centrals, by the paths that BlueZ names them with. Confined to the bus queue.
final class RemoteCentrals {
    private let bus: BlueZBus
    /// Whose managers hear of them; set once, before the first central.
    weak var role: PeripheralRole?
    private var centrals = PathTable<RemoteCentral>()
    /// What is done when no address is being asked for.
    private var awaitingIntroductions: [() -> Void] = []

    init(_ bus: BlueZBus) { self.bus = bus }

    var count: Int { centrals.count }

    /// Nil also for one whose address is not known yet.
    func central(at path: String) -> CentralInfo? { centrals[path]?.central }

    func isBonded(_ path: String) -> Bool { centrals[path]?.isBonded ?? false }

    /// Does `body` with the central at `path`, in the order of the calls; at once, but for the first time.
    /// - Parameter identity: Of the central, if it is known from elsewhere: BlueZ may have it at another path, that of
    ///   a private address which it had when it was first seen.
    func withCentral(
        _ path: ObjectPath, mtuBytes: Int? = nil, identity: DeviceIdentity? = nil,
        _ body: @escaping (CentralInfo) -> Void
    ) {
        bus.assertOnQueue()
        let known = identity.flatMap { identity in
            centrals.values.first { $0.central?.identifier == identity.identifier }
        }
        let central = known ?? centrals[path.rawValue] ?? follow(path, identity)
        if let mtuBytes {
            let before = central.central
            central.setMTU(mtuBytes)
            if let now = central.central, now != before { role?.changed(now) }
        }
        central.perform(body)
    }

    private func follow(_ path: ObjectPath, _ identity: DeviceIdentity?) -> RemoteCentral {
        let central = RemoteCentral(path, identity: identity)
        centrals[path.rawValue] = central
        guard let connection = bus.connection else { return central }
        connection.addMatch(central.rule)
        bus.ask(path, BlueZ.device, { $0.getAll(completion: $1) }) { [weak self, weak central] result in
            guard let self, let central, centrals[path.rawValue] === central else { return }
            var properties = DeviceProperties()
            if case .success(let reply) = result {
                var reader = reply.reader
                _ = try? properties.apply(&reader, of: path, uuids: UUIDPool())
            }
            central.introduce(properties)
            lookForUnknown()
            // It may have come and gone while BlueZ was asked.
            if !properties.isConnected { disconnected(central) }
        }
        return central
    }

    private func disconnected(_ central: RemoteCentral) {
        if role?.disconnected(central) != true { forget(central) }
    }

    private func forget(_ central: RemoteCentral) {
        centrals[central.path.rawValue] = nil
        // It may be known at another path as well.
        if let info = central.central, !centrals.values.contains(where: { $0.central?.identifier == info.identifier }) {
            role?.forgotten(info)
        }
        lookForUnknown()
        bus.connection?.removeMatch(central.rule)
    }

    /// Does `body` when everything has been done that waits for centrals whose addresses are asked for; at once if
    /// nothing does.
    func whenIntroduced(_ body: @escaping () -> Void) {
        awaitingIntroductions.append(body)
        lookForUnknown()
    }

    private func lookForUnknown() {
        guard !awaitingIntroductions.isEmpty, centrals.values.allSatisfy({ $0.central != nil }) else { return }
        let bodies = awaitingIntroductions
        awaitingIntroductions = []
        for body in bodies { body() }
    }

    /// Bluetooth is not on any more.
    /// - Parameter isAwaited: Whether the next link of a central matters.
    func removeAll(butFor isAwaited: (RemoteCentral) -> Bool = { _ in false }) {
        for central in centrals.values where !isAwaited(central) { forget(central) }
    }

    // MARK: Signals

    /// PropertiesChanged of a device.
    /// - Returns: Whether it is a central whose link has ended.
    func receiveChange(_ message: Message, at path: UnsafePointer<CChar>) throws(BusError) -> Bool {
        guard centrals.count > 0, let central = centrals[path] else { return false }
        bus.assertOnQueue()
        var reader = message.reader
        guard try reader.readCString().matches("org.bluez.Device1") else { return false }
        let isConnected = try central.apply(&reader)
        guard central.central != nil, let isConnected else { return false }
        if isConnected { role?.connected(central) } else { disconnected(central) }
        return !isConnected
    }

    /// InterfacesRemoved of a device.
    func removed(_ path: UnsafePointer<CChar>) {
        guard centrals.count > 0, let central = centrals[path] else { return }
        bus.assertOnQueue()
        central.removeBond()
        disconnected(central)
    }
}
