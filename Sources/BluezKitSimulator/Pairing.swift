import BluezDBus

/// One pairing of one device, requested by Pair or required by a characteristic.
final class Pairing {
    unowned let device: Device
    /// The call of Pair; nil if a read or write needs encryption.
    private var call: IncomingCall?
    /// The client that called Pair.
    private let client: String?
    private let agent: Agent?
    private var continuations: [(ATTFailure?) -> Void] = []
    /// Called when the pairing has failed, which ``continuations`` do not learn: the kernel refuses a channel.
    private var refusals: [() -> Void] = []
    private(set) var waitsForLink = false

    init(device: Device, call: IncomingCall?, agent: Agent?) {
        (self.device, self.call, self.agent) = (device, call, agent)
        client = call?.sender
    }

    private var simulator: Simulator { device.simulator }

    func add(_ continuation: @escaping (ATTFailure?) -> Void, refused: (() -> Void)?) {
        continuations.append(continuation)
        if let refused { refusals.append(refused) }
    }

    func start() {
        guard let link = device.link else {
            waitsForLink = true
            return device.attemptConnection()
        }
        let peripheral = link.peripheral
        guard peripheral.pairing != .reject else { return rejectedByPeer(link) }
        guard let agent else { return failed() }
        // An agent that can neither display nor enter a number cannot be asked about one.
        switch agent.capability == "NoInputNoOutput" ? .justWorks : peripheral.pairing {
        case .justWorks, .reject:
            // Pairing by Pair asks for no authorization; pairing that an access requires does.
            if call != nil { return succeeded() }
            ask(agent, "RequestAuthorization") { _ in true }
        case .display:
            let passkey = peripheral.passkey
            ask(agent, "RequestPasskey") { reply in
                var reader = reply.reader
                return (try? reader.readUInt32()) == passkey
            }
        case .keyboard:
            let passkey = UInt32.random(in: 0..<1_000_000)
            let early = peripheral.passkeyEntry
            let enter = { [weak self] (typed: UInt32) in
                guard let self, device.pairing === self else { return }
                typed == passkey ? succeeded() : wrongPasskey(link)
            }
            peripheral.passkeyEntry = .awaited(enter)
            ask(agent, "DisplayPasskey", number: passkey) { _ in false }
            peripheral.event("passkey?")
            if case .made(let typed)? = early {
                peripheral.passkeyEntry = nil
                enter(typed)
            }
        case .numeric:
            ask(agent, "RequestConfirmation", number: UInt32.random(in: 0..<1_000_000)) { _ in true }
        }
    }

    func linkIsUp() {
        guard waitsForLink else { return }
        waitsForLink = false
        start()
    }

    private func ask(_ agent: Agent, _ member: String, number: UInt32? = nil, accepts: @escaping (Message) -> Bool) {
        let path = device.path, isDisplay = member == "DisplayPasskey"
        let question = MethodCall(
            destination: agent.client, path: agent.path, interface: "org.bluez.Agent1", member: member
        ) { (writer) throws(BusError) in
            try writer.write(path)
            if let number { try writer.write(number) }
            if isDisplay { try writer.write(UInt16(0)) }
        }
        simulator.server?.flush()
        simulator.call(question, deadline: .seconds(60)) { [weak self] result in
            guard let self, device.pairing === self, !isDisplay else { return }
            if case .success(let reply) = result, accepts(reply) { succeeded() } else { failed() }
        }
    }

    /// The entered passkey is not the displayed one: the peripheral refuses, and the link ends.
    private func wrongPasskey(_ link: Link) { rejectedByPeer(link) }

    private func succeeded() {
        guard let link = device.link else { return linkEnded() }
        device.pairing = nil
        link.isEncrypted = true
        link.peripheral.holdsBond = true
        link.peripheral.event("paired")
        let (device, identity) = (device, link.peripheral.address)
        // Marked when the first answer over the encrypted link arrives, so `Value` is signalled before these
        // properties, and the reply is sent after them; with later versions before them.
        let isLate = simulator.optionsState.version >= .v5_82
        let lateness = isLate ? simulator.timing.attRoundTrip + .milliseconds(20) : .zero
        simulator.after(simulator.timing.attRoundTrip + lateness) { [weak device] in
            guard let device else { return }
            device.reveal(identity)
            if device.adapter.isPairable {
                device.isBonded = true
                device.changed("Bonded")
            }
            device.isPaired = true
            device.changed("Paired")
            device.setPermanent()
            if device.isBonded { device.store() }
        }
        for continuation in continuations { continuation(nil) }
        if let call {
            simulator.after(simulator.timing.attRoundTrip) { [weak device] in device?.server?.reply(to: call) }
        }
    }

    /// Without an agent, or with one that refuses. A waiting read or write is not answered while the link lasts, and in
    /// the end the device is removed although it is connected.
    private func failed() {
        let device = device
        device.pairing = nil
        if let call {
            device.server?.refuse(call, .authenticationFailed)
            for refused in refusals { refused() }
            return
        }
        device.link?.refusedOperations += continuations
        simulator.after(simulator.timing.failedPairingRemoval) { [weak device, weak link = device.link, refusals] in
            // Not when that link has ended, at which the time starts again (src/device.c, `device_update_last_seen`); a
            // `Connect` after that makes the device permanent (`dev_connect`).
            if let device, let link, !device.isPaired, device.link === link,
                device.adapter.devices[device.address] === device
            {
                device.adapter.remove(device)
            }
            for refused in refusals { refused() }
        }
    }

    /// The kernel ends the link.
    private func rejectedByPeer(_ link: Link) {
        device.pairing = nil
        link.end(reason: 0x16)
        simulator.server?.flush()  // what waits is answered after the end of the link
        if let call { simulator.server?.refuse(call, .authenticationFailed) }
        for continuation in continuations { continuation(ATTFailure(0x0E)) }
    }

    /// Disconnect or CancelPairing.
    func cancel() {
        device.pairing = nil
        if let call { simulator.server?.refuse(call, .authenticationCanceled) }
        for continuation in continuations { continuation(ATTFailure(0x0E)) }
    }

    /// From 5.67 on operations that wait for it are kept, and so is each later one of their attributes.
    func linkEnded() {
        if simulator.optionsState.version >= .v5_72 { continuations = [] }
        cancel()
    }

    /// The caller of Pair left the bus: unlike with Connect, this ends the pairing and the link.
    func clientGone(_ client: String) {
        guard client == self.client else { return }
        device.pairing = nil
        device.link?.end(reason: 0x16)
    }
}

extension Device {
    /// Calls back when the link is as secure as required, or with the error why it cannot be; or never, as bluetoothd
    /// does.
    /// - Parameter refused: Called when it never calls back.
    func secured(
        _ security: VirtualSecurity, refused: (() -> Void)? = nil, _ continuation: @escaping (ATTFailure?) -> Void
    ) {
        guard security != .none, let link, !link.isEncrypted else { return continuation(nil) }
        if let pairing { return pairing.add(continuation, refused: refused) }
        let pairing = Pairing(device: self, call: nil, agent: simulator.agents.first)
        self.pairing = pairing
        pairing.add(continuation, refused: refused)
        pairing.start()
    }

    func pair(_ call: IncomingCall) {
        guard let server else { return }
        guard pairing == nil else { return server.refuse(call, .inProgress) }
        guard !isBonded else { return server.refuse(call, .alreadyExists) }
        setPermanent()
        let agent = simulator.agents.first { $0.client == call.sender } ?? simulator.agents.first
        let pairing = Pairing(device: self, call: call, agent: agent)
        self.pairing = pairing
        if let client = call.sender { simulator.watchClient(client) }
        pairing.start()
    }

    func cancelPairing(_ call: IncomingCall) {
        guard let server else { return }
        guard let pairing else {
            isBonded = false
            return server.refuse(call, .doesNotExist)
        }
        pairing.cancel()
        server.reply(to: call)
    }
}
