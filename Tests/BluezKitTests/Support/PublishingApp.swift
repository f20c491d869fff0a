import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

extension API {
    /// An app with a manager that is powered on, and answers every read with 2a and every write with success.
    func publisher(_ world: any World, options: [String: any Sendable] = [:]) async throws -> any PublishingApp {
        let app: any PublishingApp =
            self == .async ? AsyncPublishingApp(world, options) : DelegatePublishingApp(world, options)
        try await app.awaitState(.poweredOn)
        return app
    }
}

/// An app that is a peripheral. It knows its characteristics by their numbers.
protocol PublishingApp: Sendable {
    func awaitState(_ state: CBManagerState) async throws

    /// Adds a service, which takes the place of one with the same number.
    func add(_ service: Int, _ characteristics: @escaping @Sendable () -> [CBMutableCharacteristic]) async throws
    func remove(_ service: Int) async throws
    /// Removes what was added before the last time.
    func removeEarlier(_ service: Int) async throws
    func advertise(_ name: String) async throws
    func stopAdvertising() async throws
    var isAdvertising: Bool { get async throws }

    /// Which characteristics are subscribed to, or no longer.
    var subscriptions: EventLog<(characteristic: Int, isSubscribed: Bool)> { get }
    func countOfSubscribers(_ characteristic: Int) async throws -> Int
    /// Sends a value to subscribers; throws what the API has for a characteristic that is not published.
    func update(_ characteristic: Int, _ value: Data) async throws

    func publishChannel(encrypted: Bool) async throws -> CBL2CAPPSM
    func unpublishChannel(_ psm: CBL2CAPPSM) async throws
    /// The next channel that a central opens. - Returns: What waits for its end.
    func nextChannel() async throws -> @Sendable () async throws -> Void

    /// Lets go of all it has.
    func release() async throws
}

// MARK: Delegates

private final class DelegatePublishingApp: PublishingApp, @unchecked Sendable {  // holds: what changes is in a box
    let subscriptions = EventLog<(characteristic: Int, isSubscribed: Bool)>()
    private let publisher: Publisher
    private let services = ProtectedBox<[Int: [CBMutableService]]>([:])

    init(_ world: any World, _ options: [String: any Sendable]) {
        publisher = Publisher(world, options: options)
        publisher.onEvent { [subscriptions] manager, event in
            switch event {
            case .read(let request):
                request.value = Data([42])
                manager.respond(to: request, withResult: .success)
            case .write(let requests): manager.respond(to: requests[0], withResult: .success)
            case .subscribed(_, let characteristic): subscriptions.append((characteristic.uuid.sinkNumber, true))
            case .unsubscribed(_, let characteristic): subscriptions.append((characteristic.uuid.sinkNumber, false))
            default: break
            }
        }
    }

    func awaitState(_ state: CBManagerState) async throws {
        try await publisher.next("state \(state.rawValue)") { if case .state(state) = $0 { true } else { nil } }
    }

    func add(_ service: Int, _ characteristics: @escaping @Sendable () -> [CBMutableCharacteristic]) async throws {
        let added = localService(service, characteristics())
        if let error = try await publisher.add(added) { throw error }
        services.withLock { $0[service, default: []].append(added) }
    }

    func remove(_ service: Int) async throws {
        publisher.manager.remove(try #require(services.withLock { $0[service]?.popLast() }))
    }

    func removeEarlier(_ service: Int) async throws {
        publisher.manager.remove(try #require(services.withLock { $0[service]?.removeFirst() }))
    }

    func advertise(_ name: String) async throws {
        if let error = try await publisher.advertise([CBAdvertisementDataLocalNameKey: name]) { throw error }
    }

    func stopAdvertising() async throws { publisher.manager.stopAdvertising() }
    var isAdvertising: Bool { get async throws { publisher.manager.isAdvertising } }

    private func known(_ characteristic: Int) throws -> CBMutableCharacteristic {
        let all = services.withLock { $0.values.compactMap(\.last).flatMap { $0.characteristics ?? [] } }
        return try #require(all.first { $0.uuid.sinkNumber == characteristic } as? CBMutableCharacteristic)
    }

    func countOfSubscribers(_ characteristic: Int) async throws -> Int {
        try known(characteristic).subscribedCentrals?.count ?? 0
    }

    func update(_ characteristic: Int, _ value: Data) async throws {
        let characteristic = try known(characteristic)
        #expect(await publisher.perform { $0.updateValue(value, for: characteristic, onSubscribedCentrals: nil) })
    }

    func publishChannel(encrypted: Bool) async throws -> CBL2CAPPSM {
        try await publisher.publishChannel(encrypted: encrypted)
    }

    func unpublishChannel(_ psm: CBL2CAPPSM) async throws {
        publisher.manager.unpublishL2CAPChannel(psm)
        try await publisher.next("didUnpublish") { if case .unpublished(psm, nil) = $0 { true } else { nil } }
    }

    func nextChannel() async throws -> @Sendable () async throws -> Void {
        let user = ChannelUser(try await publisher.nextChannel())
        return { _ = try await user.events.next("the end of the channel") { $0 == .ended(isInput: true) ? true : nil } }
    }

    func release() async throws {
        services.withLock { $0 = [:] }
        publisher.forgetRecords()
        publisher.release()
    }
}

// MARK: async

private final class AsyncPublishingApp: PublishingApp {
    private struct State {
        var manager: PeripheralManager?
        var services: [Int: [PublishedService]] = [:]
    }

    let subscriptions = EventLog<(characteristic: Int, isSubscribed: Bool)>()
    private let state: ProtectedBox<State>
    private let states = EventLog<CBManagerState>()
    private let channels = EventLog<L2CAPChannel>()
    private let hasEnded: Task<Void, Never>

    init(_ world: any World, _ options: [String: any Sendable]) {
        let manager = PeripheralManager(options: world.managerOptions.merging(options) { _, new in new })
        state = ProtectedBox(State(manager: manager))
        let (all, requests, changes, opened) = (
            manager.states, manager.requests, manager.subscriptions, manager.openedChannels
        )
        hasEnded = Task { [states] in for await state in all { states.append(state) } }
        Task {
            for await request in requests {
                if case .read = request.kind { request.respond(with: Data([42])) } else { request.respond() }
            }
        }
        Task { [subscriptions] in
            for await change in changes {
                subscriptions.append((change.characteristic.uuid.sinkNumber, change.isSubscribed))
            }
        }
        Task { [channels] in for await channel in opened { channels.append(channel) } }
    }

    private var manager: PeripheralManager { get throws { try #require(state.withLock { $0.manager }) } }

    func awaitState(_ state: CBManagerState) async throws {
        try await states.next("state \(state.rawValue)") { $0 == state ? true : nil }
    }

    func add(_ service: Int, _ characteristics: @escaping @Sendable () -> [CBMutableCharacteristic]) async throws {
        let added = try await within { [manager = try manager] in
            try await manager.add(localService(service, characteristics()))
        }
        state.withLock { $0.services[service, default: []].append(added) }
    }

    func remove(_ service: Int) async throws {
        try await manager.remove(#require(state.withLock { $0.services[service]?.popLast() }))
    }

    func removeEarlier(_ service: Int) async throws {
        try await manager.remove(#require(state.withLock { $0.services[service]?.removeFirst() }))
    }

    func advertise(_ name: String) async throws {
        try await within { [manager = try manager] in
            try await manager.startAdvertising([CBAdvertisementDataLocalNameKey: name])
        }
    }

    func stopAdvertising() async throws { try await manager.stopAdvertising() }
    var isAdvertising: Bool { get async throws { try await manager.isAdvertising } }

    private func known(_ characteristic: Int) throws -> PublishedCharacteristic {
        let all = state.withLock { $0.services.values.compactMap(\.last).flatMap(\.characteristics) }
        return try #require(all.first { $0.uuid.sinkNumber == characteristic })
    }

    func countOfSubscribers(_ characteristic: Int) async throws -> Int {
        try await manager.subscribedCentrals(of: known(characteristic)).count
    }

    func update(_ characteristic: Int, _ value: Data) async throws {
        try await within { [manager = try manager, characteristic = try known(characteristic)] in
            try await manager.updateValue(value, for: characteristic)
        }
    }

    func publishChannel(encrypted: Bool) async throws -> CBL2CAPPSM {
        try await within { [manager = try manager] in try await manager.publishL2CAPChannel(withEncryption: encrypted) }
    }

    func unpublishChannel(_ psm: CBL2CAPPSM) async throws {
        try await within { [manager = try manager] in try await manager.unpublishL2CAPChannel(psm) }
    }

    func nextChannel() async throws -> @Sendable () async throws -> Void {
        let channel = try await channels.next("a channel") { $0 }
        channels.forget()
        return {
            let rest = try await within { (try? await channel.read()) ?? nil }
            #expect(rest == nil)
        }
    }

    func release() async throws {
        state.withLock { $0 = State() }
        try await within { [hasEnded] in await hasEnded.value }
    }
}
