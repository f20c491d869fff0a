import BluezKit
import BluezKitProfiles
import BluezKitSimulator
import Foundation

/// Measures each way to move data against `ladder --peer`.
final class LadderCommand: CentralCommand, CBPeripheralDelegate {
    /// How long nothing may happen, in seconds.
    private static let silenceLimit = 30.0

    /// The command for these options.
    static func make(_ options: LadderOptions, common: CommonOptions, output: Output) -> any Command {
        if common.isSimulated { return CalculatedLadder(output: output) }
        return options.isPeer
            ? LadderPeerCommand(timeout: options.timeout, common: common, output: output)
            : LadderCommand(options, common: common, output: output)
    }

    private enum Rung: CaseIterable {
        case shortWrites, longWrites, shortCommands, longCommands, notifications, channel
    }

    private let options: LadderOptions
    private var peer: CBPeripheral?
    private var sink: CBCharacteristic?
    private var count: CBCharacteristic?
    private var source: CBCharacteristic?
    private var psm: CBCharacteristic?
    private var channel: MessageChannel?
    /// One message of the channel.
    private static let block = Data(count: 4096)
    private var waiting = Rung.allCases[...]
    private var rows: [LadderRow] = []
    private var events = 0

    // The rung that is measured.
    private var rung: Rung?
    private var began = ContinuousClock.now
    private var isSending = false
    /// What the peer has counted, and what was sent or received.
    private var counting = LadderCount()
    private var moved = 0

    init(_ options: LadderOptions, common: CommonOptions, output: Output) {
        self.options = options
        super.init(common: common, output: output)
    }

    override var timeLimit: Double? { options.timeout }
    override var waitsForBluetooth: Bool { false }

    override func start() {
        super.start()
        guard let timeout = options.timeout else { return }
        after(timeout) { [self] _ in
            guard ending == nil, peer?.state != .connected else { return }
            timeIsUp("no peer for \(JSONValue.double(timeout)) s; is `bluez-demo ladder --peer` running, and near?")
        }
    }

    // MARK: Finding

    override func bluetoothIsOn(_ central: CBCentralManager) {
        output.say("Looking for a peer...")
        central.scanForPeripherals(withServices: [LadderProtocol.service])
    }

    override func bluetoothWentOff() { give("Bluetooth is no longer available") }

    override func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        guard peer == nil, ending == nil else { return }
        central.stopScan()
        output.report(.discovered(Advertisement(peripheral, advertisementData, rssi: RSSI)))
        peer = peripheral
        peripheral.delegate = self
        central.connect(peripheral)
        limitSilence()
    }

    private func limitSilence() {
        let before = events
        after(Self.silenceLimit) { [self] _ in
            guard ending == nil else { return }
            guard events == before else { return limitSilence() }
            give("nothing has happened for \(Int(Self.silenceLimit)) s")
        }
    }

    override func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        events += 1
        output.report(.connected(peripheral.identifier, name: peripheral.name))
        peripheral.discoverServices([LadderProtocol.service])
    }

    override func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {
        guard ending == nil else { return quit() }
        give("the connection failed" + (error.map { ": \($0.sentence)" } ?? ""))
    }

    override func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        output.report(.disconnected(peripheral.identifier, reason: error?.sentence))
        guard ending == nil else { return quit() }
        give("the link was lost" + (error.map { ": \($0.sentence)" } ?? ""))
    }

    private func give(_ reason: String) {
        guard ending == nil else { return }
        output.show([])
        output.complain(reason)
        stop(.failure)
    }

    override func end() -> Bool {
        // Now that it is known which is the fastest.
        output.show([])
        for line in LadderRow.table(rows) { output.say(line) }
        return endLink(of: peer)
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        guard let service = peripheral.services?.first(where: { $0.uuid == LadderProtocol.service }) else {
            return give("the peer has no service to measure with" + (error.map { ": \($0.sentence)" } ?? ""))
        }
        peripheral.discoverCharacteristics(nil, for: service)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        func find(_ uuid: CBUUID) -> CBCharacteristic? { service.characteristics?.first { $0.uuid == uuid } }
        (sink, count, source) = (
            find(LadderProtocol.sink), find(LadderProtocol.count), find(LadderProtocol.source)
        )
        psm = find(CBUUID(string: CBUUIDL2CAPPSMCharacteristicString))
        if psm == nil { waiting.removeAll { $0 == .channel } }
        guard sink != nil, count != nil, source != nil else {
            return give("the peer's service is another one; use the same version at both ends")
        }
        next()
    }

    // MARK: Measuring

    private func next() {
        guard ending == nil else { return }
        guard let next = waiting.popFirst(), let peer, let count, let source else { return stop(.success) }
        (rung, counting, moved, isSending) = (next, LadderCount(), 0, false)
        events += 1
        let measured = rows.map {
            Line("  ") + Line($0.name).padded(to: LadderRow.nameWidth) + Line($0.rateText, .bold)
        }
        output.show(measured + [Line("  \(name(next))...", .dim)])
        if next == .notifications {
            peer.setNotifyValue(true, for: source)
        } else {
            peer.readValue(for: count)
        }
    }

    private func name(_ rung: Rung) -> String {
        switch rung {
        case .shortWrites: "write with response, 20 bytes"
        case .longWrites: "write with response, \(longest) bytes"
        case .shortCommands: "write without response, 20 bytes"
        case .longCommands: "write without response, \(longest) bytes"
        case .notifications: "notifications"
        case .channel: "L2CAP channel"
        }
    }

    private func limit(_ rung: Rung) -> String {
        switch rung {
        case .shortWrites, .longWrites: "a round trip, of two intervals or more, for each value"
        case .shortCommands: "headers, and packets that are not full"
        case .longCommands, .notifications, .channel: "the controllers: packets in an event, their length, PHY"
        }
    }

    /// The longest value that is worth it.
    private var longest: Int {
        min(TransferProtocol.valueLengths.upperBound, peer?.maximumWriteValueLength(for: .withoutResponse) ?? 20)
    }

    private func begin() {
        (began, isSending) = (.now, true)
        after(options.seconds) { [self, rung] _ in if self.rung == rung { finishSending() } }
        pump()
    }

    private func pump() {
        guard isSending, let peer, let sink, let rung else { return }
        switch rung {
        case .shortWrites, .longWrites: write(rung == .shortWrites ? 20 : longest, .withResponse)
        case .shortCommands, .longCommands:
            let length = rung == .shortCommands ? 20 : longest
            while peer.canSendWriteWithoutResponse { write(length, .withoutResponse) }
        case .channel:
            while (try? channel?.send(Self.block)) == true { moved += Self.block.count }
        case .notifications: break
        }
        func write(_ length: Int, _ type: CBCharacteristicWriteType) {
            peer.writeValue(Data(count: length), for: sink, type: type)
            moved += length
        }
    }

    /// The time is up; the peer says what has arrived.
    private func finishSending() {
        guard isSending, ending == nil, let peer, let count, let source else { return }
        isSending = false
        if rung == .notifications {
            record(moved)
            return peer.setNotifyValue(false, for: source)
        }
        peer.readValue(for: count)
    }

    private func record(_ bytes: Int) {
        guard let rung else { return }
        let seconds = began.duration(to: .now) / .seconds(1)
        let row = LadderRow(name(rung), bytes: bytes, seconds: seconds, limit: limit(rung))
        rows.append(row)
        output.report(.rung(row))
    }

    func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        events += 1
        if let error { return give("the peer refuses writes: \(error.sentence)") }
        pump()
    }

    func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) { hasRoom() }

    private func hasRoom() {
        events += 1
        pump()
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) {
        events += 1
        if let error { return give("the peer refuses to notify: \(error.sentence)") }
        if characteristic.isNotifying { begin() } else { next() }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        guard ending == nil else { return }
        if characteristic === count, error != nil {
            // A peer that has many writes before it may not answer in time.
            return after(1) { [self] _ in
                guard ending == nil, peer === peripheral else { return }
                peripheral.readValue(for: characteristic)
            }
        }
        if characteristic === source {
            events += 1
            if isSending { moved += characteristic.value?.count ?? 0 }
            return
        }
        if characteristic === psm {
            events += 1
            guard let psm = characteristic.l2capPSM else { return give("the peer's PSM cannot be read") }
            return peripheral.openL2CAPChannel(psm)
        }
        guard let counted = LadderProtocol.number(characteristic.value ?? Data()) else {
            return give("what the peer has counted is not a number")
        }
        // An answer is no progress: a peer that something did not reach answers without end.
        switch counting.take(counted, moved: moved) {
        case .begin:
            if rung == .channel, channel == nil, let psm { return peripheral.readValue(for: psm) }
            begin()
        case .complete:
            record(moved)
            next()
        case .ask(let isProgress):
            if isProgress { events += 1 }
            peripheral.readValue(for: characteristic)
        case .stuck: give("nothing can be sent: the link takes no data")
        }
    }
}

extension LadderCommand {
    func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
        guard ending == nil else { return }
        guard let channel else {
            return give("the L2CAP channel cannot be opened" + (error.map { ": \($0.sentence)" } ?? ""))
        }
        let messages = MessageChannel(channel)
        messages.onRoom = { [weak self] in self?.hasRoom() }
        messages.onEnd = { [weak self] _ in self?.give("the peer closed the channel") }
        self.channel = messages
        messages.open()
        begin()
    }
}

/// `ladder --simulated`: Apple's ladder of 2017, calculated by the link model.
final class CalculatedLadder: Command {
    private let output: Output

    init(output: Output) { self.output = output }

    func start() {
        let rows = ThroughputRung.talk2017.map { LadderRow($0) }
        output.say("1 MB over each rung of Apple's ladder (WWDC 2017, session 712), in virtual time:")
        for row in rows { output.report(.rung(row)) }
        for line in LadderRow.table(rows) { output.say(line) }
        stop(.success)
    }

    func stop(_ status: ExitStatus) { Program.quit(status) }
}
