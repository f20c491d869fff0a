import BluezDBus
import Dispatch

/// The central's end of a link: a device object of an adapter, or a central of the test.
protocol LinkCentral: AnyObject {
    /// As shown in events: `00:B1:5E:00:00:01/P`, P for a public address.
    var linkAddress: String { get }
    /// A notification has arrived, or an indication, which is confirmed by calling `confirm`.
    func received(_ value: [UInt8], of characteristic: GATTTable.Characteristic, confirm: (() -> Void)?)
    /// Service Changed was indicated.
    func servicesChanged(_ handles: ClosedRange<UInt16>)
    /// - Parameter reason: The controller's reason; 0x16: this end closed the link.
    func linkEnded(reason: UInt8)
}

/// A link between a central and a peripheral, with the Attribute Protocol on it: one request at a time.
final class Link {
    /// Nil when the daemon has crashed and the kernel still holds the link.
    private(set) weak var central: (any LinkCentral)?
    let peripheral: VirtualPeripheral
    let mtu: UInt16
    /// The time on the air, if it is calculated.
    var model: LinkModel?
    var isEncrypted: Bool {
        get { carrier?.isEncrypted ?? hasKeys }
        set { if let carrier { carrier.isEncrypted = newValue } else { hasKeys = newValue } }
    }
    private var hasKeys = false
    /// The link of a central that serves attributes itself, if this is the same link in the other direction.
    private weak var carrier: Link?
    /// The same link in the other direction: bluetoothd uses the attributes of the central.
    private var returning: Link?
    /// Encrypted with a pairing that the user confirmed.
    var isAuthenticated = false
    /// Operations of bluetoothd that wait for a pairing that has failed.
    var refusedOperations: [(ATTFailure?) -> Void] = []
    /// Client characteristic configurations by value handle, for clients on the bus and for bluetoothd itself.
    var configurations: [UInt16: UInt16] = [:]
    var internalSubscriptions: Set<UInt16> = []
    /// Prepared writes, and indications that wait for confirmation; see Link+Attributes.swift.
    var prepared: [PreparedWrite] = []
    var indications: [Indication] = []
    /// L2CAP channels on this link: the ends that virtual devices have.
    private(set) var channels: [VirtualChannel] = []
    private var requests: [Request] = []
    private var isBusy = false
    private(set) var isUp = true
    private var isAbandoned = false
    /// When what was sent last arrives.
    private var lastArrival: DispatchTime?

    var device: Device? { central as? Device }

    private struct Request {
        let delay: Duration
        let isAnswered: Bool
        let serve: (_ done: @escaping () -> Void) -> Void
        let fail: (UInt8) -> Void
    }

    init(central: any LinkCentral, peripheral: VirtualPeripheral, mtu: UInt16 = 517) {
        (self.central, self.peripheral) = (central, peripheral)
        var parameters = peripheral.air.parameters ?? peripheral.simulator?.optionsState.linkParameters
        self.mtu = min(mtu, peripheral.offeredMTU, UInt16(clamping: parameters?.mtu ?? .max))
        parameters?.mtu = Int(self.mtu)
        model = parameters.map { LinkModel($0) }
    }

    /// The same link in the other direction.
    func goBack(to device: Device, from server: VirtualPeripheral) -> Link {
        let link = Link(central: device, peripheral: server, mtu: mtu)
        link.carrier = self
        returning = link
        server.links.append(link)
        return link
    }

    // MARK: Requests

    /// Sends a request when the previous ones have been answered. `completion` is called once: with the answer of
    /// `serve`, or with 0x0E if the link ends first.
    func request<Answer>(
        delay: Duration = .zero, isAnswered: Bool = true,
        serve: @escaping (_ answer: @escaping (Result<Answer, ATTFailure>) -> Void) -> Void,
        completion: @escaping (Result<Answer, ATTFailure>) -> Void
    ) {
        guard isUp else { return completion(.failure(.unlikely)) }
        requests.append(
            Request(
                delay: delay, isAnswered: isAnswered,
                serve: { [weak self] done in
                    let start = self?.model?.elapsed
                    serve { result in
                        self?.whenOnAir(since: start) {
                            guard self?.isUp == true else { return }  // it has already failed
                            self?.requests.removeFirst()
                            completion(result)
                            done()
                        }
                    }
                }, fail: { completion(.failure(ATTFailure($0))) }))
        sendNext()
    }

    private func sendNext() {
        guard isUp, !isBusy, let request = requests.first, let simulator = peripheral.simulator else { return }
        isBusy = true
        guard request.isAnswered else {
            simulator.after(simulator.timing.attTimeout) { [weak self] in self?.end(reason: 0x08) }
            return
        }
        simulator.after(simulator.timing.attRoundTrip + request.delay) { [weak self] in
            guard let self, isUp else { return }
            request.serve { [weak self] in
                self?.isBusy = false
                self?.sendNext()
            }
        }
    }

    /// Calls `body` when what was sent has arrived: with a clock that is not real, and where it is calculated, that
    /// takes time.
    /// - Parameter start: Of the model, before it was sent.
    private func whenOnAir(since start: Duration?, _ body: @escaping () -> Void) {
        guard let start, let end = model?.elapsed, let simulator = peripheral.simulator,
            let now = simulator.clock.time?.now
        else { return body() }
        let arrival = max(now, lastArrival ?? now).later(by: end - start)
        lastArrival = arrival
        simulator.afterAlways(.nanoseconds(arrival.uptimeNanoseconds - now.uptimeNanoseconds), body)
    }

    /// Reads a characteristic's value from `offset`.
    /// - Parameter isByDaemon: bluetoothd has its own reasons.
    func read(
        _ characteristic: GATTTable.Characteristic, offset: Int, isByDaemon: Bool = false,
        completion: @escaping Answer<[UInt8]>
    ) {
        if characteristic.served != nil { return readServed(.value(characteristic), offset, [], completion) }
        let definition = characteristic.definition
        request(
            delay: definition.delay, isAnswered: definition.answers,
            serve: { [weak self, peripheral] answer in
                if let failure = peripheral.faults.reads?.next(definition.uuid) { return answer(.failure(failure)) }
                self?.peripheral.replay?.isReadByDaemon = isByDaemon
                let result = Self.answerRead(characteristic, offset: offset)
                self?.peripheral.replay?.isReadByDaemon = false
                self?.model?.read((try? result.get().count) ?? 0)
                answer(result)
            }, completion: completion)
    }

    static func answerRead(_ characteristic: GATTTable.Characteristic, offset: Int) -> Result<[UInt8], ATTFailure> {
        let definition = characteristic.definition
        guard definition.flags.contains(.read) else { return .failure(.readNotPermitted) }
        do {
            let value = try definition.read?() ?? characteristic.value
            guard offset <= value.count else { return .failure(.invalidOffset) }
            return .success(Array(value.dropFirst(offset).prefix(512)))
        } catch {
            return .failure(error as? ATTFailure ?? .unlikely)
        }
    }

    /// Writes with response. `offset` nil: the whole value.
    func write(
        _ value: [UInt8], to characteristic: GATTTable.Characteristic, offset: Int?, completion: @escaping Answer<Void>
    ) {
        if characteristic.served != nil { return writeServed(value, .value(characteristic), offset, completion) }
        let definition = characteristic.definition
        request(
            delay: definition.delay, isAnswered: definition.answers,
            serve: { [weak self, peripheral] answer in
                if let failure = peripheral.faults.writes?.next(definition.uuid) { return answer(.failure(failure)) }
                self?.model?.write(value.count)
                answer(Self.answerWrite(value, characteristic, offset: offset, peripheral, flag: .write))
            }, completion: completion)
    }

    /// Writes without response: a failure is not reported.
    func command(_ value: [UInt8], to characteristic: GATTTable.Characteristic) {
        guard isUp else { return }
        model?.writeWithoutResponse(value.count)
        if characteristic.served != nil { return commandServed(value, characteristic) }
        _ = Self.answerWrite(value, characteristic, offset: nil, peripheral, flag: .writeWithoutResponse)
    }

    static func answerWrite(
        _ value: [UInt8], _ characteristic: GATTTable.Characteristic, offset: Int?, _ peripheral: VirtualPeripheral,
        flag: VirtualCharacteristic.Flags
    ) -> Result<Void, ATTFailure> {
        let definition = characteristic.definition
        guard !definition.flags.isDisjoint(with: [.write, .writeWithoutResponse]) else {
            return .failure(.writeNotPermitted)
        }
        guard value.count + (offset ?? 0) <= 512 else { return .failure(.invalidLength) }
        var whole = value
        if let offset {
            guard offset <= characteristic.value.count else { return .failure(.invalidOffset) }
            whole = Array(characteristic.value.prefix(offset)) + value
        }
        do {
            if let write = definition.write {
                try write(whole)
            } else {
                characteristic.value = whole
                peripheral.event("written \(definition.uuid.shortNumber) \(Hex.text(whole))")
            }
            peripheral.wrote(VirtualWrite(definition.uuid, whole, isAnswered: flag == .write))
            return .success(())
        } catch {
            return .failure(error as? ATTFailure ?? .unlikely)
        }
    }

    func read(_ descriptor: GATTTable.Descriptor, of handle: UInt16, completion: @escaping Answer<[UInt8]>) {
        if descriptor.served != nil { return readServed(.descriptor(descriptor, handle), 0, [], completion) }
        request(
            serve: { [weak self] answer in
                if let refusal = descriptor.refusal?() { return answer(.failure(refusal)) }
                var value = descriptor.value
                if descriptor.isConfiguration, let number = self?.configurations[handle] {
                    value = [UInt8(number & 0xFF), UInt8(number >> 8)]
                }
                answer(.success(value))
            }, completion: completion)
    }

    func write(_ value: [UInt8], to descriptor: GATTTable.Descriptor, completion: @escaping Answer<Void>) {
        if descriptor.served != nil { return writeServed(value, .descriptor(descriptor, 0), nil, completion) }
        request(serve: { $0(Self.answerWrite(value, descriptor)) }, completion: completion)
    }

    static func answerWrite(_ value: [UInt8], _ descriptor: GATTTable.Descriptor) -> Result<Void, ATTFailure> {
        guard descriptor.isWritable else { return .failure(.writeNotPermitted) }
        guard value.count <= 512 else { return .failure(.invalidLength) }
        descriptor.value = value
        return .success(())
    }

    // MARK: Notifications

    /// Writes a client characteristic configuration.
    func configure(_ characteristic: GATTTable.Characteristic, _ value: UInt16, completion: @escaping Answer<Void>) {
        guard characteristic.descriptors.contains(where: \.isConfiguration) else { return completion(.success(())) }
        let definition = characteristic.definition
        request(
            serve: { [weak self] answer in
                guard let self else { return }
                model?.request(5, response: 1)
                if let served = characteristic.served {
                    return served.configure(value, of: characteristic, on: self, completion: answer)
                }
                if value != 0, let failure = definition.subscribeFailure { return answer(.failure(failure)) }
                configurations[characteristic.handle + 1] = value
                let bits = "\(value & 1)\(value >> 1 & 1)"
                peripheral.event("subscribed \(definition.uuid.shortNumber) \(bits)")
                if value != 0 { peripheral.replay?.subscribed(characteristic) }
                answer(.success(()))
            }, completion: completion)
    }

    func isSubscribed(to characteristic: GATTTable.Characteristic) -> Bool {
        let handle = characteristic.handle + 1
        return isUp && ((configurations[handle] ?? 0) != 0 || internalSubscriptions.contains(handle))
    }

    /// A notification arrives at the central.
    func deliver(_ value: [UInt8], of characteristic: GATTTable.Characteristic) {
        let start = model?.elapsed
        model?.notify(value.count)
        whenOnAir(since: start) { [weak self] in
            guard let self, isUp else { return }
            central?.received(value, of: characteristic, confirm: nil)
        }
    }

    func servicesChanged(_ handles: ClosedRange<UInt16> = 1...0xFFFF) { central?.servicesChanged(handles) }

    // MARK: Channels

    /// There are 64 numbers for the channels of a link. Of some, both ends are here.
    var hasRoomForChannel: Bool {
        let towardsPeripheral = channels.count { $0.peer == peripheral.address }
        return max(towardsPeripheral, channels.count - towardsPeripheral) < 64
    }

    /// A channel is open, until it ends or the link does.
    /// - Parameter side: Whose end this is, if its bytes count for the time on the air: those of one end, if both are
    ///   here.
    func add(_ channel: VirtualChannel, of side: LinkModel.Side? = nil) {
        channels.append(channel)
        let queue = peripheral.simulator?.queue
        // holds: they are called on the simulator's queue, on which links are used
        nonisolated(unsafe) let remove = { [weak self, weak channel] in
            guard let self else { return }
            channels.removeAll { $0 === channel }
            if isAbandoned { abandon() }
        }
        nonisolated(unsafe) let count = { [weak self] (bytes: Int, sender: LinkModel.Side) in
            _ = self?.model?.stream(bytes, from: sender)
        }
        let moved: @Sendable (Int, VirtualChannel.Direction) -> Void = { bytes, direction in
            guard let side else { return }
            queue?.later { count(bytes, direction == .sent ? side : side.other) }
        }
        channel.start(moved: model == nil ? nil : moved) { queue?.later { remove() } }
    }

    // MARK: The end of the link

    /// Ends the link. Both ends are informed, and pending requests fail.
    /// - Parameters:
    ///   - reason: 0x16: the central ended it, through its daemon if it has one.
    ///   - quietly: The device object is being removed and signals nothing more.
    func end(reason: UInt8, quietly: Bool = false) {
        guard isUp else { return }
        if let carrier, carrier.isUp, !quietly { return carrier.end(reason: reason) }
        let central = central
        let pending = takeDown(reason: reason)
        if quietly {
            device?.link = nil
        } else {
            central?.linkEnded(reason: reason)
        }
        for request in pending { request.fail(0x0E) }
    }

    /// The daemon that made the link has crashed. The kernel ends it a moment later, unless a channel uses it: then a
    /// moment after the last one has ended.
    func abandon() {
        isAbandoned = true
        guard let simulator = peripheral.simulator else { return }
        simulator.afterAlways(simulator.timing.disconnectDelay) { [self] in if channels.isEmpty { dropped() } }
    }

    private func dropped() {
        guard isUp else { return }
        let central = central as? VirtualCentral
        let pending = takeDown(reason: 0x13)
        central?.linkEnded(reason: 0x13)
        if central != nil { for request in pending { request.fail(0x0E) } }
    }

    private func takeDown(reason: UInt8) -> [Request] {
        isUp = false
        peripheral.air.lastUsage = usage
        (central as? VirtualCentral)?.lastUsage = usage
        let pending = requests
        requests = []
        VirtualChannel.lose(channels)
        returning?.end(reason: reason, quietly: true)
        peripheral.links.removeAll { $0 === self }
        if carrier == nil { peripheral.event("disconnected 0x\(Hex.byte(reason))") }
        // A bluetoothd that has been started since does not know the link.
        if !isAbandoned { peripheral.host?.inboundLinkEnded(self, reason: reason) }
        peripheral.simulator?.airChanged(peripheral)
        return pending
    }
}

extension String {
    /// The four digits that distinguish a UUID from others on its base: `2a37`, or NNNN of the rig's own UUIDs.
    var shortNumber: String { String(dropFirst(4).prefix(4)) }
}
