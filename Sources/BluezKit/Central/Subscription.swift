import BluezDBus
import Foundation

/// A subscription to one characteristic, shared by the apps' peripherals that asked for it. Confined to the bus queue.
final class Subscription: CustomStringConvertible {
    /// One app's peripheral, on one link.
    struct Subscriber: Hashable {
        let core: PeripheralCore
        let attribute: AttributeID
        let connectionID: ConnectionID

        static func == (a: Subscriber, b: Subscriber) -> Bool { a.core === b.core }
        func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(core)) }
    }

    let client: GATTClient
    let path: ObjectPath
    /// Of which state of its service it is: another attribute may get this path (IV-1).
    let version: Int
    private var machine = SubscriptionStateMachine<Subscriber>()
    /// The values come by this; nil: by signals.
    private var socket: NotificationSocket?
    /// Whether BlueZ is being asked for a socket.
    private var isAcquiring = false

    init(_ client: GATTClient, path: ObjectPath, version: Int) {
        (self.client, self.path, self.version) = (client, path, version)
    }

    /// Whether it is the one that gets the values of its characteristic.
    var isCurrent: Bool { client.central.subscriptions[path.rawValue] === self }

    var description: String {
        "\(path): \(machine.phase), \(machine.subscribers.count) subscribers" + (socket == nil ? "" : ", by a socket")
    }

    var subscribers: Set<Subscriber> { machine.subscribers }

    // MARK: Values

    /// PropertiesChanged of the characteristic.
    func receiveChange(_ message: Message) throws(BusError) {
        var reader = message.reader
        guard try reader.readCString().matches("org.bluez.GattCharacteristic1") else { return }
        try reader.readProperties { (key, value) throws(BusError) in
            // Where there is a socket it has the values, and this is the result of a read.
            guard key.matches("Value"), socket == nil else { return }
            let bytes = try value.readBytes()
            if machine.passesThrough { deliver(bytes) } else { apply(machine.received(bytes)) }
        }
    }

    private func deliver(_ bytes: UnsafeRawBufferPointer) {
        let value = Data(bytes)
        for subscriber in machine.subscribers {
            subscriber.core.deliver(value, of: subscriber.attribute, connectionID: subscriber.connectionID)
        }
    }

    func readStarted() { machine.readStarted() }

    /// - Parameter value: What the read returned; nil: it failed.
    func readReplied(_ value: UnsafeRawBufferPointer?) {
        socket?.read()  // what came before the answer
        apply(machine.readReplied(value))
    }

    // MARK: The socket

    /// BlueZ is asked for a socket. Until 5.84 it does not answer if the peer refuses; nothing may be asked for that
    /// characteristic then: BlueZ would use freed memory.
    func acquiring(_ isAcquiring: Bool) { self.isAcquiring = isAcquiring }

    /// BlueZ has given its socket. ``startReplied(_:isRestoring:)`` follows; until then values are held back.
    /// - Returns: Whether it can be read.
    func use(_ socket: NotificationSocket) -> Bool {
        guard let connection = client.bus.connection else { return false }
        socket.onValue = { [weak self] bytes in
            guard let self else { return }
            if machine.phase == .on { deliver(bytes) } else { apply(machine.receivedBySocket(bytes)) }
        }
        socket.onEnd = { [weak self] in self?.socketEnded() }
        guard socket.start(connection) else { return false }
        self.socket = socket
        return true
    }

    /// BlueZ has closed it: the link or the daemon has ended, which BlueZ says some moments later; or another program
    /// has called `StopNotify`.
    private func socketEnded() {
        client.bus.after(client.bus.timing.gatt.socketEnd) { [weak self] in
            guard let self, isCurrent, machine.phase == .on else { return }
            client.renew(self)
        }
    }

    // MARK: Subscribing

    /// What BlueZ has to be asked.
    enum Call { case none, start, stop }

    /// - Parameter isRestoring: Success is not reported: the app has seen it already.
    func set(_ enabled: Bool, for subscriber: Subscriber, isRestoring: Bool) -> Call {
        let actions = machine.set(enabled, for: subscriber)
        if actions.contains(.startNotify) { return .start }
        if actions.contains(.stopNotify) { return .stop }
        apply(actions, isQuiet: isRestoring)
        return .none
    }

    /// - Parameter hasSucceeded: Whether BlueZ has subscribed, and the characteristic is still the same.
    func startReplied(_ hasSucceeded: Bool, isRestoring: Bool) {
        let actions = machine.startReplied(hasSucceeded)
        if actions.contains(.stopNotify) { stopNotify() }
        apply(actions, isQuiet: isRestoring)
    }

    func stopReplied() {
        closeSocket()
        apply(machine.stopReplied())
    }

    private func apply(_ actions: [SubscriptionStateMachine<Subscriber>.Action], isQuiet: Bool = false) {
        for action in actions {
            switch action {
            case .deliver(let value): value.withUnsafeBytes { deliver($0) }
            case .confirm where isQuiet: break
            case .confirm(let subscriber, let isNotifying):
                guard subscriber.core.request?.connectionID == subscriber.connectionID else { break }
                subscriber.core.post(
                    .answer(.notifying(isNotifying, of: subscriber.attribute), subscriber.connectionID))
            case .fail, .startNotify, .stopNotify: break  // carried out by the operation that runs
            }
        }
        forgetIfIdle()
    }

    // MARK: The end

    /// A peripheral does not use the link any longer, without a callback.
    func drop(_ core: PeripheralCore) {
        if machine.drop(where: { $0.core === core }) { stopNotify() }
        forgetIfIdle()
    }

    /// The link has ended. Otherwise BlueZ would subscribe again on the next one, for as long as this process lives
    /// (NT-7 says that the app must).
    func linkEnded() {
        if machine.phase != .off, !isAcquiring { stopNotify() }
        forget()
    }

    /// The characteristic has changed. BlueZ 5.66 never answers a `StartNotify` that a `StopNotify` overtakes, nor any
    /// later one, so a subscription that is being made is ended when it is there.
    func end() {
        if machine.phase == .on { stopNotify() }
        forget()
    }

    private func forgetIfIdle() { if machine.isIdle, isCurrent { forget() } }

    func forget() {
        closeSocket()
        client.central.subscriptions[path.rawValue] = nil
    }

    /// What BlueZ has sent before the end is delivered.
    private func closeSocket() {
        socket?.read()
        socket?.close()
        socket = nil
    }

    /// BlueZ closes its end of a socket as well, before it does anything that is asked of it later: so another
    /// subscription can follow at once, and this process can leave the bus. (BlueZ before 5.86 uses freed memory when a
    /// process leaves it that has a socket.)
    func stopNotify() {
        guard client.bus.owner != nil else { return }
        // The object may be gone, and the subscription with it.
        client.countedProxy(path, BlueZ.characteristic)?.stopNotify { _ in }
    }
}

/// The subscriptions of this process, by the paths of their characteristics: looked up for each signal of BlueZ.
final class SubscriptionTable {
    private var table = PathTable<Subscription>()

    subscript(path: UnsafePointer<CChar>) -> Subscription? { table[path] }

    subscript(path: String) -> Subscription? {
        get { table[path] }
        set { table[path] = newValue }
    }

    func all(of client: GATTClient) -> [Subscription] { table.values.filter { $0.client === client } }

    func removeAll() { table.removeAll() }
}

extension SubscriptionStateMachine {
    /// Nothing holds values back: they go straight to the subscribers. Almost always so.
    var passesThrough: Bool { phase == .on && !isReading }
}
