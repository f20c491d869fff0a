import CoreBluetooth
import Foundation
import Testing

/// A peripheral manager with a delegate that records every callback, and responds to reads and writes as configured.
/// Tests wait for what they expect, with a generous deadline, and never sleep.
final class Publisher: NSObject, CBPeripheralManagerDelegate, @unchecked Sendable {
    // holds: the log is safe; the rest is constant after init, or touched on `queue` only
    enum Event {
        case state(CBManagerState)
        case advertising((any Error)?)
        case added(CBService, (any Error)?)
        case subscribed(CBCentral, CBCharacteristic)
        case unsubscribed(CBCentral, CBCharacteristic)
        case read(CBATTRequest)
        case write([CBATTRequest])
        case ready
        case published(CBL2CAPPSM, (any Error)?)
        case unpublished(CBL2CAPPSM, (any Error)?)
        case channel(CBL2CAPChannel?, (any Error)?)
    }

    /// A callback and what could be seen inside it.
    struct Record {
        let event: Event
        let managerState: CBManagerState
        let isAdvertising: Bool
        let subscribers: [CBCentral]?
        let wasOnQueue: Bool
        let depth: Int
    }

    /// Kept: a simulator ends when it is released.
    let world: any World
    let queue: DispatchQueue
    private(set) var manager: CBPeripheralManager!  // set in init, nil only after `release`
    /// Runs inside each callback, on the queue, after it was noted.
    private let handler = ProtectedBox<(@Sendable (CBPeripheralManager, Event) -> Void)?>(nil)
    private let log = EventLog<Record>()
    private var depth = 0
    private static let queues = QueueMark()

    init(
        _ world: any World, queue: DispatchQueue = DispatchQueue(label: "test.publisher"), options: [String: Any] = [:]
    ) {
        (self.world, self.queue) = (world, queue)
        super.init()
        Self.queues.mark(queue)
        // On its queue: no callback comes before it is known.
        queue.sync {
            manager = CBPeripheralManager(
                delegate: self, queue: queue, options: world.managerOptions.merging(options) { $1 })
        }
    }

    /// Releases the manager.
    func release() { queue.sync { manager = nil } }

    /// Has the world's central connected to a service 0100 with these.
    static func connected(
        _ characteristics: [CBMutableCharacteristic], mtu: Int = 517
    ) async throws -> (any World, Publisher) {
        let world = try await Worlds.make()
        let publisher = Publisher(world)
        try await publisher.powerOn()
        #expect(try await publisher.add(localService(0x100, characteristics)) == nil)
        #expect(try await publisher.advertise() == nil)
        try await world.connect(mtu: mtu)
        return (world, publisher)
    }

    /// Every read gets the byte 42, every write its consent.
    func answerEverything() {
        onEvent { manager, event in
            switch event {
            case .read(let request):
                request.value = Data([42])
                manager.respond(to: request, withResult: .success)
            case .write(let requests): manager.respond(to: requests[0], withResult: .success)
            default: break
            }
        }
    }

    func onEvent(_ body: @escaping @Sendable (CBPeripheralManager, Event) -> Void) { handler.withLock { $0 = body } }

    // MARK: Waiting

    @discardableResult
    func next<T>(
        _ what: String, within seconds: Double = world_deadline, _ pick: @escaping (Event) -> T?
    ) async throws -> T { try await log.next(what, within: seconds) { pick($0.event) } }

    func nextRecord<T>(_ what: String, _ pick: @escaping (Record) -> T?) async throws -> T {
        try await log.next(what, pick)
    }

    var events: [Event] { log.all.map(\.event) }
    var records: [Record] { log.all }
    func forgetRecords() { log.forget() }
    func count(_ predicate: (Event) -> Bool) -> Int { events.filter(predicate).count }

    @discardableResult
    func perform<T>(_ body: @escaping @Sendable (CBPeripheralManager) -> T) async -> T {
        // holds: the body has returned its value when the continuation resumes
        nonisolated(unsafe) var result: T?
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            queue.async { [self] in
                result = body(manager)
                continuation.resume()
            }
        }
        return result!
    }

    private func note(_ event: Event, _ characteristic: CBCharacteristic? = nil) {
        depth += 1
        log.append(
            Record(
                event: event, managerState: manager?.state ?? .unknown, isAdvertising: manager?.isAdvertising ?? false,
                subscribers: (characteristic as? CBMutableCharacteristic)?.subscribedCentrals,
                wasOnQueue: Self.queues.isHere, depth: depth))
        if let manager { handler.withLock { $0 }?(manager, event) }
        depth -= 1
    }

    // MARK: Callbacks

    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) { note(.state(peripheral.state)) }
    func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
        note(.advertising(error))
    }
    func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
        note(.added(service, error))
    }
    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
    ) { note(.subscribed(central, characteristic), characteristic) }
    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
    ) { note(.unsubscribed(central, characteristic), characteristic) }
    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
        note(.read(request))
    }
    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
        note(.write(requests))
    }
    func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) { note(.ready) }
    func peripheralManager(
        _ peripheral: CBPeripheralManager, didPublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) { note(.published(PSM, error)) }
    func peripheralManager(
        _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) { note(.unpublished(PSM, error)) }
    func peripheralManager(_ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
        note(.channel(channel, error))
    }
}

extension Publisher {
    func powerOn() async throws {
        try await next("power") { if case .state(.poweredOn) = $0 { true } else { nil } }
    }

    /// Adds a service and waits for its answer.
    @discardableResult
    func add(_ service: CBMutableService) async throws -> (any Error)? {
        manager.add(service)
        return try await next("didAdd \(service.uuid)") {
            if case .added(let added, let error) = $0, added === service { [error] } else { nil }
        }[0]
    }

    @discardableResult
    func advertise(_ data: [String: Any]? = nil) async throws -> (any Error)? {
        manager.startAdvertising(data)
        return try await next("didStartAdvertising") { if case .advertising(let error) = $0 { [error] } else { nil } }[
            0]
    }

    /// Publishes an L2CAP channel. - Returns: its PSM.
    func publishChannel(encrypted: Bool = false) async throws -> CBL2CAPPSM {
        manager.publishL2CAPChannel(withEncryption: encrypted)
        return try await next("didPublish") { if case .published(let psm, nil) = $0 { psm } else { nil } }
    }

    func nextChannel() async throws -> CBL2CAPChannel {
        try await next("didOpen") { if case .channel(let channel?, nil) = $0 { channel } else { nil } }
    }

    func nextRead() async throws -> CBATTRequest {
        try await next("a read") { if case .read(let request) = $0 { request } else { nil } }
    }

    func nextWrite() async throws -> [CBATTRequest] {
        try await next("a write") { if case .write(let requests) = $0 { requests } else { nil } }
    }

    func nextSubscription() async throws -> (CBCentral, CBCharacteristic) {
        let pair: [(CBCentral, CBCharacteristic)] = try await next("a subscription") {
            if case .subscribed(let central, let characteristic) = $0 { [(central, characteristic)] } else { nil }
        }
        return pair[0]
    }

    func nextUnsubscription() async throws -> (CBCentral, CBCharacteristic) {
        let pair: [(CBCentral, CBCharacteristic)] = try await next("the end of a subscription") {
            if case .unsubscribed(let central, let characteristic) = $0 { [(central, characteristic)] } else { nil }
        }
        return pair[0]
    }
}

extension World {
    /// The adapter, for the other side of a link.
    var adapterAddress: String { "00:B1:5E:00:00:01/P" }

    /// An independent central connects, and finds what is published.
    @discardableResult
    func connect(_ central: String = "central", mtu: Int = 517) async throws -> String {
        // As centrals do, it tries again: bluetoothd 5.66 does not always answer one that reconnects immediately.
        var triesLeft = 3
        while true {
            _ = try? await control("\(central) disconnect")
            try await awaitConnections(central, 0)
            // It takes a link that is made before it has noticed the end of the last one for another bearer of that,
            // with its MTU.
            let address = central == "central" ? "F0:F1:F2:00:00:04" : "F0:F1:F2:00:00:05"
            try await eventually("bluetoothd has noticed the end of the link") { try await !saysConnected(address) }
            triesLeft -= 1
            do { return try await control("\(central) connect \(adapterAddress) \(mtu)") } catch {
                if triesLeft == 0 { throw error }
            }
        }
    }
}

/// A service of the tests with characteristics made of their UUID numbers, `bb1eNNNN-…`.
func localService(_ number: Int, _ characteristics: [CBMutableCharacteristic]) -> CBMutableService {
    let service = CBMutableService(type: sinkUUID(number), primary: true)
    service.characteristics = characteristics
    return service
}

func local(
    _ number: Int, _ properties: CBCharacteristicProperties, value: Data? = nil,
    _ permissions: CBAttributePermissions = [.readable, .writeable]
) -> CBMutableCharacteristic {
    CBMutableCharacteristic(
        type: sinkUUID(number), properties: properties, value: value,
        permissions: value == nil ? permissions : .readable)
}

extension CBUUID {
    /// As control lines take it.
    var line: String { uuidString.lowercased() }
    /// That of `sinkUUID`.
    var sinkNumber: Int { data.dropFirst(2).prefix(2).reduce(0) { $0 << 8 | Int($1) } }
}
