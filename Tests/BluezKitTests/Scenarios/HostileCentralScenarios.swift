import Foundation
import Testing

@testable import BluezKit

/// A central that means no good: in the simulator in numbers, in the rig against the real bluetoothd.
extension Scenarios {
    @Suite struct HostileCentralScenarios {
        private func publish(_ characteristics: [CBMutableCharacteristic]) async throws -> (any World, Publisher) {
            let (world, publisher) = try await Publisher.connected(characteristics)
            publisher.answerEverything()
            try await world.connect("central2")
            return (world, publisher)
        }

        /// Runs the hostile central while the other one continues.
        private func during(
            _ line: String, _ world: any World, read characteristic: CBMutableCharacteristic
        ) async throws -> String {
            let other = try RigWorld.another(like: world)
            let isDone = ProtectedBox(false)
            async let worst = {
                defer { isDone.withLock { $0 = true } }
                return try await world.control(line)
            }()
            repeat {
                #expect(try await other.control("central2 read \(characteristic.uuid.line)") == "2a")
            } while !isDone.withLock { $0 }
            return try await worst
        }

        /// What is kept for requests and centrals.
        private func leftovers(of publisher: Publisher) -> Int {
            let session = publisher.manager.session
            return session.queue.sync {
                session.peripheral.requests.count + session.peripheral.remoteCentrals.count
            }
        }

        // Slow: in the rig, 300 hostile requests go over the air while the other central reads all the time.
        @Test(
            "RQ-9 writes of any length, unexecuted prepared ones, invalid requests: the other central is served",
            .timeLimit(.minutes(10)))
        func storm() async throws {
            let characteristics = [
                local(0x110, [.read, .write]), local(0x111, .writeWithoutResponse), local(0x112, [.read, .notify]),
                local(0x113, .read, value: Data(count: 100)),
            ]
            let (world, publisher) = try await publish(characteristics)
            let count = Worlds.isRig ? 300 : 10_000
            let answer = try await during("central storm \(count) 7", world, read: characteristics[0])
            #expect(answer.contains("errors="))
            for central in ["central", "central2"] {
                _ = try await world.control("\(central) disconnect")
                try await world.awaitConnections(central, 0)
            }
            // A new one finds everything in order.
            try await world.connect()
            #expect(try await world.control("central read \(characteristics[0].uuid.line)") == "2a")
            _ = try await world.control("central disconnect")
            try await eventually("nothing is left of requests and centrals") { leftovers(of: publisher) == 0 }
        }

        // Slow: in the rig, the central connects, subscribes and disappears ten times over the air.
        @Test(
            "UP-7 a central that repeatedly subscribes and disappears: reported and removed each time",
            .timeLimit(.minutes(10)))
        func churn() async throws {
            let (read, notifying) = (local(0x110, .read), local(0x111, .notify))
            let (world, publisher) = try await publish([read, notifying])
            let count = Worlds.isRig ? 10 : 1000
            _ = try await world.control("central disconnect")
            try await world.awaitConnections("central", 0)
            _ = try await during(
                "central churn \(world.adapterAddress) \(notifying.uuid.line) \(count)", world, read: read)
            for _ in 0..<count { _ = try await publisher.nextUnsubscription() }
            #expect(publisher.count { if case .subscribed = $0 { true } else { false } } == count)
            #expect(notifying.subscribedCentrals == [])
            #expect(try await world.control("central2 read \(read.uuid.line)") == "2a")
        }
    }
}
