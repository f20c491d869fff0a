import DBus
import Dispatch
import Foundation

/// Connections: what the managers wish, and what becomes of it.
extension Session {
    // MARK: Wishes

    /// `connect(_:options:)`.
    /// - Parameter link: Which of the app's connects this is. Answers to an earlier one are not delivered.
    func connect(_ core: PeripheralCore, link token: UInt64, reconnects: Bool) {
        // The app may have cancelled or let go of it, or of the manager, since: it may have waited for its start delay.
        guard adapter.state == .poweredOn, core.link.load(ordering: .relaxed) == token,
            managers.contains(where: { $0 === core.manager }), let device = device(core.identity)
        else { return }
        core.device = device
        core.wish = PeripheralCore.Wish(link: token, reconnects: reconnects)
        if lostBonds.remove(device.identity) != nil { return refuse(core, on: device) }
        pursue(core, on: device)
    }

    /// `connect(_:options:)` of a peripheral that is connected, as far as the app knows (CN-4). If it is not any more the app
    /// will be told so.
    func connectAgain(_ core: PeripheralCore, link token: UInt64, reconnects: Bool) {
        guard core.isUp, core.wish?.link == token else { return }
        core.wish?.reconnects = reconnects
        announceConnection(of: core)
    }

    /// Sets about the core's wish.
    func pursue(_ core: PeripheralCore, on device: Device) {
        let link = device.link ?? makeLink(of: device)
        core.manager.statePath.map { link.lease?.claim(in: $0) }
        if !device.clients.contains(where: { $0 === core }) { device.clients.append(core) }
        if link.machine.phase == .up {
            announceConnection(of: core)
        } else {
            apply(link.machine.handle(.want(true)), to: device)
        }
    }

    func makeLink(of device: Device) -> Link {
        let link = Link()
        device.link = link
        linked.append(device)
        link.matchRules = matchRules(for: device)
        for rule in link.matchRules { bus?.addMatch(rule) }
        updateAgent()
        return link
    }

    func matchRules(for device: Device) -> [MatchRule] {
        let (interface, member) = ("org.freedesktop.DBus.Properties", "PropertiesChanged")
        return [
            // The bus allows some hundred rules: where many wait, those that come last share one.
            linked.count <= 64
                ? MatchRule(sender: BlueZ.busName, path: device.path)
                : MatchRule(sender: BlueZ.busName, interface: interface, member: member, argument0: BlueZ.device),
            // Of all devices: one rule for each link is not possible (see MatchRule).
            MatchRule(sender: BlueZ.busName, interface: interface, member: member, argument0: BlueZ.characteristic),
            MatchRule(sender: BlueZ.busName, interface: interface, member: member, argument0: BlueZ.service),
        ]
    }

    /// `cancelPeripheralConnection(_:)`: the app is told when the link is down, or at once if others use it.
    /// Each cancel has an answer of its own (CN-7).
    func cancel(_ core: PeripheralCore) {
        guard let device = core.device, let link = device.link, core.wish != nil else { return farewell(core) }
        let wasUp = core.isUp
        endWork(of: core, on: device, link)
        // In the order of the calls: an earlier one may be waiting for the end of its link.
        if device.isWanted || !wasUp, core.goodbyes == 0 {
            farewell(core)
            device.clients.removeAll { $0 === core }
        } else {
            core.goodbyes += 1
        }
        if !device.isWanted { apply(link.machine.handle(.want(false)), to: device) }
    }

    /// The app has released the peripheral, or its manager: as a cancel, but nobody is told.
    func release(_ core: PeripheralCore) {
        guard let device = core.device, let link = device.link else { return }
        endWork(of: core, on: device, link)
        core.goodbyes = 0
        device.clients.removeAll { $0 === core }
        if !device.isWanted { apply(link.machine.handle(.want(false)), to: device) }
        dropIfUnused(device)
    }

    private func endWork(of core: PeripheralCore, on device: Device, _ link: Link) {
        core.wish = nil
        core.isUp = false
        link.queue.removeWaiting { $0.core === core }
        unsubscribeAll(of: core, on: device)
    }

    /// `didDisconnectPeripheral` with no error: the app asked for it (CN-7).
    private func farewell(_ core: PeripheralCore) {
        core.manager.post { manager in
            guard let peripheral = core.peripheral else { return }
            peripheral.leave()
            manager.delegate?.centralManager(
                manager, didDisconnectPeripheral: peripheral, timestamp: CFAbsoluteTimeGetCurrent(),
                isReconnecting: false, error: nil)
        }
    }

    // MARK: What the machine decides

    func apply(_ actions: [LinkStateMachine.Action], to device: Device) {
        for action in actions {
            guard let link = device.link else { return }
            switch action {
            case .readDevice: readDevice(device, link)
            case .connect: attempt(device, link)
            case .disconnect: disconnect(device, link)
            case .disconnectAgain: callDisconnect(device, link)
            case .look(let looks):
                link.isLooking = looks
                updateDiscovery()
            case .queue: perform(turns.request(device.identity, isHeard: device.wasHeardOfLate))
            case .startTimer(let delay): startTimer(delay, device, link)
            case .startBackOff(let delay): startTimer(delay * Double.random(in: 0.75...1.25), device, link)
            case .stopTimer: stopTimer(link)
            case .linkUp: linkUp(device, link)
            case .linkDown: linkDown(device, link)
            case .hold: hold(device, link)
            case .tellLoss: tellLoss(device, link)
            case .giveUp: giveUp(device, link)
            }
        }
        if device.link?.machine.holdsTurn != true { perform(turns.end(device.identity)) }
        dropIfUnused(device)
    }

    // MARK: Turns

    func perform(_ actions: [ConnectScheduler<DeviceIdentity>.Action]) {
        turnActions += actions
        // What one of them leads to comes after the others.
        guard turnActions.count == actions.count else { return }
        while let action = turnActions.first {
            perform(action)
            if !turnActions.isEmpty { turnActions.removeFirst() }
        }
    }

    private func perform(_ action: ConnectScheduler<DeviceIdentity>.Action) {
        switch action {
        case .start(let identity): tell(.turn, to: identity)
        case .callOff(let identity): tell(.turnOver, to: identity)
        case .look(let looks):
            isLookingForTurns = looks
            updateDiscovery()
        case .startTimer(let delay):
            turnTimer?.cancel()
            turnTimer = blueZ.timer(delay) { [weak self] in
                guard let self else { return }
                perform(turns.timerFired())
            }
        case .stopTimer:
            turnTimer?.cancel()
            turnTimer = nil
        }
    }

    private func tell(_ event: LinkStateMachine.Event, to identity: DeviceIdentity) {
        guard let device = devicesByIdentity[identity], let link = device.link else {
            return perform(turns.end(identity))
        }
        // It must be heard anew before it counts as being there.
        if event == .turnOver { device.lastSeen = nil }
        apply(link.machine.handle(event), to: device)
    }

    func resetTurns() {
        turns.reset()
        turnActions = []
        turnTimer?.cancel()
        (turnTimer, isLookingForTurns) = (nil, false)
    }

    func proxy(_ device: Device) -> BlueZProxy? {
        bus.map { BlueZProxy(bus: $0, path: device.path, interface: BlueZ.device) }
    }

    /// Asks in one go whether BlueZ knows the device, and whether it has attributes of it already: those will not be
    /// announced again.
    private func readDevice(_ device: Device, _ link: Link) {
        if adapter.mayReportStaleLinks { return readDeviceLater(device, link) }
        let wasLeased = isLeased(device)
        ask(device, link) { [weak self] isConnected in
            guard let self, let link = device.link else { return }
            if isConnected == true, link.lease == nil, link.machine.phase == .checking {
                // Another program is ending the link, or has ended it since BlueZ was asked: it cannot be used any more,
                // and there can be a new one soon.
                do { link.lease = try sharedLease(of: device) } catch { return readDeviceLater(device, link) }
                if wasLeased, !isLeased(device) { return readDeviceLater(device, link) }
            }
            readUnreadObjects(device, link)
            apply(link.machine.handle(.deviceRead(connected: isConnected)), to: device)
        }
    }

    private func readDeviceLater(_ device: Device, _ link: Link) {
        let epoch = link.epoch
        blueZ.after(.milliseconds(100)) { [weak self, weak device] in
            guard let device, let link = device.link, link.epoch == epoch, link.machine.phase == .checking else {
                return
            }
            self?.readDevice(device, link)
        }
    }

    /// - Parameter answered: Gets whether it is connected; nil: BlueZ does not know it. Not called if the link has ended
    ///   meanwhile.
    func ask(
        _ device: Device, _ link: Link, hasFollowed: Bool = false, answered: @escaping (_ isConnected: Bool?) -> Void
    ) {
        guard let proxy = proxy(device) else { return }
        let epoch = link.epoch
        link.tree = AttributeTree()
        readChildren(of: device.path, device, link)
        blueZ.insist {
            proxy.getAll(completion: $0)
        } answered: { [weak self, weak device, weak link] result in
            guard let self, let device, let link, device.link === link, link.epoch == epoch else { return }
            var isConnected: Bool?
            switch result {
            case .success(let reply):
                device.isInBlueZ = true
                var reader = reply.reader
                do throws(BusError) { _ = try device.properties.apply(&reader, of: device.path, uuids: &uuids) } catch {
                    Log.warning("\(device.path): \(error.message)")
                }
                isConnected = device.properties.isConnected
                for core in device.clients {
                    if let name = device.properties.name { core.learn(name) }
                    core.learnBond(device.properties.isBonded)
                }
            case .failure(let error) where !BlueZErrorName.meansUnknownObject(error.name):
                isConnected = false  // try, and let Connect tell what is wrong
            case .failure where !hasFollowed:
                return follow(device, link) { [weak self, weak device] mustLookAgain in
                    guard mustLookAgain else { return answered(nil) }
                    guard let self, let device, let link = device.link else { return }
                    ask(device, link, hasFollowed: true, answered: answered)
                }
            case .failure: break
            }
            noteIdentity(of: device)
            answered(isConnected)
        }
    }

    private func attempt(_ device: Device, _ link: Link) {
        guard let proxy = proxy(device) else { return }
        let epoch = link.epoch
        let isHeir: Bool
        do throws(LinkLease.IsEnding) {
            // Another process has made an attempt, or a link, and may have died since.
            let inherited = try sharedLease(of: device)
            isHeir = inherited != nil
            if let inherited { link.lease = inherited } else { link.lease = try newLease(of: device) }
        } catch {
            // Another process is ending the link: an attempt would be cut with it.
            return apply(link.machine.handle(.connectReply(.transient)), to: device)
        }
        AdvertisedServices.note(device)
        pauseDiscovery(true, for: link)
        // A device that does not answer must not keep the app's scan from going on.
        blueZ.after(.seconds(5)) { [weak self, weak link] in
            if let self, let link, link.epoch == epoch { pauseDiscovery(false, for: link) }
        }
        var isAnswered = false
        let answer: BlueZProxy.Completion = { [weak self, weak device] result in
            guard !isAnswered, let self, let device, let link = device.link else { return }
            isAnswered = true
            if result.failure != nil, link.epoch == epoch ? link.machine.phase == .up : link.epoch == epoch + 1 {
                link.failedWhileUp = .now()
            }
            guard link.epoch == epoch else { return }
            link.failConnect = nil
            pauseDiscovery(false, for: link)
            var failure: LinkStateMachine.Failure?
            if case .failure(let error) = result {
                Log.debug("connect \(device.path): \(error.name) \(error.message)")
                failure = classify(error, device)
                device.attempts = device.attempts.suffix(9)
                device.attempts.append(BluezConnectAttempt(date: Date(), name: error.name, message: error.message))
                device.lastSeen = nil  // it must be heard anew before it counts as being there
                // The next link is another program's. But BlueZ may still be at the attempt that it gave no answer to,
                // or at that of a process that has died.
                let hasEnded = link.machine.phase == .attempting && error != .timedOut
                if failure == .inProgress ? !isHeir : hasEnded { link.endLease() }
            }
            apply(link.machine.handle(.connectReply(failure)), to: device)
        }
        link.failConnect = { answer(.failure($0)) }
        callConnect(device, proxy) { [weak self, weak device] result in
            if isAnswered, result.failure == nil { self?.claimLateLink(of: device, proxy) }
            answer(result)
        }
    }

    /// BlueZ had forgotten the device, so that our `Connect` had failed, and heard it again before it came to that call:
    /// the link is ours.
    private func claimLateLink(of device: Device?, _ proxy: BlueZProxy) {
        guard let device, let link = device.link, device.isWanted else { return proxy.disconnect { _ in } }
        if link.lease == nil { link.lease = try? newLease(of: device) }
    }

    // MARK: Links that others use

    /// By its path, as one device can have two addresses.
    func leaseName(of path: ObjectPath) -> String? {
        adapter.stackGeneration.map { "\($0) \(path.lastElement)".replacing("/", with: "_") }
    }

    /// Whether programs with BluezKit have made the link, or the attempt.
    private func isLeased(_ device: Device) -> Bool {
        leaseName(of: device.path).map { LinkLease.exists($0, in: LinkLease.directory) } ?? false
    }

    /// Our part in a link that programs with BluezKit have made, if they have.
    func sharedLease(of device: Device) throws(LinkLease.IsEnding) -> LinkLease? {
        guard let name = leaseName(of: device.path) else { return nil }
        return claimed(
            try LinkLease.share(name, in: LinkLease.directory, for: device.identity.identifier), by: device)
    }

    private func newLease(of device: Device) throws(LinkLease.IsEnding) -> LinkLease? {
        guard let name = leaseName(of: device.path) else { return nil }
        return claimed(
            try LinkLease.make(name, in: LinkLease.directory, for: device.identity.identifier), by: device)
    }

    private func claimed(_ lease: LinkLease?, by device: Device) -> LinkLease? {
        for core in device.clients where core.wish != nil { core.manager.statePath.map { lease?.claim(in: $0) } }
        return lease
    }

    /// `Connect` lets BlueZ choose between LE and classic Bluetooth. Where it has chosen wrong it is told, in the ways that
    /// it may know: 5.86 has a `Connect` for LE alone, and 5.80, if started with `-E`, a preference.
    private func callConnect(_ device: Device, _ proxy: BlueZProxy, completion: @escaping BlueZProxy.Completion) {
        switch device.bearer {
        case .any, .refused: proxy.connect(completion: completion)
        case .le:
            BlueZProxy(bus: proxy.bus, path: proxy.path, interface: BlueZ.bearerLE).connect(completion: completion)
        case .preferred: proxy.set("PreferredBearer", .string("le")) { _ in proxy.connect(completion: completion) }
        }
    }

    private func classify(_ error: BusError, _ device: Device) -> LinkStateMachine.Failure {
        // Without that interface the error looks as if there were no such device.
        if device.bearer == .le, BlueZErrorName.meansUnknownObject(error.name) {
            device.bearer = .preferred
            return .transient
        }
        let isRandom = device.identity.isRandom
        guard ConnectFailure.isClassic(name: error.name, message: error.message, isRandom: isRandom) else {
            return ConnectFailure.classify(name: error.name, message: error.message)
        }
        switch device.bearer {
        case .any: device.bearer = .le
        case .le: device.bearer = .preferred
        case .preferred: device.bearer = .refused
        case .refused: return .final
        }
        return .transient
    }

    private func disconnect(_ device: Device, _ link: Link) {
        pauseDiscovery(false, for: link)
        guard link.lease?.beginEnding() ?? (LinkLease.directory == nil) else {
            Log.debug("\(device.path): other programs use the link, which stays")
            link.lease = nil
            return apply(link.machine.handle(.kept), to: device)
        }
        callDisconnect(device, link)
    }

    private func callDisconnect(_ device: Device, _ link: Link) {
        guard let proxy = proxy(device) else { return }
        let epoch = link.epoch
        // Until it is answered, or the link has gone: then the lease goes, and not before.
        link.ending = self
        proxy.disconnect { [weak self, weak device] result in
            guard let self, let device, let link = device.link, link.epoch == epoch else { return }
            link.ending = nil
            if result.failure.map({ BlueZErrorName.meansUnknownObject($0.name) }) ?? true { link.endLease() }
            apply(link.machine.handle(.disconnectReply), to: device)
        }
    }

    private func startTimer(_ delay: Duration, _ device: Device, _ link: Link) {
        stopTimer(link)
        link.timer = blueZ.timer(delay) { [weak self, weak device] in
            guard let device, let link = device.link else { return }
            self?.stopTimer(link)
            self?.apply(link.machine.handle(.timerFired), to: device)
        }
    }

    private func stopTimer(_ link: Link) {
        link.timer?.cancel()
        link.timer = nil
    }

    // MARK: The link is there, or has gone

    private func linkUp(_ device: Device, _ link: Link) {
        pauseDiscovery(false, for: link)
        if link.lease == nil { link.lease = try? sharedLease(of: device) }
        (device.disconnectReason, link.failedWhileUp) = (nil, nil)
        device.properties.isConnected = true
        device.attempts = []
        for core in device.clients where core.wish != nil && !core.isUp { announceConnection(of: core) }
        // BlueZ may have told what is below the device while the attempt ran.
        goOnReading(device, link)
    }

    private func announceConnection(of core: PeripheralCore) {
        guard let token = core.wish?.link else { return }
        core.isUp = true
        core.wish?.wasUp = true
        core.manager.post { manager in
            guard let peripheral = core.peripheral, peripheral.enterConnected(link: token) else { return }
            manager.preserve(peripheral)
            manager.delegate?.centralManager(manager, didConnect: peripheral)
        }
    }

    /// Nothing of the link goes on. Those who have cancelled are told; those who have not, by ``tellLoss(_:_:)``.
    private func linkDown(_ device: Device, _ link: Link) {
        pauseDiscovery(false, for: link)
        link.downSince = CFAbsoluteTimeGetCurrent()
        endEpoch(device, link, keepsLease: link.machine.phase == .lost)
        for core in device.clients {
            for _ in 0..<core.goodbyes { farewell(core) }
            if core.wish == nil, core.goodbyes > 0 { device.clients.removeAll { $0 === core } }
            (core.goodbyes, core.isUp) = (0, false)
        }
    }

    /// When Bluetooth is switched off BlueZ ends the links first and says so some 50 ms later. Then only the new state is told
    /// (O-18), so wait for it.
    private func hold(_ device: Device, _ link: Link) {
        if device.clients.contains(where: { $0.wish?.wasUp == true }), !tellsWhy(device.disconnectReason?.name) {
            startTimer(blueZ.timing.heldLoss, device, link)
        } else {
            apply(link.machine.handle(.timerFired), to: device)
        }
    }

    /// Whether BlueZ (5.83 and later) has said that it was not this computer that ended the link.
    private func tellsWhy(_ reason: String?) -> Bool {
        reason == "org.bluez.Reason.Remote" || reason == "org.bluez.Reason.Timeout"
    }

    /// Tells those who were connected. Others, who have begun to connect meanwhile, have lost nothing.
    private func tellLoss(_ device: Device, _ link: Link) {
        var reason = device.disconnectReason
        if reason == nil, link.failedWhileUp != nil, device.properties.isBonded {
            // It came up and was not encrypted: the peer has lost its keys (BlueZ before 5.83 gives no reason).
            reason = ("org.bluez.Reason.Authentication", "the link could not be encrypted")
        }
        (device.disconnectReason, link.failedWhileUp) = (nil, nil)
        for core in device.clients where core.wish?.wasUp == true {
            lose(core, reason: reason, at: link.downSince)
            if core.wish == nil { device.clients.removeAll { $0 === core } }
        }
        // If there is a link again it may be the old one, and is ours to end.
        if !device.properties.isConnected { link.endLease() }
        apply(link.machine.handle(.lossTold(isWanted: device.isWanted)), to: device)
    }

    /// A link that nobody asked to end has ended (CN-9 to CN-12, AR-2).
    func lose(
        _ core: PeripheralCore, reason: (name: String, message: String)?,
        at time: CFAbsoluteTime = CFAbsoluteTimeGetCurrent()
    ) {
        guard let wish = core.wish else { return }
        // Requests of the old link are not meant for the next one.
        let next = wish.reconnects ? core.newToken() : nil
        core.wish = next.map { PeripheralCore.Wish(link: $0, reconnects: true) }
        let error = disconnectError(
            reason: reason?.name, message: reason?.message,
            isBonded: core.device?.properties.isBonded ?? false)
        core.manager.post { manager in
            guard let peripheral = core.peripheral, peripheral.leave(link: wish.link, for: next) else { return }
            if wish.reconnects { manager.preserve(peripheral) }
            manager.delegate?.centralManager(
                manager, didDisconnectPeripheral: peripheral, timestamp: time, isReconnecting: wish.reconnects,
                error: error)
            // Not before: a process that ends inside the callback, and has not acted on it yet, gets it again.
            if !wish.reconnects { manager.preserve(peripheral) }
        }
    }

    /// No attempt will succeed: the app is told why.
    private func giveUp(_ device: Device, _ link: Link) {
        let attempts = device.attempts
        (device.attempts, device.bearer) = ([], .any)
        endEpoch(device, link)
        let error = coreBluetoothError(
            name: attempts.last?.name ?? "", message: attempts.last?.message ?? "", context: .connect,
            isBonded: device.properties.isBonded, attempts: attempts)
        for core in device.clients { fail(core, error) }
        device.clients.removeAll()
        _ = link.machine.handle(.want(false))
    }

    private func fail(_ core: PeripheralCore, _ error: any Error) {
        guard let wish = core.wish else { return }
        core.wish = nil
        core.manager.post { manager in
            guard let peripheral = core.peripheral, peripheral.leave(link: wish.link) else { return }
            manager.delegate?.centralManager(manager, didFailToConnect: peripheral, error: error)
            manager.preserve(peripheral)
        }
    }

    /// The last attempt has killed bluetoothd (5.66), as the peer has lost its keys: another one would do so again.
    private func refuse(_ core: PeripheralCore, on device: Device) {
        fail(
            core,
            disconnectError(
                reason: "org.bluez.Reason.Authentication",
                message: "bluetoothd has died of a peer that has lost its bond: remove the bond", isBonded: true))
        device.clients.removeAll { $0 === core }
        dropIfUnused(device)
    }

    /// bluetoothd has gone: was it one of these devices?
    func noteLostBonds() {
        for device in linked where device.properties.isBonded {
            guard let time = device.link?.failedWhileUp, time + .seconds(2) > .now() else { continue }
            lostBonds.insert(device.identity)
        }
    }

    /// Nothing of the old link is answered or delivered any more.
    private func endEpoch(_ device: Device, _ link: Link, keepsLease: Bool = false) {
        link.epoch += 1
        (link.isDiscovered, link.isAdopted, link.mayAskMTU, link.isFlawTold) = (false, false, true, false)
        link.unreadObjects = PathQueue()
        (link.changedServices, link.isChangeReportDue) = ([], false)
        link.queue.removeAll()
        if !keepsLease {
            if !device.properties.isConnected { link.endLease() }
            link.lease = nil
        }
        (link.failConnect, link.answerRunning, link.isPairing, link.ending) = (nil, nil, false, nil)
        endQuestion(about: device)
        for writer in link.writers.values { writer.close() }
        (link.writers, link.withoutSocket) = ([:], [])
        link.tree.forgetMTU()
        device.properties.isConnected = false
        device.properties.areServicesResolved = false
        endSubscriptions(of: device)
    }

    /// A device that nobody is connected to keeps nothing.
    func dropIfUnused(_ device: Device) {
        guard let link = device.link, device.clients.isEmpty, link.machine.phase == .idle else { return }
        if let lease = link.lease, let proxy = proxy(device), lease.beginEnding() {
            // BlueZ is at an attempt that another process has made, and has left to us.
            link.lease = nil
            proxy.disconnect { _ in lease.end() }
        }
        dropLink(link, of: device)
    }

    func dropLink(_ link: Link, of device: Device) {
        pauseDiscovery(false, for: link)
        stopTimer(link)
        perform(turns.end(device.identity))
        endEpoch(device, link)
        for rule in link.matchRules { bus?.removeMatch(rule) }
        device.link = nil
        linked.removeAll { $0 === device }
        for core in device.clients {
            (core.wish, core.isUp, core.goodbyes, core.device) = (nil, false, 0, nil)
        }
        device.clients = []
        if !isFollowingDevices || !device.isInBlueZ { forget(device) }
    }
}

extension PeripheralCore {
    /// A name that BlueZ knew already: no news, so no callback.
    fileprivate func learn(_ name: String) {
        manager.post { [self] _ in _ = peripheral?.takeName(name) }
    }

    func learnBond(_ isBonded: Bool) { manager.post { [self] _ in peripheral?.learn(isBonded: isBonded) } }
}
