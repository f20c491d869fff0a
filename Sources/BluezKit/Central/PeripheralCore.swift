import BluezKitRestore
import Foundation
import Synchronization

/// What the bus queue knows of one `CBPeripheral`. Nothing in the library holds the peripheral itself (CN-1).
// holds: constants, atomics, `peripheral` that is set before others see this; the rest is confined to the bus queue
final class PeripheralCore: @unchecked Sendable {
    let identity: DeviceIdentity
    let manager: CentralManagerCore
    weak var peripheral: CBPeripheral?

    /// Which of the app's connects, cancels and links is the present one. What belongs to an earlier one is neither
    /// carried out nor delivered. Changes under the peripheral's lock, while there is a peripheral.
    let connectionID = Atomic<UInt64>(0)
    private let connectionIDs = Atomic<UInt64>(0)

    /// An identifier that no other connect, cancel or link of this peripheral has. Any thread.
    func newConnectionID() -> UInt64 { connectionIDs.wrappingAdd(1, ordering: .relaxed).newValue }

    /// Something new begins. Any thread.
    @discardableResult
    func begin() -> UInt64 {
        let next = newConnectionID()
        connectionID.store(next, ordering: .relaxed)
        return next
    }

    /// `connect(_:options:)` of the app, until it is cancelled or the connection has ended for good.
    struct CurrentRequest {
        fileprivate var request: ConnectRequest
        /// Which connect; and, where it reconnects automatically, which of its links.
        let connectionID: UInt64
        /// Whether the app was connected: then it hears of the end of the link.
        fileprivate(set) var wasUp = false

        var reconnects: Bool { request.reconnects }
    }

    private(set) var request: CurrentRequest?

    /// A connect whose start delay is not over.
    final class DelayedStart {
        let connectionID: UInt64
        init(connectionID: UInt64) { self.connectionID = connectionID }
    }

    /// The last one; an earlier one with the same link does not begin any more.
    var delayedStart: DelayedStart?
    /// Whether the app was told that it is connected.
    private(set) var isUp = false
    /// How many cancels wait for the end of the link.
    private(set) var pendingCancels = 0
    private(set) weak var device: Device?
    /// Services that are known from an earlier process, with what was in them; nil: nothing has to be compared.
    private var restoredLayouts: [String: String]?
    private var postponedComparisons = 0
    /// The versions of those of them that have not changed since.
    private(set) var restoredVersions: [String: Int] = [:]

    init(identity: DeviceIdentity, manager: CentralManagerCore) {
        (self.identity, self.manager) = (identity, manager)
    }

    // MARK: What the app asks for

    func connect(_ request: ConnectRequest, connectionID: UInt64, to device: Device) {
        self.device = device
        self.request = CurrentRequest(request: request, connectionID: connectionID)
    }

    /// A repeated connect of one that is connecting or connected.
    func renew(_ request: ConnectRequest) { self.request?.request = request }

    /// A connection of an earlier process is this one's.
    /// - Parameter isUp: Whether its link is still there.
    func restore(_ request: ConnectRequest, connectionID: UInt64, layouts: [String: String]?, isUp: Bool) {
        self.request = CurrentRequest(request: request, connectionID: connectionID, wasUp: true)
        guard isUp else { return }
        self.isUp = true
        (restoredLayouts, postponedComparisons) = (layouts, 0)
    }

    func attach(_ device: Device) { self.device = device }

    /// The app has cancelled, or let go of it: nothing that it asked for is wanted any longer.
    func endRequest() { (request, isUp, restoredLayouts) = (nil, false, nil) }

    func awaitEndOfLink() { pendingCancels += 1 }

    func forgetCancels() { pendingCancels = 0 }

    // MARK: What happens

    func connected() {
        isUp = true
        request?.wasUp = true
    }

    func linkEnded() { (pendingCancels, isUp) = (0, false) }

    /// The link is lost.
    /// - Returns: The request that it was for, and the token of the next link, if it reconnects automatically.
    func lost() -> (request: CurrentRequest, next: UInt64?)? {
        guard let request else { return nil }
        restoredLayouts = nil
        // Requests of the old link are not meant for the next one.
        let next = request.reconnects ? newConnectionID() : nil
        self.request = next.map { CurrentRequest(request: request.request, connectionID: $0) }
        return (request, next)
    }

    /// No attempt will succeed.
    func failed() -> CurrentRequest? {
        defer { request = nil }
        return request
    }

    /// Bluetooth is off, or was reset.
    func drop() { (request, isUp, pendingCancels, device, restoredLayouts) = (nil, false, 0, nil, nil) }

    /// Whether what an earlier process knew should not be compared with a table that lacks something: reading it again
    /// may give the rest. Not without a limit, as the app's operations wait for it.
    func postponeComparison() -> Bool {
        guard restoredLayouts?.isEmpty == false, postponedComparisons < 3 else { return false }
        postponedComparisons += 1
        return true
    }

    /// Compares what an earlier process knew with the table, once.
    /// - Parameter layout: Of a service in the table, with its version; nil: it has changed.
    /// - Returns: The services that have changed.
    func reconcile(_ layout: (_ service: String) -> (text: String?, version: Int)?) -> Set<String> {
        guard let known = restoredLayouts else { return [] }
        restoredLayouts = nil
        var changed: Set<String> = []
        for (service, text) in known {
            if let found = layout(service), found.text == text {
                restoredVersions[service] = found.version
            } else {
                changed.insert(service)
            }
        }
        return changed
    }

    // MARK: To the app

    /// Posts an event that belongs to the app's present connection.
    func post(_ body: @escaping (CBPeripheral, (any CBPeripheralDelegate)?) -> Void) {
        guard let connectionID = request?.connectionID else { return }
        manager.post { [self] _ in
            guard self.connectionID.load(ordering: .relaxed) == connectionID, let peripheral else { return }
            body(peripheral, peripheral.delegate)
        }
    }

    /// On the app's queue.
    func deliver(_ value: Data, of characteristic: CBCharacteristic, connectionID: UInt64) {
        guard self.connectionID.load(ordering: .relaxed) == connectionID, let peripheral else { return }
        characteristic.setValue(value)
        peripheral.delegate?.peripheral(peripheral, didUpdateValueFor: characteristic, error: nil)
    }

    /// A name that BlueZ knew already: no callback.
    func updateName(_ name: String) { manager.post { [self] _ in _ = peripheral?.updateName(name) } }

    func nameChanged(_ name: String) {
        manager.post { [self] _ in
            guard let peripheral, peripheral.updateName(name) else { return }
            peripheral.delegate?.peripheralDidUpdateName(peripheral)
        }
    }

    /// The ATT_MTU of the link is known, or has grown.
    func updateMTU(_ mtuBytes: Int) {
        guard let connectionID = request?.connectionID else { return }
        manager.post { [self] _ in peripheral?.update(mtuBytes: mtuBytes, connectionID: connectionID) }
    }

    func updateBond(_ isBonded: Bool) { manager.post { [self] _ in peripheral?.update(isBonded: isBonded) } }

    func updateIdentity(_ identity: DeviceIdentity) { manager.post { [self] _ in peripheral?.update(identity) } }
}

extension PeripheralCore: PairingPeer {
    var pairing: BluezPairing { manager.pairing }

    func ask(
        _ question: PairingQuestion, decide: @escaping BluezPairing.Decision, enter: @escaping BluezPairing.Entry
    ) {
        let handlers = pairing
        manager.post { [self] _ in
            guard let peripheral else { return decide(false) }
            switch question {
            case .passkey: handlers.enterPasskey?(peripheral, enter)
            case .display(let passkey): handlers.displayPasskey?(peripheral, PairingQuestion.digits(passkey))
            case .comparison(let passkey):
                handlers.comparePasskey?(peripheral, PairingQuestion.digits(passkey), decide)
            case .consent: handlers.consent?(peripheral, decide)
            }
        }
    }

    func questionEnded() {
        let ended = pairing.ended
        manager.post { [self] _ in if let peripheral { ended?(peripheral) } }
    }
}
