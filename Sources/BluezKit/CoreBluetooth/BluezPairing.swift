import Foundation

/// **BluezKit addition.** What an app contributes to pairing: the answers to the questions that a system with a screen would
/// ask its user. Assign it to ``CBCentralManager/pairing``.
///
/// As on Apple nothing here starts pairing: the peripheral does, by refusing a read, a write or a subscription, which is
/// then repeated and answered once (CN-14). BlueZ asks the desktop's pairing dialog, if there is one; else this app, about
/// the peripherals that it is connected to. What has no handler here is refused.
///
/// One case asks nobody: where BlueZ does not pair by itself, BluezKit does so if there is any handler here, and then
/// BlueZ agrees at once with a peripheral that can neither show nor take a number, also if ``allowsJustWorks`` is false and
/// ``consent`` nil. With none of the handlers set nothing is ever paired.
///
/// Handlers are called on the queue of the manager's delegate. They may answer at once or later, from any thread; the
/// first answer counts. BlueZ waits 60 s, the peripheral 30.
/// - SeeAlso: BlueZ doc/org.bluez.Agent.rst; Core Spec 5.4, Vol 3, Part H, 2.3.5.1 (which question is asked).
public struct BluezPairing: Sendable {
    /// Takes yes or no.
    public typealias Decision = @Sendable (Bool) -> Void
    /// Takes the six digits that the peripheral shows, 0...999999; nil: refused.
    public typealias Entry = @Sendable (UInt32?) -> Void

    /// Whether to pair, without asking anybody, with a peripheral that can neither show nor take a number. Such a link
    /// is encrypted, but whoever was in between when it was paired can read it. False unless set; see above for the case in
    /// which this is not asked.
    public var allowsJustWorks = false
    /// Asks whether to pair with a peripheral that can neither show nor take a number.
    public var consent: (@Sendable (CBPeripheral, @escaping Decision) -> Void)?
    /// Asks for the six digits that the peripheral shows.
    public var enterPasskey: (@Sendable (CBPeripheral, @escaping Entry) -> Void)?
    /// Shows six digits, which are then entered on the peripheral. There is nothing to answer.
    public var displayPasskey: (@Sendable (CBPeripheral, String) -> Void)?
    /// Asks whether the peripheral shows the same six digits.
    public var comparePasskey: (@Sendable (CBPeripheral, String, @escaping Decision) -> Void)?
    /// The question that was asked last is void: pairing has ended, well or not. Take the dialog away.
    public var ended: (@Sendable (CBPeripheral) -> Void)?

    /// Refuses everything.
    public init() {}

    /// Pairs with every peripheral that needs no human for it, and asks nobody.
    public static let justWorks: BluezPairing = {
        var pairing = BluezPairing()
        pairing.allowsJustWorks = true
        return pairing
    }()
}

extension CBCentralManager {
    /// **BluezKit addition.** This app's part in pairing. Any thread; what is assigned counts from the next question on.
    /// At first everything is refused that BlueZ asks this app.
    public var pairing: BluezPairing {
        get { shared.withLock { $0.pairing } }
        set {
            var old = newValue
            shared.withLock { swap(&$0.pairing, &old) }
            withExtendedLifetime(old) {}  // what it holds of the app's does not end under the lock
            let core = core
            core.central.bus.run { core.central.setPairing(newValue, of: core) }
        }
    }
}

// MARK: Bonds

extension CBPeripheral {
    /// **BluezKit addition.** The identifier to store for later processes. It is another one than `identifier` once a
    /// peripheral has bonded that was discovered under a private address, which changes every few minutes: by pairing it
    /// tells who it is. This object stays as it is.
    public var identityIdentifier: UUID { (resolved ?? core.identity).identifier }

    var resolved: DeviceIdentity? {
        get { shared.withLock { $0.resolved } }
        set { shared.withLock { $0.resolved = newValue } }
    }
}

extension CBCentralManager {
    /// **BluezKit addition.** The peripherals that keys are stored for, by whatever program they were paired.
    /// - Important: Asks BlueZ and waits for the answer, as ``retrieveConnectedPeripherals(withServices:)`` does.
    public func retrieveBondedPeripherals() -> [CBPeripheral] {
        guard accepts("retrieveBondedPeripherals") else { return [] }
        return core.central.store.knownDevices(where: \.isBonded).map { device in
            let peripheral = peripheral(device.identity)
            if let name = device.name { _ = peripheral.takeName(name) }
            return peripheral
        }
    }

    /// **BluezKit addition.** Has BlueZ forget the peripheral with its keys, for every program; a link to it ends. This is
    /// what to do after `CBError.peerRemovedPairingInformation`, before pairing anew.
    /// - Parameters:
    ///   - peripheral: One of this manager's.
    ///   - completion: Called once, on the delegate's queue, whatever becomes of manager and BlueZ; with nil if BlueZ does
    ///     not know the peripheral any more. With `CBError.invalidParameters` if it is not one of this manager's, and
    ///     `.notConnected` if Bluetooth is not on.
    public func removeBond(
        with peripheral: CBPeripheral, completion: @escaping @Sendable ((any Error)?) -> Void = { _ in }
    ) {
        let core = core, identity = peripheral.core.identity
        let refusal: CBError.Code? =
            !accepts("removeBond") ? .notConnected : isMine(peripheral) ? nil : .invalidParameters
        core.central.bus.run {
            let answer: ((any Error)?) -> Void = { error in core.post(.answer { completion(error) }) }
            if let refusal { return answer(CBError(refusal)) }
            core.central.removeBond(with: identity, completion: answer)
        }
    }
}
