/// One LE link as BlueZ makes it, seen from one device. Decides; does nothing itself: no bus, no clock.
///
/// A connect of CoreBluetooth waits without a limit (CN-2); BlueZ's gives up after 40 s, fails for any reason with one
/// text, and knows only devices it has seen. So the machine looks first what BlueZ knows, scans for what it does not
/// know, and tries again after every failure that is not final. Attempts have slots, one after the other
/// (``ConnectScheduler``).
struct LinkStateMachine {
    enum Phase: Equatable {
        /// No link, and no app wants one.
        case idle
        /// Asking BlueZ whether it knows the device, and whether it is connected already.
        case checking
        /// Waiting for an advertisement, as BlueZ does not know the device, or has a link of classic Bluetooth to it.
        case looking
        /// Waiting for a slot to connect.
        case queued
        /// `Connect` is on its way.
        case attempting
        /// `Connect` has succeeded, `Connected` has not come yet: it may never (BlueZ reports some aborts as success).
        case settling
        /// Waiting before the next attempt.
        case backingOff
        case up
        /// The link has ended unexpectedly, and the apps that were connected do not know yet: nothing begins before.
        case lost
        /// `Disconnect` is on its way. BlueZ takes its time (2 s), and a `Connect` meanwhile would be cut with the
        /// link.
        case closing
    }

    enum Event: Equatable {
        case want(Bool)
        /// What BlueZ says of the device; nil: it does not know it, or it must be heard first.
        case deviceRead(connected: Bool?)
        /// BlueZ cannot be asked yet; or it shows a link that another program is ending, or has ended meanwhile.
        case linkIsEnding
        /// An advertisement was received.
        case seen
        /// This device has the slot to connect; its time is over.
        case slot, slotOver
        case connectReply(Failure?)
        /// BlueZ may have lost the `Connect`: then it will never answer.
        case connectUnanswered
        case connectedChanged(Bool)
        case disconnectReply
        /// The link was there before this process, and an app takes it over.
        case adopt
        /// The apps that were connected know of the loss. Whether one wants a link now.
        case lossTold(isWanted: Bool)
        /// Others use the link: it stays, and is over for us.
        case kept
        case timerFired
    }

    enum Failure: Equatable {
        /// BlueZ does not know the device any more.
        case unknownDevice
        /// Another program's attempt is running.
        case inProgress
        /// May go well next time.
        case transient
        /// Will not go well next time.
        case final
    }

    enum Action: Equatable {
        case readDevice, connect, disconnect
        /// The attempt that was called off has made its link nevertheless.
        case disconnectAgain
        /// Scan for the device, or stop doing so.
        case look(Bool)
        /// Ask for a slot to connect. It ends with the phases for which it holds.
        case queue
        /// One timer; a new one replaces the old.
        case startTimer(Duration), stopTimer
        /// The same, give or take some, so that many who have failed together do not try again together.
        case startBackOff(Duration)
        /// The link is there; it has ended, or the attempt that was called off has.
        case linkUp, linkDown
        /// It has ended unexpectedly: hold that back for a moment (``Event/timerFired``), if it need be; then tell
        /// (``Event/lossTold(isWanted:)``).
        case hold, tellLoss
        /// The attempt has failed for good; no connect request is left.
        case giveUp
    }

    private let timing: BlueZTiming.Link
    private(set) var phase = Phase.idle
    private(set) var isWanted = false
    /// What BlueZ said last of `Connected`.
    private var isLinked = false
    private var failures = 0
    /// What is being closed is an attempt.
    private var isCallingOff = false
    /// The pause is for a device that BlueZ has said it does not know, though it is heard.
    private var isUnknown = false
    /// BlueZ was asked what it has not told.
    private var hasAsked = false

    init(timing: BlueZTiming.Link = BlueZTiming.Link()) { self.timing = timing }

    /// Whether this device has a slot to connect, or waits for one. An attempt that is called off keeps it until BlueZ
    /// has answered: 5.66 closes the attempt's socket twice, and a `Connect` in between can have got its number.
    var holdsSlot: Bool {
        phase == .queued || phase == .attempting || phase == .settling || phase == .closing && isCallingOff
    }

    /// Whether BlueZ has a link, or is asked to make or to end one.
    var usesLink: Bool { [.attempting, .settling, .up, .closing].contains(phase) }

    mutating func handle(_ event: Event) -> [Action] {
        var event = event
        // An answer can be ahead of the signal, which is no news then.
        if event == .deviceRead(connected: true), phase != .checking { event = .connectedChanged(true) }
        let wasLinked = isLinked
        switch event {
        case .want(let wanted), .lossTold(isWanted: let wanted): isWanted = wanted
        case .connectedChanged(let connected), .deviceRead(connected: let connected?): isLinked = connected
        case .adopt where phase != .lost && phase != .closing: (isWanted, isLinked) = (true, true)
        default: break
        }
        switch (phase, event) {
        case (.up, .adopt): return []
        // It is ending.
        case (.lost, .adopt), (.closing, .adopt): return []
        case (.looking, .adopt): return enter(.up, .look(false), .linkUp)
        case (_, .adopt): return enter(.up, .stopTimer, .linkUp)

        case (.idle, .want(true)):
            failures = 0
            return enter(.checking, .readDevice)
        // The timer is that of a link that is ending.
        case (.checking, .deviceRead(nil)): return enter(.looking, .stopTimer, .look(true))
        case (.checking, .deviceRead(true?)), (.checking, .connectedChanged(true)):
            return enter(.up, .stopTimer, .linkUp)
        case (.checking, .deviceRead(false?)): return enter(.queued, .stopTimer, .queue)
        case (.checking, .linkIsEnding): return [.startTimer(timing.leaseRetry)]
        case (.checking, .timerFired): return enter(.checking, .stopTimer, .readDevice)
        case (.closing, .seen), (.idle, _): return []
        case (.checking, .want(false)): return enter(.idle, .stopTimer)

        case (.looking, .seen): return enter(.queued, .look(false), .queue)
        case (.looking, .connectedChanged(true)): return enter(.up, .look(false), .linkUp)
        case (.looking, .want(false)): return enter(.idle, .look(false))

        case (.queued, .slot):
            hasAsked = false
            return enter(.attempting, .connect)
        case (.queued, .connectedChanged(true)): return enter(.up, .linkUp)
        case (.queued, .want(false)): return enter(.idle)

        case (.attempting, .connectedChanged(true)), (.settling, .connectedChanged(true)),
            (.backingOff, .connectedChanged(true)):
            return enter(.up, .stopTimer, .linkUp)
        case (.attempting, .connectReply(nil)):
            hasAsked = false
            return enter(.settling, .startTimer(timing.settling))
        case (.settling, .timerFired) where !hasAsked:
            hasAsked = true
            return [.startTimer(timing.settled), .readDevice]
        // BlueZ forgets some between the advertisement and the attempt. One that it hears and still does not know
        // would be tried with each advertisement.
        case (.attempting, .connectReply(.unknownDevice?)) where failures == 0:
            failures = 1
            return enter(.looking, .look(true))
        case (.attempting, .connectReply(.unknownDevice?)):
            defer { isUnknown = true }
            return backOff()
        case (.backingOff, .seen) where isUnknown: return []
        case (.attempting, .connectReply(.final?)): return enter(.idle, .giveUp)
        case (.attempting, .connectReply(_?)), (.settling, .timerFired): return backOff()
        // There may be a link that BlueZ has not signalled.
        case (.attempting, .connectUnanswered):
            hasAsked = true
            return [.readDevice]
        case (.attempting, .deviceRead) where !hasAsked: return []
        // BlueZ would go on trying for 40 s.
        case (.attempting, .want(false)), (.settling, .want(false)), (.attempting, .slotOver),
            (.attempting, .deviceRead):
            isCallingOff = true
            return enter(.closing, .stopTimer, .disconnect)

        case (.backingOff, .timerFired), (.backingOff, .seen): return enter(.checking, .stopTimer, .readDevice)
        case (.backingOff, .want(false)): return enter(.idle, .stopTimer)

        case (.up, .connectedChanged(false)): return enter(.lost, .linkDown, .hold)
        case (.up, .want(false)): return enter(.closing, .disconnect)

        // With a new link it is not Bluetooth that is being switched off.
        case (.lost, .timerFired), (.lost, .connectedChanged(true)): return [.stopTimer, .tellLoss]
        case (.lost, .lossTold(isWanted: true)): return enter(.checking, .readDevice)
        case (.lost, .lossTold(isWanted: false)): return isLinked ? enter(.closing, .disconnect) : enter(.idle)

        case (.closing, .connectedChanged(true)) where isCallingOff: return [.disconnectAgain]
        // No news: BlueZ may still be at the attempt, also at that of a dead process.
        case (.closing, .connectedChanged(false)) where !wasLinked: return []
        case (.closing, .kept): return isWanted ? enter(.checking, .linkDown, .readDevice) : enter(.idle, .linkDown)
        // The reply and `Connected` = false come in either order. An app that wants the link again gets a new one.
        case (.closing, .disconnectReply) where isLinked: return [.startTimer(timing.closing)]
        case (.closing, .connectedChanged(false)), (.closing, .disconnectReply), (.closing, .timerFired):
            return isWanted
                ? enter(.checking, .stopTimer, .linkDown, .readDevice) : enter(.idle, .stopTimer, .linkDown)
        default: return []
        }
    }

    /// A link, or an attempt, that a dead process has left, and that no app wants.
    mutating func inherit() -> [Action] { enter(.closing, .disconnect) }

    private mutating func enter(_ next: Phase, _ actions: Action...) -> [Action] {
        phase = next
        if next == .up { failures = 0 }
        if next != .closing { isCallingOff = false }
        isUnknown = false
        return actions
    }

    /// 0.25 s after the first failure, then twice as long each time, up to 8 s. BlueZ's own attempt waits 40 s for the
    /// device, so the pause matters only where attempts fail at once.
    private mutating func backOff() -> [Action] {
        let delay = timing.backOff.doubled(failures, upTo: timing.longestBackOff)
        failures += 1
        return enter(.backingOff, .startBackOff(delay))
    }
}
