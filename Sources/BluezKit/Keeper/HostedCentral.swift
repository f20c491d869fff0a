import BluezDBus
import BluezKitRestore
import Dispatch
import Foundation

/// The core of one app's central manager in a keeper: it continues when the app has died, and what the app has not
/// heard waits for its next process. Confined to the host's queue.
final class HostedCentral: CentralEventReceiver, @unchecked Sendable {  // holds: confined to `queue`
    private let queue: DispatchQueue
    private let page: DeliveryPage
    private let session: Session
    private var core: CentralManagerCore?
    private var log: EventLog
    private var hello: KeeperHello
    private var relaunching = RelaunchMachine()
    /// That of the app; nil: it has died.
    private var connection: KeeperConnection?
    /// Whether the app has been told what there is: events follow that.
    private var isWelcome = false
    /// The number of the last event that was handed to the connection.
    private var sent: UInt64 = 0
    /// That of the event which tells what was restored.
    private var restored: UInt64 = 0
    /// What the app has heard of the state last.
    private var heardState: CentralEvent?
    /// The states in the log.
    private var states: [(number: UInt64, event: CentralEvent)] = []
    /// What ends with the process of the app: the questions that it was asked, and its channels.
    private var questions: Set<Int> = []
    private var channels: [UInt32: DeviceIdentity] = [:]
    /// The app has released the manager.
    var onEnd: (@Sendable () -> Void)?

    init?(_ hello: KeeperHello, on queue: DispatchQueue, limits: EventLog.Limits) {
        guard let page = DeliveryPage(), let configuration = hello.central else { return nil }
        (self.queue, self.page, log) = (queue, page, EventLog(limits: limits))
        self.hello = hello
        session = Session.shared(
            Session.Key(address: BusAddress(hello.address), adapter: hello.adapter.map { AdapterChoice($0) }))
        let core = CentralManagerCore(
            central: session.central, of: session, receiver: self, place: queue, preserved: hello.preserved,
            configuration: configuration)
        self.core = core
        let session = session
        session.run { session.add(core) }
    }

    /// Whether a process of the app is there.
    var hasApp: Bool { connection != nil }

    // MARK: The app

    /// The first process of the app.
    func begin(with connection: KeeperConnection) {
        attach(connection)
        welcome(nil)
    }

    /// Whether it does what that app asks for: another version of the app may want another bus or adapter.
    func isFor(_ new: KeeperHello) -> Bool { hello.address == new.address && hello.adapter == new.adapter }

    /// Notices the end of an app that has died, and what it asked for before.
    func readAll() { connection?.readAll() }

    private func attach(_ connection: KeeperConnection) {
        relaunching.appCame(at: Self.now)
        (self.connection, isWelcome) = (connection, false)
        connection.onFrame = { [weak self] in self?.receive($0) }
        connection.onEnd = { [weak self, weak connection] in self?.appDied(connection) }
        connection.onRoom = { [weak self] in self?.pump() }
    }

    /// The next process of the app, after one has died.
    func handOver(to connection: KeeperConnection, _ hello: KeeperHello) {
        guard let core else { return }
        attach(connection)
        self.hello = hello
        let begun = min(page.begun, sent)
        if hello.isAtMostOnce, begun > page.delivered { page.delivered = begun }
        trim()
        // It may have been replaced, or have been of interest to that process alone.
        let repeatsFirst = begun > page.delivered && log.entries.first?.number == begun
        session.run { [self] in
            let kept = core.kept()
            queue.async { [self] in
                guard self.connection === connection else { return }
                // The app has heard nothing: it hears of what was restored from the beginning.
                guard !kept.isRestoring, restored <= delivered else { return welcome(nil) }
                welcome(
                    HandOver(
                        state: heardState, lastRequest: kept.lastRequest, scan: kept.scan?.request,
                        scanToken: kept.scan?.token ?? 0, peripherals: kept.peripherals,
                        dropped: log.dropped(after: delivered), repeatsFirst: repeatsFirst))
            }
        }
    }

    private func welcome(_ handOver: HandOver?) {
        guard let (bytes, _) = try? BorderFormat.encode(KeeperWelcome(handOver: handOver)) else { return }
        sent = delivered
        connection?.send(Frame(kind: .welcome, body: bytes, descriptors: [page.descriptor]))
        isWelcome = true
        pump()
    }

    private func receive(_ frame: Frame) {
        guard let core else { return frame.closeDescriptors() }
        do {
            if frame.kind != .request { frame.closeDescriptors() }
            switch frame.kind {
            case .request:
                let message = try BorderFormat.decode(CentralMessage.self, from: frame.body, frame.descriptors)
                core.send(message.request, generation: message.generation)
            case .query:
                let query = try BorderFormat.decode(KeeperQuery<DeviceQuery>.self, from: frame.body)
                answer(query, core)
            case .release: end()
            default: throw FrameReader.Failure.malformed
            }
        } catch {
            Log.warning("an app has sent what cannot be read, and is left: \(error)")
            connection?.end()
        }
    }

    private func answer(_ query: KeeperQuery<DeviceQuery>, _ core: CentralManagerCore) {
        let connection = connection
        // It waits for BlueZ.
        DispatchQueue.global().async { [queue] in
            let answer = KeeperAnswer(ticket: query.ticket, answer: core.knownDevices(query.query))
            queue.async {
                guard let (bytes, _) = try? BorderFormat.encode(answer) else { return }
                connection?.send(Frame(kind: .answer, body: bytes))
            }
        }
    }

    private func appDied(_ ended: KeeperConnection?) {
        guard ended === connection, let core else { return }
        connection = nil
        trim()
        log.appDied()
        for ticket in questions { core.send(.answerQuestion(ticket: ticket, accepts: false, passkey: nil)) }
        for (number, identity) in channels { core.send(.channelEnded(number, identity)) }
        (questions, channels) = ([], [:])
        session.run { [self] in
            let continues = core.continues
            queue.async { [self] in
                guard !hasApp else { return }
                // The app had nothing under way: it makes its manager again.
                guard continues || !log.entries.isEmpty else { return end() }
                act(relaunching.appDied(at: Self.now, isDue: log.entries.contains(where: \.startsApp)))
            }
        }
    }

    // MARK: Starting the app

    private static var now: Duration { .nanoseconds(Int64(DispatchTime.now().uptimeNanoseconds)) }

    private func act(_ action: RelaunchMachine.Action?) {
        guard let action, hello.relaunch != .never else { return }
        switch action {
        case .start:
            Log.debug("starting the app of \(hello.statePath)")
            Launcher.start(hello.relaunch) { [weak self, queue] reason in
                Log.warning("an app cannot be started: \(reason)")
                queue.async { [weak self] in
                    guard let self else { return }
                    act(relaunching.startFailed())
                }
            }
            wake(after: RelaunchMachine.starting)
        case .wait(let pause): wake(after: pause)
        case .giveUp:
            Log.warning("the app of \(hello.statePath) is not started any more, as it has ended at once too often")
        }
    }

    private func wake(after delay: Duration) {
        let starts = relaunching.starts
        queue.asyncAfter(deadline: .now().later(by: delay)) { [weak self] in
            guard let self, !hasApp, relaunching.starts == starts else { return }
            act(relaunching.timerFired())
        }
    }

    func end() {
        core?.release()
        core = nil
        connection?.end()
        connection = nil
        onEnd?()
    }

    // MARK: Events

    func receive(_ event: CentralEvent) {
        let kind = event.kindInLog
        if hasApp {
            follow(event)
        } else if kind == .passing {
            return decline(event)
        }
        if !hasApp, case .discovered(let identity, _, _) = event { log.forgetDiscovery(of: identity) }
        trim()
        let number = log.newNumber()
        do {
            log.append(
                EventLog.Entry(
                    number: number, kind: kind, frame: try Frame.event(number, event), startsApp: event.startsApp))
            if case .state = event { states.append((number, event)) }
            if case .restored = event { restored = number }
        } catch { return Log.warning("an event cannot be passed to the app: \(error)") }
        pump()
        if !hasApp, log.entries.last?.startsApp == true { act(relaunching.somethingHappened()) }
    }

    /// What ends with the process of the app.
    private func follow(_ event: CentralEvent) {
        guard case .peripheral(let identity, let event) = event else { return }
        switch event {
        case .question(_, let ticket): questions.insert(ticket)
        case .questionEnded: questions.removeAll()
        case .channelOpened(let number, _, _, _): channels[number] = identity
        case .channelEnded(let number), .endChannel(let number): channels[number] = nil
        default: break
        }
    }

    /// There is no process of the app that could use it.
    private func decline(_ event: CentralEvent) {
        switch event {
        case .peripheral(_, .question(_, let ticket)):
            core?.send(.answerQuestion(ticket: ticket, accepts: false, passkey: nil))
        case .peripheral(let identity, .channelOpened(let number, _, _, _)):
            core?.send(.channelEnded(number, identity))
        default: break
        }
    }

    /// How far the app has come. What it writes is not believed beyond what it can have.
    private var delivered: UInt64 { min(page.delivered, sent) }

    /// The app has delivered some.
    private func trim() {
        let delivered = delivered
        log.trim(upTo: delivered)
        while let first = states.first, first.number <= delivered {
            heardState = first.event
            states.removeFirst()
        }
    }

    /// Hands the connection what it has room for.
    private func pump() {
        guard let connection, isWelcome else { return }
        while connection.hasRoom, let next = log.entry(after: sent) {
            sent = next.number
            connection.send(next.frame)
        }
    }
}

extension CentralEvent {
    /// Whether an app is started for it (RS-5).
    fileprivate var startsApp: Bool {
        switch self {
        case .value, .discovered, .peripheral(_, .connected), .peripheral(_, .lost), .peripheral(_, .failed): true
        // Bluetooth was reset, which has ended all links: the app's own file has what is to be resumed.
        case .state(let state, _, _, _): state.value == .poweredOn
        default: false
        }
    }

    fileprivate var kindInLog: EventLog.Kind {
        switch self {
        case .value: .value
        case .discovered(let identity, _, _): .discovery(identity)
        case .bondRemoved: .passing
        case .peripheral(_, let event):
            switch event {
            case .written, .room, .question, .questionEnded, .channelOpened, .channelRefused, .endChannel,
                .channelEnded:
                .passing
            default: .other
            }
        default: .other
        }
    }
}
