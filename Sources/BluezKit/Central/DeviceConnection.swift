import BluezDBus
import Dispatch
import Foundation

/// One device's connection, from the first request of an app until no app uses it any longer: carries out what its
/// ``LinkStateMachine`` decides, and shares its link among the apps' peripherals. Confined to the bus queue.
final class DeviceConnection: CustomStringConvertible {
    let device: Device
    let central: CentralRole
    private var machine: LinkStateMachine
    /// The attributes of the link, or of the one that is being made. Replaced when that has ended.
    private(set) var client: GATTClient
    /// The L2CAP channels of the link. Replaced with ``client``.
    private(set) var channels: LinkChannels
    /// The peripherals that use the link. Few: one for each manager at most.
    private(set) var clients: [PeripheralCore] = []
    var ownership: LinkOwnership
    /// `Connect` is on its way.
    var attempt: ConnectAttempt?
    /// It was on its way when the last link ended.
    var earlierAttempt: ConnectAttempt?
    /// A link of classic Bluetooth is what a `Connect` of ours has made: there was none before, and LE has not come up.
    var madeClassicLink = false
    /// Since when BlueZ answers each `Connect` with InProgress.
    var refusedSince: DispatchTime?
    var loss: LinkLoss
    /// When the last link has ended.
    private var downSince = CFAbsoluteTime(0)
    private(set) var timer: QueueTimer?
    var matchRules: [MatchRule] = []

    init(of device: Device, in central: CentralRole) {
        (self.device, self.central) = (device, central)
        machine = LinkStateMachine(timing: central.bus.timing.link)
        loss = LinkLoss(timing: central.bus.timing.link)
        ownership = LinkOwnership(of: device.identity.identifier)
        client = GATTClient(of: device, in: central)
        channels = LinkChannels(of: device, in: central)
    }

    var bus: BlueZBus { central.bus }
    /// For `Disconnect`, which must not overtake `Connect`.
    var caller: BlueZProxy? { client.countedProxy(device.path, BlueZ.device) }
    private var isAttached: Bool { device.connection === self }

    var description: String {
        "\(device.path): \(machine), connected \(device.properties.isConnected), "
            + "resolved \(device.properties.areServicesResolved), \(client)"
    }

    var phase: LinkStateMachine.Phase { machine.phase }
    var isUp: Bool { machine.phase == .up }
    var isWanted: Bool { clients.contains { $0.request != nil } }
    var isAttempting: Bool { attempt != nil }

    // MARK: What the apps ask for

    /// Makes the link that `core` wants, or tells it that it is there.
    func pursue(_ core: PeripheralCore) {
        claim(for: core)
        add(core)
        if isUp { announce(core) } else { handle(.want(true)) }
    }

    /// `didConnect`. A link that BlueZ has resolved already has an MTU, which the app finds then.
    private func announce(_ core: PeripheralCore) {
        client.reader.awaitMTU { [weak self, weak core] in
            if let self, let core, isUp, core.request != nil, !core.isUp { core.announceConnection() }
        }
    }

    func add(_ core: PeripheralCore) {
        if !clients.contains(where: { $0 === core }) { clients.append(core) }
        central.pairing.updateAgent()
    }

    func detach(_ core: PeripheralCore) { clients.removeAll { $0 === core } }

    func remove(_ core: PeripheralCore) {
        detach(core)
        dropIfUnused()
    }

    func cancel(_ core: PeripheralCore) {
        let wasUp = core.isUp
        endWork(of: core)
        // In the order of the calls: an earlier one may be waiting for the end of its link.
        if isWanted || !wasUp, core.pendingCancels == 0 {
            core.reportRequestedDisconnect()
            clients.removeAll { $0 === core }
        } else {
            core.awaitEndOfLink()
        }
        if !isWanted { handle(.want(false)) }
    }

    func release(_ core: PeripheralCore) {
        endWork(of: core)
        core.forgetCancels()
        clients.removeAll { $0 === core }
        if !isWanted { handle(.want(false)) }
        dropIfUnused()
    }

    private func endWork(of core: PeripheralCore) {
        core.endRequest()
        client.endWork(of: core)
        channels.end(of: core)
    }

    // MARK: What BlueZ says

    /// The device's properties have changed.
    func process(_ changes: DeviceProperties.Changes) {
        if changes.contains(.bonded) {
            clients.forEach { $0.updateBond(device.properties.isBonded) }
            if device.properties.isBonded { client.bondAnnounced() }
        }
        if changes.contains(.pairing) { central.pairing.endQuestion(about: device.path) }
        if changes.contains(.name), let name = device.properties.name { clients.forEach { $0.nameChanged(name) } }
        // What our `Connect` has made has ended: what comes now is another program's.
        if changes.contains(.connected), attempt == nil, !device.properties.isConnected,
            !device.properties.hasOnlyClassicLink
        {
            madeClassicLink = false
        }
        if changes.contains(.connected), phase != .checking || !central.adapter.mayReportStaleLinks {
            handle(.connectedChanged(device.properties.isConnected))
        }
        if changes.contains(.advertisement) {
            central.connects.hear(device)
            handle(.seen)
        }
        if changes.contains(.servicesResolved), device.properties.areServicesResolved {
            // BlueZ does not signal `Connected` of some links (src/device.c, `device_add_connection`).
            if phase == .attempting || phase == .settling { handle(.connectedChanged(true)) }
            loss.linkWorks()
            client.reader.servicesResolved()
        }
        awaitSilentLink()
    }

    /// BlueZ 5.83 and later say why a link ended, right before it ends.
    func recordDisconnect(reason: String, message: String) { loss.record((reason, message)) }

    /// BlueZ 5.84 and later say so of each bearer. If it was the last one they say it once more, of the device.
    func bearerEnded(reason: String, message: String) {
        let bearers = central.store.links.bearers(of: device.properties)
        guard bearers.contains(.classic) else { return }
        recordDisconnect(reason: reason, message: message)
        guard device.properties.isConnected else { return }
        device.markOnlyClassic()
        handle(.connectedChanged(false))
    }

    /// BlueZ has answered an operation with the ATT error 0x0e.
    func operationFailed() { loss.operationFailed(at: DispatchQueue.now) }

    func deviceRemoved() {
        client.reader.forget()
        handle(.connectedChanged(false))
        // BlueZ 5.66 never answers a `Connect` to what it forgets meanwhile.
        if phase == .attempting, let attempt {
            central.unanswered.record(attempt.call, about: device.identity, on: client.calls.lane)
            replied(to: attempt, .failure(ConnectFailure.forgotten))
        }
    }

    /// Bluetooth is off, or away.
    func bluetoothEnded() {
        device.markLinkLost()
        // A `Connect` on its way gets there when Bluetooth may be on again: what follows it calls it off.
        if attempt != nil { caller?.disconnect { _ in } }
        central.drop(self)
    }

    /// The connection to the bus is gone: the link stays, as far as is known, and so does its file.
    func abandonLease() { ownership.abandon() }

    // MARK: What the machine decides

    func handle(_ event: LinkStateMachine.Event) { apply(machine.handle(event)) }

    /// Ends a link, or an attempt, that a process has left which has died.
    func endOrphan(_ lease: LinkLease) {
        ownership.inherit(lease)
        apply(machine.inherit())
    }

    private func apply(_ actions: [LinkStateMachine.Action]) {
        for action in actions {
            guard isAttached else { break }
            switch action {
            case .readDevice: readDevice()
            case .connect: connect()
            case .disconnect, .disconnectAgain: disconnect()
            case .look(let looks): central.discovery.listen(looks, for: device)
            case .queue:
                central.connects.request(device, isHeard: device.wasHeard(within: bus.timing.connect.inRange))
            case .startTimer(let delay): startTimer(delay)
            case .startBackOff(let delay): startTimer(delay * bus.jitter)
            case .stopTimer: stopTimer()
            case .linkUp: linkUp()
            case .linkDown: linkDown()
            case .hold: holdLoss()
            case .tellLoss: reportLoss()
            case .giveUp: giveUp()
            }
        }
        if isAttached, !machine.holdsSlot { central.connects.end(device) }
        if isAttached, !machine.usesLink { client.leaveLane() }
        dropIfUnused()
    }

    /// One timer; a new one replaces the old.
    func startTimer(
        _ delay: Duration, fired: @escaping (DeviceConnection) -> Void = { $0.handle(.timerFired) }
    ) {
        stopTimer()
        timer = bus.timer(delay) { [weak self] in
            guard let self else { return }
            stopTimer()
            fired(self)
        }
    }

    private func stopTimer() {
        timer?.cancel()
        timer = nil
    }

    /// BlueZ has the device under another path: a question about the old one cannot be answered.
    func pathChanges() { central.pairing.endQuestion(about: device.path) }

    // MARK: The link is there, or has gone

    private func linkUp() {
        attempt?.endDiscoveryChanges()
        // BlueZ has made it, and has not answered in time.
        if attempt?.isAnswered == true { attempt = nil }
        (refusedSince, madeClassicLink) = (nil, false)
        ownership.settle(isConnected: true)
        if !ownership.isOurs { try? ownership.share(leaseName, for: statePaths) }
        loss.reset()
        device.linkUp()
        client.linkUp()
        for core in clients where core.request != nil && !core.isUp { announce(core) }
        // BlueZ may have told what is below the device while the attempt ran.
        client.reader.continueReading()
    }

    /// The link has ended. Those who have cancelled hear of it now; those who have not, by ``reportLoss()``.
    private func linkDown() {
        downSince = CFAbsoluteTimeGetCurrent()
        loss.linkEnded(at: DispatchQueue.now)
        if !device.properties.isBonded {
            if client.answerRunning != nil {
                loss.endedUnanswered(isPairing: client.awaitsBond)
            } else {
                loss.endedAnswered()
            }
        }
        endGeneration(keepsLease: phase == .lost)
        for core in clients {
            for _ in 0..<core.pendingCancels { core.reportRequestedDisconnect() }
            if core.request == nil, core.pendingCancels > 0 { clients.removeAll { $0 === core } }
            core.linkEnded()
        }
    }

    func holdLoss() {
        let isAwaited = clients.contains { $0.request?.wasUp == true }
        guard let delay = loss.hold(isAwaited: isAwaited, isBonded: device.properties.isBonded) else {
            return handle(.timerFired)
        }
        startTimer(delay)
    }

    /// Tells those who were connected. Others, who have begun to connect meanwhile, have lost nothing.
    private func reportLoss() {
        if loss.mayBeRefusal {
            let address = device.identity.addressText
            Log.warning(
                from: "unanswered \(bus.address) \(address)",
                "\(address) has ended the link in place of an answer, or was lost. A peripheral that refuses to pair does that, "
                    + "and BlueZ before 5.83 does not tell")
        }
        var reason = loss.takeReason(isBonded: device.properties.isBonded)
        if let pause = central.unanswered.pause(of: device.identity) {
            let text =
                "too many requests are unanswered: no link is made for \(Int((pause / .seconds(1)).rounded(.up))) s"
            Log.warning(from: device.path.rawValue, "\(device.identity.addressText): \(text)")
            let texts = [reason?.message, text].compactMap(\.self)
            reason = (reason?.name ?? DisconnectReason.unanswered, texts.joined(separator: "; "))
        }
        for core in clients where core.request?.wasUp == true {
            core.reportLoss(reason: reason, at: downSince)
            if core.request == nil { clients.removeAll { $0 === core } }
        }
        // If there is a link again it may be the old one, and is ours to end.
        ownership.doubt()
        if !device.properties.isConnected, !isWanted { ownership.ended() }
        handle(.lossTold(isWanted: isWanted))
    }

    /// No attempt will succeed: the apps hear why.
    private func giveUp() {
        let attempts = device.forgetAttempts()
        endGeneration()
        let error = coreBluetoothError(
            name: attempts.last?.name ?? "", message: attempts.last?.message ?? "", context: .connect,
            isBonded: device.properties.isBonded, attempts: attempts)
        for core in clients { core.fail(error) }
        clients.removeAll()
        _ = machine.handle(.want(false))
    }

    /// Whether an attempt has failed so that bluetoothd, if it has ended now, has crashed because of it.
    var mayHaveLostBond: Bool { loss.mayHaveLostBond(at: DispatchQueue.now) }

    /// The app has refused to pair.
    func pairingRefused() {
        channels.pairingRefused()
        client.pairingRefused()
    }

    /// Ends a link on which BlueZ answers nothing any more.
    /// - Parameter failure: What the operation gets that runs.
    func endUseless(_ reason: LinkLoss.Reason, failing failure: BusError) {
        loss.recordOwn(reason)
        client.halt(failure)
        guard let proxy = caller else { return }
        bus.disconnect(proxy, mayCall: { [weak client] in client?.isCurrent == true })
    }

    /// Of the old link nothing is answered or delivered any more.
    private func endGeneration(keepsLease: Bool = false) {
        attempt?.endDiscoveryChanges()
        client.end()
        (earlierAttempt, attempt, madeClassicLink) = (attempt, nil, false)
        if !keepsLease { device.properties.isConnected ? ownership.abandon() : ownership.ended() }
        central.pairing.endQuestion(about: device.path)
        device.markDisconnected()
        client.endSubscriptions()
        client.forgetIfStuck()
        client = GATTClient(of: device, in: central)
        channels.end()
        channels = LinkChannels(of: device, in: central)
    }

    func dropIfUnused() {
        guard isAttached, clients.isEmpty, phase == .idle else { return }
        // BlueZ is at an attempt that another process has made, and has left to this one.
        if let proxy = caller, let lease = ownership.leftByOthers() {
            // As in ``disconnect()``.
            let mayCall = { [device, madeClassicLink, weak central] in
                let links = central?.store.links
                guard links?.hasClassicLink(to: device.linkIdentity, isOurs: madeClassicLink) == true else {
                    return true
                }
                lease.end()
                return false
            }
            bus.disconnect(proxy, mayCall: mayCall) { [device] result in
                if BlueZErrorName.isAnswer(result) { return lease.end() }
                if let error = result.failure { device.warnStillConnected(error) }
            }
        }
        central.drop(self)
    }

    /// For ``CentralRole/drop(_:)``.
    func end() {
        stopTimer()
        central.connects.end(device)
        endGeneration()
        for rule in matchRules { bus.connection?.removeMatch(rule) }
        clients.forEach { $0.drop() }
        (matchRules, clients) = ([], [])
    }
}
