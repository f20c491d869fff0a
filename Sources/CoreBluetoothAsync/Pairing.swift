public import CoreBluetooth
import Synchronization

/// An app's part in pairing on Linux: the answers to the questions that a system with a user interface asks its user.
/// Assign it to ``CentralManager/pairing``. Apple's systems ask the user themselves, and do not look at it.
///
/// As on Apple's systems, nothing here starts pairing: the peripheral does, by refusing a read, a write or a
/// subscription, which is then repeated. What has no handler is refused.
///
/// A handler's task is cancelled when its question is no longer valid, because pairing has ended, successfully or not:
/// close the dialog then. BlueZ waits 60 s for an answer, the peripheral 30 s.
public struct Pairing: Sendable {
    /// Whether to pair, without confirmation, with a peripheral that has neither display nor keyboard. Such a link is
    /// encrypted, but not protected against a man in the middle during pairing. False by default.
    public var allowsJustWorks = false
    /// Whether to pair with a peripheral that has neither display nor keyboard.
    public var consent: (@Sendable (Peripheral) async -> Bool)?
    /// The six digits that the peripheral shows, 0...999999; nil: refused.
    public var enterPasskey: (@Sendable (Peripheral) async -> UInt32?)?
    /// Shows six digits, which are then entered on the peripheral.
    public var displayPasskey: (@Sendable (Peripheral, String) async -> Void)?
    /// Whether the peripheral shows the same six digits.
    public var comparePasskey: (@Sendable (Peripheral, String) async -> Bool)?

    /// Refuses everything.
    public init() {}

    /// Pairs with every peripheral that can pair without user interaction, without confirmation.
    public static let justWorks: Pairing = {
        var pairing = Pairing()
        pairing.allowsJustWorks = true
        return pairing
    }()
}

extension CentralManager {
    /// This app's part in pairing, on Linux. It applies from the next question on. By default, everything is refused.
    public var pairing: Pairing {
        get { core.pairing.withLock { $0 } }
        set {
            core.pairing.withLock { $0 = newValue }
            core.post { $0.delegate.setPairing(newValue) }
        }
    }

    /// The peripherals for which this machine has keys, whichever program paired them. Empty unless Bluetooth is on, if
    /// the task is cancelled, and on Apple's systems, which do not tell.
    public func retrieveBondedPeripherals() async -> [Peripheral] {
        try? await states.awaitKnownState(state)
        return await core.retrieveFromSystem { $0.bondedPeripherals() }
    }

    /// Deletes the peripheral's keys, for all programs; a connection to it ends. Do this after
    /// `CBError.peerRemovedPairingInformation`, before pairing again. Cancelling the task ends only the waiting.
    /// - Throws: `CBError`; ``BluetoothError/unavailable(_:)`` if Bluetooth is not on. On Apple's systems, where only
    ///   the user can do this, `CBError.operationNotSupported`.
    public func removeBond(with peripheral: Peripheral) async throws {
        try await states.awaitKnownState(state)
        try await core.removeBond(with: peripheral)
    }
}

extension Peripheral {
    /// The identifier to store for later processes. On Linux it differs from ``identifier`` if the peripheral was
    /// discovered with a private address, which changes every few minutes, and has bonded since: by pairing it reveals
    /// its identity address.
    public var identityIdentifier: UUID {
        get async { await core.read(self) { $0.peripheral.storableIdentifier } ?? identifier }
    }
}
