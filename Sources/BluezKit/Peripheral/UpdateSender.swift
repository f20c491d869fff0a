import BluezDBus
import Foundation

/// The way of updates to subscribers: by a socket, or by a signal to BlueZ. Confined to the bus queue.
final class UpdateSender {
    private let bus: BlueZBus
    private let adapter: AdapterController
    private let remoteCentrals: RemoteCentrals
    private var awaitingPing: [() -> Void] = []
    private var isSendingPing = false
    private var hasWarnedAboutBroadcast = false

    init(_ bus: BlueZBus, _ adapter: AdapterController, _ remoteCentrals: RemoteCentrals) {
        (self.bus, self.adapter, self.remoteCentrals) = (bus, adapter, remoteCentrals)
    }

    // MARK: Subscribing

    /// A central subscribes. With the socket that BlueZ asks for, values reach this central alone; but only where BlueZ
    /// gives each central its own, and sends to it alone. Before 5.76 it does not: there the call says who it is, and
    /// is refused, upon which BlueZ takes values from signals.
    /// - Parameter isLate: Whether BlueZ has had the answers to the calls before this one.
    func answerAcquire(_ call: IncomingCall, of characteristic: PublishedCharacteristic, isLate: Bool = false) {
        bus.assertOnQueue()
        guard let server = bus.exportedObjects else { return }
        var reader = call.reader
        guard let options = try? RequestOptions(&reader), let device = options.device,
            characteristic.service?.isPublished == true
        else { return server.refuse(call, name: "org.bluez.Error.NotSupported", message: "") }
        let mtu = options.mtuBytes ?? 23
        // It is followed from now on, so that the end of its link is seen.
        remoteCentrals.withCentral(device, mtuBytes: mtu) { _ in }
        let subscribers = characteristic.subscribers
        // It has subscribed once more before BlueZ had the first answer. BlueZ takes the first socket, and would keep
        // another one without reading it (src/gatt-database.c, `client_notify_io_get`). This is the error upon which it
        // does and counts nothing (`acquire_notify_reply`).
        if subscribers.hasOpenSocket(device) {
            // Or in a new link: then BlueZ closes the first socket when it gets it (`pending_disconnect_cb`).
            guard isLate else {
                return afterPing { [weak self] in self?.answerAcquire(call, of: characteristic, isLate: true) }
            }
            return server.refuse(call, name: "org.bluez.Error.Failed", message: "the central has a socket")
        }
        // Before the new socket is there: a subscription that ended without a word takes its own with it.
        subscribers.subscribed(device)
        if adapter.daemon.givesSubscriberSockets, let theirs = subscribers.openSocket(to: device) {
            server.reply(to: call) { (writer) throws(BusError) in
                try writer.write(fileDescriptor: theirs)
                try writer.write(UInt16(clamping: mtu))
            }
            close(theirs)
        } else {
            subscribers.refused(device)
            server.refuse(call, name: "org.bluez.Error.NotSupported", message: "values come by PropertiesChanged")
        }
    }

    // MARK: Sending

    /// - Parameter centrals: To whom; nil: all subscribers.
    func update(
        _ id: LocalAttributeID, to value: [UInt8], for centrals: Set<UUID>?, by core: PeripheralManagerCore
    ) {
        bus.assertOnQueue()
        guard let characteristic = core.gattServer.characteristic(id), adapter.state == .poweredOn else {
            return Delivery(of: id, by: core, ways: 1).finish()
        }
        let subscribers = characteristic.subscribers.paths
        let targets = centrals.map { wanted in
            subscribers.filter { path in
                remoteCentrals.central(at: path).map { wanted.contains($0.identifier) } ?? false
            }
        }
        let addressed = targets ?? subscribers
        let sockets = addressed.compactMap { characteristic.subscribers.socket(of: $0) }
        // BlueZ takes an empty packet for the end of the socket.
        if sockets.count < addressed.count || value.isEmpty, !addressed.isEmpty {
            if addressed.count < subscribers.count { warnAboutBroadcast() }
            return signal(value, of: characteristic, Delivery(of: id, by: core, ways: 1))
        }
        let delivery = Delivery(of: id, by: core, ways: sockets.count + 1)
        let awaitsConfirmation = characteristic.isOnlyIndicated && adapter.daemon.tellsConfirmations
        for socket in sockets {
            socket.send(value, awaitsConfirmation: awaitsConfirmation) { delivery.finish() }
        }
        delivery.finish()
    }

    /// BlueZ cannot send to some of the subscribers alone: before 5.76, without a socket, or an empty value.
    private func warnAboutBroadcast() {
        guard !hasWarnedAboutBroadcast else { return }
        hasWarnedAboutBroadcast = true
        Log.warning(
            "updateValue for some of the subscribed centrals: BlueZ sends it to all of them (5.76 and later can choose, "
                + "but for empty values, and for centrals without a socket)"
        )
    }

    /// Signals a value: it reaches all subscribers, also those that have a socket (src/gatt-database.c,
    /// `send_notification_to_devices`). So it waits until BlueZ has read what is in their sockets, and what follows in
    /// them waits until BlueZ has the signal.
    private func signal(_ value: [UInt8], of characteristic: PublishedCharacteristic, _ delivery: Delivery) {
        let sockets = characteristic.subscribers.allSockets
        var undrained = sockets.count + 1
        func drained() {
            undrained -= 1
            guard undrained == 0 else { return }
            emit(value, of: characteristic, delivery)
            if !sockets.isEmpty { afterPing { for socket in sockets { socket.release() } } }
        }
        for socket in sockets { socket.drain(drained) }
        drained()
    }

    /// To BlueZ alone: what passes between two devices is not for every program on the bus.
    private func emit(_ value: [UInt8], of characteristic: PublishedCharacteristic, _ delivery: Delivery) {
        // All may have left while it waited.
        guard let owner = bus.owner, !characteristic.subscribers.paths.isEmpty else { return delivery.finish() }
        try? bus.exportedObjects?.emit(
            path: characteristic.path, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged",
            to: owner
        ) { (writer) throws(BusError) in
            try writer.write(BlueZ.characteristic)
            try writer.write(Value.properties([("Value", .bytes(Array(value.prefix(512))))]))
            try writer.write(Value.strings([]))
        }
        if characteristic.isOnlyIndicated {
            characteristic.subscribers.awaitConfirmation(of: delivery)
        } else {
            afterPing { delivery.finish() }
        }
    }

    /// BlueZ answers nothing to a signal. It deals with what we send in order: when it has answered a call, it has
    /// taken what was sent before. One call is enough for all that was sent meanwhile.
    func afterPing(_ body: @escaping () -> Void) {
        awaitingPing.append(body)
        ping()
    }

    private func ping() {
        guard !isSendingPing, !awaitingPing.isEmpty, let connection = bus.connection else { return }
        isSendingPing = true
        let batch = awaitingPing
        awaitingPing = []
        let proxy = BlueZProxy(bus: connection, path: "/", interface: "org.freedesktop.DBus.Peer")
        proxy.ping { [weak self, weak connection] _ in
            for body in batch { body() }
            // The connection may have been given up, and another one asks for itself.
            guard let self, bus.connection === connection else { return }
            isSendingPing = false
            ping()
        }
    }

    // MARK: The end

    /// Bluetooth is not on any more.
    func reset() { awaitingPing = [] }

    /// What was asked on it gets no answer.
    func connectionEnded() { (isSendingPing, awaitingPing) = (false, []) }
}
