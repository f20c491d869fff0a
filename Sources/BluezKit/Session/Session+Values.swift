import DBus
import Foundation

/// Notifications and indications, from the signal to the app.
extension Session {
    /// PropertiesChanged of a characteristic with a subscription.
    func receiveChange(_ message: Message, of subscription: Subscription) throws(BusError) {
        var reader = message.reader
        guard try reader.readCString().matches("org.bluez.GattCharacteristic1") else { return }
        try reader.readProperties { (key, value) throws(BusError) in
            guard key.matches("Value") else { return }
            let bytes = try value.readBytes()
            if subscription.machine.passesThrough {
                deliver(bytes, to: subscription)
            } else {
                apply(subscription.machine.received(bytes), to: subscription)
            }
        }
    }

    private func deliver(_ bytes: UnsafeRawBufferPointer, to subscription: Subscription) {
        let value = Data(bytes)
        for subscriber in subscription.machine.subscribers {
            subscriber.core.manager.post(
                .value(value, subscriber.characteristic, subscriber.core, link: subscriber.link))
        }
    }

    /// - Parameter isQuiet: Nobody is told of a change: it was restored.
    func apply(
        _ actions: [SubscriptionStateMachine<Subscription.Subscriber>.Action], to subscription: Subscription,
        isQuiet: Bool = false
    ) {
        for action in actions {
            switch action {
            case .deliver(let value): value.withUnsafeBytes { deliver($0, to: subscription) }
            case .confirm where isQuiet: break
            case .confirm(let subscriber, let isNotifying):
                let characteristic = subscriber.characteristic
                guard subscriber.core.wish?.link == subscriber.link else { break }
                subscriber.core.post { peripheral, delegate in
                    characteristic.setNotifying(isNotifying)
                    delegate?.peripheral(peripheral, didUpdateNotificationStateFor: characteristic, error: nil)
                }
            case .fail, .startNotify, .stopNotify: break  // carried out by the operation that runs
            }
        }
        if subscription.machine.isIdle, subscriptions[subscription.path.rawValue] === subscription {
            subscriptions[subscription.path.rawValue] = nil
        }
    }

    // MARK: setNotifyValue

    func setNotify(
        _ enabled: Bool, _ characteristic: CBCharacteristic, _ entry: AttributeQueue<AttributeOperation>.Entry,
        _ device: Device, _ link: Link, isRestoring: Bool = false
    ) {
        let operation = entry.operation
        let path = characteristic.objectPath
        if let error = refusal(characteristic, link) {
            fail(operation, error)
            return finish(entry.id, device, link)
        }
        guard let objectPath = ObjectPath(path) else { return finish(entry.id, device, link) }
        let version = link.tree.version(of: AttributeTree.service(of: path))
        // One to an attribute that was here before is over, as those who have it will be told.
        if let old = subscriptions[path], old.version != version { end(old) }
        let subscription =
            subscriptions[path] ?? Subscription(device: device, path: objectPath, version: version)
        subscriptions[path] = subscription
        let subscriber = Subscription.Subscriber(
            core: operation.core, characteristic: characteristic, link: operation.link)
        let actions = subscription.machine.set(enabled, for: subscriber)
        if actions.contains(.startNotify) {
            call(path, BlueZ.characteristic, entry, device, { $0.startNotify(completion: $1) }) { [weak self] result in
                guard let self else { return }
                // Its service may have changed meanwhile.
                let isCurrent = subscriptions[path] === subscription
                if let failure = result.failure {
                    fail(operation, error(failure, .notify, device))
                } else if !isCurrent {
                    stopNotify(subscription)
                    fail(operation, staleAttribute)
                }
                let actions = subscription.machine.startReplied(result.failure == nil && isCurrent)
                if actions.contains(.stopNotify) { stopNotify(subscription) }
                apply(actions, to: subscription, isQuiet: isRestoring)
            }
        } else if actions.contains(.stopNotify) {
            call(path, BlueZ.characteristic, entry, device, { $0.stopNotify(completion: $1) }) { [weak self] _ in
                self?.apply(subscription.machine.stopReplied(), to: subscription)
            }
        } else {
            apply(actions, to: subscription, isQuiet: isRestoring)
            finish(entry.id, device, link)
        }
    }

    /// NT-3. BlueZ would report success for a characteristic without CCCD.
    private func refusal(_ characteristic: CBCharacteristic, _ link: Link) -> (any Error)? {
        guard let known = link.tree.characteristics[characteristic.objectPath] else { return staleAttribute }
        if known.properties.isDisjoint(with: [.notify, .indicate]) { return CBATTError(.requestNotSupported) }
        return link.tree.hasCCCD(characteristic.objectPath) ? nil : CBATTError(.attributeNotFound)
    }

    // MARK: The end of subscriptions

    /// A peripheral has gone; nobody is told.
    func unsubscribeAll(of core: PeripheralCore, on device: Device) {
        for subscription in subscriptions.values where subscription.device === device {
            if subscription.machine.drop(where: { $0.core === core }) { stopNotify(subscription) }
            if subscription.machine.isIdle { subscriptions[subscription.path.rawValue] = nil }
        }
    }

    /// The link has ended. BlueZ would subscribe again by itself on the next one, for as long as this process lives
    /// (NT-7 says that the app must).
    func endSubscriptions(of device: Device) {
        for subscription in subscriptions.values where subscription.device === device {
            if subscription.machine.phase != .off { stopNotify(subscription) }
            subscriptions[subscription.path.rawValue] = nil
        }
    }

    /// These services have changed, and have these versions now: the app is to subscribe to their new objects.
    func endSubscriptions(of device: Device, in services: [String: Int]) {
        for subscription in subscriptions.values where subscription.device === device {
            let version = services[subscription.path.parent?.rawValue ?? ""]
            if let version, version != subscription.version { end(subscription) }
        }
    }

    /// BlueZ 5.66 never answers a `StartNotify` that a `StopNotify` overtakes, nor any later one, so a subscription that is
    /// being made is ended when it is there.
    private func end(_ subscription: Subscription) {
        if subscription.machine.phase == .on { stopNotify(subscription) }
        subscriptions[subscription.path.rawValue] = nil
    }

    private func stopNotify(_ subscription: Subscription) {
        guard let bus, bus.owner(of: BlueZ.busName) != nil else { return }
        let proxy = BlueZProxy(bus: bus, path: subscription.path, interface: BlueZ.characteristic)
        proxy.stopNotify { _ in }  // the object may be gone, and the subscription with it
    }
}

extension SubscriptionStateMachine {
    /// Nothing holds values back: they go straight to the subscribers. Almost always so.
    var passesThrough: Bool { phase == .on && !isReading }
}
