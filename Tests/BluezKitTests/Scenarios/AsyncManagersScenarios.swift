import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

/// Several managers of one program, with `async`: what one does, another does not notice. In the simulator and against the real
/// bluetoothd.
extension Scenarios {
    @Suite struct AsyncManagersScenarios {
        private typealias Peripheral = CoreBluetoothAsync.Peripheral
        private let heartRate = CBUUID(string: "180D")

        /// Two managers, each with its own object for the peripheral, and a link.
        private func connected(
            _ name: String, _ service: CBUUID
        ) async throws -> (world: any World, managers: [CentralManager], peripherals: [Peripheral]) {
            let (world, first, mine) = try await AsyncCentralScenarios.found(name, service)
            let second = CentralManager(options: world.managerOptions)
            let retrieved = try await within { await second.retrievePeripherals(withIdentifiers: [mine.identifier]) }
            let theirs = try #require(retrieved.first)
            #expect(mine !== theirs)
            try await within { try await first.connect(mine) }
            try await within { try await second.connect(theirs) }
            return (world, [first, second], [mine, theirs])
        }

        @Test("O-43 DL-7 two managers on one link: each is connected; cancelling one keeps the other's link")
        func link() async throws {
            let (world, managers, peripherals) = try await connected("Rig Heart", heartRate)
            try await within { try await managers[0].cancelPeripheralConnection(peripherals[0]) }
            #expect(peripherals[0].state == .disconnected && peripherals[1].state == .connected)
            let location = try await within {
                try await peripherals[1].discoverCharacteristic(CBUUID(string: "2A38"), in: CBUUID(string: "180D"))
            }
            let value = try await within { try await peripherals[1].readValue(for: location) }
            #expect(value == Data([1]))
            #expect(try await world.control("heart connections") == "1")
            try await within { try await managers[1].cancelPeripheralConnection(peripherals[1]) }
            try await world.awaitConnections("heart", 0)
        }

        @Test("O-43 O-45 a manager is released with its peripheral: the other's link stays")
        func released() async throws {
            var found = try await connected("Rig Heart", heartRate)
            let ended = found.managers.removeFirst().states
            found.peripherals.removeFirst()
            try await within { for await _ in ended {} }
            let heart = found.peripherals[0]
            let location = try await within {
                try await heart.discoverCharacteristic(CBUUID(string: "2A38"), in: CBUUID(string: "180D"))
            }
            let value = try await within { try await heart.readValue(for: location) }
            #expect(value == Data([1]))
            #expect(try await found.world.control("heart connections") == "1")
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("NT-8 D6 two managers subscribe to one characteristic: each gets every value once; one lets go")
        func subscribers() async throws {
            let (world, managers, peripherals) = try await connected("Rig Sink", sinkUUID(1))
            var consumers: [(log: EventLog<Data>, task: Task<Void, any Error>)] = []
            for peripheral in peripherals {
                let characteristic = try await within {
                    try await peripheral.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1))
                }
                try await within { try await peripheral.setNotifyValue(true, for: characteristic) }
                let log = EventLog<Data>()
                consumers.append(
                    (log, Task { for try await value in peripheral.values(for: characteristic) { log.append(value) } }))
                // It takes part when it has a value.
                try await eventually("the consumer listens") {
                    try await world.control("sink notify 0013 00")
                    return !log.all.isEmpty
                }
            }
            for number in 1...3 { try await world.control("sink notify 0013 0\(number)") }
            func values(_ index: Int) -> [Data] { consumers[index].log.all.filter { $0 != Data([0]) } }
            for consumer in consumers {
                _ = try await consumer.log.next("the last value") { $0 == Data([3]) ? $0 : nil }
            }
            #expect(values(0) == [Data([1]), Data([2]), Data([3])] && values(1) == values(0))
            consumers[0].task.cancel()
            _ = await consumers[0].task.result
            try await world.control("sink notify 0013 04")
            _ = try await consumers[1].log.next("a value after that") { $0 == Data([4]) ? $0 : nil }
            #expect(values(0).count == 3 && values(1).count == 4)
            consumers[1].task.cancel()
            withExtendedLifetime(managers) {}
        }

        @Test("SC-2 two managers scan for different services: each hears of its own, and discovery ends with both")
        func scans() async throws {
            let world = try await Worlds.make()
            var (logs, tasks, managers) = ([EventLog<String>](), [Task<Void, any Error>](), [CentralManager]())
            for service in [CBUUID(string: "180D"), sinkUUID(1)] {
                let (manager, log) = (CentralManager(options: world.managerOptions), EventLog<String>())
                let scan = manager.scanForPeripherals(withServices: [service], allowDuplicates: true)
                tasks.append(
                    Task { for try await found in scan { log.append(found.advertisementData.localName ?? "") } })
                logs.append(log)
                managers.append(manager)
            }
            for (log, name) in zip(logs, ["Rig Heart", "Rig Sink"]) {
                _ = try await log.next(name) { $0 == name ? $0 : nil }
            }
            #expect(!logs[0].all.contains("Rig Sink") && !logs[1].all.contains("Rig Heart"))
            for task in tasks { task.cancel() }
            try await AsyncCentralScenarios.stopsScanning(world)
            withExtendedLifetime(managers) {}
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("RT-3 a connected peripheral is retrieved by its service, and connects at once for another manager")
        func retrievesConnected() async throws {
            let (world, first, mine) = try await AsyncCentralScenarios.found("Rig Heart", heartRate)
            try await within { try await first.connect(mine) }
            // BlueZ knows which services it has when they are discovered.
            try await within { _ = try await mine.discoverServices() }
            let second = CentralManager(options: world.managerOptions)
            func retrieved(_ services: [String]) async throws -> [Peripheral] {
                try await within {
                    await second.retrieveConnectedPeripherals(withServices: services.map { CBUUID(string: $0) })
                }
            }
            let theirs = try #require(try await retrieved(["180D"]).first)
            #expect(theirs.identifier == mine.identifier && theirs !== mine && theirs.state == .disconnected)
            #expect(try await retrieved(["1234"]).isEmpty)
            #expect(try await retrieved([]).isEmpty)
            try await within { try await second.connect(theirs) }
            try await within { try await second.cancelPeripheralConnection(theirs) }
            try await within { try await first.cancelPeripheralConnection(mine) }
        }

        @Test("AD-7 each manager has its own advertisement, until the adapter has no room")
        func advertisements() async throws {
            let world = try await Worlds.make()
            var managers: [PeripheralManager] = []
            var refusal: CBError?
            func start(_ manager: PeripheralManager, _ name: String) async throws {
                try await within { try await manager.startAdvertising([CBAdvertisementDataLocalNameKey: name]) }
            }
            while refusal == nil, managers.count < 20 {
                let manager = PeripheralManager(options: world.managerOptions)
                managers.append(manager)
                do { try await start(manager, "\(managers.count)") } catch { refusal = try #require(error as? CBError) }
            }
            #expect(refusal?.code == .outOfSpace && managers.count > 2)
            // One makes room for another.
            await managers[0].stopAdvertising()
            try await eventually("there is room for another") {
                (try? await start(managers[managers.count - 1], "last")) != nil
            }
            #expect(await managers[managers.count - 1].isAdvertising)
            // A manager that is released takes its own away.
            managers = []
            try await world.awaitSilence()
        }

        @Test("L2-8 the released manager's channels end, and nothing is published any more")
        func channels() async throws {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            var manager: PeripheralManager? = PeripheralManager(options: world.managerOptions)
            let opened = try #require(manager).openedChannels
            let psm = try await within { [manager] in
                guard let manager else { return CBL2CAPPSM(0) }
                try await manager.startAdvertising()
                return try await manager.publishL2CAPChannel(withEncryption: false)
            }
            try await world.connect()
            try await world.openChannel(psm)
            let channel = try #require(try await within { await opened.first { _ in true } })
            manager = nil
            #expect(try await within { (try? await channel.read()) ?? nil } == nil)
            try await world.awaitChannel("central", "closed")
            await #expect(throws: (any Error).self) { try await world.openChannel(psm) }
        }
    }
}
