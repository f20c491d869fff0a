public import Foundation

/// **BluezKit addition.** An app's part in pairing: the answers to the questions that a system with a user interface
/// would ask its user. Assign it to ``CBCentralManager/pairing``.
///
/// ```swift
/// central.pairing.allowsJustWorks = true
/// central.pairing.enterPasskey = { peripheral, answer in
///     print("Which six digits does \(peripheral.name ?? "the sensor") show?")
///     DispatchQueue.global().async { answer(readLine().flatMap { UInt32($0) }) }  // `readLine` would block the queue
/// }
/// ```
/// An app without a user, for peripherals without display and keyboard: `central.pairing = .justWorks`.
///
/// As on Apple's systems, nothing here starts pairing: the peripheral does, by refusing a read, a write or a
/// subscription, which is then repeated and answered once (CN-14). BlueZ asks the desktop's pairing dialog, if there is
/// one, otherwise this app, about the peripherals that it is connected to. Requests without a handler are refused.
///
/// In one case no handler is called: if BlueZ does not pair automatically, BluezKit does so if there is any handler
/// here, and BlueZ then agrees at once with a peripheral that has neither display nor keyboard, even if
/// ``allowsJustWorks`` is false and ``consent`` nil. If no handler is set, nothing is ever paired.
///
/// Handlers are called on the queue of the manager's delegate. They may answer at once or later, from any thread; the
/// first answer counts. Several peripherals may pair at a time, each with a question of its own. BlueZ waits 60 s, the
/// peripheral 30 s. If the app refuses, the request that needed pairing fails with
/// `CBATTError.insufficientAuthentication` or `.insufficientEncryption`, and the link ends with
/// `CBError.encryptionTimedOut`.
/// - SeeAlso: BlueZ doc/org.bluez.Agent.rst; Core Spec 5.4, Vol 3, Part H, 2.3.5.1 (which question is asked).
public struct BluezPairing: Sendable {
    /// Accepts true or false.
    public typealias Decision = @Sendable (Bool) -> Void
    /// Accepts the six digits that the peripheral shows, 0...999999; nil: refused.
    public typealias Entry = @Sendable (UInt32?) -> Void

    /// Whether to pair, without confirmation, with a peripheral that has neither display nor keyboard. Such a link is
    /// encrypted, but not protected against a man in the middle during pairing. False by default; see above for the
    /// case in which this is not used.
    public var allowsJustWorks = false
    /// Asks whether to pair with a peripheral that has neither display nor keyboard.
    public var consent: (@Sendable (CBPeripheral, @escaping Decision) -> Void)?
    /// Asks for the six digits that the peripheral shows.
    public var enterPasskey: (@Sendable (CBPeripheral, @escaping Entry) -> Void)?
    /// Shows six digits, which are then entered on the peripheral. It needs no answer.
    public var displayPasskey: (@Sendable (CBPeripheral, String) -> Void)?
    /// Asks whether the peripheral shows the same six digits.
    public var comparePasskey: (@Sendable (CBPeripheral, String, @escaping Decision) -> Void)?
    /// The last question about this peripheral is no longer valid, because pairing has ended, successfully or not.
    /// Close its dialog.
    public var ended: (@Sendable (CBPeripheral) -> Void)?

    /// Refuses everything.
    public init() {}

    /// Pairs with every peripheral that can pair without user interaction, without confirmation.
    public static let justWorks: BluezPairing = {
        var pairing = BluezPairing()
        pairing.allowsJustWorks = true
        return pairing
    }()
}

extension BluezPairing {
    /// The questions for which there is a handler.
    var abilities: PairingAbilities {
        var abilities: PairingAbilities = []
        if allowsJustWorks { abilities.insert(.justWorks) }
        if consent != nil { abilities.insert(.consents) }
        if enterPasskey != nil { abilities.insert(.entersPasskey) }
        if displayPasskey != nil { abilities.insert(.displaysPasskey) }
        if comparePasskey != nil { abilities.insert(.comparesPasskeys) }
        return abilities
    }

    /// Asks the app. `answer` gets its decision; a passkey that is to be entered comes with it.
    func ask(
        _ question: PairingQuestion, about peripheral: CBPeripheral,
        answer: @escaping @Sendable (_ accepts: Bool, _ passkey: UInt32?) -> Void
    ) {
        let decide: Decision = { answer($0, nil) }
        switch question {
        case .passkey:
            guard let enterPasskey else { return answer(false, nil) }
            enterPasskey(peripheral) { answer($0 != nil, $0) }
        case .display(let passkey): displayPasskey?(peripheral, PairingQuestion.digits(passkey))
        case .comparison(let passkey):
            guard let comparePasskey else { return answer(false, nil) }
            comparePasskey(peripheral, PairingQuestion.digits(passkey), decide)
        case .consent:
            guard let consent else { return answer(false, nil) }
            consent(peripheral, decide)
        }
    }
}

extension CBCentralManager {
    /// **BluezKit addition.** This app's part in pairing. May be set on any thread; it applies from the next question
    /// on. By default, everything that BlueZ asks this app is refused.
    public var pairing: BluezPairing {
        get { shared.withLock { $0.pairing } }
        set {
            var old = newValue
            shared.withLock { swap(&$0.pairing, &old) }
            withExtendedLifetime(old) {}  // the app's objects must not be released under the lock
            backend.send(.setPairing(newValue.abilities))
        }
    }
}

// MARK: Bonds

extension CBPeripheral {
    /// **BluezKit addition.** The identifier to store for later processes. It differs from `identifier` if the
    /// peripheral was discovered with a private address, which changes every few minutes, and has bonded since: by
    /// pairing it reveals its identity address. `identifier` does not change.
    public var identityIdentifier: UUID { (resolved ?? identity).identifier }

    var resolved: DeviceIdentity? {
        get { shared.withLock { $0.device.resolved } }
        set { shared.withLock { $0.device.resolved = newValue } }
    }
}

extension CBCentralManager {
    /// **BluezKit addition.** The peripherals for which keys are stored, whichever program paired them.
    /// - Important: Asks BlueZ and waits for the answer, like ``retrieveConnectedPeripherals(withServices:)``.
    public func retrieveBondedPeripherals() -> [CBPeripheral] {
        guard accepts("retrieveBondedPeripherals") else { return [] }
        return backend.knownDevices(.bonded).map(peripheral)
    }

    /// **BluezKit addition.** Deletes the peripheral and its keys in BlueZ, for all programs; a link to it ends. Call
    /// this after `CBError.peerRemovedPairingInformation`, before pairing again:
    ///
    /// ```swift
    /// func centralManager(
    ///     _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    /// ) {
    ///     guard case CBError.peerRemovedPairingInformation? = error else { return }
    ///     central.removeBond(with: peripheral) { error in
    ///         if error == nil { central.connect(peripheral) }  // the next request that needs a bond pairs
    ///     }
    /// }
    /// ```
    /// - Parameters:
    ///   - peripheral: One of this manager's.
    ///   - completion: Called exactly once, on the delegate's queue, even if the manager is released or BlueZ fails;
    ///     with nil also if BlueZ does not know the peripheral any more. With `CBError.invalidParameters` if it is not
    ///     one of this manager's, and `.notConnected` if Bluetooth is not on.
    public func removeBond(
        with peripheral: CBPeripheral, completion: @escaping @Sendable ((any Error)?) -> Void = { _ in }
    ) {
        let refusal: CBError.Code? =
            !accepts("removeBond") ? .notConnected : isMine(peripheral) ? nil : .invalidParameters
        let ticket = mirror.await(completion)
        guard let refusal else { return backend.send(.removeBond(peripheral.identity, ticket: ticket)) }
        backend.report(.bondRemoved(ticket: ticket, AppError(CBError(refusal))))
    }
}
