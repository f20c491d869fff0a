import BluezKitSimulator
import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

/// The peripheral role with `async`, seen by an independent central. In the simulator and against the real bluetoothd.
extension Scenarios {
    @Suite struct AsyncPeripheralScenarios {
        typealias World = any BluezKitTests.World

        /// A manager that has published a service 0100 with these, to a connected central.
        private static func published(
            _ properties: [(Int, CBCharacteristicProperties)], mtu: Int = 517
        ) async throws -> (World, PeripheralManager, PublishedService, EventSequence<ATTRequest, Never>) {
            let world = try await Worlds.make()
            let manager = PeripheralManager(options: world.managerOptions)
            let requests = manager.requests
            let service = try await within {
                let service = try await manager.add(localService(0x100, properties.map { local($0, $1) }))
                try await manager.startAdvertising([CBAdvertisementDataLocalNameKey: "Kit"])
                return service
            }
            try await world.connect(mtu: mtu)
            return (world, manager, service, requests)
        }

        @Test("PB-1 AD-3 RQ-1 RQ-2 RQ-4 publish, advertise, answer reads and writes")
        func basics() async throws {
            let (world, manager, service, requests) = try await Self.published([(0x110, [.read, .write])])
            let characteristic = service.characteristics[0]
            #expect(await manager.isAdvertising)
            await #expect(throws: CBError.self) { try await within { try await manager.startAdvertising() } }
            let log = EventLog<ATTRequest.Kind>()
            let server = Task {
                for await request in requests where request.characteristic == characteristic {
                    log.append(request.kind)
                    switch request.kind {
                    case .read: request.respond(with: Data((0..<100).map { UInt8($0) }))
                    case .write(let writes) where writes[0].value.count > 3:
                        request.respond(.invalidAttributeValueLength)
                    case .write: request.respond()
                    }
                    request.respond(.unlikelyError)  // the first answer counts
                }
            }
            let line = characteristic.uuid.line
            let whole = (0..<100).map { String(format: "%02x", $0) }.joined()
            #expect(try await world.control("central read \(line)") == whole)
            _ = try await world.control("central write \(line) 0a0b")
            let writes = try await log.next("a write") { if case .write(let writes) = $0 { writes } else { nil } }
            #expect(writes.map(\.value) == [Data([10, 11])] && writes[0].characteristic == characteristic)
            await #expect(throws: (any Error).self) { try await world.control("central write \(line) 0a0b0c0d") }
            await manager.stopAdvertising()
            #expect(await !manager.isAdvertising)
            server.cancel()
            try await within { await server.value }
            // Without a consumer a request is refused, not left waiting. (In the rig it looks the same after 5 s.)
            limitRequests(in: world, to: .seconds(600))
            let refusal = await thrown { _ = try await within { try await world.control("central read \(line)") } }
            #expect(refusal != nil && !(refusal is DeadlineExceeded))
        }

        @Test(
            "UP-1 UP-2 UP-7 UP-8 updates wait for room: 1,000 reach a subscriber in order; then the subscription ends"
        )
        func updates() async throws {
            let (world, manager, service, _) = try await Self.published([(0x113, .notify)])
            let characteristic = service.characteristics[0]
            let changes = manager.subscriptions
            _ = try await world.control("central subscribe \(characteristic.uuid.line)")
            let change = try await within { await changes.first { _ in true } }
            #expect(change?.isSubscribed == true && change?.characteristic == characteristic)
            #expect(await manager.subscribedCentrals(of: characteristic) == change.map { [$0.central] })
            try await within {
                for n in 0..<1000 {
                    try await manager.updateValue(Data([UInt8(n & 0xFF), UInt8(n >> 8)]), for: characteristic)
                }
            }
            let more = manager.subscriptions
            _ = try await world.control("central disconnect")
            let end = try await within { await more.first { _ in true } }
            #expect(end?.isSubscribed == false)
            #expect(await manager.subscribedCentrals(of: characteristic).isEmpty)
            await manager.remove(service)
            await #expect(throws: CBError.self) {
                try await within { try await manager.updateValue(Data(), for: characteristic) }
            }
        }

        @Test("UP-9 a central that confirms nothing holds back no other characteristic")
        func unconfirmed() async throws {
            let (world, manager, service, _) = try await Self.published([(0x110, .indicate), (0x111, .notify)])
            let (held, free) = (service.characteristics[0], service.characteristics[1])
            (world as? SimulatedWorld)?.simulator.timing.attTimeout = .seconds(30)  // as in the rig
            for characteristic in [held, free] {
                let changes = manager.subscriptions
                _ = try await world.control("central subscribe \(characteristic.uuid.line)")
                _ = try await within { await changes.first { _ in true } }
            }
            _ = try await world.control("central confirm off")
            let accepted = EventLog<Int>()
            let updates = Task {
                for n in 0..<100 {
                    try await manager.updateValue(Data([UInt8(n)]), for: held)
                    accepted.append(n)
                }
            }
            // There is room for 64; the next one waits.
            _ = try await accepted.next("64 updates") { $0 == 63 ? true : nil }
            _ = await manager.isAdvertising
            async let notified = world.nextEvent("the update") { $0 == "central notified \(free.uuid.line) 07" }
            // Less than the 30 s after which BlueZ gives up.
            try await within(15) { try await manager.updateValue(Data([7]), for: free) }
            _ = try await notified
            // The service goes while they wait.
            _ = try await world.control("central confirm on")
            _ = try await world.control("central disconnect")
            updates.cancel()
            _ = await updates.result
        }

        @Test("PB-7 a service that is refused throws; one whose task is cancelled is withdrawn")
        func refuses() async throws {
            let world = try await Worlds.make()
            let manager = PeripheralManager(options: world.managerOptions)
            await #expect(throws: CBError.self) {
                try await manager.add(CBMutableService(type: CBUUID(string: "180A"), primary: true))
            }
            let task = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                try await manager.add(localService(0x100, [local(0x110, .read)]))
            }
            await #expect(throws: CancellationError.self) { try await within { try await task.value } }
            let advertising = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                try await manager.startAdvertising()
            }
            await #expect(throws: CancellationError.self) { try await within { try await advertising.value } }
            try await within {
                try await manager.add(localService(0x101, [local(0x111, .read)]))
                try await manager.startAdvertising()
            }
            let table = try await world.connect()
            #expect(!table.contains(sinkUUID(0x100).line) && table.contains(sinkUUID(0x101).line))
        }

        @Test("ST-5 AD-3 Bluetooth goes off and on: what waits throws, and services can be advertised again")
        func powersOff() async throws {
            let (world, manager, service, _) = try await Self.published([(0x113, .notify)])
            let states = manager.states
            try await world.control("rig power off")
            try await within { for await state in states where state == .poweredOff { return } }
            await #expect(throws: BluetoothError.unavailable(.poweredOff)) {
                try await manager.updateValue(Data([1]), for: service.characteristics[0])
            }
            await #expect(throws: BluetoothError.unavailable(.poweredOff)) {
                try await within { try await manager.startAdvertising() }
            }
            try await world.control("rig power on")
            try await within { for await state in manager.states where state == .poweredOn { return } }
            try await within { try await manager.startAdvertising() }
            #expect(try await world.connect().contains(service.uuid.line))
        }

        @Test("releasing the manager ends its sequences and withdraws its services")
        func releases() async throws {
            let world = try await Worlds.make()
            var manager: PeripheralManager? = PeripheralManager(options: world.managerOptions)
            let requests = try #require(manager).requests
            let states = try #require(manager).states
            let (subscriptions, channels) = (try #require(manager).subscriptions, try #require(manager).openedChannels)
            try await within { [manager] in
                try await manager?.add(localService(0x100, [local(0x110, .read)]))
                try await manager?.startAdvertising()
            }
            manager = nil
            try await within {
                for await _ in requests {}
                for await _ in states {}
            }
            // Also for those who come later.
            for _ in 0..<2 {
                try await within {
                    for await _ in subscriptions {}
                    for await _ in channels {}
                }
            }
            withExtendedLifetime(world) {}  // optimized code would release it after its last use
        }

        // Slow: in the rig, every advertisement is looked for over the air.
        @Test("AD-3 a start that is only refused, and is cancelled, does not end the advertisement of another task")
        func cancelsSecondStart() async throws {
            let (world, manager, _, _) = try await Self.published([(0x110, .read)])
            for isEarly in [true, false] {
                let second = Task {
                    if isEarly { withUnsafeCurrentTask { $0?.cancel() } }
                    try await manager.startAdvertising()
                }
                if !isEarly { await Task.yield() }
                second.cancel()
                let error = await thrown { try await within { try await second.value } }
                #expect(error is CancellationError || (error as? CBError)?.code == .alreadyAdvertising)
                // What a cancel has posted comes before this.
                #expect(await manager.isAdvertising)
            }
            try await world.connect()
        }

        // In the simulator the cancel and the answer cross; whichever is first, the advertisement stays.
        @Test("AD-3 a refused start is refused at once, so that there is nothing that its cancel could end")
        func refusesSecondStart() async throws {
            let (world, manager, _, _) = try await Self.published([(0x110, .read)])
            for _ in 0..<50 {
                let second = Task { try await manager.startAdvertising() }
                await Task.yield()
                second.cancel()
                _ = await second.result
            }
            #expect(await manager.isAdvertising)
            withExtendedLifetime(world) {}  // optimized code would release it after its last use
        }

        @Test("a task that is already cancelled makes no request of a peripheral manager")
        func cancelledBefore() async throws {
            let (world, manager, service, _) = try await Self.published([(0x113, .notify)])
            let characteristic = service.characteristics[0]
            let changes = manager.subscriptions
            _ = try await world.control("central subscribe \(characteristic.uuid.line)")
            _ = try await within { await changes.first { _ in true } }
            for number in UInt8(0)..<10 {
                await expectCancelled { try await manager.updateValue(Data([number]), for: characteristic) }
            }
            let psm = try? await within { try await manager.publishL2CAPChannel(withEncryption: false) }
            if let psm {
                await expectCancelled { try await manager.unpublishL2CAPChannel(psm) }
                try await within { try await manager.unpublishL2CAPChannel(psm) }
            }
            try await within { try await manager.updateValue(Data([42]), for: characteristic) }
            let first = try await world.nextEvent("an update") {
                $0.hasPrefix("central notified \(characteristic.uuid.line)")
            }
            #expect(first.hasSuffix(" 2a"), "\(first)")
        }

        private static func receiving(
            _ properties: CBCharacteristicProperties = [.read, .write]
        ) async throws -> (World, PeripheralManager, String) {
            let world = try await Worlds.make()
            let manager = PeripheralManager(options: world.managerOptions)
            let service = try await within {
                let service = try await manager.add(localService(0x100, [local(0x110, properties)]))
                try await manager.startAdvertising()
                return service
            }
            limitRequests(in: world, to: .seconds(world_deadline))
            try await world.connect()
            return (world, manager, service.characteristics[0].uuid.line)
        }

        @Test("RQ-1 a request that waits for a consumer is not lost with one whose task is cancelled")
        func cancelledConsumer() async throws {
            let (world, manager, uuid) = try await Self.receiving()
            async let answer = world.control("central read \(uuid)")
            try await eventually("the request waits") { await manager.keptRequests > 0 }
            let cancelled = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                for await _ in manager.requests {}
            }
            try await within { await cancelled.value }
            do { _ = manager.requests }  // one that is let go of
            let server = Task { for await request in manager.requests { request.respond(with: Data([42])) } }
            #expect(try await answer == "2a")
            server.cancel()
        }

        // It was refused if the second consumer came before the first one had ended.
        @Test("RQ-1 a request that a consumer was sent and has not taken goes to one that came later")
        func untakenRequest() async throws {
            let (world, manager, uuid) = try await Self.receiving()
            async let answer = world.control("central read \(uuid)")
            try await eventually("the request waits") { await manager.keptRequests > 0 }
            var first = Optional(manager.requests)
            let second = manager.requests
            #expect(await manager.keptRequests == 1)  // on the queue, where both have become consumers before
            withExtendedLifetime(first) {}
            first = nil
            let server = Task { for await request in second { request.respond(with: Data([43])) } }
            #expect(try await answer == "2b")
            server.cancel()
        }

        /// A consumer that answers its first request, and ends when it may.
        private static func takeOne(
            of requests: EventSequence<ATTRequest, Never>, until mayEnd: EventLog<Bool>
        ) -> Task<Void, any Error> {
            Task {
                for await request in requests {
                    request.respond(with: Data([41]))
                    try await mayEnd.next("the end") { $0 }
                    break
                }
            }
        }

        // It was refused: a consumer that had taken another request was believed to hold this one after its end.
        @Test("RQ-1 a request that two consumers were sent, and neither has taken, goes to one that came later")
        func untakenByTwo() async throws {
            let (world, manager, uuid) = try await Self.receiving()
            let mayEnd = EventLog<Bool>()
            let server = Self.takeOne(of: manager.requests, until: mayEnd)
            var second = Optional(manager.requests)
            #expect(try await world.control("central read \(uuid)") == "29")
            async let answer = world.control("central read \(uuid)")
            try await eventually("the second request waits") { await manager.keptRequests == 1 }
            mayEnd.append(true)
            try await within { try await server.value }
            withExtendedLifetime(second) {}
            second = nil
            let third = Task { for await request in manager.requests { request.respond(with: Data([42])) } }
            #expect(try await answer == "2a")
            third.cancel()
        }

        // It was refused: what a consumer had not taken was forgotten if that had taken another request.
        @Test("RQ-1 a request that a consumer has not taken goes to one that came later, also if it has taken others")
        func untakenRest() async throws {
            let (world, manager, uuid) = try await Self.receiving()
            let mayEnd = EventLog<Bool>()
            let server = Self.takeOne(of: manager.requests, until: mayEnd)
            #expect(try await world.control("central read \(uuid)") == "29")
            async let answer = world.control("central read \(uuid)")
            try await eventually("the second request waits") { await manager.keptRequests == 1 }
            let second = manager.requests
            #expect(await manager.keptRequests == 1)  // on the queue, where it has become a consumer before
            mayEnd.append(true)
            try await within { try await server.value }
            let other = Task { for await request in second { request.respond(with: Data([42])) } }
            #expect(try await answer == "2a")
            other.cancel()
        }

        // They came behind what both were sent: of writes without response, that is other data.
        @Test("RQ-1 RQ-6 writes that a consumer has not taken come to one that came later before those that followed")
        func untakenInOrder() async throws {
            let (world, manager, uuid) = try await Self.receiving([.read, .writeWithoutResponse])
            let mayEnd = EventLog<Bool>()
            let server = Self.takeOne(of: manager.requests, until: mayEnd)
            #expect(try await world.control("central read \(uuid)") == "29")
            for number in 1...2 { _ = try await world.control("central write \(uuid) 0\(number) 0") }
            try await eventually("two writes wait") { await manager.keptRequests == 2 }
            let second = manager.requests
            #expect(await manager.keptRequests == 2)  // on the queue, where it has become a consumer before
            _ = try await world.control("central write \(uuid) 03 0")
            try await eventually("a third one waits") { await manager.keptRequests == 3 }
            mayEnd.append(true)
            try await within { try await server.value }
            #expect(await manager.keptRequests == 3)  // on the queue, where the first one has given back two before
            let values = try await within {
                var values: [Data] = []
                for await request in second {
                    if case .write(let writes) = request.kind { values += writes.map(\.value) }
                    request.respond()
                    if values.count == 3 { break }
                }
                return values
            }
            #expect(values == [Data([1]), Data([2]), Data([3])])
        }
    }
}
