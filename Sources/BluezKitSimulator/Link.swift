/// A link between an adapter and a peripheral, with the Attribute Protocol on it: one request at a time.
final class Link {
    /// Gone when the daemon has died and the kernel still holds the link.
    private(set) weak var device: Device?
    let peripheral: VirtualPeripheral
    let mtu: UInt16
    var isEncrypted = false
    /// Client characteristic configurations, by value handle. Those of clients on the bus, and bluetoothd's own.
    private var configurations: [UInt16: UInt16] = [:]
    var internalSubscriptions: Set<UInt16> = []
    private var requests: [Request] = []
    private var isBusy = false
    private(set) var isUp = true

    private struct Request {
        let delay: Duration
        let isAnswered: Bool
        let serve: () -> Void
        let fail: (UInt8) -> Void
    }

    init(device: Device, peripheral: VirtualPeripheral) {
        (self.device, self.peripheral) = (device, peripheral)
        mtu = min(517, peripheral.offeredMTU)
    }

    // MARK: Requests

    private func request(
        delay: Duration = .zero, isAnswered: Bool = true, serve: @escaping () -> Void,
        fail: @escaping (UInt8) -> Void
    ) {
        requests.append(Request(delay: delay, isAnswered: isAnswered, serve: serve, fail: fail))
        sendNext()
    }

    private func sendNext() {
        guard isUp, !isBusy, let request = requests.first, let simulator = device?.simulator else { return }
        isBusy = true
        guard request.isAnswered else {
            simulator.after(simulator.timing.attTimeout) { [weak self] in self?.end(reason: 0x08) }
            return
        }
        simulator.after(simulator.timing.attRoundTrip + request.delay) { [weak self] in
            guard let self, isUp else { return }
            requests.removeFirst()
            request.serve()
            isBusy = false
            sendNext()
        }
    }

    /// Reads a characteristic's value from `offset`.
    func read(
        _ characteristic: GATTTable.Characteristic, offset: Int,
        completion: @escaping (Result<[UInt8], ATTFailure>) -> Void
    ) {
        let definition = characteristic.definition
        request(delay: definition.delay, isAnswered: definition.answers) {
            completion(Self.answerRead(characteristic, offset: offset))
        } fail: {
            completion(.failure(ATTFailure($0)))
        }
    }

    private static func answerRead(
        _ characteristic: GATTTable.Characteristic, offset: Int
    ) -> Result<[UInt8], ATTFailure> {
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
        _ value: [UInt8], to characteristic: GATTTable.Characteristic, offset: Int?,
        completion: @escaping (Result<Void, ATTFailure>) -> Void
    ) {
        let definition = characteristic.definition
        request(delay: definition.delay, isAnswered: definition.answers) { [peripheral] in
            completion(Self.answerWrite(value, characteristic, offset: offset, peripheral, flag: .write))
        } fail: {
            completion(.failure(ATTFailure($0)))
        }
    }

    /// Writes without response: nobody hears of a failure.
    func command(_ value: [UInt8], to characteristic: GATTTable.Characteristic) {
        guard isUp else { return }
        _ = Self.answerWrite(value, characteristic, offset: nil, peripheral, flag: .writeWithoutResponse)
    }

    private static func answerWrite(
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
            return .success(())
        } catch {
            return .failure(error as? ATTFailure ?? .unlikely)
        }
    }

    func read(
        _ descriptor: GATTTable.Descriptor, of handle: UInt16,
        completion: @escaping (Result<[UInt8], ATTFailure>) -> Void
    ) {
        request { [weak self] in
            var value = descriptor.value
            if descriptor.isConfiguration, let number = self?.configurations[handle] {
                value = [UInt8(number & 0xFF), UInt8(number >> 8)]
            }
            completion(.success(value))
        } fail: {
            completion(.failure(ATTFailure($0)))
        }
    }

    func write(
        _ value: [UInt8], to descriptor: GATTTable.Descriptor,
        completion: @escaping (Result<Void, ATTFailure>) -> Void
    ) {
        request {
            guard descriptor.isWritable else { return completion(.failure(.writeNotPermitted)) }
            guard value.count <= 512 else { return completion(.failure(.invalidLength)) }
            descriptor.value = value
            completion(.success(()))
        } fail: {
            completion(.failure(ATTFailure($0)))
        }
    }

    // MARK: Notifications

    /// Writes a client characteristic configuration.
    func configure(
        _ characteristic: GATTTable.Characteristic, _ value: UInt16,
        completion: @escaping (Result<Void, ATTFailure>) -> Void
    ) {
        guard characteristic.descriptors.contains(where: \.isConfiguration) else { return completion(.success(())) }
        let definition = characteristic.definition
        request { [weak self] in
            if value != 0, let failure = definition.subscribeFailure { return completion(.failure(failure)) }
            self?.configurations[characteristic.handle + 1] = value
            let bits = "\(value & 1)\(value >> 1 & 1)"
            self?.peripheral.event("subscribed \(definition.uuid.shortNumber) \(bits)")
            completion(.success(()))
        } fail: {
            completion(.failure(ATTFailure($0)))
        }
    }

    func isSubscribed(to characteristic: GATTTable.Characteristic) -> Bool {
        let handle = characteristic.handle + 1
        return isUp && ((configurations[handle] ?? 0) != 0 || internalSubscriptions.contains(handle))
    }

    /// A notification arrives at the daemon.
    func deliver(_ value: [UInt8], of characteristic: GATTTable.Characteristic) {
        device?.received(value, of: characteristic)
    }

    func servicesChanged() { device?.servicesChanged() }

    // MARK: The end

    /// Ends the link. The daemon learns of it, and what waits for an answer fails.
    /// - Parameter quietly: The device object is being removed and says nothing more.
    func end(reason: UInt8, quietly: Bool = false) {
        guard isUp else { return }
        let device = device
        let pending = takeDown(reason: reason)
        if quietly {
            device?.link = nil
        } else {
            device?.linkEnded(byDisconnect: reason == 0x16)
        }
        for request in pending { request.fail(0x0E) }
    }

    /// The kernel ends a link that no daemon knows any more.
    func dropped() { if isUp { _ = takeDown(reason: 0x13) } }

    private func takeDown(reason: UInt8) -> [Request] {
        isUp = false
        let pending = requests
        requests = []
        peripheral.links.removeAll { $0 === self }
        peripheral.event("disconnected 0x\(Hex.byte(reason))")
        peripheral.simulator?.airChanged(peripheral)
        return pending
    }
}

extension String {
    /// The four digits that tell a UUID from others on its base: `2a37`, or NNNN of the rig's own.
    var shortNumber: String { String(dropFirst(4).prefix(4)) }
}
