import BluezKitRestore
import Foundation

/// What the app knows of the manager, and what becomes of it.
extension CBPeripheralManager {
    // holds: weak references are safe to copy from any thread
    struct Shared: @unchecked Sendable {
        weak var delegate: (any CBPeripheralManagerDelegate)?
        var isAdvertising = false
        /// Counts the ends of advertising: answers to earlier starts are ignored.
        var advertisingToken: UInt64 = 0
        /// What the app has asked to advertise.
        var advertisement: AdvertisementRequest?
        /// The added services, in the order of the calls, each with the number of its call: the answer to an earlier
        /// call is ignored.
        typealias Added = (service: CBMutableService, call: UInt64)
        var added: [Added] = []
        var adds: UInt64 = 0
        var services: [CBMutableService] { added.map(\.service) }
        /// The generation of services of which the app has been informed (`AdapterController.servicesGeneration`).
        var servicesGeneration: UInt64 = 0
        /// The generation of Bluetooth of which the app has been informed (`AdapterController.generation`).
        var adapterGeneration: UInt64 = 0
        /// Services and advertisement are to be registered with BlueZ when Bluetooth is on.
        var resumesAtPowerOn = false
        /// `willRestoreState` is being called: what is restored has not begun, and can be withdrawn.
        var isTellingRestored = false
        /// The published L2CAP channels, in the order in which they were published.
        var channels: [Snapshot.PublishedChannel] = []
        var restoration: BluezRestoration?
    }

    /// On the delegate's queue: sets the new state, applies its consequences, and makes the callback (ST-3).
    func enter(_ state: CBManagerState) {
        let previous = self.state
        setState(state)
        follow(state, from: previous)
        delegate?.peripheralManagerDidUpdateState(self)
    }

    /// MIS-1: whether commands are accepted; logs if not.
    /// - Parameter whileRestoring: Whether the command is accepted in `willRestoreState` as well.
    func accepts(_ command: StaticString, whileRestoring: Bool = false) -> Bool {
        if state == .poweredOn || whileRestoring && isTellingRestored { return true }
        logRefusal(command)
        return false
    }

    var isTellingRestored: Bool { shared.withLock { $0.isTellingRestored } }

    // MARK: What is published

    /// On the delegate's queue. - Returns: Whether that start has not been undone since.
    func setAdvertising(_ isOnAir: Bool, _ token: UInt64) -> Bool {
        let isCurrent = shared.withLock { shared in
            guard shared.advertisingToken == token else { return false }
            shared.isAdvertising = isOnAir
            if !isOnAir { shared.advertisement = nil }
            return true
        }
        if isCurrent, !isOnAir { preserveAdvertisement() }
        return isCurrent
    }

    /// Whether that start has not been undone since.
    func isCurrent(_ token: UInt64) -> Bool { shared.withLock { $0.advertisingToken == token } }

    /// The app, or Bluetooth, has ended advertising.
    /// - Returns: The token of the next start.
    @discardableResult
    func endAdvertising() -> UInt64 {
        shared.withLock { shared in
            (shared.isAdvertising, shared.advertisement) = (false, nil)
            shared.advertisingToken += 1
            return shared.advertisingToken
        }
    }

    /// It could not be published: it may be added again, unless the app has done so in the meantime.
    func forget(call: UInt64) { forget { $0.call == call } }

    /// A service for the core.
    func published(_ service: CBMutableService, call: UInt64) -> LocalService {
        let added = shared.withLock { $0.added }
        return mirror.publish(service, call: call) { included in added.first { $0.service === included }?.call ?? 0 }
    }

    func forget(where isGone: (Shared.Added) -> Bool) {
        let gone = shared.withLock { shared in
            defer { shared.added.removeAll(where: isGone) }
            return shared.added.filter(isGone)
        }
        withExtendedLifetime(gone) {}  // the app's objects must not be released under the lock
        preserveServices()
    }

    /// - Parameter ticket: What hears of the result; nil: the delegate does.
    /// - Returns: Whether Bluetooth is on.
    func publishChannel(isEncrypted: Bool, ticket: () -> UInt32?) -> Bool {
        guard accepts("publishL2CAPChannel") else { return false }
        backend.send(
            .publishChannel(isEncrypted: isEncrypted, psm: nil, ticket: ticket()),
            generation: shared.withLock { $0.servicesGeneration })
        return true
    }
}
