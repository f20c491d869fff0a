import BluezDBus
import BluezKitRestore
import Dispatch
import Foundation

/// The core of a central manager in a keeper.
final class HostedCentral: HostedRole, @unchecked Sendable {  // holds: confined to the host's queue
    typealias Side = CentralSide

    private let session: Session
    private let core: CentralManagerCore
    /// What the app has heard of the state last.
    private var heardState: CentralEvent?
    /// The numbers that the app has used last.
    private var last = (request: UInt32(0), scanToken: UInt64(0))
    // What ends with a process of the app: the questions that it was asked, and its channels.
    private var questions: [Int: DeviceIdentity] = [:]
    private var channels: [UInt32: DeviceIdentity] = [:]
    /// What has become of the writes without response that have come at once.
    private var gathered: [DeviceIdentity: GatheredProgress] = [:]

    init(_ core: CentralManagerCore, in session: Session) { (self.core, self.session) = (core, session) }

    func kind(of event: CentralEvent) -> EventLog.Kind {
        switch event {
        case .value: .value
        case .discovered(let identity, _, _): .discovery(identity)
        case .bondRemoved, .connectionEvent: .passing
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

    func reason(of event: CentralEvent) -> String? {
        switch event {
        case .value: "a value"
        case .discovered: "a discovery"
        case .peripheral(_, .connected): "a connect"
        case .peripheral(_, .lost): "the end of a link"
        case .peripheral(_, .failed): "a failed connect"
        // Bluetooth was reset, which has ended all links: the app's own file has what is to be resumed.
        case .state(let state, _, _, _) where state.value == .poweredOn: "Bluetooth is on"
        default: nil
        }
    }

    func isRestoration(_ event: CentralEvent) -> Bool { if case .restored = event { true } else { false } }

    func isNoted(_ event: CentralEvent) -> Bool { state(in: event) != nil }
    func heard(_ event: CentralEvent) { heardState = event }

    func state(in event: CentralEvent) -> CBManagerState? {
        if case .state(let state, _, _, _) = event { state.value } else { nil }
    }

    func checkpoint(in event: CentralEvent) -> UInt32? {
        if case .checkpoint(let number) = event { number } else { nil }
    }

    func asked(_ request: CentralRequest) {
        switch request {
        case .connect(_, let id, _), .connectAgain(_, let id, _, _), .resume(_, let id, _), .cancel(_, let id),
            .release(_, let id):
            last.request = max(last.request, id.request)
        case .startScan(_, let token): last.scanToken = max(last.scanToken, token)
        default: break
        }
    }

    func carryOut(_ message: CentralMessage) {
        guard case .perform(.writeWithoutResponse, let identity, let connectionID) = message.request else {
            return core.send(message.request, generation: message.generation)
        }
        // On this queue, where the bus is not busy.
        guard let progress = core.write(message.request, on: connectionID), progress != CommandProgress() else {
            return
        }
        gathered[identity, default: GatheredProgress()].add(progress, connectionID)
    }

    func answers() -> [CentralEvent] {
        defer { gathered.removeAll(keepingCapacity: true) }
        return gathered.compactMap { identity, progress in
            var progress = progress
            return progress.take().map { .peripheral(identity, .written($0, $1)) }
        }
    }

    func happened(_ event: CentralEvent, hasApp: Bool) {
        guard hasApp, case .peripheral(let identity, let event) = event else { return }
        switch event {
        case .question(_, let ticket): questions[ticket] = identity
        case .questionEnded: questions = questions.filter { $0.value != identity }
        case .channelOpened(let number, _, _, _): channels[number] = identity
        case .channelEnded(let number), .endChannel(let number): channels[number] = nil
        default: break
        }
    }

    func decline(_ event: CentralEvent) {
        switch event {
        case .peripheral(_, .question(_, let ticket)):
            core.send(.answerQuestion(ticket: ticket, accepts: false, passkey: nil))
        case .peripheral(let identity, .channelOpened(let number, _, _, _)):
            core.send(.channelEnded(number, identity))
        default: break
        }
    }

    func appDied() {
        for ticket in questions.keys { core.send(.answerQuestion(ticket: ticket, accepts: false, passkey: nil)) }
        for (number, identity) in channels { core.send(.channelEnded(number, identity)) }
        (questions, channels) = ([:], [:])
    }

    func answer(_ frame: Frame, _ reply: @escaping @Sendable (Frame) -> Void) throws {
        let query = try BorderFormat.decode(KeeperQuery<DeviceQuery>.self, from: frame.body)
        // It waits for BlueZ.
        DispatchQueue.global().async { [core] in
            let answer = KeeperAnswer(ticket: query.ticket, answer: core.knownDevices(query.query))
            if let (bytes, _) = try? BorderFormat.encode(answer) { reply(Frame(kind: .answer, body: bytes)) }
        }
    }

    func look(_ checkpoint: UInt32, _ found: @escaping @Sendable (HostedState) -> Void) {
        session.run { [core] in
            let kept = core.kept()
            found(
                HostedState(
                    continues: core.continues, isRestoring: kept.isRestoring, isScanning: kept.work.scan != nil,
                    work: .central(kept.work)))
            core.postCheckpoint(checkpoint)
        }
    }

    func work(_ state: HostedState) -> HandOver.Work {
        guard case .central(var work) = state.work else { return state.work }
        work.state = heardState
        // Those of a restoration are the core's.
        work.lastRequest = max(work.lastRequest, last.request)
        work.scanToken = max(work.scanToken, last.scanToken)
        return .central(work)
    }
}
