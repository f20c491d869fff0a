import Dispatch
import Foundation

/// A central on the simulated air: it connects to an adapter of the simulator that plays the peripheral, or to a
/// ``VirtualPeripheral``, and takes the steps of GATT one by one.
///
/// ```swift
/// let central = simulator.central()
/// try await central.connect(to: "00:B1:5E:00:00:01")
/// let value = try await central.read("2A38")
/// ```
/// Errors are ``ATTFailure`` if the peripheral answered one, else ``ControlError``. Events, told to
/// ``Simulator/onEvent(_:)``: `central connected 00:B1:5E:00:00:01/P`, `central mtu 517`,
/// `central notified UUID HEX`, `central indicated UUID HEX`, `central paired`, `central disconnected 0x13`.
public final class VirtualCentral: @unchecked Sendable, LinkCentral {  // holds: all state is touched inside `sync`
    /// Six bytes in upper case, with colons. It is a random address.
    public let address: String
    /// What it calls itself.
    var name: String { key == "central" ? "Rig Central" : "Rig Central \(key.dropFirst(7))" }
    /// Events of this central carry this name.
    public let key: String

    private weak var home: Simulator?
    var link: Link?
    /// What was found; stays as it was when the peripheral's services change, until ``discover()``.
    var services: [GATTTable.Service] = []
    private var isConfirming = true
    /// Confirmations that are held back.
    private var held: [() -> Void] = []
    /// Addresses of peripherals with which it has a bond.
    private var bonds: Set<String> = []
    /// As the words of the control line had it, for events.
    private var names: [ObjectIdentifier: String] = [:]
    /// What ends the steps that have no answer yet, by their numbers.
    private var unanswered: [Int: () -> Void] = [:]
    private var stepCount = 0

    init(_ address: String, key: String, simulator: Simulator) {
        (self.address, self.key, home) = (address.uppercased(), key, simulator)
    }

    /// - Throws: ``ControlError`` when the simulator has gone.
    var simulator: Simulator {
        get throws {
            guard let home else { throw ControlError("the simulator is gone") }
            return home
        }
    }

    private func event(_ text: String) { home?.tell("\(key) \(text)") }

    // MARK: Steps

    /// Runs `body` on the simulator's queue and waits until it answers.
    func step<T: Sendable>(
        _ body: @escaping (_ link: Link, _ answer: @escaping (Result<T, ATTFailure>) -> Void) throws -> Void
    ) async throws -> T {
        // holds: used on the simulator's queue only
        nonisolated(unsafe) let body = body
        let simulator = try simulator
        return try await withCheckedThrowingContinuation { continuation in
            simulator.sync {
                guard let link else { return continuation.resume(throwing: ControlError("ValueError: not connected")) }
                stepCount += 1
                let number = stepCount
                var resume: ((Result<T, any Error>) -> Void)? = { continuation.resume(with: $0) }
                func finish(_ result: Result<T, any Error>) {
                    let waiting = resume
                    resume = nil
                    waiting?(result)
                }
                // A daemon that has died answers nothing; the end of the link does.
                unanswered[number] = { finish(.failure(ControlError("ConnectionError: disconnected"))) }
                do {
                    try body(link) { [weak self] result in
                        self?.unanswered[number] = nil
                        let isUp = link.isUp || self?.link === link
                        finish(
                            isUp
                                ? result.mapError { $0 as any Error }
                                : .failure(ControlError("ConnectionError: disconnected")))
                    }
                } catch {
                    unanswered[number] = nil
                    finish(.failure(error))
                }
            }
        }
    }

    /// Connects, and finds out about the services.
    /// - Parameters:
    ///   - address: The adapter's, `00:B1:5E:00:00:01`, or a peripheral's.
    ///   - mtu: What this central offers, 23 to 517.
    /// - Returns: The ATT MTU and the UUIDs of the primary services.
    @discardableResult
    public func connect(to address: String, mtu: UInt16 = 517) async throws -> (mtu: UInt16, services: [String]) {
        let simulator = try simulator
        let deadline = ContinuousClock.now + simulator.timing.connectTimeout
        while !simulator.sync({ linkUp(to: address.uppercased(), mtu: mtu) }) {
            guard ContinuousClock.now < deadline else { throw ControlError("TimeoutError: \(address) is not there") }
            try await Task.sleep(for: .milliseconds(1))
        }
        return simulator.sync {
            (link?.mtu ?? 23, services.filter(\.definition.isPrimary).map { UUIDText.short($0.definition.uuid) })
        }
    }

    private func linkUp(to address: String, mtu: UInt16) -> Bool {
        guard link == nil, let peripheral = home?.peripherals[address], peripheral.isOnAir,
            !peripheral.refusesConnections, peripheral.isConnectableNow
        else { return link?.peripheral.address == address }
        let link = Link(central: self, peripheral: peripheral, mtu: mtu)
        self.link = link
        peripheral.links.append(link)
        home?.airChanged(peripheral)
        link.isEncrypted = bonds.contains(address)
        event("connected \(address)\(peripheral.addressType == "public" ? "/P" : "")")
        if link.mtu > 23 { event("mtu \(link.mtu)") }
        peripheral.event("connected \(linkAddress)")
        services = peripheral.table.services
        peripheral.host?.inboundLinkUp(link, address: self.address, type: "random")
        return true
    }

    /// Ends the link.
    public func disconnect() throws {
        try simulator.sync {
            guard let link else { throw ControlError("ValueError: not connected") }
            link.end(reason: 0x13)
        }
    }

    /// Whether it has a link.
    public var isConnected: Bool { home?.sync { link != nil } ?? false }

    /// Finds out about the services again.
    public func discover() throws {
        try simulator.sync {
            guard let link else { throw ControlError("ValueError: not connected") }
            services = link.peripheral.table.services
        }
    }

    /// Pairs, without anybody's help on this side.
    public func pair() async throws {
        let done: Bool = try await step { link, answer in
            let finish = { (paired: Bool) in
                if paired {
                    link.isEncrypted = true
                    self.bonds.insert(link.peripheral.address)
                    self.event("encrypted 1")
                    self.event("paired")
                } else {
                    self.event("pairing-failed 0x05")
                }
                answer(.success(paired))
            }
            guard let adapter = link.peripheral.host else { return finish(link.peripheral.pairing != .reject) }
            adapter.pairInbound(link, completion: finish)
        }
        if !done { throw ControlError("ProtocolError: pairing failed") }
    }

    /// Forgets its bonds; the other side keeps its own.
    public func forgetBonds() { home?.sync { bonds = [] } }

    // MARK: Attributes

    /// A characteristic by its UUID; of several the first.
    func remote(_ uuid: String) throws -> GATTTable.Characteristic {
        let full = UUIDText.full(uuid)
        for service in services {
            if let found = service.characteristics.first(where: { $0.definition.uuid == full }) { return found }
        }
        throw ControlError("ValueError: no characteristic \(uuid)")
    }

    func attribute(_ uuid: String, _ descriptor: String? = nil) throws -> Link.Attribute {
        let characteristic = try remote(uuid)
        guard let descriptor else { return .value(characteristic) }
        guard let found = characteristic.descriptors.first(where: { $0.uuid == UUIDText.full(descriptor) }) else {
            throw ControlError("ValueError: no descriptor \(descriptor) of \(uuid)")
        }
        return .descriptor(found, characteristic.handle + 1)
    }

    /// One Read Request; or, with an offset, one Read Blob Request.
    public func readPart(_ uuid: String, descriptor: String? = nil, offset: Int = 0) async throws -> [UInt8] {
        try await step { link, answer in
            link.readPart(try self.attribute(uuid, descriptor), offset: offset, answer)
        }
    }

    /// The whole value: what does not fit into one answer is asked for by blobs.
    public func read(_ uuid: String, descriptor: String? = nil) async throws -> [UInt8] {
        try await step { link, answer in
            link.readServed(try self.attribute(uuid, descriptor), 0, [], answer)
        }
    }

    /// One Write Request, however long the value.
    public func write(_ value: [UInt8], to uuid: String, descriptor: String? = nil) async throws {
        try await step { link, answer in link.writePart(value, to: try self.attribute(uuid, descriptor), answer) }
    }

    /// One Write Command: nobody answers.
    public func command(_ value: [UInt8], to uuid: String) async throws {
        try await step { (link: Link, answer: @escaping (Result<Void, ATTFailure>) -> Void) in
            link.command(value, to: try self.remote(uuid))
            answer(.success(()))
        }
    }

    /// One Prepare Write Request.
    public func prepare(_ value: [UInt8], for uuid: String, offset: Int) async throws {
        try await step { link, answer in
            link.prepare(value, for: try self.attribute(uuid), offset: offset, answer)
        }
    }

    /// An Execute Write Request: carries out what was prepared, or drops it.
    public func execute(_ isCommit: Bool) async throws {
        try await step { link, answer in link.execute(isCommit, answer) }
    }

    /// Prepared writes, as long as fit, then executed.
    public func writeLong(_ value: [UInt8], to uuid: String) async throws {
        try await step { link, answer in link.writeServed(value, try self.attribute(uuid), 0, answer) }
    }

    /// Writes a client characteristic configuration: 0 none, 1 notifications, 2 indications; any other is wrong.
    public func configure(_ uuid: String, _ value: UInt16) async throws {
        try await step { link, answer in
            let characteristic = try self.remote(uuid)
            self.names[ObjectIdentifier(characteristic)] = uuid
            link.writePart(
                [UInt8(value & 0xFF), UInt8(value >> 8)], to: try self.attribute(uuid, "2902"), answer)
        }
    }

    /// Subscribes to notifications; to indications where there are no others.
    public func subscribe(_ uuid: String) async throws {
        let flags = try simulator.sync { try remote(uuid).definition.flags }
        try await configure(uuid, flags.contains(.indicate) && !flags.contains(.notify) ? 2 : 1)
    }

    /// Whether indications are confirmed as they come. What was held back is confirmed when this becomes true.
    public func setConfirming(_ on: Bool) {
        home?.sync {
            isConfirming = on
            guard on else { return }
            let confirmations = held
            held = []
            for confirm in confirmations { confirm() }
        }
    }

    // MARK: The link

    var linkAddress: String { address }

    func received(_ value: [UInt8], of characteristic: GATTTable.Characteristic, confirm: (() -> Void)?) {
        let uuid = names[ObjectIdentifier(characteristic)] ?? UUIDText.short(characteristic.definition.uuid)
        event("\(confirm == nil ? "notified" : "indicated") \(uuid) \(Hex.text(value))")
        guard let confirm else { return }
        // Over the air and back, so that the daemon is done with what it does now.
        if isConfirming { home?.after(.zero, confirm) } else { held.append(confirm) }
    }

    func servicesChanged(_ handles: ClosedRange<UInt16>) {
        guard
            let changed = services.lazy.flatMap(\.characteristics).first(where: { $0.definition.uuid == "2a05".asUUID }
            ),
            link?.configurations[changed.handle + 1] == 2
        else { return }
        let bytes = [handles.lowerBound, handles.upperBound].flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] }
        event("indicated 2a05 \(Hex.text(bytes))")
    }

    func linkEnded(reason: UInt8) {
        link = nil
        held = []
        names = [:]
        let ended = unanswered.sorted { $0.key < $1.key }
        unanswered = [:]
        for (_, end) in ended { end() }
        event("disconnected 0x\(Hex.byte(reason == 0x16 ? 0x13 : reason))")
    }
}

extension Simulator {
    /// The rig's central, `F0:F1:F2:00:00:04`; number 2 is another, `…:05`, and so on up to 9.
    public func central(_ number: Int = 1) -> VirtualCentral {
        sync {
            let key = number == 1 ? "central" : "central\(number)"
            if let known = centrals[key] { return known }
            let central = VirtualCentral("F0:F1:F2:00:00:0\(3 + number)", key: key, simulator: self)
            centrals[key] = central
            return central
        }
    }
}
