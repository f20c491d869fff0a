import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

/// A central that means no good, with `async`: the other central is served, and nothing is kept of the first.
extension Scenarios {
    @Suite struct AsyncHostileScenarios {
        typealias World = any BluezKitTests.World

        /// A manager that answers every request, seen by two connected centrals.
        private func publish(
            _ properties: [(Int, CBCharacteristicProperties)]
        ) async throws -> (World, PeripheralManager, PublishedService, Task<Void, Never>) {
            let world = try await Worlds.make()
            let manager = PeripheralManager(options: world.managerOptions)
            let requests = manager.requests
            let service = try await within {
                let service = try await manager.add(localService(0x100, properties.map { local($0, $1) }))
                try await manager.startAdvertising([CBAdvertisementDataLocalNameKey: "Kit"])
                return service
            }
            let server = Task {
                for await request in requests {
                    if case .read = request.kind { request.respond(with: Data([42])) } else { request.respond() }
                }
            }
            for central in ["central", "central2"] { try await world.connect(central) }
            return (world, manager, service, server)
        }

        /// Runs the hostile central while the other one reads all the time.
        private func during(_ line: String, _ world: World, read characteristic: PublishedCharacteristic) async throws {
            let other = try RigWorld.another(like: world)
            let isDone = ProtectedBox(false)
            async let worst: String = {
                defer { isDone.withLock { $0 = true } }
                return try await world.control(line)
            }()
            repeat {
                #expect(try await other.control("central2 read \(characteristic.uuid.line)") == "2a")
            } while !isDone.withLock { $0 }
            _ = try await worst
        }

        // Slow: in the rig, 300 hostile requests go over the air while the other central reads all the time.
        @Test(
            "RQ-9 writes of any length, unexecuted prepared ones, invalid requests: the other central is served",
            .timeLimit(.minutes(10)))
        func storm() async throws {
            let (world, manager, service, server) = try await publish([
                (0x110, [.read, .write]), (0x111, .writeWithoutResponse), (0x112, [.read, .notify]),
            ])
            try await during("central storm \(Worlds.isRig ? 300 : 10_000) 7", world, read: service.characteristics[0])
            for central in ["central", "central2"] {
                _ = try await world.control("\(central) disconnect")
                try await world.awaitConnections(central, 0)
            }
            try await world.connect()
            #expect(try await world.control("central read \(service.characteristics[0].uuid.line)") == "2a")
            #expect(await manager.isAdvertising)
            server.cancel()
        }

        // Slow: in the rig, the central connects, subscribes and disappears ten times over the air.
        @Test(
            "UP-7 a central that repeatedly subscribes and disappears: reported and removed each time",
            .timeLimit(.minutes(10)))
        func churn() async throws {
            let (world, manager, service, server) = try await publish([(0x110, .read), (0x111, .notify)])
            let (read, notifying) = (service.characteristics[0], service.characteristics[1])
            let count = Worlds.isRig ? 10 : 1000
            let changes = manager.subscriptions
            let log = EventLog<Bool>()
            let counting = Task { for await change in changes { log.append(change.isSubscribed) } }
            _ = try await world.control("central disconnect")
            try await world.awaitConnections("central", 0)
            try await during(
                "central churn \(world.adapterAddress) \(notifying.uuid.line) \(count)", world, read: read)
            for _ in 0..<count { try await log.next("the end of a subscription") { $0 ? nil : true } }
            #expect(log.all.count { $0 } == count && changes.droppedCount == 0)
            #expect(await manager.subscribedCentrals(of: notifying) == [])
            #expect(try await world.control("central2 read \(read.uuid.line)") == "2a")
            counting.cancel()
            server.cancel()
        }
    }
}
