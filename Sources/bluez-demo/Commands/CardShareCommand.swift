import BluezKit
import Foundation

/// Sends a business card to every central that subscribes.
final class CardShareCommand: PeripheralCommand {
    /// A central that accepts nothing for this long, in seconds, loses its turn, because others wait.
    private static let silenceLimit = 30.0

    private let options: CardShareOptions
    private var queue = CardQueue(Data())
    private var centrals: [UUID: CBCentral] = [:]
    /// Centrals that have asked for the card, and have neither received nor refused it.
    private var began: [UUID: ContinuousClock.Instant] = [:]
    /// How long it took to send everything to those of them that are done, in seconds.
    private var times: [UUID: Double] = [:]
    private var shown = -1
    private var served = 0
    private var isRefused = false
    private let characteristic = CBMutableCharacteristic(
        type: CardProtocol.characteristic, properties: [.notify, .write], value: nil,
        permissions: [.readable, .writeable])
    private let service = CBMutableService(type: CardProtocol.service, primary: true)

    init(_ options: CardShareOptions, common: CommonOptions, output: Output) {
        self.options = options
        super.init(common: common, output: output)
        service.characteristics = [characteristic]
    }

    override var simulatedScenario: Scenario { .subscriber(CardProtocol.characteristic.uuidString) }

    override var services: [CBMutableService] { [service] }
    /// No name: a UUID of this length leaves little room for one.
    override var advertisement: [String: Any] { [CBAdvertisementDataServiceUUIDsKey: [CardProtocol.service]] }

    override func start() {
        do throws(CardFile.Failure) {
            queue = CardQueue(try CardFile.read(options.file))
        } catch {
            output.complain(error.message)
            return stop(.failure)
        }
        super.start()
        watch()
    }

    override func isOnAir() {
        let name = CardText.name(queue.card)
        output.report(.sharing(options.file, size: queue.card.count))
        output.say(
            "Sharing " + Line(name ?? options.file.harmless, .bold)
                + Line(", \(CardText.size(queue.card.count)).", .dim))
        if name == nil {
            output.say(Line("It has no name on it (FN), and may not be a vCard; it is sent as it is.", .dim))
        }
        output.say(Line("On another machine: bluez-demo card receive. Ctrl-C ends it.", .dim))
    }

    override func bluetoothWentOff() {
        queue = CardQueue(queue.card)
        (centrals, began, times) = ([:], [:], [:])
        output.show([])
    }

    // MARK: Sending

    override func didSubscribe(_ central: CBCentral, to characteristic: CBCharacteristic) {
        centrals[central.identifier] = central
        (began[central.identifier], times[central.identifier]) = (.now, nil)
        queue.join(central.identifier)
        if queue.current != central.identifier { output.say("Another central is waiting for the card.") }
        pump()
    }

    override func didUnsubscribe(_ central: CBCentral, from characteristic: CBCharacteristic) {
        centrals[central.identifier] = nil
        switch queue.leave(central.identifier) {
        case .complete: finish(central.identifier)
        case .early(let sent):
            output.report(.gaveUp(central.identifier, bytes: sent, size: queue.card.count))
            output.say(Line("It unsubscribed after \(CardText.size(sent)), without the rest.", .yellow))
        case .unserved: break
        }
        pump()
    }

    override func hasRoom() { pump() }

    private func pump() {
        guard ending == nil, let manager, manager.state == .poweredOn else { return }
        let done = queue.send(upTo: { centrals[$0]?.maximumUpdateValueLength ?? CardProtocol.leastFrame }) {
            // A central that has disconnected is sent nothing; this will be reported soon.
            guard let central = centrals[$1] else { return false }
            return manager.updateValue($0, for: characteristic, onSubscribedCentrals: [central])
        }
        for central in done {
            times[central] = began[central].map { $0.duration(to: .now) / .seconds(1) }
            // A central that has the card disconnects. BlueZ may still have most of it in its queue, and does not
            // report it. If the central stays, it will have everything by then, at 2 kB a second.
            after(30 + Double(queue.card.count) / 2000) { [self] _ in finish(central) }
        }
        show()
    }

    /// The central has received the whole card.
    private func finish(_ central: UUID) {
        guard ending == nil, let time = times.removeValue(forKey: central) else { return }
        began[central] = nil
        output.report(.sent(central, size: queue.card.count, seconds: time))
        output.say(Line("Sent", .green) + Line(" in \(JSONValue.double((time * 10).rounded() / 10)) s."))
        hasServed()
    }

    override func answer(_ requests: [CBATTRequest], of manager: CBPeripheralManager) -> Bool {
        guard let first = requests.first, first.characteristic === characteristic, let value = first.value,
            value.first == CardProtocol.refusal
        else { return false }
        manager.respond(to: first, withResult: .success)
        let central = first.central.identifier
        guard ending == nil, began.removeValue(forKey: central) != nil else { return true }
        times[central] = nil
        _ = queue.leave(central)
        let reason = String(decoding: value.dropFirst(), as: UTF8.self)
        output.report(.refused(central, reason: reason))
        output.say(Line("It refused the card: \(reason.harmless.clipped(to: 200)).", .yellow))
        isRefused = true
        hasServed()
        pump()
        return true
    }

    private func hasServed() {
        served += 1
        if served == options.count { stop(isRefused ? .failure : .success) }
    }

    /// Ends the turn of a central that accepts nothing.
    private func watch() {
        let before = (queue.current, queue.sent)
        after(Self.silenceLimit) { [self] _ in
            guard ending == nil else { return }
            if let current = before.0, current == queue.current, before.1 == queue.sent {
                output.say(Line("It has accepted nothing for \(Int(Self.silenceLimit)) s. It loses its turn.", .yellow))
                output.report(.gaveUp(current, bytes: queue.sent, size: queue.card.count))
                _ = queue.leave(current)
                pump()
            }
            watch()
        }
    }

    private func show() {
        guard let central = queue.current else { return output.show([]) }
        let percent = queue.sent * 100 / max(1, queue.card.count)
        guard percent != shown else { return }
        if percent / 10 != shown / 10 {
            output.report(.progress(central, bytes: queue.sent, size: queue.card.count))
        }
        shown = percent
        output.show([CardText.progress(queue.sent, of: queue.card.count, width: Terminal.size.columns)])
    }
}
