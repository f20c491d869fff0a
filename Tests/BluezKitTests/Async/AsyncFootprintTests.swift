import BluezKitSimulator
import CoreBluetooth
import Foundation
import Synchronization
import Testing

@testable import CoreBluetoothAsync

/// What an app does not listen to costs no more and no more memory, and what is open costs no threads: in every way in
/// which an app can fail to listen.
@Suite struct AsyncFootprintTests {
    /// A manager that publishes, and a central that uses it.
    private func published(
        _ characteristics: [CBMutableCharacteristic], _ world: SimulatedWorld
    ) async throws -> (PeripheralManager, PublishedService) {
        let manager = PeripheralManager(options: world.managerOptions)
        let service = localService(0x100, characteristics)
        let published = try await within {
            let published = try await manager.add(service)
            try await manager.startAdvertising([CBAdvertisementDataLocalNameKey: "Kit"])
            return published
        }
        try await world.connect()
        return (manager, published)
    }

    enum Listener: CaseIterable {
        /// The app has never asked for requests.
        case none
        /// There is a sequence that no task iterates.
        case idle
        /// There was a consumer, which is gone.
        case gone
    }

    @Test("RQ-6 requests without a listener are not kept: the last 256 at most", arguments: Listener.allCases)
    func requests(_ listener: Listener) async throws {
        let world = try await SimulatedWorld(.calm)  // 3,000 requests, as fast as they go
        let (manager, _) = try await published([local(0x110, [.writeWithoutResponse, .write])], world)
        var sequence: EventSequence<ATTRequest, Never>?
        if listener != .none { sequence = manager.requests }
        if listener == .gone { sequence = nil }
        let central = world.simulator.central()
        for number in 0..<3000 {
            try await central.command([UInt8(number & 0xFF), UInt8(number >> 8)], to: sinkUUID(0x110).uuidString)
        }
        try await eventually("all have arrived, and few are kept") { await manager.keptRequests <= 256 }
        // The newest ones are those that are kept.
        let late = sequence ?? manager.requests
        if listener != .gone {
            let last = try await within { () -> Data? in
                for await request in late {
                    guard case .write(let writes) = request.kind else { continue }
                    if writes[0].value == Data([UInt8(2999 & 0xFF), UInt8(2999 >> 8)]) { return writes[0].value }
                }
                return nil
            }
            #expect(last != nil)
        }
    }

    @Test("withdrawals while Bluetooth is off are remembered once, however often they are repeated")
    func calledOff() async throws {
        let world = try await SimulatedWorld(.calm)  // counts bytes
        let manager = PeripheralManager(options: world.managerOptions)
        try await within { try await manager.waitUntilReady() }
        try await world.control("rig power off")
        try await within { for await state in manager.states where state == .poweredOff { return } }
        func withdraw(_ count: Int) async {
            for _ in 0..<count {
                await manager.stopAdvertising()
                await manager.removeAllServices()
            }
        }
        await withdraw(5000)  // what the first calls need stays
        let before = residentSize()
        let count = max(100_000, thorough(200_000))
        await withdraw(count)
        let more = residentSize() - before
        #expect(more < 25 * count, "\(more) bytes")  // it was 29 for each of two calls
    }

    @Test("L2-3 sixty open channels need no thread", .timeLimit(.minutes(1)))
    func channelThreads() async throws {
        let world = try await SimulatedWorld(.calm)  // counts threads
        let manager = PeripheralManager(options: world.managerOptions)
        let opened = manager.openedChannels
        let psm = try await within {
            let psm = try await manager.publishL2CAPChannel(withEncryption: false)
            try await manager.startAdvertising()
            return psm
        }
        try await world.connect()
        let central = world.simulator.central()
        var iterator = opened.makeAsyncIterator()
        var channels: [CoreBluetoothAsync.L2CAPChannel] = []
        var others: [VirtualChannel] = []
        let before = threadNames()
        for _ in 0..<60 {
            others.append(try await central.openChannel(UInt16(psm)))
            channels.append(try #require(await iterator.next()))
        }
        // Each of them works.
        for (channel, other) in zip(channels, others) {
            try await within { try await channel.write(Data([1])) }
            #expect(try await within { await other.receive(upTo: 1) }?.count == 1)
        }
        let more = threadNames().count - before.count
        #expect(more < 30, "\(more) more threads")
    }

    private func threadNames() -> [String] {
        let tasks = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/task")) ?? []
        return tasks.compactMap { try? String(contentsOfFile: "/proc/self/task/\($0)/comm", encoding: .utf8) }
    }
}

extension PeripheralManager {
    /// How many requests the manager holds.
    var keptRequests: Int { get async { await core.keptRequests } }
}

extension PeripheralManagerCore {
    fileprivate var keptRequests: Int { delegate.requests.count }
}
