import BluezKit
import BluezKitProfiles
import Foundation

/// `ladder --peer`: what another machine's `ladder` measures with.
final class LadderPeerCommand: PeripheralCommand {
    private var counts: [UUID: Int] = [:]
    private var subscriber: CBCentral?
    private var channels: [MessageChannel] = []
    private let sink = CBMutableCharacteristic(
        type: LadderProtocol.sink, properties: [.write, .writeWithoutResponse], value: nil, permissions: .writeable)
    private let count = CBMutableCharacteristic(
        type: LadderProtocol.count, properties: .read, value: nil, permissions: .readable)
    private let source = CBMutableCharacteristic(
        type: LadderProtocol.source, properties: .notify, value: nil, permissions: .readable)
    private let service = CBMutableService(type: LadderProtocol.service, primary: true)

    private let timeout: Double?
    private var hasPeer: Bool { !counts.isEmpty || subscriber != nil || !channels.isEmpty }

    /// - Parameter timeout: How long it waits for a peer, in seconds.
    init(timeout: Double?, common: CommonOptions, output: Output) {
        self.timeout = timeout
        super.init(common: common, output: output)
        service.characteristics = [sink, count, source]
    }

    override var services: [CBMutableService] { [service] }
    override var advertisement: [String: Any] { [CBAdvertisementDataServiceUUIDsKey: [LadderProtocol.service]] }

    override var timeLimit: Double? { timeout }

    override func start() {
        super.start()
        guard let timeout else { return }
        after(timeout) { [self] _ in
            guard ending == nil, !hasPeer else { return }
            timeIsUp("no peer for \(JSONValue.double(timeout)) s; is `bluez-demo ladder` running, and near?")
        }
    }

    override func isOnAir() {
        output.say(Line("Waiting for another machine."))
        output.say(Line("There: bluez-demo ladder. Ctrl-C ends this one.", .dim))
    }

    override func bluetoothWentOff() { (counts, subscriber, channels) = ([:], nil, []) }

    // The service says which PSM the channel has, so the channel comes first.
    override func bluetoothIsOn() { manager?.publishL2CAPChannel(withEncryption: false) }

    override func didPublishChannel(_ psm: CBL2CAPPSM, error: (any Error)?) {
        if let error {
            output.say(Line("There is no L2CAP channel to measure: \(error.sentence).", .yellow))
        } else {
            service.characteristics = [sink, count, source, CBMutableCharacteristic(l2capPSM: psm)]
        }
        super.bluetoothIsOn()
    }

    override func didOpen(_ channel: CBL2CAPChannel) {
        guard let peer = channel.peer, channels.count < 10 else { return }
        let messages = MessageChannel(channel)
        messages.onMessage = { [weak self] in self?.received($0.count, from: peer.identifier) }
        messages.onEnd = { [weak self, weak messages] _ in self?.channels.removeAll { $0 === messages } }
        channels.append(messages)
        messages.open()
    }

    private func received(_ bytes: Int, from central: UUID) {
        // A central that has a count already is one of few; a stranger cannot make this grow.
        if counts.count > 100 { counts = [:] }
        counts[central, default: 0] += bytes
    }

    override func answer(_ requests: [CBATTRequest], of manager: CBPeripheralManager) -> Bool {
        guard let first = requests.first, requests.allSatisfy({ $0.characteristic === sink }) else { return false }
        for request in requests { received(request.value?.count ?? 0, from: request.central.identifier) }
        manager.respond(to: first, withResult: .success)
        return true
    }

    override func answer(_ request: CBATTRequest, of manager: CBPeripheralManager) -> Bool {
        guard request.characteristic === count else { return false }
        let value = LadderProtocol.bytes(counts[request.central.identifier] ?? 0)
        guard request.offset <= value.count else {
            manager.respond(to: request, withResult: .invalidOffset)
            return true
        }
        request.value = value.dropFirst(request.offset)
        manager.respond(to: request, withResult: .success)
        return true
    }

    override func didSubscribe(_ central: CBCentral, to characteristic: CBCharacteristic) {
        subscriber = central
        hasRoom()
    }

    override func didUnsubscribe(_ central: CBCentral, from characteristic: CBCharacteristic) {
        if subscriber?.identifier == central.identifier { subscriber = nil }
    }

    override func hasRoom() {
        guard let manager, let subscriber else { return }
        let value = Data(count: min(TransferProtocol.valueLengths.upperBound, subscriber.maximumUpdateValueLength))
        while manager.updateValue(value, for: source, onSubscribedCentrals: [subscriber]) {}
    }
}
