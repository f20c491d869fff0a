import BluezDBus
import Foundation

/// `setNotifyValue`, and the end of subscriptions.
extension GATTClient {
    func setNotify(
        _ enabled: Bool, _ characteristic: CBCharacteristic, _ entry: Entry, isRestoring: Bool = false
    ) {
        let operation = entry.operation
        let path = characteristic.objectPath
        if let error = refusal(characteristic) {
            operation.fail(error)
            return finish(entry.id)
        }
        guard let objectPath = ObjectPath(path) else { return finish(entry.id) }
        let version = tree.version(of: AttributeTree.service(of: path))
        // One to an attribute that was here before is over; the app hears of the change.
        if let old = central.subscriptions[path], old.version != version { old.end() }
        let subscription =
            central.subscriptions[path] ?? Subscription(self, path: objectPath, version: version)
        central.subscriptions[path] = subscription
        let subscriber = Subscription.Subscriber(
            core: operation.core, characteristic: characteristic, link: operation.link)
        switch subscription.set(enabled, for: subscriber, isRestoring: isRestoring) {
        case .none: finish(entry.id)
        case .start:
            call(path, BlueZ.characteristic, entry, { $0.startNotify(completion: $1) }) { [weak self] result in
                guard let self else { return }
                // Its service may have changed meanwhile.
                let isCurrent = subscription.isCurrent
                if let failure = result.failure {
                    operation.fail(error(failure, .notify))
                } else if !isCurrent {
                    subscription.stopNotify()
                    operation.fail(staleAttribute)
                }
                subscription.startReplied(result.failure == nil && isCurrent, isRestoring: isRestoring)
            }
        case .stop:
            call(path, BlueZ.characteristic, entry, { $0.stopNotify(completion: $1) }) { _ in
                subscription.stopReplied()
            }
        }
    }

    /// NT-3. BlueZ would report success for a characteristic without CCCD.
    private func refusal(_ characteristic: CBCharacteristic) -> (any Error)? {
        guard let known = tree.characteristics[characteristic.objectPath] else { return staleAttribute }
        if known.properties.isDisjoint(with: [.notify, .indicate]) { return CBATTError(.requestNotSupported) }
        return tree.hasCCCD(characteristic.objectPath) ? nil : CBATTError(.attributeNotFound)
    }

    /// Subscribes as an earlier process was. `isNotifying` says so already, so only a failure is reported.
    func resubscribe(_ characteristic: CBCharacteristic, _ entry: Entry) {
        guard entry.operation.core.peripheral?.wantsNotifications(of: characteristic) == true else {
            return finish(entry.id)
        }
        setNotify(true, characteristic, entry, isRestoring: true)
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
