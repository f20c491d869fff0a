import BluezKit
import Foundation

/// `transfer` and `card` as the central: it sends to a receiver that advertises, or receives the notifications of a
/// sender.
class TransferCentralCommand: PeerCommand, CBPeripheralDelegate {
    /// How many links in succession may end with an error, although nothing has moved.
    private static let attempts = 5
    /// How long a sender that may not have heard of the end is looked for, in seconds.
    private static let endLimit = 15.0

    private let options: TransferOptions
    private let transfer: any TransferEnd
    private var pipe: TransferPipe
    let reporter: TransferReporter
    private var toPeripheral: CBCharacteristic?
    private var channel: TransferChannel?
    private var isWriting = false
    private var isReady = false
    /// Links that ended with an error, and what had been moved before the first of them.
    private var failures = 0
    private var countBefore = 0

    init(_ options: TransferOptions, _ end: any TransferEnd, common: CommonOptions, output: Output) {
        (self.options, transfer) = (options, end)
        pipe = TransferPipe(end, isPeripheral: false)
        reporter = TransferReporter(options, end, output: output)
        super.init(common: common, output: output)
    }

    private var otherEnd: String { options.isSending ? "receiver" : "sender" }
    /// In the end it has waited longer than a receiver waits for another central that is silent.
    override var pause: Double { 1 + Double(failures) }

    override var service: CBUUID { options.service }

    /// What it says first.
    var search: String { "Looking for a \(otherEnd)..." }

    override var timeLimit: Double? { options.timeout }
    override var silence: String {
        "Nothing has moved" + (options.isSending ? " (the receiver may be busy with another sender)" : "")
    }

    override func start() {
        super.start()
        endWhenStill(for: options.timeout, options.remedy) { [self] in events }
    }

    override func makeManager(_ options: [String: Any]) {
        var options = options
        options[CBCentralManagerOptionRestoreIdentifierKey] = self.options.restore
        super.makeManager(options)
    }

    // MARK: Finding

    override func bluetoothIsOn(_ central: CBCentralManager) {
        if let peer { return resume(with: peer) }
        output.say(Line(search))
        output.say(Line("On the other machine: \(options.otherEnd). Ctrl-C ends this one.", .dim))
        scan(central)
        after(10) { [self] _ in
            if events == 0, peer == nil, ending == nil { output.say(Line("None so far; \(options.remedy)", .dim)) }
        }
    }

    override func bluetoothWentOff() {
        // With a restore identifier the connection resumes automatically after a reset.
        if peer?.state != .connecting { forget() }
    }

    override func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
        let state = RestoredState(dict)
        output.report(.restored(state))
        for line in state.lines { output.say(line) }
        peer = state.peripherals.first?.peripheral
        peer?.delegate = self
    }

    /// The peer was restored from an earlier process.
    private func resume(with peer: CBPeripheral) {
        if peer.state == .connected {
            limitSilence()
            return peer.discoverServices([service])
        }
        output.report(.connecting(peer.identifier, name: peer.name))
        if peer.state == .disconnected { central?.connect(peer) }
    }

    override func forget() {
        super.forget()
        channel?.close()
        channel = nil
        (toPeripheral, isWriting, isReady) = (nil, false, false)
        reporter.linkEnded()
    }

    override func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        guard peer == nil, ending == nil else { return }
        peripheral.delegate = self
        connect(peripheral, Advertisement(peripheral, advertisementData, rssi: RSSI))
    }

    /// Why this end has refused the file.
    private var refusal: TransferError? { (transfer as? TransferReceiver)?.failure }

    override func peerIsGone() -> Bool {
        if let refusal {
            fail(refusal)
            return false
        }
        guard transfer.isDone else { return true }
        if options.isSending {
            finish()
            return false
        }
        // The sender may not have heard that everything is there. If it has, it does not come back.
        after(Self.endLimit) { [self] _ in
            if ending == nil { finish() }
        }
        return true
    }

    override func end() -> Bool {
        reporter.stopped()
        if central?.state == .poweredOn { central?.stopScan() }
        if ending == .terminated, options.restore != nil { return false }  // the next process continues
        return endLink(of: peer)
    }

    // MARK: The service

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        guard ending == nil else { return }
        if let error { return leave(peripheral, "the services cannot be discovered: \(error.sentence)") }
        guard let found = peripheral.services?.first(where: { $0.uuid == service }) else {
            return leave(peripheral, "the \(otherEnd) has ended", isError: false)
        }
        peripheral.discoverCharacteristics(nil, for: found)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        guard ending == nil else { return }
        if let error { return leave(peripheral, "the characteristics cannot be discovered: \(error.sentence)") }
        func find(_ uuid: CBUUID) -> CBCharacteristic? { service.characteristics?.first { $0.uuid == uuid } }
        if options.way == .l2cap {
            guard let psm = find(CBUUID(string: CBUUIDL2CAPPSMCharacteristicString)) else {
                return leave(peripheral, "it has no L2CAP channel; use --via l2cap there as well")
            }
            return peripheral.readValue(for: psm)
        }
        guard let values = find(TransferProtocol.toPeripheral), let answers = find(TransferProtocol.toCentral),
            values.properties.contains(.write), answers.properties.contains(.notify)
        else { return leave(peripheral, "its service is another one; use the same version at both ends") }
        guard options.way != .writeWithoutResponse || values.properties.contains(.writeWithoutResponse) else {
            let reason = "the \(otherEnd) takes no writes without response; use the same --via at both ends"
            return leave(peripheral, reason, remedy: reason)
        }
        toPeripheral = values
        peripheral.setNotifyValue(true, for: answers)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) {
        guard ending == nil, peer === peripheral else { return }
        if let error { return leave(peripheral, "cannot subscribe: \(error.sentence)") }
        guard characteristic.isNotifying else { return }
        events += 1
        isReady = true
        pipe.begin()
        pump()
    }

    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        guard ending == nil, peer === peripheral else { return }
        (toPeripheral, isWriting, isReady) = (nil, false, false)
        reporter.linkEnded()
        peripheral.discoverServices([service])
    }

    /// Gives up on this link, and searches again.
    /// - Parameter remedy: What is said when this was the last attempt.
    private func leave(
        _ peripheral: CBPeripheral, _ reason: String, isError: Bool = true,
        remedy: String = "it failed \(attempts) times in succession. `bluez-demo doctor` may show the cause."
    ) {
        // A sender that has heard it may end before it answers.
        if let refusal { return fail(refusal) }
        if isError {
            output.complain(reason)
        } else {
            output.say(Line(reason.prefix(1).uppercased() + reason.dropFirst() + ".", .yellow))
        }
        failures = transfer.count > countBefore ? 1 : failures + 1
        countBefore = transfer.count
        if failures == Self.attempts {
            output.complain(remedy)
            return stop(.failure)
        }
        ownReason = reason
        central?.cancelPeripheralConnection(peripheral)
    }

    // MARK: Moving bytes

    private func pump() {
        guard ending == nil, isReady, let peer, let toPeripheral else { return }
        do throws(TransferError) {
            try pipe.sendValues(upTo: peer.maximumWriteValueLength(for: .withoutResponse)) { value in
                // The confirmation must have arrived before the link ends.
                if options.way == .writeWithoutResponse, !transfer.isDone {
                    guard peer.canSendWriteWithoutResponse else { return false }
                    peer.writeValue(value, for: toPeripheral, type: .withoutResponse)
                } else {
                    guard !isWriting else { return false }
                    isWriting = true
                    peer.writeValue(value, for: toPeripheral, type: .withResponse)
                }
                events += 1
                return true
            }
        } catch {
            return fail(error)
        }
        reporter.update(peer.identifier)
        if let refusal, pipe.isIdle, !isWriting { return fail(refusal) }
        if transfer.isSettled, pipe.isIdle, !isWriting { finish() }
    }

    func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) {
        if peer === peripheral { pump() }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        guard ending == nil, peer === peripheral, characteristic === toPeripheral else { return }
        isWriting = false
        events += 1
        if let error {
            // Its services are gone, as it or BlueZ says, or its program before it has answered: a user has ended it.
            if [.invalidHandle, .unlikelyError, .writeNotPermitted].contains((error as? CBATTError)?.code)
                || (error as? CBError)?.code == .invalidHandle
            {
                return leave(peripheral, "the \(otherEnd) has ended", isError: false)
            }
            if let busy = TransferProtocol.rival(error, isSending: options.isSending) {
                return leave(peripheral, busy, isError: false, remedy: "\(busy); start this again when that has ended")
            }
            return leave(peripheral, "the other end did not take it: \(error.sentence)")
        }
        pump()
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        guard ending == nil, peer === peripheral else { return }
        if options.way == .l2cap {
            guard let psm = characteristic.l2capPSM else {
                return leave(peripheral, "its PSM cannot be read" + (error.map { ": \($0.sentence)" } ?? ""))
            }
            return peripheral.openL2CAPChannel(psm)
        }
        guard isReady, characteristic.uuid == TransferProtocol.toCentral else { return }
        if let error { return leave(peripheral, "what it sends cannot be read: \(error.sentence)") }
        events += 1
        do throws(TransferError) {
            try pipe.take(value: characteristic.value ?? Data())
        } catch {
            return fail(error)
        }
        if pipe.hasGap {
            after(TransferPipe.gapLimit) { [self, events] _ in
                guard isReady, self.events == events, pipe.hasGap else { return }
                pipe.begin()
                pump()
            }
        }
        pump()
    }

    func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
        guard ending == nil, peer === peripheral else { return }
        guard let channel else {
            return leave(peripheral, "the L2CAP channel cannot be opened" + (error.map { ": \($0.sentence)" } ?? ""))
        }
        events += 1
        self.channel = TransferChannel(
            channel, transfer,
            moved: { [weak self] in self?.moved($0) },
            ended: { [weak self] in
                guard let self, ending == nil, peer === peripheral, self.channel != nil else { return }
                self.channel = nil
                leave(peripheral, "the \(otherEnd) closed the channel: it has ended, or is busy", isError: false)
            })
    }

    private func moved(_ error: TransferError?) {
        guard ending == nil, let peer else { return }
        events += 1
        if let error { return fail(error) }
        reporter.update(peer.identifier)
        if transfer.isSettled, channel?.isIdle ?? true { finish() }
    }

    private func fail(_ error: TransferError) {
        guard error.isFinal else {
            if let peer { leave(peer, error.sentence) }
            return
        }
        output.show([])
        output.complain(error.sentence)
        stop(.failure)
    }

    /// Everything has been moved.
    func finish() {
        reporter.finished()
        stop(.success)
    }
}
