import BluezDBus
import Dispatch
import Foundation

/// Why an operation of a ``VirtualCentral`` failed, if not because the peripheral answered with an ``ATTFailure``.
public enum VirtualCentralError: Error, Hashable, CustomStringConvertible {
    /// The central has no link.
    case notConnected
    /// The link ended before the operation was answered.
    case disconnected
    /// No link could be made within ``SimulatorTiming/connectTimeout``.
    case timedOut(address: String)
    /// No advertisement of this address was received.
    case nothingHeard(address: String)
    /// The peripheral refused to pair, or pairing failed.
    case pairingFailed
    /// The peripheral has no characteristic with this UUID.
    case noCharacteristic(String)
    /// The characteristic has no descriptor with this UUID.
    case noDescriptor(String, characteristic: String)
    /// The peripheral has no characteristics at all.
    case noCharacteristics
    /// The simulator was released.
    case simulatorReleased

    /// The reason in words.
    public var description: String {
        switch self {
        case .notConnected: "not connected"
        case .disconnected: "disconnected"
        case .timedOut(let address): "timed out connecting to \(address)"
        case .nothingHeard(let address): "nothing heard from \(address)"
        case .pairingFailed: "pairing failed"
        case .noCharacteristic(let uuid): "no characteristic \(uuid)"
        case .noDescriptor(let uuid, let characteristic): "no descriptor \(uuid) of characteristic \(characteristic)"
        case .noCharacteristics: "no characteristics"
        case .simulatorReleased: "the simulator was released"
        }
    }
}

/// A simulated central: it connects to an adapter of the simulator in the peripheral role, or to a
/// ``VirtualPeripheral``, and performs the procedures of GATT one by one.
///
/// ```swift
/// let central = simulator.central()
/// try await central.connect(to: "00:B1:5E:00:00:01")
/// let value = try await central.read("2A38")
/// ```
/// Errors are ``ATTFailure`` if the peripheral answered with one, otherwise ``VirtualCentralError``. Events for
/// ``Simulator/onEvent(_:)``: `central connected 00:B1:5E:00:00:01/P`, `central mtu 517`,
/// `central notified UUID HEX`, `central indicated UUID HEX`, `central paired`, `central disconnected 0x13`.
public final class VirtualCentral: @unchecked Sendable, LinkCentral {  // holds: all state is touched inside `sync`
    /// Six bytes in upper case, with colons. It is a random address.
    public let address: String
    /// Its name.
    var name: String {
        server?.content.localName ?? (key == "central" ? "Central" : "Central \(key.dropFirst(7))")
    }
    /// The phone that this is.
    var phone: VirtualPhone?
    /// The attributes that it serves over the links that it makes. It has the same address and key.
    var server: VirtualPeripheral? { phone?.server }
    /// Events of this central begin with this name.
    public let key: String

    private weak var home: Simulator?
    var link: Link?
    /// What was discovered. It stays unchanged when the peripheral's services change, until ``discover()``.
    var services: [GATTTable.Service] = []
    private var isConfirming = true
    /// Confirmations that are withheld.
    private var held: [() -> Void] = []
    /// Addresses of bonded peripherals.
    private var bonds: Set<String> = []
    /// Characteristics as the control line named them, for events.
    private var names: [ObjectIdentifier: String] = [:]
    /// Ends the steps that have not been answered, by number.
    private var unanswered: [Int: () -> Void] = [:]
    private var stepCount = 0
    private var listeners: [Int: (uuid: String, values: AsyncStream<[UInt8]>.Continuation)] = [:]
    var lastUsage: LinkUsage?

    init(_ address: String, key: String, simulator: Simulator) {
        (self.address, self.key, home) = (address.uppercased(), key, simulator)
    }

    /// - Throws: ``VirtualCentralError/simulatorReleased``
    var simulator: Simulator {
        get throws {
            guard let home else { throw VirtualCentralError.simulatorReleased }
            return home
        }
    }

    private func event(_ text: String) { home?.tell("\(key) \(text)") }

    // MARK: Steps

    /// Runs `body` on the simulator's queue and waits for its answer.
    func step<T: Sendable>(
        _ body: @escaping (_ link: Link, _ answer: @escaping (Result<T, ATTFailure>) -> Void) throws -> Void
    ) async throws -> T {
        // holds: used on the simulator's queue only
        nonisolated(unsafe) let body = body
        let simulator = try simulator
        return try await simulator.clock.run { [self] in try await begin(body, simulator) }
    }

    private func begin<T: Sendable>(
        _ body: @escaping (_ link: Link, _ answer: @escaping (Result<T, ATTFailure>) -> Void) throws -> Void,
        _ simulator: Simulator
    ) async throws -> T {
        // holds: used on the simulator's queue only
        nonisolated(unsafe) let body = body
        return try await withCheckedThrowingContinuation { continuation in
            simulator.sync {
                guard let link else { return continuation.resume(throwing: VirtualCentralError.notConnected) }
                stepCount += 1
                let number = stepCount
                var resume: ((Result<T, any Error>) -> Void)? = { continuation.resume(with: $0) }
                func finish(_ result: Result<T, any Error>) {
                    let waiting = resume
                    resume = nil
                    waiting?(result)
                }
                // A crashed daemon does not answer; the end of the link ends the step.
                unanswered[number] = { finish(.failure(VirtualCentralError.disconnected)) }
                do {
                    try body(link) { [weak self] result in
                        self?.unanswered[number] = nil
                        let isUp = link.isUp || self?.link === link
                        finish(
                            isUp
                                ? result.mapError { $0 as any Error }
                                : .failure(VirtualCentralError.disconnected))
                    }
                } catch {
                    unanswered[number] = nil
                    finish(.failure(error))
                }
            }
        }
    }

    /// Connects, and discovers the services.
    /// - Parameters:
    ///   - address: The address of an adapter, such as `00:B1:5E:00:00:01`, or of a peripheral.
    ///   - mtu: The ATT MTU that this central offers, 23 to 517.
    /// - Returns: The ATT MTU and the UUIDs of the primary services.
    @discardableResult
    public func connect(to address: String, mtu: UInt16 = 517) async throws -> (mtu: UInt16, services: [String]) {
        let simulator = try simulator
        try await simulator.clock.run { [self] in
            let deadline = simulator.clock.now.advanced(by: simulator.timing.connectTimeout)
            while !simulator.sync({ linkUp(to: address.uppercased(), mtu: mtu) }) {
                guard simulator.clock.now < deadline else { throw VirtualCentralError.timedOut(address: address) }
                try await simulator.clock.sleep(for: .milliseconds(1))
            }
        }
        return simulator.sync {
            (link?.mtu ?? 23, services.filter(\.definition.isPrimary).map { UUIDText.short($0.definition.uuid) })
        }
    }

    private func linkUp(to address: String, mtu: UInt16) -> Bool {
        guard link == nil, let peripheral = home?.peripherals[address], peripheral.isOnAir,
            !peripheral.faults.refusesLinks, peripheral.isConnectableNow
        else { return link?.peripheral.address == address }
        let link = Link(central: self, peripheral: peripheral, mtu: mtu)
        self.link = link
        peripheral.links.append(link)
        home?.airChanged(peripheral)
        link.isEncrypted = server?.holdsBond ?? bonds.contains(address)
        event("connected \(address)\(peripheral.addressType == "public" ? "/P" : "")")
        if link.mtu > 23 { event("mtu \(link.mtu)") }
        peripheral.event("connected \(linkAddress)")
        services = peripheral.table.services
        peripheral.host?.inboundLinkUp(link, address: server?.airAddress ?? self.address, type: "random")
        return true
    }

    /// Ends the link.
    public func disconnect() throws {
        try simulator.sync {
            guard let link else { throw VirtualCentralError.notConnected }
            link.end(reason: 0x13)
        }
    }

    /// Whether it is connected.
    public var isConnected: Bool { home?.sync { link != nil } ?? false }

    /// Discovers the services again.
    public func discover() throws {
        try simulator.sync {
            guard let link else { throw VirtualCentralError.notConnected }
            services = link.peripheral.table.services
        }
    }

    /// Pairs, without user interaction on this side.
    public func pair() async throws {
        let done: Bool = try await step { link, answer in
            let finish = { (paired: Bool) in
                if paired {
                    link.isEncrypted = true
                    self.bonds.insert(link.peripheral.address)
                    self.server?.holdsBond = true
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
        if !done { throw VirtualCentralError.pairingFailed }
    }

    /// Deletes its bonds; the peripherals keep theirs.
    public func forgetBonds() { home?.sync { bonds = [] } }

    // MARK: Attributes

    /// The first characteristic with this UUID.
    func remote(_ uuid: String) throws -> GATTTable.Characteristic {
        let full = UUIDText.full(uuid)
        for service in services {
            if let found = service.characteristics.first(where: { $0.definition.uuid == full }) { return found }
        }
        throw VirtualCentralError.noCharacteristic(uuid)
    }

    func attribute(_ uuid: String, _ descriptor: String? = nil) throws -> Link.Attribute {
        let characteristic = try remote(uuid)
        guard let descriptor else { return .value(characteristic) }
        guard let found = characteristic.descriptors.first(where: { $0.uuid == UUIDText.full(descriptor) }) else {
            throw VirtualCentralError.noDescriptor(descriptor, characteristic: uuid)
        }
        return .descriptor(found, characteristic.handle + 1)
    }

    /// Sends one Read Request or, with an offset, one Read Blob Request.
    public func readPart(_ uuid: String, descriptor: String? = nil, offset: Int = 0) async throws -> [UInt8] {
        try await step { link, answer in
            link.readPart(try self.attribute(uuid, descriptor), offset: offset, answer)
        }
    }

    /// Reads the whole value, with Read Blob Requests if it does not fit into one answer.
    public func read(_ uuid: String, descriptor: String? = nil) async throws -> [UInt8] {
        try await step { link, answer in
            link.readServed(try self.attribute(uuid, descriptor), 0, [], answer)
        }
    }

    /// Sends one Write Request, whatever the length of the value.
    public func write(_ value: [UInt8], to uuid: String, descriptor: String? = nil) async throws {
        try await step { link, answer in link.writePart(value, to: try self.attribute(uuid, descriptor), answer) }
    }

    /// Sends one Write Command, which is not answered.
    public func command(_ value: [UInt8], to uuid: String) async throws {
        try await step { (link: Link, answer: @escaping (Result<Void, ATTFailure>) -> Void) in
            link.command(value, to: try self.remote(uuid))
            answer(.success(()))
        }
    }

    /// Sends one Prepare Write Request.
    public func prepare(_ value: [UInt8], for uuid: String, offset: Int) async throws {
        try await step { link, answer in
            link.prepare(value, for: try self.attribute(uuid), offset: offset, answer)
        }
    }

    /// Sends an Execute Write Request, which executes or discards the prepared writes.
    public func execute(_ isCommit: Bool) async throws {
        try await step { link, answer in link.execute(isCommit, answer) }
    }

    /// Sends as many Prepare Write Requests as needed, then executes them.
    public func writeLong(_ value: [UInt8], to uuid: String) async throws {
        try await step { link, answer in link.writeServed(value, try self.attribute(uuid), 0, answer) }
    }

    /// Writes a client characteristic configuration: 0 none, 1 notifications, 2 indications; all other values are
    /// invalid.
    ///
    /// Returns when the peripheral has confirmed it. An app's `didSubscribeTo` comes some moments later, which
    /// ``subscribe(_:)`` waits for.
    public func configure(_ uuid: String, _ value: UInt16) async throws {
        try await step { link, answer in
            let characteristic = try self.remote(uuid)
            self.names[ObjectIdentifier(characteristic)] = uuid
            link.writePart(
                [UInt8(value & 0xFF), UInt8(value >> 8)], to: try self.attribute(uuid, "2902"), answer)
        }
    }

    /// The values of a characteristic that are notified or indicated to this central from now on, on every link.
    /// Subscribe to it as well (``subscribe(_:)``).
    public func values(of uuid: String) -> AsyncStream<[UInt8]> {
        AsyncStream { continuation in
            home?.sync {
                stepCount += 1
                let number = stepCount
                listeners[number] = (UUIDText.full(uuid), continuation)
                continuation.onTermination = { [weak self] _ in
                    guard let self else { return }
                    home?.sync { self.listeners[number] = nil }
                }
            }
        }
    }

    /// Whether indications are confirmed on arrival. Withheld confirmations are sent when this becomes true.
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
        for listener in listeners.values where listener.uuid == characteristic.definition.uuid {
            listener.values.yield(value)
        }
        guard let confirm else { return }
        // Over the air and back, so that the daemon has finished its current work.
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
    /// A central, `F0:F1:F2:00:00:04`, always the same one; number 2 is another one, `…:05`, and so on, up to 200.
    public func central(_ number: Int = 1) -> VirtualCentral {
        precondition((1...200).contains(number), "centrals have the numbers 1 to 200")
        return sync {
            let key = number == 1 ? "central" : "central\(number)"
            if let known = centrals[key] { return known }
            let central = VirtualCentral("F0:F1:F2:00:00:\(Hex.byte(UInt8(3 + number)))", key: key, simulator: self)
            centrals[key] = central
            return central
        }
    }
}
