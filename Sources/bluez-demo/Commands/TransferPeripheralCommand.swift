import BluezKit
import Foundation

/// `transfer` and `card` as the peripheral: it receives what a central writes, or sends notifications.
class TransferPeripheralCommand: PeripheralCommand {
    /// How long a central may be silent until another one gets its turn, in seconds.
    private static let silenceLimit = ManagerCommand.silence(10)
    /// How long a sender may take to hear that everything has arrived, in seconds: also one that was killed before it
    /// could, and is started again.
    private static let endLimit = 15.0

    private let options: TransferOptions
    private(set) var transfer: any TransferEnd
    private var pipe: TransferPipe
    private(set) var reporter: TransferReporter
    /// The central whose turn it is.
    private(set) var peer: CBCentral?
    private var heard = ContinuousClock.now
    /// Incremented with each channel.
    private var turn = 0
    private var events = 0
    private var isLeaving = false
    private var channel: TransferChannel?
    private let toPeripheral: CBMutableCharacteristic
    private let toCentral = CBMutableCharacteristic(
        type: TransferProtocol.toCentral, properties: .notify, value: nil, permissions: .readable)
    private let service: CBMutableService

    init(_ options: TransferOptions, _ end: any TransferEnd, common: CommonOptions, output: Output) {
        (self.options, transfer) = (options, end)
        pipe = TransferPipe(end, isPeripheral: true)
        reporter = TransferReporter(options, end, output: output)
        service = CBMutableService(type: options.service, primary: true)
        // Only where it is needed: bluetoothd answers each write to such a characteristic itself, and none could be
        // refused.
        let isUnanswered = options.way == .writeWithoutResponse
        toPeripheral = CBMutableCharacteristic(
            type: TransferProtocol.toPeripheral, properties: isUnanswered ? [.write, .writeWithoutResponse] : .write,
            value: nil, permissions: .writeable)
        service.characteristics = [toPeripheral, toCentral]
        super.init(common: common, output: output)
    }

    override var services: [CBMutableService] { [service] }
    /// No name: a UUID of this length leaves little room for one.
    override var advertisement: [String: Any] { [CBAdvertisementDataServiceUUIDsKey: [service.uuid]] }

    override var timeLimit: Double? { options.timeout }

    override func start() {
        super.start()
        endWhenStill(for: options.timeout, options.remedy) { [self] in events }
    }

    override func isOnAir() {
        output.say(Line(options.isSending ? "Waiting for a receiver." : "Waiting for a sender."))
        output.say(Line("On the other machine: \(options.otherEnd). Ctrl-C ends this one.", .dim))
        after(10) { [self] _ in
            if events == 0, ending == nil { output.say(Line("None so far; \(options.remedy)", .dim)) }
        }
    }

    // The service says which PSM the channel has, so the channel comes first.
    override func bluetoothIsOn() {
        guard options.way == .l2cap, let manager else { return super.bluetoothIsOn() }
        manager.publishL2CAPChannel(withEncryption: false)
    }

    override func didPublishChannel(_ psm: CBL2CAPPSM, error: (any Error)?) {
        if let error {
            output.complain("the L2CAP channel cannot be published: \(error.sentence)")
            return stop(.failure)
        }
        service.characteristics = [toPeripheral, toCentral, CBMutableCharacteristic(l2capPSM: psm)]
        super.bluetoothIsOn()
    }

    override func didOpen(_ channel: CBL2CAPChannel) {
        // One at a time: another one is closed when it is released.
        guard let central = channel.peer as? CBCentral, takesTurn(isSame: false) else { return }
        peer = central
        // What a channel that has lost its turn still says is not for the present one.
        turn += 1
        self.channel = TransferChannel(
            channel, transfer,
            moved: { [weak self, turn] error in
                guard let self, ending == nil, turn == self.turn else { return }
                (heard, events) = (.now, events + 1)
                if let error {
                    output.complain(error.sentence)
                    return lose()
                }
                update(central, isIdle: self.channel?.isIdle ?? false)
            },
            ended: { [weak self, turn] in
                guard let self, ending == nil, self.channel != nil, turn == self.turn else { return }
                peerLeft("The channel was closed. Waiting for another one.")
            })
    }

    /// Whether a central may go on, or begin because no other one does something.
    private func takesTurn(isSame: Bool) -> Bool {
        if !isSame {
            guard peer == nil || heard.duration(to: .now) > .seconds(Self.silenceLimit) else { return false }
            lose()
        }
        heard = .now
        events += 1
        return true
    }

    override func bluetoothWentOff() { lose() }

    /// The central has lost its turn.
    func lose() {
        channel?.close()
        (channel, peer) = (nil, nil)
        reporter.linkEnded()
    }

    /// Begins again with this end, for the next central.
    func serve(_ end: any TransferEnd) {
        (transfer, pipe, isLeaving) = (end, TransferPipe(end, isPeripheral: true), false)
        reporter = TransferReporter(options, end, output: output)
    }

    // MARK: Centrals

    override func didUnsubscribe(_ central: CBCentral, from characteristic: CBCharacteristic) {
        guard central.identifier == peer?.identifier else { return }
        peerLeft("The link was lost. Waiting for it to come back.")
    }

    private func peerLeft(_ message: String) {
        let isRefused = (transfer as? TransferReceiver)?.failure != nil
        if isLeaving, isRefused || options.isSending { return finish() }
        output.say(
            Line(isLeaving ? "The sender left before it heard that. Waiting in case it comes back." : message, .yellow))
        lose()
    }

    override func answer(_ requests: [CBATTRequest], of manager: CBPeripheralManager) -> Bool {
        guard let first = requests.first, requests.allSatisfy({ $0.characteristic === toPeripheral }) else {
            return false
        }
        guard requests.allSatisfy({ $0.offset == 0 && accepts($0.central) }) else {
            manager.respond(to: first, withResult: TransferProtocol.busy)
            return true
        }
        // First, because a refusal ends this program.
        manager.respond(to: first, withResult: .success)
        for request in requests where ending == nil && peer != nil { take(request.value ?? Data()) }
        if pipe.hasGap {
            after(TransferPipe.gapLimit) { [self, events] _ in
                guard self.events == events, pipe.hasGap else { return }
                pipe.askAgain()
                pump()
            }
        }
        pump()
        return true
    }

    /// Whether it is this central's turn.
    private func accepts(_ central: CBCentral) -> Bool {
        guard takesTurn(isSame: central.identifier == peer?.identifier) else { return false }
        peer = central
        return true
    }

    override func end() -> Bool {
        reporter.stopped()
        return super.end()
    }

    private func take(_ value: Data) {
        do throws(TransferError) {
            try pipe.take(value: value)
        } catch {
            guard error.isFinal else { return pipe.askAgain() }
            fail(error)
        }
    }

    override func hasRoom() {
        // A central that takes what is sent is not silent.
        (heard, events) = (.now, events + 1)
        pump()
    }

    private func pump() {
        guard ending == nil, let manager, let peer, manager.state == .poweredOn else { return }
        do throws(TransferError) {
            try pipe.sendValues(upTo: peer.maximumUpdateValueLength) {
                manager.updateValue($0, for: toCentral, onSubscribedCentrals: [peer])
            }
        } catch {
            return fail(error)
        }
        update(peer, isIdle: pipe.isIdle)
    }

    /// Something has moved.
    private func update(_ peer: CBCentral, isIdle: Bool) {
        reporter.update(peer.identifier)
        let receiver = transfer as? TransferReceiver
        if receiver?.isConfirmed ?? false { return finish() }
        guard isIdle, !isLeaving, transfer.isDone || receiver?.failure != nil else { return }
        isLeaving = true
        if options.isSending { return finish() }
        after(Self.endLimit) { [self] _ in finish() }
    }

    /// Everything has been moved, or was refused by this end.
    func finish() {
        guard ending == nil else { return }
        if let failure = (transfer as? TransferReceiver)?.failure { return fail(failure) }
        reporter.finished()
        stop(.success)
    }

    /// Nothing more can be moved.
    func fail(_ error: TransferError) {
        output.show([])
        output.complain(error.sentence)
        stop(.failure)
    }
}
