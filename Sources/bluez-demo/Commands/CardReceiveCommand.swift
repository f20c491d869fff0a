import BluezKit
import Foundation

/// Receives the business card of a machine nearby.
final class CardReceiveCommand: PeerCommand, CBPeripheralDelegate {
    /// How often a card is requested from one sender.
    private static let attempts = 3
    /// How long missing pieces may take after everything was sent, in seconds.
    private static let restLimit = 5.0

    private let options: CardReceiveOptions
    private var receiver: CardReceiver
    private var characteristic: CBCharacteristic?
    private var attempt = 1
    private var toldFar: Set<UUID> = []
    private var began: ContinuousClock.Instant?
    private var shown = -1
    /// It has written a refusal, and waits for the answer.
    private var isRefusing = false

    init(_ options: CardReceiveOptions, common: CommonOptions, output: Output) {
        self.options = options
        receiver = CardReceiver(limit: options.maximumSize)
        super.init(common: common, output: output)
    }

    override var timeLimit: Double? { options.timeout }
    override var simulatedScenario: Scenario { .card }

    override func start() {
        if let path = options.output {
            do throws(CardFile.Failure) {
                try CardFile.checkWritable(path)
            } catch {
                output.complain(error.message)
                return stop(.failure)
            }
        }
        super.start()
        if let timeout = options.timeout {
            after(timeout) { [self] _ in
                timeIsUp("no card for \(JSONValue.double(timeout)) s; is `bluez-demo card share` running, and near?")
            }
        }
    }

    // MARK: Finding

    override func bluetoothIsOn(_ central: CBCentralManager) {
        output.say(Line("Looking for a card nearer than \(options.minimumRSSI) dBm..."))
        scan(central)
    }

    override func bluetoothWentOff() { forget() }

    override var service: CBUUID { CardProtocol.service }
    override var silence: String { "Nothing arrived" }

    override func scan(_ central: CBCentralManager) {
        central.scanForPeripherals(
            withServices: [CardProtocol.service], options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
    }

    override func forget() {
        super.forget()
        (characteristic, began, shown, attempt) = (nil, nil, -1, 1)
        receiver = CardReceiver(limit: options.maximumSize)
        output.show([])
    }

    override func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        guard peer == nil, ending == nil else { return }
        let advertisement = Advertisement(peripheral, advertisementData, rssi: RSSI)
        guard let strength = advertisement.rssiDBm, strength >= options.minimumRSSI else {
            guard toldFar.insert(peripheral.identifier).inserted else { return }
            output.report(.discovered(advertisement))
            output.say(
                Line("There is a card, but too far away", .yellow)
                    + Line(advertisement.rssiDBm.map { " (\($0) dBm)" } ?? " (strength unknown)", .dim)
                    + Line(
                        ". Hold the machines together, or ask for --min-rssi \(Self.further(advertisement.rssiDBm))."))
            return
        }
        output.say("Found a card" + Line(", \(strength) dBm", .dim))
        peripheral.delegate = self
        connect(peripheral, advertisement)
    }

    /// A threshold that this signal strength would satisfy.
    private static func further(_ strength: Int?) -> Int { strength.map { max(-127, $0 - 5) } ?? -127 }

    override func end() -> Bool {
        guard let central, central.state == .poweredOn else { return false }
        central.stopScan()
        guard let peer, peer.state != .disconnected else { return false }
        // Subscriptions end with the link, but that takes longer, and the sender waits for it.
        if let characteristic { peer.setNotifyValue(false, for: characteristic) }
        central.cancelPeripheralConnection(peer)
        return true
    }

    // MARK: Receiving

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        guard ending == nil else { return }
        if let error { return leave(peripheral, "the services cannot be discovered: \(error.sentence)") }
        guard let service = peripheral.services?.first(where: { $0.uuid == CardProtocol.service }) else {
            return leave(peripheral, "it no longer has a card")
        }
        peripheral.discoverCharacteristics([CardProtocol.characteristic], for: service)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        guard ending == nil else { return }
        if let error { return leave(peripheral, "the characteristics cannot be discovered: \(error.sentence)") }
        let found = service.characteristics?.first { $0.uuid == CardProtocol.characteristic }
        guard let found, found.properties.contains(.notify) else {
            return leave(peripheral, "cannot subscribe to its card; use the same version at both ends")
        }
        characteristic = found
        began = .now
        peripheral.setNotifyValue(true, for: found)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) {
        guard ending == nil else { return }
        if let error { return leave(peripheral, "cannot subscribe to the card: \(error.sentence)") }
        events += 1
        // Unsubscribed, in order to request the card again.
        if !characteristic.isNotifying, peer === peripheral { peripheral.setNotifyValue(true, for: characteristic) }
    }

    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        guard ending == nil, peer === peripheral else { return }
        characteristic = nil
        peripheral.discoverServices([CardProtocol.service])
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        guard ending == nil, !isRefusing, peer === peripheral, characteristic.uuid == CardProtocol.characteristic
        else { return }
        if let error { return leave(peripheral, "the card cannot be read: \(error.sentence)") }
        events += 1
        do throws(CardError) {
            switch try receiver.take(characteristic.value ?? Data()) {
            case .unannounced: break
            case .received(let bytes, let size): show(peripheral, bytes, of: size)
            case .complete(let card): return finish(peripheral, card)
            }
            if let missing = receiver.missing { awaitRest(peripheral, characteristic, missing) }
        } catch  where error == .damaged && attempt < Self.attempts {
            askAgain(peripheral, characteristic, error.sentence)
        } catch {
            refuse(error.sentence)
        }
    }

    /// Everything was sent. Missing pieces were overtaken by others, or are lost.
    private func awaitRest(_ peripheral: CBPeripheral, _ characteristic: CBCharacteristic, _ missing: Int) {
        let before = events
        after(Self.restLimit) { [self] _ in
            guard events == before, ending == nil, !isRefusing, peer === peripheral else { return }
            let loss = "\(missing) of the bytes have not arrived"
            if attempt < Self.attempts { return askAgain(peripheral, characteristic, loss) }
            refuse(loss)
        }
    }

    private func askAgain(_ peripheral: CBPeripheral, _ characteristic: CBCharacteristic, _ reason: String) {
        attempt += 1
        output.say(Line("\(reason). Requesting it again.", .yellow))
        receiver.askAgain()
        peripheral.setNotifyValue(false, for: characteristic)
    }

    /// Ends, when the sender has heard why.
    /// - Parameter heard: What the sender hears, if it is not the same.
    private func refuse(_ reason: String, heard: String? = nil) {
        output.show([])
        output.complain(reason)
        guard let peer, let characteristic, characteristic.properties.contains(.write) else { return stop(.failure) }
        isRefusing = true
        let room = peer.maximumWriteValueLength(for: .withoutResponse) - 1
        peer.writeValue(
            Data([CardProtocol.refusal]) + (heard ?? reason).utf8.prefix(room), for: characteristic, type: .withResponse
        )
        after(Self.restLimit) { $0.stop(.failure) }  // it does not answer
    }

    func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) { stop(.failure) }

    override func peerIsGone() -> Bool {
        if isRefusing { stop(.failure) }
        return !isRefusing
    }

    /// Gives up on this sender, and searches again.
    private func leave(_ peripheral: CBPeripheral, _ reason: String) {
        output.complain(reason)
        central?.cancelPeripheralConnection(peripheral)
    }

    private func show(_ peripheral: CBPeripheral, _ bytes: Int, of size: Int) {
        let percent = bytes * 100 / max(1, size)
        guard percent != shown else { return }
        if percent / 10 != shown / 10 { output.report(.progress(peripheral.identifier, bytes: bytes, size: size)) }
        shown = percent
        output.show([CardText.progress(bytes, of: size, width: Terminal.size.columns)])
    }

    private func finish(_ peripheral: CBPeripheral, _ card: Data) {
        output.show([])
        if let path = options.output {
            do throws(CardFile.Failure) {
                try CardFile.write(card, to: path)
            } catch {
                return refuse(error.message, heard: "it cannot be stored")
            }
        }
        let time = began.map { $0.duration(to: .now) / .seconds(1) } ?? 0
        output.report(.received(peripheral.identifier, card, path: options.output, seconds: time))
        let name = CardText.name(card).map { Line($0, .bold) + ", " } ?? ""
        output.say(
            Line("Received ", .green) + name + Line(CardText.size(card.count))
                + Line(options.output.map { ", in \($0.harmless)" } ?? "") + ".")
        if options.output == nil { print(card) }
        stop(.success)
    }

    /// For people; the bytes go to `--output`.
    private func print(_ card: Data) {
        guard let lines = CardText.lines(card) else {
            return output.say(Line("It is not a text. --output FILE saves it.", .yellow))
        }
        for line in lines.prefix(60) where !line.isEmpty { output.say(Line("  " + line.clipped(to: 200))) }
        if lines.count > 60 { output.say(Line("  ... and more. --output FILE saves all of it.", .dim)) }
    }
}
