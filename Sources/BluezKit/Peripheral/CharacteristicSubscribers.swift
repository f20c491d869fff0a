import BluezDBus
import Foundation

/// Who is subscribed to one characteristic, by what socket, and which indications they have yet to confirm. Confined to
/// the bus queue.
final class CharacteristicSubscribers {
    private let core: PeripheralManagerCore
    private let characteristic: LocalAttributeID
    /// By the paths of their devices.
    private var book = SubscriberBook<String>()
    /// Those of them that BlueZ has taken a socket for.
    private var sockets: [String: UpdateSocket] = [:]
    /// Those that have no socket, and that BlueZ has yet to call `StartNotify` for, and to count.
    private var unstarted: [String] = []
    /// Indications, the oldest first, and how many centrals have yet to confirm them.
    private var unconfirmed: [(delivery: Delivery, centrals: Int)] = []

    init(of characteristic: LocalAttributeID, _ core: PeripheralManagerCore) {
        (self.characteristic, self.core) = (characteristic, core)
    }

    /// The paths of their devices, in the order in which they subscribed.
    var paths: [String] { book.subscribers }

    func socket(of path: String) -> UpdateSocket? { sockets[path] }

    /// Whether it has a socket that BlueZ has not closed.
    func hasOpenSocket(_ central: ObjectPath) -> Bool { sockets[central.rawValue].map { !$0.hasEnded } ?? false }

    /// In the order in which BlueZ has them: each was made when its central subscribed.
    var allSockets: [UpdateSocket] { paths.compactMap { sockets[$0] } }

    /// Whether BlueZ keeps the subscription of a central that is not connected.
    func awaits(_ central: RemoteCentral) -> Bool { book.away.contains(central.path.rawValue) }

    // MARK: Subscribing

    func subscribed(_ central: ObjectPath) { tell(book.subscribed(central.rawValue)) }

    func connected(_ central: RemoteCentral) { tell(book.connected(central.path.rawValue)) }

    func disconnected(_ central: RemoteCentral) {
        let path = central.path.rawValue
        unstarted.removeAll { $0 == path }
        // For a central that is not bonded BlueZ 5.76 to 5.87 closes the oldest socket, whosever that is
        // (src/gatt-database.c, `clear_ccc_state`, `match_client_att`). Its owner stays subscribed: signals reach it.
        // If that has cut what was being sent, the app hears that it has subscribed again, and can begin again (O-37).
        if !central.isBonded, paths.contains(path), let oldest = paths.first(where: { sockets[$0] != nil }),
            oldest != path
        {
            let isCut = sockets[oldest]?.mayHaveLost == true
            closeSocket(of: oldest)
            if isCut { tell(book.subscribed(oldest)) }
        }
        tell(book.disconnected(path, isBonded: central.isBonded))
    }

    /// The central that has just subscribed gets no socket.
    func refused(_ central: ObjectPath) { unstarted.append(central.rawValue) }

    /// `StartNotify`: they come in the order of the refusals.
    func started() { if !unstarted.isEmpty { unstarted.removeFirst() } }

    /// `StopNotify`: BlueZ counts no subscriber any more. It does not count a central that it is asking for, and takes
    /// it from the number of the others if that unsubscribes meanwhile (src/gatt-database.c, `ccc_write_cb`).
    func stopped() {
        core.bus.assertOnQueue()
        if let central = unstarted.first { return tell(book.unsubscribed(central)) }
        // The end of one with a socket is the end of that.
        for path in paths where sockets[path] == nil { tell(book.unsubscribed(path)) }
    }

    /// The characteristic is withdrawn, perhaps to be registered again.
    func allUnsubscribed() {
        core.bus.assertOnQueue()
        unstarted = []
        tell(book.allUnsubscribed())
    }

    /// Bluetooth is off, or the manager gone: the app does not hear of it.
    /// - Parameter isKept: Whether BlueZ keeps the subscription of a central.
    func forget(butFor isKept: (String) -> Bool = { _ in false }) {
        let all = paths
        // Before the sockets: what waits for them finds no subscriber.
        book.forget(butFor: isKept)
        (unstarted, unconfirmed) = ([], [])
        for path in all { closeSocket(of: path) }
        core.post(.forgetSubscribers(characteristic))
    }

    private func tell(_ actions: [SubscriberBook<String>.Action]) {
        for action in actions {
            let (path, isSubscribed) =
                switch action {
                case .subscribed(let path): (path, true)
                case .unsubscribed(let path): (path, false)
                }
            if !isSubscribed {
                closeSocket(of: path)
                // It will not confirm any more.
                confirmAll()
            }
            guard let path = ObjectPath(path) else { continue }
            core.role.remoteCentrals.withCentral(path, mtuBytes: nil) { [core, characteristic] central in
                core.post(isSubscribed ? .subscribed(central, characteristic) : .unsubscribed(central, characteristic))
            }
        }
    }

    // MARK: Sockets

    /// Makes a socket to a subscriber. - Returns: BlueZ's end; nil: there are no descriptors, or no way to send one.
    func openSocket(to central: ObjectPath) -> Int32? {
        guard core.bus.connection?.carriesFileDescriptors == true else { return nil }
        var ends: [Int32] = [-1, -1]
        let type = Int32(SOCK_SEQPACKET.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { return nil }
        let path = central.rawValue
        let socket = UpdateSocket(descriptor: ends[0], bus: core.bus) { [weak self] in
            self?.socketEnded(of: path)
        } onStuck: { [weak self] in
            self?.socketIsStuck(of: path)
        }
        guard let socket else {
            ends.forEach { _ = Glibc.close($0) }
            return nil
        }
        sockets[path] = socket
        return ends[1]
    }

    /// The central has unsubscribed, or bluetoothd has ended, whose sockets end before the bus says so: then the app
    /// hears of the new state alone (ST-6). One that ends answers nothing.
    private func socketEnded(of path: String) {
        let socket = sockets[path]
        core.role.updates.afterPing { [weak self] in
            guard let self, let socket, sockets[path] === socket, core.bus.owner != nil else { return }
            tell(book.unsubscribed(path))
        }
    }

    /// BlueZ 5.80 and later read no more of a socket whose central they do not find by its link's address, which a
    /// pairing may have changed (src/gatt-database.c, `sock_io_read`). Signals reach it. What was in the socket is
    /// lost, so it counts as subscribed again (O-37). A bluetoothd that hangs does not answer; one that has resumed
    /// reads.
    private func socketIsStuck(of path: String) {
        let socket = sockets[path]
        core.role.updates.afterPing { [weak self] in
            guard let self, let socket, sockets[path] === socket, case let unread = socket.unread, unread > 0 else {
                return
            }
            core.bus.after(core.bus.timing.gatt.updateReading) { [weak self] in
                guard let self, sockets[path] === socket, socket.unread == unread else { return }
                closeSocket(of: path)
                tell(book.subscribed(path))
            }
        }
    }

    private func closeSocket(of path: String) { sockets.removeValue(forKey: path)?.close() }

    // MARK: Indications

    /// An indication was sent to all of them. BlueZ tells of each confirmation, but not of whose it is, nor of which
    /// indication.
    func awaitConfirmation(of delivery: Delivery) {
        unconfirmed.append((delivery, book.subscribers.count))
        // The Attribute Protocol ends the link of a central that does not confirm.
        core.bus.after(core.bus.timing.server.confirmation) { [weak self, weak delivery] in
            guard let self, let delivery, unconfirmed.first?.delivery === delivery else { return }
            unconfirmed.removeFirst()
            delivery.finish()
        }
    }

    /// One central has confirmed what was sent to all of them.
    func confirmed() {
        core.bus.assertOnQueue()
        guard let first = unconfirmed.first else { return }
        unconfirmed[0].centrals -= 1
        guard first.centrals <= 1 else { return }
        unconfirmed.removeFirst()
        first.delivery.finish()
    }

    private func confirmAll() {
        let deliveries = unconfirmed.map(\.delivery)
        unconfirmed = []
        for delivery in deliveries { delivery.finish() }
    }
}
