import BluezDBus
import Dispatch
import Foundation

/// One device's connection, from the first request of an app until no app uses it any longer: carries out what its
/// ``LinkStateMachine`` decides, and shares its link among the apps' peripherals. Confined to the bus queue.
final class DeviceConnection: CustomStringConvertible {
    let device: Device
    private let central: CentralRole
    private var machine: LinkStateMachine
    /// The attributes of the link, or of the one that is being made. Replaced when that has ended.
    private(set) var client: GATTClient
    /// The L2CAP channels of the link. Replaced with ``client``.
    private(set) var channels: LinkChannels
    /// The peripherals that use the link. Few: one for each manager at most.
    private(set) var clients: [PeripheralCore] = []
    private var ownership: LinkOwnership
    /// `Connect` is on its way.
    private var attempt: ConnectAttempt?
    /// It was on its way when the last link ended.
    private var earlierAttempt: ConnectAttempt?
    private var loss: LinkLoss
    /// When the last link has ended.
    private var downSince = CFAbsoluteTime(0)
    private var timer: (any DispatchSourceTimer)?
    private var matchRules: [MatchRule] = []
    private var isPausingDiscovery = false
    /// A discovery runs so that the kernel connects.
    private var isDiscovering = false

    init(of device: Device, in central: CentralRole) {
        (self.device, self.central) = (device, central)
        machine = LinkStateMachine(timing: central.bus.timing.link)
        loss = LinkLoss(timing: central.bus.timing.link)
        ownership = LinkOwnership(of: device.identity.identifier)
        client = GATTClient(of: device, in: central)
        channels = LinkChannels(of: device, in: central)
    }

    private var bus: BlueZBus { central.bus }
    /// For `Disconnect`, which must not overtake `Connect`.
    private var caller: BlueZProxy? { client.countedProxy(device.path, BlueZ.device) }
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
        client.awaitMTU { [weak self, weak core] in
            if let self, let core, isUp, core.request != nil, !core.isUp { core.announceConnection() }
        }
    }

    func add(_ core: PeripheralCore) {
        if !clients.contains(where: { $0 === core }) { clients.append(core) }
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
            central.pairing.endQuestion(about: device.path)
        }
        if changes.contains(.name), let name = device.properties.name { clients.forEach { $0.nameChanged(name) } }
        if changes.contains(.connected), phase != .checking || !central.adapter.mayReportStaleLinks {
            handle(.connectedChanged(device.properties.isConnected))
        }
        if changes.contains(.advertisement) {
            central.connects.hear(device)
            handle(.seen)
        }
        if changes.contains(.servicesResolved), device.properties.areServicesResolved {
            loss.linkWorks()
            client.servicesResolved()
        }
    }

    /// BlueZ 5.83 and later say why a link ended, right before it ends.
    func recordDisconnect(reason: String, message: String) { loss.record((reason, message)) }

    func deviceRemoved() {
        client.forgetTable()
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

    private func apply(_ actions: [LinkStateMachine.Action]) {
        for action in actions {
            guard isAttached else { break }
            switch action {
            case .readDevice: readDevice()
            case .connect: connect()
            case .disconnect: disconnect()
            case .disconnectAgain: ownership.mayEndAgain ? callDisconnect() : handle(.kept)
            case .look(let looks): central.discovery.listen(looks, for: device)
            case .queue:
                central.connects.request(device, isHeard: device.wasHeard(within: bus.timing.connect.inRange))
            case .startTimer(let delay): startTimer(delay)
            case .startBackOff(let delay): startTimer(delay * Double.random(in: 0.75...1.25))
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

    private func startTimer(_ delay: Duration) {
        stopTimer()
        timer = bus.timer(delay) { [weak self] in
            self?.stopTimer()
            self?.handle(.timerFired)
        }
    }

    private func stopTimer() {
        timer?.cancel()
        timer = nil
    }

    private func pauseDiscovery(_ pauses: Bool) {
        guard isPausingDiscovery != pauses else { return }
        isPausingDiscovery = pauses
        central.discovery.pause(pauses)
    }

    /// What an attempt changes of discovery ends with it, however it ends.
    private func endDiscoveryChanges() {
        pauseDiscovery(false)
        discover(false)
    }

    private func discover(_ discovers: Bool) {
        guard isDiscovering != discovers else { return }
        isDiscovering = discovers
        central.discovery.listen(discovers, for: device)
    }

    /// BlueZ has the device under another path: a question about the old one cannot be answered.
    func pathChanges() { central.pairing.endQuestion(about: device.path) }

    /// The signals of the device and its attributes.
    func updateMatchRules() {
        for rule in matchRules { bus.connection?.removeMatch(rule) }
        let (interface, member) = ("org.freedesktop.DBus.Properties", "PropertiesChanged")
        matchRules = [
            // The bus allows some hundred rules: where many wait, those that come last share one.
            central.connected.count <= 64
                ? MatchRule(sender: BlueZ.busName, path: device.path)
                : MatchRule(sender: BlueZ.busName, interface: interface, member: member, argument0: BlueZ.device),
            // Of all devices: one rule for each link is not possible (see MatchRule).
            MatchRule(sender: BlueZ.busName, interface: interface, member: member, argument0: BlueZ.characteristic),
            MatchRule(sender: BlueZ.busName, interface: interface, member: member, argument0: BlueZ.service),
        ]
        for rule in matchRules { bus.connection?.addMatch(rule) }
    }

    // MARK: Asking BlueZ

    /// Asks in one go whether BlueZ knows the device, and whether it has attributes of it already: those will not be
    /// announced again.
    private func readDevice() {
        if central.adapter.mayReportStaleLinks { return handle(.linkIsEnding) }
        // Not where BlueZ has been asked to connect already: that would hold up all others.
        if phase == .checking, let pause = central.unanswered.pause(of: device.identity) { return startTimer(pause) }
        let wasLeased = isLeased
        ask { [weak self] isConnected in
            guard let self else { return }
            ownership.settle(isConnected: isConnected == true)
            if isConnected == true, !ownership.isOurs, phase == .checking {
                // The link cannot be used any more, and there can be a new one soon.
                do { try ownership.share(leaseName, for: statePaths) } catch { return handle(.linkIsEnding) }
                if wasLeased, !isLeased { return handle(.linkIsEnding) }
            }
            client.readUnreadObjects()
            handle(.deviceRead(connected: isConnected))
        }
    }

    /// - Parameter answered: Gets whether it is connected; nil: BlueZ does not know it. Not called if the link has
    ///   ended meanwhile.
    func ask(hasFollowed: Bool = false, answered: @escaping (_ isConnected: Bool?) -> Void) {
        guard bus.connection != nil else { return }
        client.readTable()
        client.ask(device.path, BlueZ.device) {
            $0.getAll(completion: $1)
        } answered: { [weak self, weak client] result in
            guard let self, client?.isCurrent == true else { return }
            var isConnected: Bool?
            switch result {
            case .success(let reply):
                applyProperties(in: reply)
                isConnected = device.properties.isConnected
            case .failure(let error) where !BlueZErrorName.meansUnknownObject(error.name):
                isConnected = false  // try, and let Connect tell what is wrong
            case .failure where !hasFollowed:
                return central.store.follow(device, self) { [weak self] mustLookAgain in
                    guard mustLookAgain else { return answered(nil) }
                    self?.ask(hasFollowed: true, answered: answered)
                }
            case .failure: break
            }
            central.store.adoptIdentity(of: device)
            answered(isConnected)
        }
    }

    private func applyProperties(in reply: Message) {
        device.markPresent()
        var reader = reply.reader
        do throws(BusError) { _ = try device.apply(&reader, uuids: central.store.uuids) } catch {
            Log.warning("\(device.path): \(error.message)")
        }
        if device.properties.isBonded { client.bondAnnounced() }
        for core in clients {
            if let name = device.properties.name { core.updateName(name) }
            core.updateBond(device.properties.isBonded)
        }
    }

    // MARK: Connecting

    private func connect() {
        guard bus.connection != nil else { return }
        // It tries again after a moment.
        guard client.takeLane(), let lane = client.calls.lane, let caller,
            let proxy = client.proxy(device.path, BlueZ.device)
        else { return handle(.connectReply(.transient)) }
        let attempt: ConnectAttempt
        do throws(LinkLease.IsEnding) {
            attempt = ConnectAttempt(hasExistingLease: try ownership.take(leaseName, for: statePaths))
        } catch {
            // Another process is ending the link: an attempt would be cut with it.
            return handle(.connectReply(.transient))
        }
        self.attempt = attempt
        AdvertisedServices.record(device)
        pauseDiscovery(true)
        let timing = bus.timing.connect
        let needsDiscovery = timing.bondsNeedDiscovery && device.properties.isBonded
        bus.after(needsDiscovery ? timing.bondedPause : timing.discoveryPause) { [weak self, weak client] in
            guard let self, client?.isCurrent == true, self.attempt === attempt else { return }
            pauseDiscovery(false)
            discover(needsDiscovery && phase == .attempting)
        }
        let identity = device.identity
        // The lane lasts as long as the call.
        let replied: BlueZProxy.Completion = {
            [weak self, weak device, weak bus, lane, weak unanswered = central.unanswered] result in
            attempt.call.ended(result.failure)
            if attempt.call.isOverdue { unanswered?.record(attempt.call, about: identity, on: lane) }
            if attempt.isAnswered, result.failure == nil {
                // BlueZ had forgotten the device, so that the `Connect` had failed, and heard it again before it came
                // to that call: the link is this process's.
                if let connection = device?.connection, connection.isWanted { return connection.claimLateLink() }
                bus?.disconnect(caller, mayCall: { device?.connection?.isWanted != true })
                return
            }
            self?.replied(to: attempt, result)
        }
        device.connect(by: proxy, completion: lane.inOrder(replied))
    }

    private func claimLateLink() { if !ownership.isOurs { _ = try? ownership.take(leaseName, for: statePaths) } }

    private func replied(to attempt: ConnectAttempt, _ result: Result<Message, BusError>) {
        guard attempt.answer() else { return }
        let isCurrent = attempt === self.attempt
        if isCurrent ? isUp : attempt === earlierAttempt {
            // Also where the bus answers in the place of a bluetoothd that has crashed.
            result.failure == nil ? loss.attemptSucceeded(at: .now()) : loss.attemptFailedWhileUp(at: .now())
            if phase == .lost { holdLoss() }
        }
        guard isCurrent else { return }
        self.attempt = nil
        endDiscoveryChanges()
        guard let error = result.failure else { return handle(.connectReply(nil)) }
        Log.debug("connect \(device.path): \(error.name) \(error.message)")
        let failure = device.attemptFailed(error)
        if attempt.endsLease(after: error, isWanted: phase == .attempting) { ownership.ended() }
        handle(.connectReply(failure))
    }

    private func disconnect() {
        endDiscoveryChanges()
        guard ownership.beginEnding() else {
            Log.debug("\(device.path): other programs use the link, which stays")
            return handle(.kept)
        }
        callDisconnect()
    }

    private func callDisconnect() {
        guard let proxy = caller else { return }
        let answered = { [weak self, weak client] (result: Result<Message, BusError>) in
            guard let self, client?.isCurrent == true else { return }
            if let error = result.failure, !BlueZErrorName.isAnswer(result) {
                device.warnStillConnected(error)
                // The file stays, as that of an orphaned link. Not if the link ends in the next seconds.
                if !device.properties.isConnected { ownership.abandon() }
            } else if result.failure.map({ BlueZErrorName.meansUnknownObject($0.name) }) ?? true {
                // Until it is answered, or the link has gone: then the lease goes, and not before.
                ownership.ended()
            }
            handle(.disconnectReply)
        }
        let wasOurs = ownership.isOurs
        let mayCall = { [weak self, weak client] in
            // Not when it has ended meanwhile: there may be a new link soon.
            guard let self, client?.isCurrent == true, phase == .closing else { return false }
            guard wasOurs, !ownership.isOurs else { return true }
            handle(.kept)  // what BlueZ is at is another program's
            return false
        }
        bus.disconnect(proxy, mayCall: mayCall, answered: answered)
    }

    // MARK: The link is there, or has gone

    private func linkUp() {
        endDiscoveryChanges()
        ownership.settle(isConnected: true)
        if !ownership.isOurs { try? ownership.share(leaseName, for: statePaths) }
        loss.reset()
        device.linkUp()
        client.linkUp()
        for core in clients where core.request != nil && !core.isUp { announce(core) }
        // BlueZ may have told what is below the device while the attempt ran.
        client.continueReading()
    }

    /// The link has ended. Those who have cancelled hear of it now; those who have not, by ``reportLoss()``.
    private func linkDown() {
        downSince = CFAbsoluteTimeGetCurrent()
        loss.linkEnded(at: .now())
        if client.answerRunning != nil, !device.properties.isBonded {
            loss.endedUnanswered(isPairing: client.awaitsBond)
        }
        endGeneration(keepsLease: phase == .lost)
        for core in clients {
            for _ in 0..<core.pendingCancels { core.reportRequestedDisconnect() }
            if core.request == nil, core.pendingCancels > 0 { clients.removeAll { $0 === core } }
            core.linkEnded()
        }
    }

    private func holdLoss() {
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
    var mayHaveLostBond: Bool { loss.mayHaveLostBond(at: .now()) }

    /// BlueZ began to pair for the operation that runs. Refused, it never answers that, nor anything that follows on
    /// this link, and forgets the device 30 s later (seen with 5.66). So both end now.
    func pairingRefused() {
        channels.pairingRefused()
        guard client.mayPairForOperation else { return }
        endUseless(
            (DisconnectReason.authentication, "pairing was refused"),
            failing: .remote(name: BlueZErrorName.notPermitted, message: BlueZErrorName.notPaired))
    }

    /// The running operation was not answered in time.
    func operationTimedOut() {
        endUseless((DisconnectReason.timeout, "a request was not answered in time"), failing: .timedOut)
    }

    /// BlueZ will never answer a call of the running operation, which is over.
    func callWasLost() {
        let isLeftAlone = central.unanswered.pause(of: device.identity) != nil
        guard isUp, !client.calls.isHalted, isLeftAlone || client.calls.burdenLane(bus.timing.unanswered) else {
            return
        }
        endUseless((DisconnectReason.unanswered, "BlueZ does not answer"), failing: .timedOut)
    }

    /// Ends a link on which BlueZ answers nothing any more.
    /// - Parameter failure: What the operation gets that runs.
    private func endUseless(_ reason: LinkLoss.Reason, failing failure: BusError) {
        loss.recordOwn(reason)
        client.halt(failure)
        guard let proxy = caller else { return }
        bus.disconnect(proxy, mayCall: { [weak client] in client?.isCurrent == true })
    }

    /// BlueZ has not answered some operations of the link that has ended. If it does not because of that it never will,
    /// and may use freed memory when the attribute is used again (``BlueZDifference/keptOperation``): then it is made
    /// to forget the device. Not if that would cost a bond, or a link.
    private func forgetIfStuck() {
        let (device, calls) = (device, client.calls)
        let isPending = { calls.abandoned.contains { !$0.isAnswered && !$0.isOfRemovedAttribute } }
        guard isPending(), let caller, let adapter = device.path.parent else { return }
        // What it answers because of the end of the link comes before this answer.
        caller.get("Connected") { [bus, weak unanswered = central.unanswered] result in
            var reader = (try? result.get())?.reader
            let isConnected = try? reader?.readVariant { (value) throws(BusError) in try value.readBool() }
            guard isPending(), isConnected == false, !device.properties.isBonded else { return }
            Log.debug("\(device.path): forgotten, as BlueZ has not answered an operation")
            bus.ask(adapter, BlueZ.adapter, counting: { unanswered?.counting(device, on: $0) }) {
                $0.removeDevice(device.path, completion: $1)
            } answered: { _ in
            }
        }
    }

    /// Of the old link nothing is answered or delivered any more.
    private func endGeneration(keepsLease: Bool = false) {
        endDiscoveryChanges()
        client.end()
        (earlierAttempt, attempt) = (attempt, nil)
        if !keepsLease { device.properties.isConnected ? ownership.abandon() : ownership.ended() }
        central.pairing.endQuestion(about: device.path)
        device.markDisconnected()
        client.endSubscriptions()
        forgetIfStuck()
        client = GATTClient(of: device, in: central)
        channels.end()
        channels = LinkChannels(of: device, in: central)
    }

    func dropIfUnused() {
        guard isAttached, clients.isEmpty, phase == .idle else { return }
        // BlueZ is at an attempt that another process has made, and has left to this one.
        if let proxy = caller, let lease = ownership.leftByOthers() {
            bus.disconnect(proxy, mayCall: { true }) { [device] result in
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

// MARK: - Links that several programs use

extension DeviceConnection {
    private var leaseName: String? { central.leaseName(of: device.path) }

    /// Whether programs with BluezKit have made the link, or the attempt.
    private var isLeased: Bool { central.isLeased(device) }

    /// Preserved state that wants the link.
    private var statePaths: [String] {
        clients.filter { $0.request != nil }.compactMap(\.manager.configuration.statePath)
    }

    func claim(for core: PeripheralCore) { core.manager.configuration.statePath.map { ownership.claim($0) } }

    /// Ends a link, or an attempt, that a process has left which has died.
    func endOrphan(_ lease: LinkLease) {
        ownership.inherit(lease)
        apply(machine.inherit())
    }
}
