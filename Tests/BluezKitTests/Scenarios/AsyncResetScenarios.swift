import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

extension Scenarios {
    /// A restart of bluetoothd with `async`: with and without a restore identifier everything has ended, in BlueZ as well, and what is
    /// begun again is there once, can be used, and ends when it is ended.
    @Suite struct AsyncResetScenarios {
        typealias World = any BluezKitTests.World

        private struct Stage {
            let world: World
            let directory: TemporaryDirectory
            let isPreserved: Bool

            init(preserved: Bool) async throws {
                world = try await Worlds.make()
                directory = try TemporaryDirectory()
                isPreserved = preserved
            }

            func options(_ key: String) -> [String: Any] {
                var options = world.managerOptions
                if isPreserved { options[key] = "app" }
                options[BluezManagerOptionStateDirectoryKey] = directory.path
                return options
            }

            func central() -> CentralManager {
                CentralManager(options: options(CBCentralManagerOptionRestoreIdentifierKey))
            }

            func peripheral() -> PeripheralManager {
                PeripheralManager(options: options(CBPeripheralManagerOptionRestoreIdentifierKey))
            }

            /// Restarts bluetoothd, and waits until the manager knows.
            func restart(_ states: EventSequence<CBManagerState, Never>, meanwhile line: String? = nil) async throws {
                try await world.control("bluetoothd kill")
                if let line { try await world.control(line) }
                try await world.control("bluetoothd start")
                try await within {
                    var hasEnded = false
                    for await state in states {
                        hasEnded = hasEnded || state == .resetting
                        if hasEnded, state == .poweredOn { return }
                    }
                }
            }

            func publish(_ manager: PeripheralManager) async throws -> PublishedService {
                try await within {
                    let service = try await manager.add(localService(0x100, [local(0x110, [.read, .notify])]))
                    try await manager.startAdvertising([CBAdvertisementDataLocalNameKey: "Kit"])
                    return service
                }
            }

            /// How often a central finds the service 0100.
            func countOfServices() async throws -> Int {
                try await world.connect()
                return try await world.control("central services").split(separator: " ")
                    .count { $0.hasPrefix("primary:\(sinkUUID(0x100).line)@") }
            }
        }

        // Slow: in the rig, bluetoothd restarts, and a central finds and connects to what is published three times.
        @Test(
            "ST-6 PB-6 after a restart of bluetoothd what is published again is there once, is updated, and is withdrawn",
            arguments: [false, true])
        func publishesAgain(_ isPreserved: Bool) async throws {
            let stage = try await Stage(preserved: isPreserved)
            let manager = stage.peripheral()
            let first = try await stage.publish(manager)
            #expect(try await stage.countOfServices() == 1)
            try await stage.restart(manager.states)
            #expect(await !manager.isAdvertising)
            await #expect(throws: CBError.self) {
                try await within { try await manager.updateValue(Data([1]), for: first.characteristics[0]) }
            }
            let requests = manager.requests
            let second = try await stage.publish(manager)
            #expect(try await stage.countOfServices() == 1)
            let characteristic = second.characteristics[0]
            let server = Task {
                for await request in requests {
                    if request.characteristic == characteristic { request.respond(with: Data([42])) }
                }
            }
            #expect(try await stage.world.control("central read \(characteristic.uuid.line)") == "2a")
            let changes = manager.subscriptions
            _ = try await stage.world.control("central subscribe \(characteristic.uuid.line)")
            let change = try await within { await changes.first { _ in true } }
            #expect(change?.characteristic == characteristic)
            async let notified = stage.world.nextEvent("the update") {
                $0 == "central notified \(characteristic.uuid.line) 0102"
            }
            try await within { try await manager.updateValue(Data([1, 2]), for: characteristic) }
            _ = try await notified
            await manager.remove(first)  // is gone already
            await manager.remove(second)
            try await eventually("the service is gone") { try await stage.countOfServices() == 0 }
            server.cancel()
        }

        // Slow: in the rig, bluetoothd restarts, and the heart's link ends by a timeout.
        @Test(
            "ST-6 CN-7 after a restart of bluetoothd a connection has ended: nothing is pending, and nothing connects",
            arguments: [false, true])
        func connectionHasEnded(_ isPreserved: Bool) async throws {
            let stage = try await Stage(preserved: isPreserved)
            let central = stage.central()
            let heart = try await AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
            try await within { try await central.connect(heart) }
            try await stage.restart(central.states, meanwhile: "heart vanish")
            #expect(heart.state == .disconnected)
            try await within { try await central.cancelPeripheralConnection(heart) }
            #expect(heart.state == .disconnected)
            try await stage.world.control("heart return")
            // It advertises, so it is not connected; and it can be connected again.
            let again = try await AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
            #expect(again === heart && heart.state == .disconnected)
            try await within { try await central.connect(heart) }
            try await within { try await central.cancelPeripheralConnection(heart) }
            try await stage.world.awaitConnections("heart", 0)
        }

        @Test(
            "ST-6 SC-5 after a restart of bluetoothd a scan has ended, in BlueZ as well, and another one begins",
            arguments: [false, true])
        func scanHasEnded(_ isPreserved: Bool) async throws {
            let stage = try await Stage(preserved: isPreserved)
            let central = stage.central()
            try await within { try await central.waitUntilReady() }
            let scan = central.scanForPeripherals(allowDuplicates: true)
            _ = try await within { try await scan.first { _ in true } }
            let second = central.scanForPeripherals(allowDuplicates: true)
            let states = central.states
            try await stage.restart(states)
            await #expect(throws: (any Error).self) { try await within { for try await _ in second {} } }
            // A question to BlueZ, which would come after a scan that resumes.
            _ = await central.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180D")])
            try await AsyncCentralScenarios.stopsScanning(stage.world)
            _ = try await AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
            try await AsyncCentralScenarios.stopsScanning(stage.world)
        }

        // Slow: in the rig, bluetoothd restarts.
        @Test(
            "L2-1 L2-9 ST-6 a channel published after a restart of bluetoothd is the one that was asked for",
            arguments: [false, true])
        func publishesChannelAgain(_ isPreserved: Bool) async throws {
            let stage = try await Stage(preserved: isPreserved)
            try await stage.world.prepareChannels()
            let manager = stage.peripheral()
            let plain = try await within { try await manager.publishL2CAPChannel(withEncryption: false) }
            let states = manager.states
            let published = Task {
                var hasEnded = false
                for await state in states {
                    hasEnded = hasEnded || state == .resetting
                    if hasEnded, state == .poweredOn { break }
                }
                return try await manager.publishL2CAPChannel(withEncryption: true)
            }
            for line in ["kill", "start"] { try await stage.world.control("bluetoothd \(line)") }
            let encrypted = try await within { try await published.value }
            try await within { try await manager.startAdvertising() }
            try await stage.world.connect()
            for psm in Set([plain, encrypted]) {
                await #expect(throws: (any Error).self, "\(psm) is open without encryption") {
                    try await stage.world.openChannel(psm)
                }
            }
            try await within { try await manager.unpublishL2CAPChannel(encrypted) }
        }

        @Test("PB-6 AD-3 what is withdrawn while Bluetooth is off is gone when it is on again")
        func withdrawnWhileOff() async throws {
            let stage = try await Stage(preserved: false)
            let manager = stage.peripheral()
            let service = try await stage.publish(manager)
            let other = try await within { try await manager.add(localService(0x101, [local(0x111, .read)])) }
            try await stage.world.control("rig power off")
            try await within { for await state in manager.states where state == .poweredOff { return } }
            await manager.remove(service)
            try await stage.world.control("rig power on")
            try await within { for await state in manager.states where state == .poweredOn { return } }
            try await within { try await manager.startAdvertising() }
            try await eventually("the service is gone") { try await stage.countOfServices() == 0 }
            #expect(try await stage.world.control("central services").contains(other.uuid.line))
        }

        /// A connection in use ends by `cause`.
        private func lose(_ central: CentralManager, by cause: () async throws -> Void) async throws {
            let heart = try await AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
            try await within { try await central.connect(heart) }
            try await within { _ = try await heart.discoverServices() }
            let (states, log) = (central.states, EventLog<CBManagerState>())
            let noting = Task { for await state in states { log.append(state) } }
            try await cause()
            let error =
                await thrown {
                    try await within { while true { _ = try await heart.readRSSI() } }
                } as? BluetoothError
            // An adapter may go off before it is gone.
            #expect(error == .unavailable(.resetting) || error == .unavailable(.poweredOff))
            #expect(heart.state == .disconnected)
            _ = try await log.next("resetting") { $0 == .resetting ? true : nil }
            noting.cancel()
        }

        private func connectsAgain(_ central: CentralManager) async throws {
            try await within { for await state in central.states where state == .poweredOn { return } }
            let heart = try await AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
            try await within { try await central.connect(heart) }
            let location = try await within {
                try await heart.discoverCharacteristic(CBUUID(string: "2A38"), in: CBUUID(string: "180D"))
            }
            #expect(try await within { try await heart.readValue(for: location) } == Data([1]))
            try await within { try await central.cancelPeripheralConnection(heart) }
        }

        @Test("ST-6 D10 the adapter is replaced by another one: what waits throws, and everything works again")
        func otherAdapter() async throws {
            let stage = try await Stage(preserved: false)
            let central = stage.central()
            try await lose(central) {
                try await stage.world.control("rig adapters 2")
                try await stage.world.control("rig unplug 0")
            }
            try await connectsAgain(central)
            try await stage.world.awaitConnections("heart", 0)
            try await stage.world.control("rig plug 0")
        }

        // Slow: in the rig, a call and then a `Ping` wait nine seconds each before bluetoothd counts as hung.
        @Test("D10 ST-6 bluetoothd hangs: what waits throws; when it resumes, everything works again")
        func hungDaemon() async throws {
            let stage = try await Stage(preserved: false)
            let central = stage.central()
            try await within { try await central.waitUntilReady() }
            noticeHangsSoon(in: stage.world)
            try await lose(central) { try await stage.world.control("bluetoothd hang") }
            try await stage.world.control("bluetoothd continue")
            try await connectsAgain(central)
        }
    }
}
