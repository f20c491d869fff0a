import BluezDBus
import Foundation

/// `setNotifyValue`, and the end of subscriptions.
extension GATTClient {
    func setNotify(
        _ enabled: Bool, _ characteristic: AttributeID, _ entry: Entry, isRestoring: Bool = false
    ) {
        let (operation, path) = (entry.operation, entry.operation.path)
        if let error = refusal(path) {
            operation.fail(error)
            return finish(entry.id)
        }
        guard let objectPath = ObjectPath(path) else { return finish(entry.id) }
        let version = reader.table.version(of: AttributeTable.service(of: path))
        // One to an attribute that was here before is over; the app hears of the change.
        if let old = central.subscriptions[path], old.version != version { old.end() }
        let subscription =
            central.subscriptions[path] ?? Subscription(self, path: objectPath, version: version)
        central.subscriptions[path] = subscription
        let subscriber = Subscription.Subscriber(
            core: operation.core, attribute: characteristic, connectionID: operation.connectionID)
        switch subscription.set(enabled, for: subscriber, isRestoring: isRestoring) {
        case .none: finish(entry.id)
        case .start where mayAcquireNotify(path, operation.core):
            acquireNotify(subscription, entry, isRestoring)
        case .start: startNotify(subscription, entry, isRestoring)
        case .stop:
            call(path, BlueZ.characteristic, entry, { $0.stopNotify(completion: $1) }) { _ in
                subscription.stopReplied()
            }
        }
    }

    private func startNotify(_ subscription: Subscription, _ entry: Entry, _ isRestoring: Bool) {
        call(subscription.path.rawValue, BlueZ.characteristic, entry, { $0.startNotify(completion: $1) }) {
            [weak self] in self?.startReplied($0, subscription, entry, isRestoring)
        }
    }

    private func startReplied(
        _ result: Result<Message, BusError>, _ subscription: Subscription, _ entry: Entry, _ isRestoring: Bool
    ) {
        // Its service may have changed meanwhile.
        let isCurrent = subscription.isCurrent
        if let failure = result.failure {
            entry.operation.fail(error(failure, .notify))
        } else if !isCurrent {
            subscription.stopNotify()
            entry.operation.fail(staleAttribute)
        }
        subscription.startReplied(result.failure == nil && isCurrent, isRestoring: isRestoring)
    }

    // MARK: By a socket

    /// Whether BlueZ is to give a socket for the notifications (``BluezManagerOptionNotificationSocketsKey``).
    private func mayAcquireNotify(_ path: String, _ core: PeripheralCore) -> Bool {
        core.manager.configuration.usesNotificationSockets && !withoutNotifySocket.contains(path)
            && reader.table.characteristics[path]?.properties.contains(.notify) == true
            && bus.connection?.carriesFileDescriptors == true
    }

    /// Subscribes by `AcquireNotify`, and on any refusal by `StartNotify`: BlueZ refuses it while another program is
    /// subscribed, and the reason that the peer has tells `StartNotify` as well.
    private func acquireNotify(_ subscription: Subscription, _ entry: Entry, _ isRestoring: Bool) {
        let path = subscription.path.rawValue
        guard isCurrent, let proxy = proxy(subscription.path, BlueZ.characteristic) else { return }
        let id = entry.id
        awaitAnswer { [weak self] result in
            subscription.acquiring(false)
            self?.startReplied(result, subscription, entry, isRestoring)
            self?.finish(id)
        }
        subscription.acquiring(true)
        let replied: BlueZProxy.Completion = { [weak self] result in
            let socket = Self.notificationSocket(in: result)
            guard let self, isRunning(id) else { return }
            if result.failure == .timedOut { return timedOut() }
            subscription.acquiring(false)
            guard let socket else {
                Log.debug("\(path): no socket for notifications: \(result.failure?.message ?? "")")
                withoutNotifySocket.insert(path)
                return startNotify(subscription, entry, isRestoring)
            }
            guard subscription.use(socket) else {
                // Then nothing could be read at all: BlueZ ends it, and gives signals.
                withoutNotifySocket.insert(path)
                subscription.stopNotify()
                return startNotify(subscription, entry, isRestoring)
            }
            whenBonded { [weak self] in
                if let self, isRunning(id) { answerRunning?(result) }
            }
        }
        proxy.acquireNotify(completion: noting(replied))
    }

    private static func notificationSocket(in result: Result<Message, BusError>) -> NotificationSocket? {
        guard case .success(let reply) = result else { return nil }
        var reader = reply.reader
        return (try? reader.readFileDescriptor()).map { NotificationSocket(descriptor: $0) }
    }

    /// BlueZ has closed the socket of a subscription, but the link is there. The peer was unsubscribed, so values may
    /// be missing; the next ones come by signals.
    func renew(_ subscription: Subscription) {
        guard isCurrent, device.connection?.isUp == true else { return }
        Log.warning("\(subscription.path): another program has ended the subscription, which is made again")
        withoutNotifySocket.insert(subscription.path.rawValue)
        subscription.forget()
        for subscriber in subscription.subscribers where !isAsked(subscriber.attribute, by: subscriber.core) {
            add(
                AttributeOperation(
                    .resubscribe(subscriber.attribute), of: subscriber.core, connectionID: subscriber.connectionID))
        }
    }

    /// NT-3. BlueZ would report success for a characteristic without CCCD.
    private func refusal(_ path: String) -> (any Error)? {
        guard let known = reader.table.characteristics[path] else { return staleAttribute }
        if known.properties.isDisjoint(with: [.notify, .indicate]) { return CBATTError(.requestNotSupported) }
        return reader.table.hasCCCD(path) ? nil : CBATTError(.attributeNotFound)
    }

    /// Subscribes as an earlier process was. `isNotifying` says so already, so only a failure is reported.
    func resubscribe(_ characteristic: AttributeID, _ entry: Entry) {
        // The app has decided otherwise meanwhile.
        if isAsked(characteristic, by: entry.operation.core) { return finish(entry.id) }
        setNotify(true, characteristic, entry, isRestoring: true)
    }

    /// Whether a call of the app to subscribe or to unsubscribe waits.
    private func isAsked(_ characteristic: AttributeID, by core: PeripheralCore) -> Bool {
        queue.isWaiting { next in
            guard case .setNotify(_, characteristic) = next.request else { return false }
            return next.core === core
        }
    }

    // MARK: The end of subscriptions

    /// A peripheral does not use the link any longer, without a callback.
    func unsubscribeAll(of core: PeripheralCore) {
        for subscription in central.subscriptions.all(of: self) { subscription.drop(core) }
    }

    /// The link has ended.
    func endSubscriptions() { for subscription in central.subscriptions.all(of: self) { subscription.linkEnded() } }

    /// These services have changed, and have these versions now: the app is to subscribe to their new objects.
    func endSubscriptions(in services: [String: Int]) {
        for subscription in central.subscriptions.all(of: self) {
            let version = services[subscription.path.parent?.rawValue ?? ""]
            if let version, version != subscription.version { subscription.end() }
        }
    }
}
