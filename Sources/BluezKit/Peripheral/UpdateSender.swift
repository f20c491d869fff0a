import DBus
import Foundation

/// One update on its way to BlueZ: it counts in the window until it has left by all its ways.
final class Delivery {
    private let core: PublisherCore
    private let characteristic: CBMutableCharacteristic
    private let epoch: Int
    private var open: Int

    init(_ core: PublisherCore, _ characteristic: CBMutableCharacteristic, ways: Int) {
        (self.core, self.characteristic, epoch, open) = (core, characteristic, core.epoch, ways)
    }

    /// Done by one way.
    func finish() {
        open -= 1
        guard open == 0, core.epoch == epoch,
            core.windows.withLock({ $0.release(ObjectIdentifier(characteristic)) })
        else { return }
        core.post { manager in manager.delegate?.peripheralManagerIsReady(toUpdateSubscribers: manager) }
    }
}

/// Subscribers, and what is sent to them.
extension Session {
    // MARK: Who is subscribed

    /// A central subscribes. With the socket that BlueZ asks for, values reach this central alone; but only where BlueZ
    /// gives each central its own, and sends to it alone. Before 5.76 it does not: there the call says who it is, and is
    /// refused, upon which BlueZ takes values from signals.
    func answerAcquire(_ call: IncomingCall, of characteristic: PublishedCharacteristic) {
        guard let server else { return }
        var reader = call.reader
        guard let options = try? RequestOptions(&reader), let device = options.device,
            characteristic.service?.isPublished == true
        else { return server.refuse(call, name: "org.bluez.Error.NotSupported", message: "") }
        let mtu = options.mtuBytes ?? 23
        // The guest is followed from now on, so that the end of its link is seen.
        withCentral(device, mtuBytes: mtu) { _ in }
        // Before the new socket is there: a subscription that ended without a word takes its own with it.
        tell(characteristic.book.subscribed(device.rawValue), about: characteristic)
        if givesSockets == true, let theirs = makeSocket(characteristic, device, mtu) {
            server.reply(to: call) { (writer) throws(BusError) in
                try writer.write(fileDescriptor: theirs)
                try writer.write(UInt16(clamping: mtu))
            }
            close(theirs)
        } else {
            server.refuse(call, name: "org.bluez.Error.NotSupported", message: "values come by PropertiesChanged")
        }
    }

    /// - Returns: BlueZ's end.
    private func makeSocket(_ characteristic: PublishedCharacteristic, _ device: ObjectPath, _ mtu: Int) -> Int32? {
        guard bus?.carriesFileDescriptors == true else { return nil }
        var ends: [Int32] = [-1, -1]
        let type = Int32(SOCK_SEQPACKET.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { return nil }
        let path = device.rawValue
        guard let socket = UpdateSocket(descriptor: ends[0], mtuBytes: mtu, queue: queue) else {
            ends.forEach { _ = Glibc.close($0) }
            return nil
        }
        socket.onTurnEnd = { [weak self] in self?.blueZ.flush() }
        socket.onEnd = { [weak self, weak characteristic] in
            guard let self, let characteristic else { return }
            tell(characteristic.book.unsubscribed(path), about: characteristic)
        }
        characteristic.sockets[path] = socket
        return ends[1]
    }

    private func closeSocket(of central: String, _ characteristic: PublishedCharacteristic) {
        characteristic.sockets.removeValue(forKey: central)?.close()
    }

    func allUnsubscribed(from characteristic: PublishedCharacteristic) {
        tell(characteristic.book.allUnsubscribed(), about: characteristic)
    }

    /// Bluetooth is off, or the manager gone: nobody is told. Not by the manager's list of services: the app may have taken
    /// this one back meanwhile.
    func forgetSubscribers(of characteristic: PublishedCharacteristic) {
        for central in characteristic.book.subscribers { closeSocket(of: central, characteristic) }
        _ = characteristic.book.allUnsubscribed()
        characteristic.unconfirmed = []
        let local = characteristic.characteristic
        // Without a manager nothing is delivered; and nobody is told of what another one finds.
        guard characteristic.core.manager != nil else { return local.forgetSubscribers() }
        characteristic.core.post { _ in local.forgetSubscribers() }
    }

    func tell(_ actions: [SubscriberBook<String>.Action], about characteristic: PublishedCharacteristic) {
        for action in actions {
            let (path, isSubscribed) =
                switch action {
                case .subscribed(let path): (path, true)
                case .unsubscribed(let path): (path, false)
                }
            if !isSubscribed {
                closeSocket(of: path, characteristic)
                // It will not confirm any more.
                confirmAll(of: characteristic)
            }
            guard let path = ObjectPath(path) else { continue }
            withCentral(path, mtuBytes: nil) { central in
                let local = characteristic.characteristic
                characteristic.core.post { manager in
                    local.setSubscribed(isSubscribed, central)
                    manager.preserveSubscribers()
                    if isSubscribed {
                        manager.delegate?.peripheralManager(manager, central: central, didSubscribeTo: local)
                    } else {
                        manager.delegate?.peripheralManager(manager, central: central, didUnsubscribeFrom: local)
                    }
                }
            }
        }
    }

    // MARK: Sending

    /// - Parameter centrals: To whom; nil: all subscribers.
    func update(_ local: CBMutableCharacteristic, to value: [UInt8], for centrals: Set<UUID>?, by core: PublisherCore) {
        let found = core.services.lazy.flatMap(\.characteristics).first { $0.characteristic === local }
        guard let characteristic = found, adapter.state == .poweredOn else {
            return Delivery(core, local, ways: 1).finish()
        }
        let subscribers = characteristic.book.subscribers
        let targets = centrals.map { wanted in
            subscribers.filter { guests[$0]?.central.map { wanted.contains($0.identifier) } ?? false }
        }
        let addressed = targets ?? subscribers
        // BlueZ takes an empty packet for the end of the socket.
        let sockets = value.isEmpty ? [] : addressed.compactMap { characteristic.sockets[$0] }
        let isSignalled = sockets.count < addressed.count
        let delivery = Delivery(core, local, ways: sockets.count + (isSignalled ? 1 : 0) + 1)
        for socket in sockets { socket.send(value) { delivery.finish() } }
        if isSignalled {
            if addressed.count < subscribers.count { noteBroadcast() }
            signal(value, of: characteristic, delivery)
        }
        delivery.finish()
    }

    /// BlueZ cannot send to some of the subscribers: none before 5.76, and no empty value.
    private func noteBroadcast() {
        guard !hasNotedBroadcast else { return }
        hasNotedBroadcast = true
        Log.warning(
            "updateValue for some of the subscribed centrals: BlueZ sends it to all of them (5.76 and later can choose, "
                + "but for empty values)"
        )
    }

    /// To BlueZ alone: what passes between two devices is not for everybody on the bus.
    private func signal(_ value: [UInt8], of characteristic: PublishedCharacteristic, _ delivery: Delivery) {
        let owner = bus?.owner(of: BlueZ.busName)
        try? server?.emit(
            path: characteristic.path, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged",
            to: owner
        ) { (writer) throws(BusError) in
            try writer.write(BlueZ.characteristic)
            try writer.write(Value.properties([("Value", .bytes(Array(value.prefix(512))))]))
            try writer.write(Value.strings([]))
        }
        if characteristic.indicates, !characteristic.notifies {
            awaitConfirmation(characteristic, delivery)
        } else {
            afterPing { delivery.finish() }
        }
    }

    /// BlueZ answers nothing to a signal. It deals with what we send in order: when it has answered a call, it has taken
    /// what was sent before. One call is enough for all that was sent meanwhile.
    private func afterPing(_ body: @escaping () -> Void) {
        awaitingPing.append(body)
        ping()
    }

    private func ping() {
        guard !isSendingPing, !awaitingPing.isEmpty, let bus else { return }
        isSendingPing = true
        let batch = awaitingPing
        awaitingPing = []
        BlueZProxy(bus: bus, path: "/", interface: "org.freedesktop.DBus.Peer").ping { [weak self, weak bus] _ in
            for body in batch { body() }
            // The connection may have been given up, and another one asks for itself.
            guard let self, self.bus === bus else { return }
            isSendingPing = false
            ping()
        }
    }

    // MARK: Indications

    /// BlueZ tells of each confirmation, but not of whose it is, nor of which indication.
    private func awaitConfirmation(_ characteristic: PublishedCharacteristic, _ delivery: Delivery) {
        let centrals = characteristic.book.subscribers.count
        characteristic.unconfirmed.append((delivery, centrals))
        // The Attribute Protocol ends the link of a central that does not confirm.
        blueZ.after(blueZ.timing.confirmation) { [weak characteristic, weak delivery] in
            guard let characteristic, let delivery, characteristic.unconfirmed.first?.delivery === delivery else {
                return
            }
            characteristic.unconfirmed.removeFirst()
            delivery.finish()
        }
    }

    /// One central has confirmed what was sent to all of them.
    func confirmed(_ characteristic: PublishedCharacteristic) {
        guard let first = characteristic.unconfirmed.first else { return }
        characteristic.unconfirmed[0].centrals -= 1
        guard first.centrals <= 1 else { return }
        characteristic.unconfirmed.removeFirst()
        first.delivery.finish()
    }

    private func confirmAll(of characteristic: PublishedCharacteristic) {
        let unconfirmed = characteristic.unconfirmed
        characteristic.unconfirmed = []
        for (delivery, _) in unconfirmed { delivery.finish() }
    }
}
