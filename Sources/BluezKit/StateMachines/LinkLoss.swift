import BluezDBus
import Dispatch

/// What is known of how a link ended, or is about to: whether its end is held back before an app hears of it, and what
/// the app hears then. Pure: the caller provides the time.
struct LinkLoss {
    typealias Reason = (name: String, message: String)

    private let timing: BlueZTiming.Link
    /// Of `Device1.Disconnected`, which comes right before the link ends.
    private var reason: Reason?
    private var isOwn = false
    /// When BlueZ said that the attempt had failed, though the link was up.
    private var failedWhileUp: DispatchTime?
    private var succeeded: DispatchTime?
    /// When the last operation failed with the ATT error 0x0e.
    private var failedOperation: DispatchTime?
    private var ended: DispatchTime?
    /// Whether a peer without a bond had not answered an operation, and nothing says why the link ended: peers that
    /// refuse to pair do that, and those that are lost.
    private(set) var mayBeRefusal = false

    init(timing: BlueZTiming.Link = BlueZTiming.Link()) { self.timing = timing }

    /// BlueZ 5.83 and later say why a link ended, right before it ends.
    mutating func record(_ reason: Reason) { if !isOwn { self.reason = reason } }

    /// This process ends the link. Whatever BlueZ says of it then, it knows better why.
    mutating func recordOwn(_ reason: Reason) { (self.reason, isOwn) = (reason, true) }

    /// BlueZ says that the attempt has failed, but it has made the link.
    mutating func attemptFailedWhileUp(at now: DispatchTime) { failedWhileUp = now }

    /// BlueZ says that the attempt has succeeded. With versions before 5.83 it says so also when the kernel ends the
    /// link because it could not be encrypted: the answer and the end then come in one go (src/device.c,
    /// `att_connect_cb`).
    mutating func attemptSucceeded(at now: DispatchTime) { succeeded = now }

    /// The link was used, so that it was encrypted if it had to be.
    mutating func linkWorks() { succeeded = nil }

    /// BlueZ has answered an operation with the ATT error 0x0e, as it does with those that the end of a link leaves
    /// open.
    mutating func operationFailed(at now: DispatchTime) { failedOperation = now }

    /// The link has ended.
    mutating func linkEnded(at now: DispatchTime) { ended = now }

    /// A link without a bond has ended before the peer had answered an operation of the app's.
    /// - Parameter isPairing: Whether the app has agreed to pair on it.
    mutating func endedUnanswered(isPairing: Bool) {
        guard !isOwn else { return }
        // After a failed pairing the kernel ends the link. BlueZ 5.83 and later say that it was this computer.
        if isPairing || isLocal { reason = Self.pairingFailed }
        mayBeRefusal = reason == nil
    }

    /// A link without a bond has ended, and no operation was open: BlueZ may have answered the one whose pairing failed
    /// before it told of the end (seen with 5.87).
    mutating func endedAnswered() {
        guard !isOwn, isLocal, ended(with: failedOperation) else { return }
        reason = Self.pairingFailed
    }

    private var isLocal: Bool { reason?.name == "org.bluez.Reason.Local" }
    private static var pairingFailed: Reason { (DisconnectReason.authentication, "pairing failed") }

    /// A new link is there: what was said was about an earlier one.
    mutating func reset() {
        (reason, isOwn, mayBeRefusal) = (nil, false, false)
        (failedWhileUp, succeeded, failedOperation, ended) = (nil, nil, nil, nil)
    }

    /// How long the end of the link is held back; nil: it is reported now. When Bluetooth is switched off BlueZ ends
    /// the links first and says so some 50 ms later. Then the new state alone is reported (O-18). A link that could not
    /// be encrypted BlueZ makes a second time: what the app does next, as to remove the bond, must not call that off.
    /// - Parameter isAwaited: Whether an app will hear of it.
    func hold(isAwaited: Bool, isBonded: Bool) -> Duration? {
        // It was not this computer that ended it.
        let isRemote = ["org.bluez.Reason.Remote", "org.bluez.Reason.Timeout"].contains(reason?.name)
        guard isAwaited, !isRemote else { return nil }
        return isBonded && wasNotEncrypted ? timing.secondAttempt : timing.heldLoss
    }

    /// BlueZ answers such an attempt with either result. A failure alone can be that of a weak link.
    private var wasNotEncrypted: Bool {
        endedWithAnswer || !isOwn && reason?.name == DisconnectReason.authentication && ended(with: failedWhileUp)
    }

    /// Returns and clears the reason to report; nil if unknown.
    mutating func takeReason(isBonded: Bool) -> Reason? {
        defer { reset() }
        guard reason == nil, endedWithAnswer, isBonded else { return reason }
        // It came up and was not encrypted: the peer has lost its keys (BlueZ before 5.83 gives no reason).
        return (DisconnectReason.authentication, "the link could not be encrypted")
    }

    private var endedWithAnswer: Bool { ended(with: succeeded) }

    private func ended(with answer: DispatchTime?) -> Bool {
        guard let answer, let ended else { return false }
        let (first, last) = (min(answer, ended), max(answer, ended))
        return first.later(by: timing.lostBondAnswer) > last
    }

    /// Whether bluetoothd, if it has ended now, has crashed because the peer has lost its keys.
    func mayHaveLostBond(at now: DispatchTime) -> Bool {
        failedWhileUp.map { $0.later(by: timing.lostBondCrash) > now } ?? false
    }
}
