import BluezDBus
import Dispatch

/// What is asked of BlueZ for a connection.
extension DeviceConnection {
    // MARK: Reading

    /// Asks in one go whether BlueZ knows the device, and whether it has attributes of it already: those will not be
    /// announced again.
    func readDevice() {
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
            client.reader.readUnreadObjects()
            handle(.deviceRead(connected: mustBeHeard ? nil : isConnected))
            awaitSilentLink()
        }
    }

    /// It is connected by classic Bluetooth alone. An attempt cannot be called off then without ending that link, so it
    /// is made when an advertisement shows that it will go well.
    private var mustBeHeard: Bool { device.properties.hasOnlyClassicLink && device.properties.rssiDBm == nil }

    /// BlueZ signals no LE link that joins one of classic Bluetooth, and the device may not advertise in it: the kernel
    /// is asked while such a link may be what a connect waits for.
    func awaitSilentLink() {
        guard phase == .looking, device.properties.hasOnlyClassicLink, timer == nil else { return }
        startTimer(bus.timing.link.silentLink) { connection in
            guard connection.phase == .looking, connection.device.properties.hasOnlyClassicLink else { return }
            guard connection.central.store.links.bearers(of: connection.device.properties).contains(.le) else {
                return connection.awaitSilentLink()
            }
            connection.ask { [weak connection] isConnected in
                if isConnected == true {
                    connection?.handle(.connectedChanged(true))
                } else {
                    connection?.awaitSilentLink()
                }
            }
        }
    }

    /// - Parameter answered: Gets whether it is connected; nil: BlueZ does not know it. Not called if the link has
    ///   ended meanwhile.
    func ask(hasFollowed: Bool = false, answered: @escaping (_ isConnected: Bool?) -> Void) {
        guard bus.connection != nil else { return }
        client.reader.read()
        central.unanswered.ask(about: device, device.path, BlueZ.device) {
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
        let store = central.store
        var reader = reply.reader
        do throws(BusError) { _ = try device.apply(&reader, uuids: store.uuids, links: store.links) } catch {
            Log.warning("\(device.path): \(error.message)")
        }
        if device.properties.isBonded { client.bondAnnounced() }
        for core in clients {
            if let name = device.properties.name { core.updateName(name) }
            core.updateBond(device.properties.isBonded)
        }
    }

    // MARK: Connecting

    func connect() {
        guard bus.connection != nil else { return }
        // It tries again after a moment.
        guard client.takeLane(), let lane = client.calls.lane, let caller,
            let proxy = client.proxy(device.path, BlueZ.device)
        else { return handle(.connectReply(.transient)) }
        let attempt: ConnectAttempt
        do throws(LinkLease.IsEnding) {
            let hasExistingLease = try ownership.take(leaseName, for: statePaths)
            attempt = ConnectAttempt(to: device, in: central, hasExistingLease: hasExistingLease)
        } catch {
            // Another process is ending the link: an attempt would be cut with it.
            return handle(.connectReply(.transient))
        }
        self.attempt = attempt
        AdvertisedServices.record(device)
        // BlueZ chooses classic Bluetooth where only that is bonded (src/device.c, `select_conn_bearer`).
        madeClassicLink = madeClassicLink || !central.store.links.hasClassicLink(to: device.linkIdentity)
        attempt.begin(by: proxy, on: lane, caller: caller) { [weak self] in self?.replied(to: attempt, $0) }
        if central.store.hadLink(device.path) { callOffIfLost(attempt) }
    }

    /// bluetoothd may lose a `Connect` that comes in the moment in which the last link ends: the end closes the socket
    /// of the new attempt as well (src/device.c, `att_disconnected_cb`), and the call is not answered. It looks like
    /// that of a device which is away; so it is called off once, and another one begins.
    private func callOffIfLost(_ attempt: ConnectAttempt) {
        attempt.mayBeLost = true
        bus.after(bus.timing.link.lostConnect) { [weak self, weak attempt] in
            guard let self, let attempt, attempt === self.attempt, phase == .attempting else { return }
            Log.debug("\(device.path): no answer after the end of a link: BlueZ may have lost the attempt")
            device.clearLastSeen()
            handle(.connectUnanswered)
        }
    }

    /// BlueZ has made the link after all.
    func claimLateLink() { if !ownership.isOurs { _ = try? ownership.take(leaseName, for: statePaths) } }

    func replied(to attempt: ConnectAttempt, _ result: Result<Message, BusError>) {
        guard attempt.answer() else { return }
        let isCurrent = attempt === self.attempt
        if isCurrent ? isUp : attempt === earlierAttempt {
            // Also where the bus answers in the place of a bluetoothd that has crashed.
            result.failure == nil
                ? loss.attemptSucceeded(at: DispatchQueue.now) : loss.attemptFailedWhileUp(at: DispatchQueue.now)
            if phase == .lost { holdLoss() }
        }
        guard isCurrent else { return }
        if let error = result.failure { Log.debug("connect \(device.path): \(error.name) \(error.message)") }
        // BlueZ 5.81 and later would refuse each attempt from now on.
        if result.failure == .timedOut, phase == .attempting {
            attempt.mayBeLost = true
            return handle(.connectUnanswered)
        }
        self.attempt = nil
        guard let error = result.failure else {
            refusedSince = nil
            handle(.connectReply(nil))
            // BlueZ signals nothing when a device that is connected by classic Bluetooth gets its LE link.
            if phase == .settling, device.properties.hasOnlyClassicLink { handle(.timerFired) }
            return
        }
        let failure = device.attemptFailed(error)
        if attempt.endsLease(after: error, isWanted: phase == .attempting) {
            ownership.ended()
            madeClassicLink = false
        }
        handle(isRefusedForLong(failure) ? .slotOver : .connectReply(failure))
    }

    /// Whether BlueZ has refused each attempt for longer than one takes: it is at a `Connect` that it has lost, of a
    /// process that has died. It is called off unless others use the lease.
    private func isRefusedForLong(_ failure: LinkStateMachine.Failure) -> Bool {
        guard failure == .inProgress, ownership.isOurs, central.adapter.daemon.refusesSecondConnect else {
            refusedSince = nil
            return false
        }
        let since = refusedSince ?? DispatchQueue.now
        let isLong = since.later(by: BlueZTiming.Deadline.connect) <= DispatchQueue.now
        refusedSince = isLong ? nil : since
        return isLong
    }

    func disconnect() {
        attempt?.endDiscoveryChanges()
        // `Disconnect` would end the link of classic Bluetooth as well, which other programs use, unless it is ours.
        // BlueZ gives up an attempt after 40 s.
        if central.store.links.hasClassicLink(to: device.linkIdentity, isOurs: madeClassicLink) {
            ownership.ended()
            return handle(.kept)
        }
        guard blocksOthers || ownership.beginEnding() else {
            Log.debug("\(device.path): other programs use the link, which stays")
            return handle(.kept)
        }
        callDisconnect()
    }

    /// BlueZ may have lost the `Connect` of this process, and refuses those of others until it is called off.
    private var blocksOthers: Bool {
        attempt?.mayBeLost == true && !device.properties.isConnected && central.adapter.daemon.refusesSecondConnect
    }

    func callDisconnect() {
        guard let proxy = caller else { return }
        let endsLink = attempt == nil
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
            if endsLink, result.failure == nil { central.store.linkEnded(device.path) }
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

    // MARK: Signals

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

    // MARK: Links that several programs use

    var leaseName: String? { central.leaseName(of: device.path) }

    /// Whether programs with BluezKit have made the link, or the attempt.
    var isLeased: Bool { central.isLeased(device) }

    /// Preserved state that wants the link.
    var statePaths: [String] {
        clients.filter { $0.request != nil }.compactMap(\.manager.configuration.statePath)
    }

    func claim(for core: PeripheralCore) { core.manager.configuration.statePath.map { ownership.claim($0) } }
}
