import BluezDBus
import BluezKitRestore
import Dispatch
import Foundation

/// One app's manager in a keeper, whichever role it has.
protocol HostedApp: AnyObject, Sendable {
    /// Whether a process of the app is there.
    var hasApp: Bool { get }
    /// Calls `body` as soon as Bluetooth is on, in place of what was to be called before.
    func whenOn(_ body: @escaping () -> Void)
    /// Called when there is nothing left to do for the app.
    var onEnd: (@Sendable () -> Void)? { get set }
    var status: KeeperStatus { get }
    /// Whether no process of the app has delivered an event.
    var isUnheard: Bool { get }
    /// Whether so much has happened that the next process of the app begins again.
    var isOverfull: Bool { get }
    var hello: KeeperHello { get }
    /// The first process of the app.
    func begin(with connection: KeeperConnection)
    /// In place of a keeper that was killed.
    func beginWithoutApp()
    /// The next process of the app, after one has died.
    func handOver(to connection: KeeperConnection, _ hello: KeeperHello)
    /// Notices the end of an app that has died, and what it asked for before.
    func readAll()
    /// A process of the app that comes now begins again. What was done for it ends when `first` calls what it gets.
    func end(after first: (@escaping @Sendable () -> Void) -> Void)
}

extension HostedApp { func end() { end { $0() } } }

/// The core of one app's manager in a keeper: it continues when the app has died, and what the app has not heard waits
/// for its next process. Confined to the host's queue.
final class HostedManager<Role: HostedRole>: HostedApp, @unchecked Sendable {  // holds: confined to `queue`
    private let queue: DispatchQueue
    private let page: DeliveryPage
    /// Nil: it has ended.
    private var role: Role?
    private let core: Role.Side.Core
    /// Whether Bluetooth is on, who waits for that, and whether the app has ever asked for anything.
    private var known: (isOn: Bool, whenOn: (() -> Void)?, hasAsked: Bool) = (false, nil, false)
    private var log: EventLog
    private(set) var hello: KeeperHello
    private var relaunching = RelaunchMachine()
    /// That of the app; nil: it has died.
    private var connection: KeeperConnection?
    /// Whether the app has been told what there is: events follow that.
    private var isWelcome = false
    /// The number of the last event that was handed to the connection.
    private var sent: UInt64 = 0
    /// That of the event which tells what was restored.
    private var restored: UInt64 = 0
    /// The noted events in the log.
    private var noted: [(number: UInt64, event: Role.Event)] = []
    /// For people who ask.
    private var history = History()
    var onEnd: (@Sendable () -> Void)?

    private struct History {
        var since = Date.timeIntervalSinceReferenceDate
        /// Why the app is to be started, since it has died.
        var reason: String?
        var lastStart: (time: Double, reason: String)?
        var hasGivenUp = false
        /// The app was to be started, and a process that has not come had its file.
        var isElsewhere = false
        /// The process that was started last, until the app comes.
        var started: AppProcess?
    }

    init?(_ hello: KeeperHello, on queue: DispatchQueue) {
        guard let page = DeliveryPage(), let configuration = Role.Side.configuration(in: hello) else { return nil }
        (self.queue, self.page, log, self.hello) = (queue, page, EventLog(limits: hello.limits.bounded), hello)
        let session = Session.shared(hello.session)
        let receiver = Receiver()
        let (core, start) = Role.Side.core(
            configuration, in: session, preserved: hello.preserved, place: queue, isHosted: true,
            receive: receiver.receive)
        (self.core, role) = (core, Role(core, in: session))
        known.hasAsked = hello.preserved != nil
        self.hello.preserved = nil
        receiver.manager = self
        start()
    }

    /// The core's way to this.
    private final class Receiver: @unchecked Sendable {  // holds: set before there are events
        weak var manager: HostedManager?
        @Sendable func receive(_ events: [Role.Event]) { manager?.receive(events) }
    }

    var hasApp: Bool { connection != nil }

    func whenOn(_ body: @escaping () -> Void) {
        if known.isOn { body() } else { known.whenOn = body }
    }

    var isOverfull: Bool { log.isGivenUp }
    var isUnheard: Bool { delivered == 0 }

    // MARK: The app

    func begin(with connection: KeeperConnection) {
        attach(connection)
        welcome(nil)
    }

    func beginWithoutApp() { _ = relaunching.appDied(at: Self.now, isDue: false) }

    func readAll() { connection?.readAll() }

    private func attach(_ connection: KeeperConnection) {
        relaunching.appCame(at: Self.now)
        looks.ending?.cancel()
        looks.ending = nil
        (self.connection, isWelcome) = (connection, false)
        (history.since, history.reason, history.hasGivenUp, history.isElsewhere) = (
            Date.timeIntervalSinceReferenceDate, nil, false, false
        )
        history.started = nil
        connection.onFrame = { [weak self] in self?.receive($0) }
        connection.onPause = { [weak self] in self?.paused() }
        connection.onEnd = { [weak self, weak connection] in self?.appDied(connection) }
        connection.onRoom = { [weak self] in self?.pump() }
    }

    func handOver(to connection: KeeperConnection, _ hello: KeeperHello) {
        guard role != nil else { return }
        attach(connection)
        self.hello = hello
        self.hello.preserved = nil
        log.limits = hello.limits.bounded
        let begun = min(page.begun, sent)
        if hello.isAtMostOnce, begun > page.delivered { page.delivered = begun }
        trim()
        look { [self] state in
            guard self.connection === connection, let role = self.role else { return }
            // The app has heard nothing: it hears of what was restored from the beginning.
            guard !state.isRestoring, restored <= delivered else { return welcome(nil) }
            log.forgetRequests(but: state.tickets)
            // It may have been replaced, or have been of interest to that process alone.
            let repeatsFirst = begun > page.delivered && log.entries.first?.number == begun
            welcome(
                HandOver(
                    missed: log.entries.count, dropped: log.dropped(after: delivered), repeatsFirst: repeatsFirst,
                    work: role.work(state)))
        }
    }

    /// Looks at the core: `body` is called when all events that had happened by then have come.
    private func look(_ body: @escaping (HostedState) -> Void) {
        looks.count &+= 1
        let (number, found) = (looks.count, looks.found)
        looks.waiting[number] = body
        role?.look(number) { state in found.withLock { $0[number] = state } }
    }

    private func looked(_ number: UInt32) {
        let state = looks.found.withLock { $0.removeValue(forKey: number) }
        let body = looks.waiting.removeValue(forKey: number)
        if let state { body?(state) }
    }

    private var looks = Looks()
    private struct Looks {
        var count: UInt32 = 0
        var waiting: [UInt32: (HostedState) -> Void] = [:]
        let found = Protected<[UInt32: HostedState]>([:])
        /// Waits for the end of a process.
        var ending: (any DispatchSourceRead)?
    }

    private func welcome(_ handOver: HandOver?) {
        guard let bytes = try? handOver.map({ try BorderFormat.encode($0).bytes }) ?? Data() else { return }
        sent = delivered
        connection?.send(Frame(kind: .welcome, body: bytes, descriptors: [page.descriptor]))
        isWelcome = true
        pump()
    }

    private func receive(_ frame: Frame) {
        guard let role else { return frame.closeDescriptors() }
        do {
            if frame.kind != .request { frame.closeDescriptors() }
            switch frame.kind {
            case .request, .write, .update:
                let message = try frame.request(Role.Request.self)
                role.asked(message.request)
                known.hasAsked = true
                role.carryOut(message)
                trim()
            case .query:
                let connection = connection
                try role.answer(frame) { [queue] answer in queue.async { connection?.send(answer) } }
            case .release: end()
            default: throw FrameReader.Failure.malformed
            }
        } catch {
            Log.warning("an app has sent what cannot be read, and is left: \(error)")
            connection?.end()
        }
    }

    /// All that the app has sent by now is carried out.
    private func paused() { if let answers = role?.answers(), !answers.isEmpty { receive(answers) } }

    private func appDied(_ ended: KeeperConnection?) {
        guard let ended, ended === connection, let role else { return }
        connection = nil
        history.since = Date.timeIntervalSinceReferenceDate
        trim()
        log.appDied()
        role.appDied()
        // If it is started before systemd has noticed its end, nothing is started.
        looks.ending = ended.process.whenEnded(on: queue) { [weak self] in self?.processEnded() }
    }

    private func processEnded() {
        look { [self] state in
            guard !hasApp else { return }
            log.forgetRequests(but: state.tickets)
            if !state.isScanning { log.forgetDiscoveries() }
            // The app had nothing under way: it makes its manager again.
            let mayReturn = !known.isOn && known.hasAsked
            guard state.continues || mayReturn || log.entries.contains(where: \.isOfUse) else { return end() }
            history.reason = log.entries.lazy.compactMap(\.startsApp).first
            act(relaunching.appDied(at: Self.now, isDue: history.reason != nil))
        }
    }

    // MARK: Starting the app

    private static var now: Duration { .nanoseconds(Int64(DispatchTime.now().uptimeNanoseconds)) }

    private func act(_ action: RelaunchMachine.Action?) {
        guard let action, hello.relaunch != .never else { return }
        switch action {
        case .start:
            if SnapshotStore.isInUse(hello.statePath) {
                // The app's next process is about to come; or this keeper had hung, and it continues without.
                if history.isElsewhere {
                    Log.warning("the app of \(hello.statePath) works without this keeper, whose own work ends")
                    return end()
                }
                history.isElsewhere = true
                return wake(after: RelaunchMachine.starting)
            }
            let reason = history.reason ?? "an event"
            let process = Launcher.start(hello.relaunch, after: history.started) { [weak self, queue] reason in
                Log.warning("an app cannot be started: \(reason)")
                queue.async { [weak self] in
                    guard let self else { return }
                    // Swift 6.0 does not see that this is a strong reference.
                    self.act(self.relaunching.startFailed())
                }
            }
            if let process, process === history.started { return startAgain(after: RelaunchMachine.starting) }
            history.lastStart = (Date.timeIntervalSinceReferenceDate, reason)
            Log.debug("starting the app of \(hello.statePath) for \(reason)")
            history.started = process
            wake(after: RelaunchMachine.starting)
        case .wait(let pause): wake(after: pause)
        case .giveUp:
            history.hasGivenUp = true
            Log.warning(
                "the app of \(hello.statePath) is not started any more: it has ended at once, or not come, too often")
        }
    }

    /// The process that was started last still runs, and may come: this is no start that has failed.
    private func startAgain(after delay: Duration) {
        let starts = relaunching.starts
        queue.asyncAfter(deadline: .now().later(by: delay)) { [weak self] in
            guard let self, !hasApp, relaunching.starts == starts else { return }
            act(.start)
        }
    }

    private func wake(after delay: Duration) {
        let starts = relaunching.starts
        queue.asyncAfter(deadline: .now().later(by: delay)) { [weak self] in
            guard let self, !hasApp, relaunching.starts == starts else { return }
            act(relaunching.timerFired())
        }
    }

    func end(after first: (@escaping @Sendable () -> Void) -> Void) {
        if role != nil { first { [core] in core.release() } }
        role = nil
        connection?.end()
        connection = nil
        log.removeAll()
        looks.ending?.cancel()
        looks = Looks()
        onEnd?()
    }

    // MARK: Events

    private func receive(_ events: [Role.Event]) {
        trim()
        for event in events { receive(event) }
        pump()
        // Not before: what the connection has is not lost for the app.
        log.shorten()
        if !hasApp, log.isOverfull { beginAgain() }
    }

    private func receive(_ event: Role.Event) {
        guard let role else { return }
        if let number = role.checkpoint(in: event) { return looked(number) }
        role.happened(event, hasApp: hasApp)
        if let state = role.state(in: event) { stateChanged(isOn: state == .poweredOn) }
        if isOverfull { return role.decline(event) }
        let kind = role.kind(of: event)
        if !hasApp {
            switch kind {
            case .passing, .unnumbered: return role.decline(event)
            case .discovery(let identity): log.forgetDiscovery(of: identity)
            case .end(let key) where log.forgetBegin(key, after: max(sent, page.begun)): return
            default: break
            }
        }
        do {
            if kind == .unnumbered { return pass(try Frame.event(0, event)) }
            let number = log.newNumber()
            let reason = role.reason(of: event)
            log.append(
                EventLog.Entry(number: number, kind: kind, frame: try Frame.event(number, event), startsApp: reason))
            if role.isNoted(event) { noted.append((number, event)) }
            if role.isRestoration(event) { restored = number }
            if !hasApp, let reason {
                history.reason = history.reason ?? reason
                act(relaunching.somethingHappened())
            }
        } catch { Log.warning("an event cannot be passed to the app: \(error)") }
    }

    private func stateChanged(isOn: Bool) {
        known.isOn = isOn
        guard isOn, let body = known.whenOn else { return }
        known.whenOn = nil
        body()
    }

    /// What has happened is forgotten, and the app's next process restores what is in its file. Not while one is there,
    /// which may have set a limit that is smaller than a single answer.
    private func beginAgain() {
        Log.warning("\(log.entries.count) events wait for the app of \(hello.statePath): it begins again without them")
        log.giveUp()
    }

    /// An event that means nothing to another process, and overtakes others.
    private func pass(_ frame: Frame) {
        if isWelcome { connection?.send(frame) }
    }

    /// How far the app has come. What it writes is not believed beyond what it can have: the descriptors of the last
    /// event are kept until they are sent.
    private var delivered: UInt64 {
        let isWhole = connection?.hasRoom ?? true
        return min(page.delivered, isWhole || sent == 0 ? sent : sent - 1)
    }

    /// The app has delivered some.
    private func trim() {
        let delivered = delivered
        log.trim(upTo: delivered)
        while let first = noted.first, first.number <= delivered {
            role?.heard(first.event)
            noted.removeFirst()
        }
    }

    /// Hands the connection what it has room for.
    private func pump() {
        guard let connection, isWelcome else { return }
        while connection.hasRoom {
            let batch = log.batch(after: sent, bytes: KeeperConnection.most)
            guard let last = batch.last else { return }
            sent = last.number
            connection.send(batch.lazy.map(\.frame))
        }
    }

    // MARK: For people who ask

    var status: KeeperStatus {
        trim()
        return KeeperStatus(
            role: hello.role.rawValue, statePath: hello.statePath, app: connection?.process.number,
            since: history.since, events: log.entries.count, bytes: log.size, dropped: log.dropped(after: delivered),
            starts: relaunching.starts, lastStart: history.lastStart?.time, lastReason: history.lastStart?.reason,
            relaunch: "\(hello.relaunch)", isGivenUp: history.hasGivenUp)
    }
}
