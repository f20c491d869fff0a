import BluezKitRestore
import BluezDBus
import Foundation

/// One manager's advertisement. Carries out what ``AdvertiserStateMachine`` decides. Confined to the bus queue.
final class Advertiser {
    /// The owner, which each caller holds.
    private unowned let core: PeripheralManagerCore
    private let bus: BlueZBus
    private let adapter: AdapterController
    private var machine = AdvertiserStateMachine()
    /// What the app wants to advertise, while it does.
    private var content: Advertisement?
    /// The start that is under way is not the app's: it hears of no answer.
    private var isResuming = false
    /// Which of the app's starts that was.
    private var token: UInt64 = 0
    /// The app has undone those before this one.
    private var firstToken: UInt64 = 0
    /// Advertisements on the bus, by their attempts: one, and those that are being withdrawn.
    private var onAir: [Int: PublishedAdvertisement] = [:]

    init(of core: PeripheralManagerCore) { (self.core, bus, adapter) = (core, core.bus, core.role.adapter) }

    /// Whether the app wants it on the air.
    var isWanted: Bool { machine.phase != .off }

    /// Whether it asks who connects for services.
    var isSoliciting: Bool { machine.phase != .off && content?.solicitedServices.isEmpty == false }

    // MARK: The app's wishes

    /// - Parameter isResumed: The app did not ask, and hears of no answer.
    func start(_ request: AdvertisementRequest, token: UInt64, isResumed: Bool) {
        guard adapter.state == .poweredOn, token >= firstToken else { return }
        if isResumed, isWanted {
            // A keeper has it already, and the app's next process does not know.
            self.token = token
            return
        }
        let content: Advertisement
        do throws(CBError) { content = try Advertisement(request) } catch {
            return core.post(
                .advertising(isOnAir: false, token: token, AppError(error), isResumed: isResumed))
        }
        if machine.phase == .off {
            (self.content, self.token) = (content, token)
            isResuming = isResumed
        }
        if !content.omittedServices.isEmpty, machine.phase == .off {
            let names = content.omittedServices.map(\.uuidString).joined(separator: ", ")
            Log.warning(
                "not advertised, because there is no room: \(names) (\(content.size) of \(Advertisement.room) bytes are used)"
            )
        }
        apply(machine.start())
    }

    /// - Parameter token: That of the app's next start; nil: the app has not asked for it.
    func stop(before token: UInt64? = nil) {
        bus.assertOnQueue()
        if let token { firstToken = token }
        apply(machine.stop())
    }

    // MARK: What the machine decides

    private func apply(_ actions: [AdvertiserStateMachine.Action], error: (any Error)? = nil) {
        for action in actions {
            switch action {
            case .register(let attempt): register(attempt)
            case .unregister(let attempt): onAir[attempt]?.withdraw()
            case .confirm: answer(nil, isOnAir: true)
            case .fail: answer(error, isOnAir: false)
            case .refuse: answer(CBError(.alreadyAdvertising), isOnAir: true)
            }
        }
    }

    private func answer(_ error: (any Error)?, isOnAir: Bool) {
        let (token, isResumed) = (token, isResuming)
        isResuming = false
        core.post(.advertising(isOnAir: isOnAir, token: token, error.map(AppError.init), isResumed: isResumed))
    }

    private func register(_ attempt: Int) {
        guard let adapterPath = adapter.path, let content, bus.connection != nil else { return }
        let published = PublishedAdvertisement(content, attempt: attempt, of: core, on: adapterPath)
        onAir[attempt] = published
        published.submit()
    }

    // MARK: What becomes of it

    /// Whether the app still waits for that attempt.
    func isStarting(_ attempt: Int) -> Bool { machine.isStarting(attempt) }

    /// BlueZ has answered an attempt, or has no room for it.
    func replied(_ attempt: Int, _ error: (any Error)?) { apply(machine.replied(attempt, error == nil), error: error) }

    /// Its object has left the bus.
    func unexported(_ attempt: Int) { onAir[attempt] = nil }

    /// BlueZ has taken it off the air: the adapter goes, or the daemon ends.
    func released(_ attempt: Int) {
        bus.assertOnQueue()
        guard attempt == machine.attempt, machine.phase == .on else { return }
        machine.lost()
        core.post(.advertisingReleased(token: token))
    }
}
