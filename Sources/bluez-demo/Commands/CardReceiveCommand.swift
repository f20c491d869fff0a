import BluezKit
import Foundation

/// Receives the business card of a machine nearby.
final class CardReceiveCommand: TransferCentralCommand {
    private let options: CardReceiveOptions
    private let receiver: TransferReceiver
    private var toldFar: Set<UUID> = []
    private var sender: UUID?

    init(_ options: CardReceiveOptions, common: CommonOptions, output: Output) throws(CardFile.Failure) {
        if let path = options.output { try CardFile.checkWritable(path) }
        self.options = options
        receiver = TransferReceiver(limit: options.maximumSize, asks: true) { Card($0, path: options.output) }
        super.init(options.transfer, receiver, common: common, output: output)
    }

    override var simulatedScenario: Scenario { .card }
    override var search: String { "Looking for a card nearer than \(options.minimumRSSI) dBm..." }

    override func scan(_ central: CBCentralManager) {
        central.scanForPeripherals(
            withServices: [service], options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
    }

    override func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        guard peer == nil, ending == nil else { return }
        let advertisement = Advertisement(peripheral, advertisementData, rssi: RSSI)
        let strength = advertisement.rssiDBm
        if let strength, strength >= options.minimumRSSI {
            output.say("Found a card" + Line(", \(strength) dBm", .dim))
            sender = peripheral.identifier
            super.centralManager(central, didDiscover: peripheral, advertisementData: advertisementData, rssi: RSSI)
        } else if toldFar.insert(peripheral.identifier).inserted {
            output.report(.discovered(advertisement))
            let further = strength.map { max(-127, $0 - 5) } ?? -127
            output.say(
                Line("There is a card, but too far away", .yellow)
                    + Line(strength.map { " (\($0) dBm)" } ?? " (strength unknown)", .dim)
                    + Line(". Hold the machines together, or ask for --min-rssi \(further)."))
        }
    }

    override func finish() {
        guard let sender, let card = receiver.file as? Card else { return }
        output.show([])
        output.report(.received(sender, card.bytes, path: options.output, seconds: reporter.seconds))
        let name = CardText.name(card.bytes).map { Line($0, .bold) + ", " } ?? ""
        let place = options.output.map { ", in \($0.harmless)" } ?? ""
        output.say(Line("Received ", .green) + name + Line(CardText.size(card.count) + place + "."))
        if options.output == nil { print(card.bytes) }
        stop(.success)
    }

    /// For people; the bytes go to `--output`.
    private func print(_ card: Data) {
        guard let lines = CardText.lines(card) else {
            return output.say(Line("It is not a text. To save it, receive it again with --output FILE.", .yellow))
        }
        for line in lines.prefix(60) where !line.isEmpty { output.say(Line("  " + line.clipped(to: 200))) }
        if lines.count > 60 {
            output.say(Line("  ... and more. To have all of it, receive it again with --output FILE.", .dim))
        }
    }
}
