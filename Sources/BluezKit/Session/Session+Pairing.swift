import DBus
import Foundation

/// Pairing: the questions of BlueZ and the answers of the apps.
extension Session {
    /// A question that BlueZ waits for, or that an app was asked and may still show.
    struct AskedQuestion {
        let id: Int
        let call: IncomingCall?
        let core: PeripheralCore
        let device: Device
    }

    // MARK: The agent

    /// Registers this process as agent, once somebody wants a link, or lets centrals pair: without any agent BlueZ stores
    /// no keys, and never answers a read that needs a pairing. A change of what the apps can do means to register anew.
    func updateAgent() {
        assertOnQueue()
        guard let bus, let owner = bus.owner(of: BlueZ.busName), !linked.isEmpty || letsCentralsPair else { return }
        let capability = BluezPairing.capability(managers.map(\.pairing))
        guard agent?.owner != owner || agent?.capability != capability, let server = blueZ.exportObjects() else {
            return
        }
        let proxy = BlueZProxy(bus: bus, path: BlueZ.root, interface: BlueZ.agentManager)
        if agent?.owner == owner { proxy.unregisterAgent(PairingAgent.path) { _ in } }
        agent = (owner, capability)
        if !server.has(PairingAgent.interface.name, at: PairingAgent.path) {
            server.add(PairingAgent.interface, to: PairingAgent.path, owner: PairingAgent(self))
        }
        proxy.registerAgent(PairingAgent.path, capability: capability) { result in
            guard let error = result.failure else { return }
            Log.warning("BlueZ does not take this program's pairing agent: \(error.message) (\(error.name))")
        }
    }

    /// BlueZ stops, or somebody has made it drop us.
    func agentReleased() {
        agent = nil
        pairingCancelled()
    }

    private var letsCentralsPair: Bool { publishers.contains(where: \.allowsJustWorks) }

    /// Whether a device may pair unseen that this process has not connected to: only where it may need that for what is
    /// published.
    private func mayCentralPair(_ path: ObjectPath) -> Bool {
        guard let adapterPath, path.parent == adapterPath else { return false }
        return publishers.contains { $0.allowsJustWorks && !$0.services.isEmpty }
    }

    // MARK: Questions

    func receive(_ question: PairingQuestion, about path: ObjectPath, _ call: IncomingCall) {
        // The first agent of a system is asked about everybody's devices.
        guard let device = devicesByPath[path.rawValue], let link = device.link, device.isWanted else {
            if question == .consent, mayCentralPair(path) { server?.reply(to: call) } else { server?.reject(call) }
            return
        }
        let cores = device.clients.filter { $0.wish != nil }
        if cores.contains(where: { question.policy($0.manager.pairing) == .accept }) {
            server?.reply(to: call)
            return
        }
        guard let core = cores.first(where: { question.policy($0.manager.pairing) == .ask }) else {
            Log.warning(
                from: device.identity.addressText,
                "\(device.identity.addressText) wants to pair, and this program does not say how: refused "
                    + "(see CBCentralManager.pairing)")
            server?.reject(call)
            return pairingRefused(device, link)
        }
        ask(question, of: core, device, call)
    }

    private func ask(_ question: PairingQuestion, of core: PeripheralCore, _ device: Device, _ call: IncomingCall) {
        endQuestion()
        questionCount += 1
        let id = questionCount
        var pending: IncomingCall? = call
        if case .display = question {
            server?.reply(to: call)
            pending = nil
        }
        self.question = AskedQuestion(id: id, call: pending, core: core, device: device)
        let decide: BluezPairing.Decision = { [weak self] accepts in
            self?.run { [weak self] in self?.answer(id, accepts) }
        }
        let enter: BluezPairing.Entry = { [weak self] passkey in
            self?.run { [weak self] in self?.answer(id, passkey != nil, passkey) }
        }
        let handlers = core.manager.pairing
        core.manager.post { _ in
            guard let peripheral = core.peripheral else { return decide(false) }
            switch question {
            case .passkey: handlers.enterPasskey?(peripheral, enter)
            case .display(let passkey): handlers.displayPasskey?(peripheral, PairingQuestion.digits(passkey))
            case .comparison(let passkey):
                handlers.comparePasskey?(peripheral, PairingQuestion.digits(passkey), decide)
            case .consent: handlers.consent?(peripheral, decide)
            }
        }
    }

    private func answer(_ id: Int, _ accepts: Bool, _ passkey: UInt32? = nil) {
        guard let asked = question, asked.id == id, let call = asked.call else { return }
        question = AskedQuestion(id: id, call: nil, core: asked.core, device: asked.device)
        if accepts, (passkey ?? 0) < 1_000_000 {
            server?.reply(to: call) { (writer) throws(BusError) in if let passkey { try writer.write(passkey) } }
        } else {
            server?.reject(call)
            endQuestion()
            if let link = asked.device.link { pairingRefused(asked.device, link) }
        }
    }

    /// BlueZ has withdrawn its question.
    func pairingCancelled() {
        if let call = question?.call { server?.reject(call) }
        endQuestion()
    }

    /// Whatever was asked is void: about this device, or about any.
    func endQuestion(about device: Device? = nil) {
        guard let asked = question, device == nil || asked.device === device else { return }
        question = nil
        let ended = asked.core.manager.pairing.ended
        asked.core.manager.post { _ in if let peripheral = asked.core.peripheral { ended?(peripheral) } }
    }

    /// BlueZ began to pair for the operation that runs. Refused, it never answers that, nor anything that follows on
    /// this link, and forgets the device 30 s later (seen with 5.66). So both end now.
    private func pairingRefused(_ device: Device, _ link: Link) {
        guard !link.isPairing, let answer = link.answerRunning else { return }
        answer(.failure(.remote(name: BlueZErrorName.notPermitted, message: BlueZErrorName.notPaired)))
        device.disconnectReason = ("org.bluez.Reason.Authentication", "pairing was refused")
        guard let bus else { return }
        BlueZProxy(bus: bus, path: device.path, interface: BlueZ.device).disconnect { _ in }
    }

    // MARK: Pairing for an operation

    /// Whether an operation that was refused so goes well after a pairing, and one may be tried.
    func mayPair(after error: BusError, with device: Device) -> Bool {
        error.name == BlueZErrorName.notPermitted && error.message == BlueZErrorName.notPaired
            && !device.properties.isBonded
            && device.clients.contains { $0.wish != nil && $0.manager.pairing.permitsAnything }
    }

    /// Pairs. Not with a device that is bonded: BlueZ before 5.79 would look for it on BR/EDR.
    func pair(_ device: Device, _ link: Link, completion: @escaping (_ isPaired: Bool) -> Void) {
        guard let bus else { return }
        let epoch = link.epoch
        link.isPairing = true
        BlueZProxy(bus: bus, path: device.path, interface: BlueZ.device).pair { [weak self, weak device] result in
            guard let self, let device, let link = device.link, link.epoch == epoch else { return }
            link.isPairing = false
            endQuestion(about: device)
            let error = result.failure
            if let error { Log.debug("pair \(device.path): \(error.name) \(error.message)") }
            completion(error == nil || error?.name == "org.bluez.Error.AlreadyExists")
        }
    }

    /// - Parameter completion: Gets nil also where there was nothing to remove.
    func removeBond(with identity: DeviceIdentity, completion: @escaping ((any Error)?) -> Void) {
        guard let bus, let adapterPath, let device = device(identity) else {
            return completion(CBError(.notConnected))
        }
        let path = device.path
        if device.link == nil, !isFollowingDevices || !device.isInBlueZ { forget(device) }
        BlueZProxy(bus: bus, path: adapterPath, interface: BlueZ.adapter).removeDevice(path) { result in
            guard let error = result.failure, error.name != "org.bluez.Error.DoesNotExist" else {
                return completion(nil)
            }
            completion(
                coreBluetoothError(name: error.name, message: error.message, context: .adapter, isBonded: false))
        }
    }
}
