import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

extension Scenarios {
    /// What an earlier process has left, with `async`: it is handed out, and can be used, ended and withdrawn. The
    /// earlier process is a manager whose state is copied before it is released, as if it had been killed then.
    @Suite struct AsyncRestorationScenarios {
        typealias World = any BluezKitTests.World

        private static func options(_ world: World, _ directory: TemporaryDirectory) -> [String: Any] {
            world.managerOptions.merging([
                CBCentralManagerOptionRestoreIdentifierKey: "app",  // which is the other role's key as well
                BluezManagerOptionStateDirectoryKey: directory.path,
            ]) { $1 }
        }

        /// What a peripheral manager leaves that has done this.
        /// - Parameter directory: What was left before.
        private func left(
            _ world: World, in directory: TemporaryDirectory? = nil, options: [String: any Sendable] = [:],
            restoring isRevised: Bool? = nil, _ body: @escaping @Sendable (PeripheralManager) async throws -> Void
        ) async throws -> TemporaryDirectory {
            let directory = try directory ?? TemporaryDirectory()
            var manager: PeripheralManager? = PeripheralManager(
                options: Self.options(world, directory).merging(options) { $1 },
                restoring: isRevised.map(Self.versions) ?? [])
            let states = try #require(manager).states
            try await within { [manager] in if let manager { try await body(manager) } }
            let copy = try TemporaryDirectory(copying: directory)
            manager = nil
            try await within { for await _ in states {} }
            return copy
        }

        private func left(
            _ world: World, byCentral body: @escaping @Sendable (CentralManager) async throws -> [any Sendable]
        ) async throws -> TemporaryDirectory {
            let directory = try TemporaryDirectory()
            var manager: CentralManager? = CentralManager(options: Self.options(world, directory))
            let states = try #require(manager).states
            let kept = try await within { [manager] in if let manager { try await body(manager) } else { [] } }
            let copy = try TemporaryDirectory(copying: directory)
            for case let task as Task<Void, any Error> in kept { task.cancel() }  // it keeps the manager
            manager = nil
            try await within { for await _ in states {} }
            withExtendedLifetime(kept) {}
            return copy
        }

        private func publish(_ manager: PeripheralManager) async throws {
            try await manager.add(localService(0x100, [local(0x110, [.read, .notify])]))
            try await manager.startAdvertising([CBAdvertisementDataLocalNameKey: "Kit"])
        }

        private func restored(_ manager: PeripheralManager) async throws -> RestoredPeripheralState {
            try #require(try await within { await manager.restoredState.first { _ in true } })
        }

        private func restored(_ manager: CentralManager) async throws -> RestoredCentralState {
            try #require(try await within { await manager.restoredState.first { _ in true } })
        }

        /// How often a central finds the service 0100.
        private func countOfServices(_ world: World) async throws -> Int {
            try await world.connect()
            return try await world.control("central services").split(separator: " ")
                .count { $0.hasPrefix("primary:\(sinkUUID(0x100).line)@") }
        }

        @Test("R-19 RS-14 restored services are handed out; they answer, and can be updated and withdrawn")
        func services() async throws {
            let world = try await Worlds.make()
            let directory = try await left(world) { try await publish($0) }
            let manager = PeripheralManager(options: Self.options(world, directory))
            let requests = manager.requests
            let state = try await restored(manager)
            let service = try #require(state.services.first)
            #expect(state.services.count == 1 && service.uuid == sinkUUID(0x100))
            #expect(state.advertisementData?.localName == "Kit" && state.channels == [])
            let characteristic = service.characteristics[0]
            #expect(await manager.isAdvertising)
            let server = Task {
                for await request in requests {
                    if request.characteristic == characteristic { request.respond(with: Data([42])) }
                }
            }
            // The earlier manager's service may be there for a moment.
            try await eventually("the service is there once, and answers") {
                guard (try? await countOfServices(world)) == 1 else { return false }
                return (try? await world.control("central read \(characteristic.uuid.line)")) == "2a"
            }
            try await within { try await manager.updateValue(Data([1]), for: characteristic) }
            await manager.remove(service)
            try await eventually("the service is gone") { try await countOfServices(world) == 0 }
            server.cancel()
        }

        /// Of two versions of a program: the second protects 0110 better. 0101 is included, and the same in both.
        private static func versions(_ isRevised: Bool) -> [CBMutableService] {
            let included = CBMutableService(type: sinkUUID(0x101), primary: false)
            included.characteristics = [local(0x112, .read, value: Data([1]))]
            let other = localService(0x102, [local(0x113, .read)])
            other.includedServices = [included]
            let write: CBAttributePermissions = isRevised ? .writeEncryptionRequired : .writeable
            return [included, other, localService(0x100, [local(0x110, [.read, .write], [.readable, write])])]
        }

        @Test(
            "R-19 RS-14 services that the program now publishes differently are withdrawn, and the rest stays")
        func revised() async throws {
            let world = try await Worlds.make()
            let directory = try await left(world) { manager in
                for service in Self.versions(false) { try await manager.add(service) }
                try await manager.startAdvertising()
            }
            let same = try await left(world, in: TemporaryDirectory(copying: directory), restoring: false) { manager in
                #expect(await manager.restoredState.first { _ in true }?.services.count == 3)
                try await manager.waitUntilReady()
            }
            let manager = PeripheralManager(options: Self.options(world, same), restoring: Self.versions(true))
            let state = try await restored(manager)
            #expect(state.services.map(\.uuid) == [sinkUUID(0x101), sinkUUID(0x102)])
            try await within { try await manager.waitUntilReady() }
            try await eventually("0100 of the earlier version is gone") { try await countOfServices(world) == 0 }
            try await within { _ = try await manager.add(Self.versions(true)[2]) }
            try await eventually("0100 of this version is there") { try await countOfServices(world) == 1 }
            let refusal = await world.refusal("central write \(sinkUUID(0x110).line) 01")
            #expect(refusal?.contains("att 0x0f") == true || refusal?.contains("att 0x05") == true, "\(refusal ?? "-")")
        }

        // Slow: in the rig, bluetoothd is stopped and started, and a manager waits three seconds for it.
        @Test(
            "R-19 RS-17 objects restored without bluetoothd wait for it, and then work like others or are withdrawn",
            arguments: [false, true])
        func servicesWhileAway(_ isWithdrawn: Bool) async throws {
            let world = try await Worlds.make()
            let directory = try await left(world) { try await publish($0) }
            let observer = PeripheralManager(options: world.managerOptions)
            try await within { try await observer.waitUntilReady() }
            try await world.control("bluetoothd stop")
            try await within { for await state in observer.states where state != .poweredOn { return } }
            let manager = PeripheralManager(options: Self.options(world, directory))
            let service = try #require(try await restored(manager).services.first)
            try await within { for await state in manager.states where state != .unknown { return } }
            #expect(manager.state != .poweredOn)
            if isWithdrawn {
                await manager.remove(service)
                await manager.stopAdvertising()
            }
            try await world.control("bluetoothd start")
            try await within { for await state in manager.states where state == .poweredOn { return } }
            if isWithdrawn {
                #expect(await !manager.isAdvertising)
                try await within { try await manager.startAdvertising() }
                try await eventually("the service is gone") { try await countOfServices(world) == 0 }
            } else {
                try await eventually("the service is there once") { try await countOfServices(world) == 1 }
                try await within { try await manager.updateValue(Data([1]), for: service.characteristics[0]) }
                await manager.remove(service)
                try await eventually("the service is gone") { try await countOfServices(world) == 0 }
            }
        }

        // Slow: in the rig, bluetoothd restarts, and the heart connects.
        @Test(
            "R-19 ST-6 restored objects not taken before a restart of bluetoothd have ended, and are not handed out after it"
        )
        func notTaken() async throws {
            let world = try await Worlds.make()
            let published = try await left(world) { try await publish($0) }
            let connected = try await left(
                world,
                byCentral: { central in
                    let heart = try await AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
                    try await central.connect(heart)
                    return [heart]
                })
            let peripheral = PeripheralManager(options: Self.options(world, published))
            let central = CentralManager(options: Self.options(world, connected))
            let states = [peripheral.states, central.states]
            try await within { try await peripheral.waitUntilReady() }
            try await within { try await central.waitUntilReady() }
            let idle = (peripheral.restoredState, central.restoredState)
            _ = (await peripheral.isAdvertising, await central.retrievePeripherals(withIdentifiers: []))
            try await world.control("bluetoothd kill")
            try await world.control("bluetoothd start")
            for states in states {
                try await within {
                    var hasEnded = false
                    for await state in states {
                        hasEnded = hasEnded || state == .resetting
                        if hasEnded, state == .poweredOn { return }
                    }
                }
            }
            #expect(try await within { await peripheral.restoredState.first { _ in true } } == nil)
            let state = try await within { await central.restoredState.first { _ in true } }
            #expect(state == nil)
            // Nor by the sequences that there were before.
            #expect(try await within { await idle.0.first { _ in true } } == nil)
            let other = try await within { await idle.1.first { _ in true } }
            #expect(other == nil)
        }

        @Test("R-19 UP-1 an update of a restored service that could not be published again returns")
        func updatesWhatIsRefused() async throws {
            let world = try await Worlds.make()
            let directory = try await left(world, options: [BluezManagerOptionAllowSystemServicesKey: true]) {
                manager in
                let level = CBMutableCharacteristic(
                    type: CBUUID(string: "2A19"), properties: [.read, .notify], value: nil, permissions: .readable)
                let battery = CBMutableService(type: CBUUID(string: "180F"), primary: true)
                battery.characteristics = [level]
                try await manager.add(battery)
            }
            let manager = PeripheralManager(options: Self.options(world, directory))
            let service = try #require(try await restored(manager).services.first)
            try await within { try await manager.waitUntilReady() }
            try await within {
                for value in UInt8(0)..<50 {
                    try await manager.updateValue(Data([value]), for: service.characteristics[0])
                }
            }
        }

        @Test("R-19 L2-1 L2-9 restored channels are handed out; a new one gets its own PSM, and each its encryption")
        func channels() async throws {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            let directory = try await left(world) { manager in
                _ = try await manager.publishL2CAPChannel(withEncryption: false)
                _ = try await manager.publishL2CAPChannel(withEncryption: true)
            }
            let manager = PeripheralManager(options: Self.options(world, directory))
            let new = try await within { try await manager.publishL2CAPChannel(withEncryption: true) }
            let channels = try await restored(manager).channels
            #expect(channels.map(\.isEncryptionRequired) == [false, true])
            let now = try await within {
                var now: [CBL2CAPPSM] = []
                for channel in channels { now.append(try await manager.psm(of: channel)) }
                return now
            }
            #expect(Set(now + [new]).count == 3)
            let opened = manager.openedChannels
            try await within { try await manager.startAdvertising() }
            try await world.connect()
            for psm in [now[1], new] {
                await #expect(throws: (any Error).self, "\(psm) is open without encryption") {
                    try await world.openChannel(psm)
                }
            }
            try await world.openChannel(now[0])
            #expect(try await within { await opened.first { _ in true } }?.psm == now[0])
            try await within { for psm in now + [new] { try await manager.unpublishL2CAPChannel(psm) } }
            try await eventually("the channel is refused") { (try? await world.openChannel(now[0])) == nil }
            try await world.resetChannels()
        }

        @Test("R-19 L2-1 a program that publishes one channel at each start, and takes what was restored, has one")
        func oneChannel() async throws {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            var directory = try TemporaryDirectory()
            for run in 0..<3 {
                let log = EventLog<Int>()
                let before = directory
                directory = try await left(world, in: before) { manager in
                    let channels = await manager.restoredState.first { _ in true }?.channels ?? []
                    log.append(channels.count)
                    if let channel = channels.first {
                        _ = try await manager.psm(of: channel)
                    } else {
                        _ = try await manager.publishL2CAPChannel(withEncryption: false)
                    }
                }
                #expect(log.all == [run == 0 ? 0 : 1])
            }
        }

        @Test(
            "R-3 RS-12 a restored scan is handed out, and continues; letting go of it ends it",
            arguments: [true, false])
        func scan(isUsed: Bool) async throws {
            let world = try await Worlds.make()
            let directory = try await left(
                world,
                byCentral: { manager in
                    let scan = manager.scanForPeripherals(withServices: [CBUUID(string: "180D")])
                    try await manager.waitUntilReady()
                    _ = try await scan.first { _ in true }
                    let again = manager.scanForPeripherals(withServices: [CBUUID(string: "180D")])
                    _ = await manager.retrievePeripherals(withIdentifiers: [])
                    return [again]
                })
            let central = CentralManager(options: Self.options(world, directory))
            do {
                let state = try await restored(central)
                #expect(state.scanServiceUUIDs == [CBUUID(string: "180D")] && !state.scanAllowsDuplicates)
                let scan = try #require(state.scan)
                if isUsed {
                    let found = try await within {
                        try await scan.first { $0.advertisementData.localName == "Rig Heart" }
                    }
                    #expect(found != nil)
                }
            }
            try await AsyncCentralScenarios.stopsScanning(world)
            _ = try await AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
        }

        @Test(
            "R-8 RS-11 a restored connect is pending, is called off, and does not come back; ended channels are listed")
        func connections() async throws {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            try await world.control("heart vanish")
            let heartIdentifier = try #require(UUID(uuidString: RestorationScenarios.heart))
            let directory = try await left(
                world,
                byCentral: { manager in
                    let coc = try await AsyncCentralScenarios.find("Rig CoC", sinkUUID(0x40), manager)
                    try await manager.connect(coc)
                    let channel = try await coc.openL2CAPChannel(0x80)
                    let heart = await manager.retrievePeripherals(withIdentifiers: [heartIdentifier])
                    let pending = Task { try await manager.connect(heart[0]) }
                    while heart[0].state != .connecting { await Task.yield() }
                    // In another turn of the manager: the state is there before the file has it.
                    _ = await manager.retrievePeripherals(withIdentifiers: [])
                    return [coc, channel, heart, pending]
                })
            let central = CentralManager(options: Self.options(world, directory))
            let state = try await restored(central)
            #expect(state.endedChannels.map { [$0.key.name: $0.value] } == [["Rig CoC": [0x80]]])
            let heart = try #require(state.peripherals.first { $0.identifier == heartIdentifier })
            #expect(heart.state == .connecting)
            try await within { try await central.waitUntilReady() }
            try await within { try await central.cancelPeripheralConnection(heart) }
            #expect(heart.state == .disconnected)
            try await world.heartReturns()
            _ = try await AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
            #expect(heart.state == .disconnected)
            for peripheral in state.peripherals {
                try await within { try await central.cancelPeripheralConnection(peripheral) }
            }
        }

        @Test("R-8 cancelling the only task that connects calls off a restored connect")
        func cancelsRestoredConnect() async throws {
            let world = try await Worlds.make()
            try await world.control("heart vanish")
            let identifier = try #require(UUID(uuidString: RestorationScenarios.heart))
            let directory = try await left(
                world,
                byCentral: { manager in
                    try await manager.waitUntilReady()
                    let heart = await manager.retrievePeripherals(withIdentifiers: [identifier])
                    let pending = Task { try await manager.connect(heart[0]) }
                    while heart[0].state != .connecting { await Task.yield() }
                    // In another turn of the manager: the state is there before the file has it.
                    _ = await manager.retrievePeripherals(withIdentifiers: [])
                    return [heart, pending]
                })
            let central = CentralManager(options: Self.options(world, directory))
            let heart = try #require(try await restored(central).peripherals.first)
            await #expect(throws: DeadlineExceeded.self) { try await within(0.5) { try await central.connect(heart) } }
            try await eventually("the attempt is called off") { heart.state == .disconnected }
            try await world.heartReturns()
            _ = try await AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
            #expect(heart.state == .disconnected)
        }

        // It threw that Bluetooth is off, and the attempt was made when it was on.
        @Test("R-8 a restored connect that is cancelled while Bluetooth is off does not come back with it")
        func cancelsWhileOff() async throws {
            let world = try await Worlds.make()
            try await world.control("heart vanish")
            let identifier = try #require(UUID(uuidString: RestorationScenarios.heart))
            let directory = try await left(
                world,
                byCentral: { manager in
                    try await manager.waitUntilReady()
                    let heart = await manager.retrievePeripherals(withIdentifiers: [identifier])
                    let pending = Task { try await manager.connect(heart[0]) }
                    while heart[0].state != .connecting { await Task.yield() }
                    // In another turn of the manager: the state is there before the file has it.
                    _ = await manager.retrievePeripherals(withIdentifiers: [])
                    return [heart, pending]
                })
            let observer = CentralManager(options: world.managerOptions)
            try await within { try await observer.waitUntilReady() }
            try await world.control("rig power off")
            try await within { for await state in observer.states where state != .poweredOn { return } }
            let central = CentralManager(options: Self.options(world, directory))
            let heart = try #require(try await restored(central).peripherals.first)
            #expect(heart.state == .connecting && central.state == .poweredOff)
            try await within { try await central.cancelPeripheralConnection(heart) }
            #expect(heart.state == .disconnected)
            try await world.control("rig power on")
            try await within { for await state in central.states where state == .poweredOn { return } }
            try await world.heartReturns()
            _ = try await AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
            #expect(heart.state == .disconnected)
            // It can be connected again.
            try await within { try await central.connect(heart) }
            try await within { try await central.cancelPeripheralConnection(heart) }
        }

        // Slow: in the rig, BlueZ makes a link and ends it.
        @Test(
            "R-19 R-13 restored objects are not lost with a consumer that ends before it takes them", arguments: 0...2)
        func cancelledConsumer(_ kind: Int) async throws {
            let world = try await Worlds.make()
            let published = try await left(world) { try await publish($0) }
            let connected = try await left(
                world,
                byCentral: { central in
                    let heart = try await AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
                    try await central.connect(heart)
                    return [heart]
                })
            let peripheral = PeripheralManager(options: Self.options(world, published))
            let central = CentralManager(options: Self.options(world, connected))
            if kind > 0 {  // at once, otherwise
                try await within { try await peripheral.waitUntilReady() }
                try await within { try await central.waitUntilReady() }
            }
            if kind == 2 {
                _ = (peripheral.restoredState, central.restoredState)
            } else {
                let consumer = Task {
                    withUnsafeCurrentTask { $0?.cancel() }
                    let found = await peripheral.restoredState.first { _ in true }
                    return (found, await central.restoredState.first { _ in true })
                }
                let (services, peripherals) = try await within { await consumer.value }
                #expect(services == nil && peripherals == nil)
            }
            #expect(try await restored(peripheral).services.count == 1)
            let heart = try #require(try await restored(central).peripherals.first)
            try await within { try await central.waitUntilReady() }
            try await within { try await central.connect(heart) }
            // It has one element, for one consumer.
            #expect(try await within { await peripheral.restoredState.first { _ in true } } == nil)
            try await within { try await central.cancelPeripheralConnection(heart) }
        }

        // It was sent to all who were there: two tasks had the same objects; and one that came later, and was the only
        // one to ask, had nothing.
        @Test("R-19 restored objects go to one consumer, to the first that takes them, in whatever order they came")
        func oneConsumer() async throws {
            let world = try await Worlds.make()
            let directory = try await left(world) { try await publish($0) }
            let taken = EventLog<Int>()
            let again = try await left(world, in: directory) { manager in
                let (first, second) = (manager.restoredState, manager.restoredState)
                async let one = first.first { _ in true }
                async let other = second.first { _ in true }
                taken.append(await [one, other].count { $0 != nil })
                try await manager.waitUntilReady()
            }
            #expect(taken.all == [1])
            let manager = PeripheralManager(options: Self.options(world, again))
            try await within { try await manager.waitUntilReady() }
            var idle: EventSequence<RestoredPeripheralState, Never>? = manager.restoredState
            let later = manager.restoredState
            _ = await manager.isAdvertising  // both are known now
            withExtendedLifetime(idle) {}
            idle = nil
            let services = try await within {
                var services: [[PublishedService]] = []
                for await state in later { services.append(state.services) }
                return services
            }
            #expect(services.map(\.count) == [1])
        }

        @Test("R-19 what is withdrawn before it is taken is not handed out, to those who came before that either")
        func withdrawnUntaken() async throws {
            let world = try await Worlds.make()
            let directory = try await left(world) { try await publish($0) }
            let manager = PeripheralManager(options: Self.options(world, directory))
            try await within { try await manager.waitUntilReady() }
            let restored = manager.restoredState
            await manager.removeAllServices()
            await manager.stopAdvertising()
            let state = try #require(try await within { await restored.first { _ in true } })
            #expect(state.services == [] && state.advertisementData == nil)
        }

        @Test("R-19 services and advertisement withdrawn before the first state are not handed out as restored")
        func calledOffEarly() async throws {
            let world = try await Worlds.make()
            let directory = try await left(world) { try await publish($0) }
            let manager = PeripheralManager(options: Self.options(world, directory))
            await manager.removeAllServices()
            await manager.stopAdvertising()
            let state = try await within { await manager.restoredState.first { _ in true } }
            #expect(state?.services ?? [] == [] && state?.advertisementData == nil)
            try await within { try await manager.waitUntilReady() }
            #expect(await !manager.isAdvertising)
            try await within { try await manager.startAdvertising() }
            try await eventually("the service is gone") { try await countOfServices(world) == 0 }
        }

        @Test(
            "L2-1 a restored channel that is withdrawn before it is published again is never open",
            .enabled(if: !isHosted, "a keeper may still have the first manager's, so that they get other PSMs"),
            arguments: 0...2)
        func unpublishesEarly(_ kind: Int) async throws {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            let directory = try await left(world) { manager in
                for _ in 0..<3 { _ = try await manager.publishL2CAPChannel(withEncryption: false) }
            }
            let observer = PeripheralManager(options: world.managerOptions)
            try await within { try await observer.waitUntilReady() }
            if kind == 2 {
                try await world.control("rig power off")
                try await within { for await state in observer.states where state != .poweredOn { return } }
            }
            let manager = PeripheralManager(options: Self.options(world, directory))
            let channels = try await restored(manager).channels
            #expect(channels.count == 3)
            if kind == 1 { try await within { try await manager.waitUntilReady() } }
            try await within {
                for channel in channels.dropFirst() { try await manager.unpublishL2CAPChannel(channel.psm) }
            }
            if kind == 2 { try await world.control("rig power on") }
            try await within { for await state in manager.states where state == .poweredOn { return } }
            let kept = try await within { try await manager.psm(of: channels[0]) }
            for channel in channels.dropFirst() {
                await #expect(throws: CBError.self) { try await within { try await manager.psm(of: channel) } }
            }
            try await within { try await manager.startAdvertising() }
            try await world.connect()
            for channel in channels.dropFirst() where channel.psm != kept {
                await #expect(throws: (any Error).self) { try await world.openChannel(channel.psm) }
            }
            let opened = manager.openedChannels
            try await world.openChannel(kept)
            #expect(try await within { await opened.first { _ in true } }?.psm == kept)
            // After a channel was withdrawn it has no PSM.
            try await within { try await manager.unpublishL2CAPChannel(kept) }
            await #expect(throws: CBError.self) { try await within { try await manager.psm(of: channels[0]) } }
            try await world.resetChannels()
        }
    }
}
