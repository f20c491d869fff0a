import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// A central that means no good: in the simulator in numbers, in the rig against the real bluetoothd. With delegates
/// and with `async`.
extension Scenarios {
    @Suite struct HostileCentralScenarios {
        private func publish(
            _ api: API, _ characteristics: @escaping @Sendable () -> [CBMutableCharacteristic]
        ) async throws -> (any World, any PublishingApp) {
            let world = try await Worlds.make()
            let app = try await api.publisher(world)
            try await app.add(0x100, characteristics)
            try await app.advertise("Kit")
            for central in ["central", "central2"] { try await world.connect(central) }
            return (world, app)
        }

        /// Runs the hostile central while the other one continues.
        private func during(_ line: String, _ world: any World, read characteristic: Int) async throws -> String {
            let other = try RigWorld.another(like: world)
            let isDone = ProtectedBox(false)
            async let worst = {
                defer { isDone.withLock { $0 = true } }
                return try await world.control(line)
            }()
            repeat {
                #expect(try await other.control("central2 read \(sinkUUID(characteristic).line)") == "2a")
            } while !isDone.withLock { $0 }
            return try await worst
        }

        /// What is kept for requests and centrals.
        private func leftovers(_ world: any World) -> Int {
            let session = Session.shared(.init(address: world.busAddress, adapter: nil))
            return session.queue.sync { session.peripheral.requests.count + session.peripheral.remoteCentrals.count }
        }

        // Slow: in the rig, 300 hostile requests go over the air while the other central reads all the time.
        @Test(
            "RQ-9 writes of any length, unexecuted prepared ones, invalid requests: the other central is served",
            .timeLimit(.minutes(10)), arguments: API.allCases)
        func storm(_ api: API) async throws {
            let (world, app) = try await publish(api) {
                [
                    local(0x110, [.read, .write]), local(0x111, .writeWithoutResponse),
                    local(0x112, [.read, .notify]), local(0x113, .read, value: Data(count: 100)),
                ]
            }
            let count = Worlds.isRig ? 300 : thorough(10_000)
            let answer = try await during("central storm \(count) 7", world, read: 0x110)
            #expect(answer.contains("errors="))
            for central in ["central", "central2"] {
                _ = try await world.control("\(central) disconnect")
                try await world.awaitConnections(central, 0)
            }
            // A new one finds everything in order.
            try await world.connect()
            #expect(try await world.control("central read \(sinkUUID(0x110).line)") == "2a")
            _ = try await world.control("central disconnect")
            try await eventually("nothing is left of requests and centrals") { leftovers(world) == 0 }
            #expect(try await app.isAdvertising)
        }

        // Slow: in the rig, the central connects, subscribes and disappears ten times over the air.
        @Test(
            "UP-7 a central that repeatedly subscribes and disappears: reported and removed each time",
            .timeLimit(.minutes(10)), arguments: API.allCases)
        func churn(_ api: API) async throws {
            let (world, app) = try await publish(api) { [local(0x110, .read), local(0x111, .notify)] }
            let count = Worlds.isRig ? 10 : 1000
            _ = try await world.control("central disconnect")
            try await world.awaitConnections("central", 0)
            _ = try await during(
                "central churn \(world.adapterAddress) \(sinkUUID(0x111).line) \(count)", world, read: 0x110)
            for _ in 0..<count {
                try await app.subscriptions.next("the end of a subscription") { $0 == (0x111, false) ? true : nil }
            }
            #expect(app.subscriptions.all.count { $0.isSubscribed } == count)
            #expect(try await app.countOfSubscribers(0x111) == 0)
            #expect(try await world.control("central2 read \(sinkUUID(0x110).line)") == "2a")
        }
    }
}
