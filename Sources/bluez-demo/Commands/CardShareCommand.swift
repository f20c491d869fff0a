import BluezKit
import Foundation

/// Sends a business card to one central after the other.
final class CardShareCommand: TransferPeripheralCommand {
    private let options: CardShareOptions
    private let card: Card
    private var served = 0
    /// Those that have had the card: one that did not hear the end comes back for it.
    private var counted: Set<UUID> = []
    private var isRefused = false

    init(_ options: CardShareOptions, common: CommonOptions, output: Output) throws(CardFile.Failure) {
        self.options = options
        let name = URL(fileURLWithPath: options.file).lastPathComponent
        card = Card(try CardFile.read(options.file), name: name)
        super.init(
            options.transfer, TransferSender(card, confirmsEnd: false), common: common, output: output)
    }

    override var simulatedScenario: Scenario { .subscriber(TransferProtocol.toCentral.uuidString) }

    override func isOnAir() {
        let name = CardText.name(card.bytes)
        output.report(.sharing(options.file, size: card.count))
        output.say(
            "Sharing " + Line(name ?? options.file.harmless, .bold) + Line(", \(CardText.size(card.count)).", .dim))
        if name == nil {
            output.say(Line("It has no name on it (FN), and may not be a vCard; it is sent as it is.", .dim))
        }
        super.isOnAir()
    }

    override func lose() {
        if let peer, transfer.isMoving {
            output.report(.gaveUp(peer.identifier, bytes: transfer.count, size: card.count))
        }
        makeRoom()
    }

    private func makeRoom() {
        super.lose()
        serve(TransferSender(card, confirmsEnd: false))
    }

    override func finish() {
        guard let peer else { return }
        let hasComeBack =
            !counted.insert(peer.identifier).inserted && card.count > 0 && transfer.resumedAt == card.count
        if hasComeBack { return makeRoom() }
        output.report(.sent(peer.identifier, size: card.count, seconds: reporter.seconds))
        countServed(Line("Sent ", .green) + reporter.summary + ".")
    }

    override func fail(_ error: TransferError) {
        guard ending == nil else { return }
        guard case .refused(let reason) = error, let peer else {
            // One that speaks another protocol does not keep the others from it.
            output.complain(error.sentence)
            return lose()
        }
        isRefused = true
        output.report(.refused(peer.identifier, reason: reason))
        countServed(Line("It refused the card: \(reason.harmless.clipped(to: 200)).", .yellow))
    }

    private func countServed(_ outcome: Line) {
        makeRoom()
        output.say(outcome)
        served += 1
        if served == options.count { stop(isRefused ? .failure : .success) }
    }
}
