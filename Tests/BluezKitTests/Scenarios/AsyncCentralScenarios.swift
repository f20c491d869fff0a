import BluezDBus
import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

/// The central role with `async`. In the simulator and against the real bluetoothd.
extension Scenarios {
    @Suite struct AsyncCentralScenarios {
        typealias World = any BluezKitTests.World
        /// Fewer in the rig, where every value passes a radio.
        private static let many = Worlds.isRig ? 150 : 1000

        /// A manager, and a peripheral that it has found.
        static func found(
            _ name: String, _ service: CBUUID, options: [String: Any] = [:]
        ) async throws -> (World, CentralManager, CoreBluetoothAsync.Peripheral) {
            let world = try await Worlds.make()
            let central = CentralManager(options: world.managerOptions)
            return (world, central, try await find(name, service, central))
        }

        static func find(
            _ name: String, _ service: CBUUID, _ central: CentralManager
        ) async throws -> CoreBluetoothAsync.Peripheral {
            try await within { [service = service.data] in
                for try await found in central.scanForPeripherals(withServices: [CBUUID(data: service)])
                where found.advertisementData.localName == name {
                    return found.peripheral
                }
                throw BluetoothError.notFound
            }
        }

        static func connectedSink() async throws -> (World, CentralManager, CoreBluetoothAsync.Peripheral) {
            let (world, central, sink) = try await found("Rig Sink", sinkUUID(1))
            try await within { try await central.connect(sink) }
            return (world, central, sink)
        }

        @Test(
            "SC-4 SC-9 a scan is a sequence: it begins with the call, before the state is known, and ends with its loop"
        )
        func scans() async throws {
            let world = try await Worlds.make()
            let central = CentralManager(options: world.managerOptions)
            #expect(central.state == .unknown || central.state == .poweredOn)
            let found = try await within {
                for try await found in central.scanForPeripherals(withServices: [CBUUID(string: "180D")])
                where found.advertisementData.localName == "Rig Heart" {
                    return found
                }
                throw BluetoothError.notFound
            }
            #expect(found.rssi.map { $0 < 0 } == true)
            #expect(found.advertisementData.isConnectable)
            #expect(found.advertisementData.serviceUUIDs.contains(CBUUID(string: "180D")))
            #expect(found.peripheral.state == .disconnected)
            try await Self.stopsScanning(world)
        }

        /// Notes the elements of a sequence, so that each can be awaited with a deadline.
        private func noted<Element: Sendable>(_ sequence: EventSequence<Element, Never>) -> EventLog<Element> {
            let log = EventLog<Element>()
            Task { for await element in sequence { log.append(element) } }
            return log
        }

        /// Waits until no program discovers.
        static func stopsScanning(_ world: World) async throws {
            let peer = try await Peer.named(world.busAddress)
            try await eventually("no program discovers") {
                try await peer.call(
                    "org.bluez", "/org/bluez/hci0", "org.freedesktop.DBus.Properties", "Get",
                    [.string("org.bluez.Adapter1"), .string("Discovering")]
                ).first?.boolValue == false
            }
        }

        // Slow: in the rig, the sink answers the slow read after five seconds.
        @Test("NT-1 a cancelled setNotifyValue takes nothing from the tasks that iterate values or have subscribed")
        func cancelsSubscribing() async throws {
            let (world, central, sink) = try await Self.connectedSink()
            let slow = try await within { try await sink.discoverCharacteristic(sinkUUID(0x1B), in: sinkUUID(1)) }
            let notifying = try await within { try await sink.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1)) }
            /// A setNotifyValue that is cancelled while it waits behind a read, and what is done in between. Both again
            /// if it did not wait: a machine may stand still for as long as the read takes.
            @Sendable func cancelled(
                isSubscribed: Bool, _ meanwhile: @Sendable () async -> Void
            ) async throws {
                while true {
                    try Task.checkCancellation()
                    let read = Task { try await sink.readValue(for: slow) }
                    await Task.yield()
                    _ = await sink.isNotifying(slow)
                    let subscribing = Task {
                        try await sink.setNotifyValue(true, for: notifying)
                    }
                    await Task.yield()
                    _ = await sink.isNotifying(slow)
                    await meanwhile()
                    subscribing.cancel()
                    let result = await subscribing.result
                    _ = try await read.value
                    guard case .success = result else { return }
                    if !isSubscribed { try await sink.setNotifyValue(false, for: notifying) }
                }
            }
            // A consumer that comes while it waits.
            let values = EventLog<EventSequence<Data, any Error>>()
            try await within {
                try await cancelled(isSubscribed: false) {
                    values.forget()
                    values.append(sink.values(for: notifying))
                }
            }
            try await eventually("the consumer is subscribed") { await sink.isNotifying(notifying) }
            try await world.control("sink burst 0013 5 20")
            do {
                let consumer = try await values.next("the sequence") { $0 }
                values.forget()
                #expect(try await within { try await consumer.prefix(5).reduce(0) { count, _ in count + 1 } } == 5)
            }
            try await eventually("no consumer is subscribed") { await !sink.isNotifying(notifying) }
            // One that has subscribed before.
            try await within { try await sink.setNotifyValue(true, for: notifying) }
            try await within { try await cancelled(isSubscribed: true) {} }
            do { _ = sink.values(for: notifying) }
            _ = try await within { try await sink.readRSSI() }
            #expect(await sink.isNotifying(notifying))
            try await within { try await sink.setNotifyValue(false, for: notifying) }
            #expect(await !sink.isNotifying(notifying))
            try await within { try await central.cancelPeripheralConnection(sink) }
        }

        @Test("SC-5 cancelling the task of a scan ends the loop, and BlueZ's discovery")
        func cancelsScan() async throws {
            let world = try await Worlds.make()
            let central = CentralManager(options: world.managerOptions)
            let seen = EventLog<String>()
            let scan = central.scanForPeripherals(withServices: [CBUUID(string: "180D")])
            let task = Task {
                for try await found in scan { seen.append(found.advertisementData.localName ?? "") }
                return Task.isCancelled
            }
            _ = try await seen.next("a report") { $0 == "Rig Heart" ? $0 : nil }
            task.cancel()
            #expect(try await within { try await task.value })
            try await Self.stopsScanning(world)
        }

        @Test("SC-2 several consumers share a scan; a scan with other parameters replaces it")
        func sharesScan() async throws {
            let world = try await Worlds.make()
            let central = CentralManager(options: world.managerOptions)
            try await within { try await central.waitUntilReady() }
            let scan = central.scanForPeripherals(withServices: [CBUUID(string: "180D")], allowDuplicates: true)
            let heart = try await within {
                async let first = scan.first { $0.advertisementData.localName == "Rig Heart" }
                async let second = scan.first { $0.advertisementData.localName == "Rig Heart" }
                return try await (first?.peripheral, second?.peripheral)
            }
            #expect(heart.0 != nil && heart.0 === heart.1)
            let old = central.scanForPeripherals(withServices: [CBUUID(string: "180D")])
            let new = central.scanForPeripherals(withServices: [sinkUUID(1)])
            await #expect(throws: BluetoothError.scanReplaced) {
                try await within { for try await _ in old {} }
            }
            let sink = try await within { try await new.first { $0.advertisementData.localName == "Rig Sink" } }
            #expect(sink != nil)
        }

        @Test(
            "SC-2 SC-6 a consumer that joins a scan hears of every peripheral, whatever the order and spelling of its services"
        )
        func joinsScan() async throws {
            let world = try await Worlds.make()
            let central = CentralManager(options: world.managerOptions)
            try await within { try await central.waitUntilReady() }
            let seen = EventLog<String>()
            let first = central.scanForPeripherals(withServices: [CBUUID(string: "180D"), sinkUUID(1)])
            let task = Task {
                for try await found in first { seen.append(found.advertisementData.localName ?? "") }
                return Task.isCancelled
            }
            _ = try await seen.next("a report") { $0 == "Rig Heart" ? $0 : nil }
            let second = central.scanForPeripherals(
                withServices: [sinkUUID(1), CBUUID(string: "0000180D-0000-1000-8000-00805F9B34FB")])
            let heart = try await within { try await second.first { $0.advertisementData.localName == "Rig Heart" } }
            #expect(heart != nil)
            _ = try await seen.next("the same again") { $0 == "Rig Heart" ? $0 : nil }
            task.cancel()
            #expect(try await within { try await task.value })
        }

        @Test("CN-3 CN-7 RW-2 RW-4 GD-3 connect, discover, read, write, disconnect")
        func basics() async throws {
            let (world, central, sink) = try await Self.connectedSink()
            #expect(sink.state == .connected)
            let services = try await within { try await sink.discoverServices([sinkUUID(1)]) }
            #expect(services.map(\.uuid) == [sinkUUID(1)])
            #expect(await sink.services == services)
            let read = try await within { try await sink.discoverCharacteristic(sinkUUID(0x11), in: sinkUUID(1)) }
            try await within { try await sink.writeValue(Data([1, 2, 3]), for: read) }
            #expect(try await within { try await sink.readValue(for: read) } == Data([1, 2, 3]))
            let described = try await within { try await sink.discoverCharacteristic(sinkUUID(0x18), in: sinkUUID(1)) }
            let descriptors = try await within { try await sink.discoverDescriptors(for: described) }
            let text = try #require(descriptors.first { $0.uuid == CBUUID(string: "2901") })
            #expect(try await within { try await sink.readValue(for: text) } == .text("A description"))
            let refusing = try await within { try await sink.discoverCharacteristic(sinkUUID(0x1A), in: sinkUUID(1)) }
            await #expect(throws: CBATTError.self) {
                try await within { try await sink.writeValue(Data([1]), for: refusing) }
            }
            #expect(try await within { try await sink.readRSSI() } < 0)
            await #expect(throws: BluetoothError.notFound) {
                try await sink.discoverCharacteristic(sinkUUID(0x999), in: sinkUUID(1))
            }
            try await within { try await central.cancelPeripheralConnection(sink) }
            #expect(sink.state == .disconnected)
            await #expect(throws: CBError.self) { try await within { try await sink.readValue(for: read) } }
            try await world.awaitConnections("sink", 0)
        }

        @Test("NT-1 NT-4 values of notifications, in order and once; leaving the loop unsubscribes")
        func notifies() async throws {
            let (world, central, sink) = try await Self.connectedSink()
            let characteristic = try await within {
                try await sink.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1))
            }
            let values = sink.values(for: characteristic)
            // A request after the subscription is answered after it.
            _ = try await within { try await sink.readRSSI() }
            #expect(await sink.isNotifying(characteristic))
            let own = sink.values(for: characteristic)
            try await world.control("sink burst 0013 \(Self.many) 20 \(Worlds.isRig ? 250 : 1000)")
            @Sendable func counters(_ count: Int, _ values: EventSequence<Data, any Error>) async throws -> [Int] {
                var counters: [Int] = []
                for try await value in values {
                    counters.append(Int(value[value.startIndex]) | Int(value[value.startIndex + 1]) << 8)
                    if counters.count == count { break }
                }
                return counters
            }
            let all = try await within { () -> [[Int]] in
                async let first = counters(Self.many, values)
                async let other = counters(100, own)
                return try await [first, other]
            }
            for counters in all {
                #expect(zip(counters, counters.dropFirst()).allSatisfy { ($0 + 1) & 0xFFFF == $1 })
            }
            #expect(all.map(\.count) == [Self.many, 100])
            #expect(values.droppedCount == 0 && own.droppedCount == 0)
            try await eventually("the subscription ends") { await !sink.isNotifying(characteristic) }
            try await within { try await central.cancelPeripheralConnection(sink) }
        }

        @Test(
            "NT-1 cancelling the task of values unsubscribes, unless setNotifyValue has subscribed or another task iterates"
        )
        func cancelsValues() async throws {
            let (world, central, sink) = try await Self.connectedSink()
            let characteristic = try await within {
                try await sink.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1))
            }
            let values = sink.values(for: characteristic)
            let log = EventLog<Data>()
            func iterate() -> Task<Void, any Error> { Task { for try await value in values { log.append(value) } } }
            let (first, second) = (iterate(), iterate())
            _ = try await within { try await sink.readRSSI() }
            try await world.control("sink notify 0013 01")
            for _ in 0..<2 { _ = try await log.next("a value") { $0 == Data([1]) ? $0 : nil } }
            first.cancel()
            try await within { try await first.value }
            _ = try await within { try await sink.readRSSI() }
            #expect(await sink.isNotifying(characteristic))
            try await within { try await sink.setNotifyValue(true, for: characteristic) }
            second.cancel()
            try await within { try await second.value }
            _ = try await within { try await sink.readRSSI() }
            #expect(await sink.isNotifying(characteristic))
            try await within { try await sink.setNotifyValue(false, for: characteristic) }
            #expect(await !sink.isNotifying(characteristic))
            let third = iterate()
            try await eventually("it is subscribed") { await sink.isNotifying(characteristic) }
            third.cancel()
            try await eventually("the subscription ends") { await !sink.isNotifying(characteristic) }
            try await within { try await central.cancelPeripheralConnection(sink) }
        }

        @Test("NT-3 a subscription that is impossible throws to each consumer")
        func refusesValues() async throws {
            let (world, central, sink) = try await Self.connectedSink()
            let characteristic = try await within {
                try await sink.discoverCharacteristic(sinkUUID(0x11), in: sinkUUID(1))
            }
            let values = sink.values(for: characteristic)
            await #expect(throws: CBATTError.self) { try await within { for try await _ in values {} } }
            await #expect(throws: CBATTError.self) {
                try await within { try await sink.setNotifyValue(true, for: characteristic) }
            }
            try await within { try await central.cancelPeripheralConnection(sink) }
            await #expect(throws: CBError.self) {
                try await within { for try await _ in sink.values(for: characteristic) {} }
            }
            withExtendedLifetime(world) {}  // optimized code would release it after its last use
        }

        @Test("IV-1 IV-2 a service that is removed is reported; values of its characteristics end, others continue")
        func servicesChange() async throws {
            let (world, central, sink) = try await Self.connectedSink()
            let kept = try await within { try await sink.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1)) }
            let hello = try await within { try await sink.discoverCharacteristic(sinkUUID(0x10), in: sinkUUID(1)) }
            let changes = noted(sink.serviceChanges)
            let values = sink.values(for: kept)
            // BlueZ reports the services before it has subscribed to Service Changed; the requests of apps come after
            // that.
            _ = try await within { try await sink.readValue(for: hello) }
            try await world.control("sink services add")
            #expect(try await changes.next("the change") { $0 }.isEmpty)
            let gone = try await within { try await sink.discoverCharacteristic(sinkUUID(0x21), in: sinkUUID(3)) }
            let goneValues = sink.values(for: gone)
            _ = try await within { try await sink.readValue(for: gone) }
            try await world.control("sink services remove")
            #expect(try await changes.next("the change") { $0 }.map(\.uuid) == [sinkUUID(3)])
            await #expect(throws: CBError.self) { try await within { for try await _ in goneValues {} } }
            await #expect(throws: CBError.self) { try await within { try await sink.readValue(for: gone) } }
            try await world.control("sink notify 0013 05")
            #expect(try await within { try await values.first { _ in true } } == Data([5]))
            try await within { try await central.cancelPeripheralConnection(sink) }
        }

        @Test(
            "AR-2 AR-4 AR-7 a lost link is made again automatically; connect waits for it; a cancel ends it",
            arguments: ["asked for at first", "asked for when it is connected"])
        func reconnects(_ case: String) async throws {
            let (world, central, heart) = try await Self.found("Rig Heart", CBUUID(string: "180D"))
            if `case` == "asked for when it is connected" { try await within { try await central.connect(heart) } }
            try await within {
                try await central.connect(heart, options: [CBConnectPeripheralOptionEnableAutoReconnect: true])
            }
            // BlueZ 5.66 crashes if the link is lost while it discovers.
            _ = try await within { try await heart.discoverServices() }
            let events = central.events
            try await world.control("heart disconnect")
            let isReconnecting = try await within { () -> Bool? in
                for await event in events {
                    if case .didDisconnectPeripheral(heart, let isReconnecting, _?) = event { return isReconnecting }
                }
                return nil
            }
            #expect(isReconnecting == true)
            try await within(2 * world_deadline) { try await central.connect(heart) }
            #expect(heart.state == .connected)
            _ = try await within { try await heart.discoverServices() }
            try await within { try await central.cancelPeripheralConnection(heart) }
            #expect(heart.state == .disconnected)
            try await world.awaitConnections("heart", 0)
        }

        @Test(
            "CE-1 CE-2 connections by other programs are a sequence, which registers before and after Bluetooth is on")
        func connectionEvents() async throws {
            let world = try await Worlds.make()
            let watcher = CentralManager(options: world.managerOptions)
            let events = noted(watcher.connectionEvents(matchingServices: [CBUUID(string: "180D")]))
            try await within { try await watcher.waitUntilReady() }
            let user = CentralManager(options: world.managerOptions)
            let heart = try await Self.find("Rig Heart", CBUUID(string: "180D"), user)
            try await within { try await user.connect(heart) }
            let connected = try await events.next("the connection") { $0 }
            #expect(connected.event == .peerConnected && connected.peripheral.identifier == heart.identifier)
            #expect(connected.peripheral !== heart && connected.peripheral.state == .disconnected)
            _ = try await within { try await heart.discoverServices() }
            try await within { try await user.cancelPeripheralConnection(heart) }
            #expect(try await events.next("the disconnection") { $0 }.event == .peerDisconnected)
        }

        @Test("O-15 CN-9 the peer closes the link: what waits, and each sequence, throw its error")
        func losesLink() async throws {
            let (world, central, sink) = try await Self.connectedSink()
            let characteristic = try await within {
                try await sink.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1))
            }
            let values = sink.values(for: characteristic)
            let more = sink.values(for: characteristic)
            let events = central.events
            _ = try await within { try await sink.readRSSI() }
            try await world.control("sink disconnect")
            for sequence in [values, more] {
                await #expect(throws: CBError.self) { try await within { for try await _ in sequence {} } }
            }
            let error = try await within { () -> (any Error)? in
                for await event in events {
                    if case .didDisconnectPeripheral(sink, false, let error) = event { return error }
                }
                return nil
            }
            #expect(error is CBError)
            // The same object connects again.
            try await within { try await central.connect(sink) }
            await #expect(throws: CBError.self) { try await within { try await sink.readValue(for: characteristic) } }
            let again = try await within { try await sink.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1)) }
            #expect(again != characteristic)
            try await within { try await central.cancelPeripheralConnection(sink) }
        }

        @Test(
            "O-11 CN-2 CN-7 a time limit by the caller's own means calls a pending connect off; the next one succeeds")
        func cancelsConnect() async throws {
            let (world, central, heart) = try await Self.found("Rig Heart", CBUUID(string: "180D"))
            try await world.control("heart vanish")
            let events = central.events
            await #expect(throws: DeadlineExceeded.self) {
                try await within(0.5) { try await central.connect(heart) }
            }
            try await within {
                for await event in events { if case .didDisconnectPeripheral(heart, false, nil) = event { return } }
            }
            #expect(heart.state == .disconnected)
            // Two tasks, one of which is cancelled: the attempt continues.
            let first = Task { try await central.connect(heart) }
            let second = Task { try await central.connect(heart) }
            first.cancel()
            await #expect(throws: CancellationError.self) { try await within { try await first.value } }
            try await world.control("heart return")
            try await within { try await second.value }
            try await within { try await central.cancelPeripheralConnection(heart) }
        }

        @Test("RW-8 RW-9 O-27 writes without response wait for room: all arrive, before a read that follows")
        func streams() async throws {
            let (world, central, sink) = try await Self.connectedSink()
            let characteristic = try await within {
                try await sink.discoverCharacteristic(sinkUUID(0x12), in: sinkUUID(1))
            }
            let counter = try await within { try await sink.discoverCharacteristic(sinkUUID(0x1C), in: sinkUUID(1)) }
            let count = try await within {
                let before = try await sink.readValue(for: counter)
                for _ in 0..<Self.many {
                    try await sink.writeValue(Data(count: 20), for: characteristic, type: .withoutResponse)
                }
                let after = try await sink.readValue(for: counter)
                return after.littleEndian &- before.littleEndian
            }
            #expect(count == UInt32(20 * Self.many))
            let long = Data(count: await sink.maximumWriteValueLength(for: .withoutResponse) + 1)
            await #expect(throws: CBATTError.self) {
                try await sink.writeValue(long, for: characteristic, type: .withoutResponse)
            }
            try await within { try await central.cancelPeripheralConnection(sink) }
            withExtendedLifetime(world) {}  // optimized code would release it after its last use
        }

        // What CoreBluetooth says without one is a guess: 512 and 20.
        @Test("the longest write has no bytes without a connection")
        func longestWrite() async throws {
            let (world, central, sink) = try await Self.found("Rig Sink", sinkUUID(1))
            func lengths() async -> [Int] {
                [
                    await sink.maximumWriteValueLength(for: .withResponse),
                    await sink.maximumWriteValueLength(for: .withoutResponse),
                ]
            }
            #expect(await lengths() == [0, 0])
            try await within { try await central.connect(sink) }
            #expect(await lengths().allSatisfy { $0 >= 20 })
            try await within { try await central.cancelPeripheralConnection(sink) }
            #expect(await lengths() == [0, 0])
            withExtendedLifetime(world) {}  // optimized code would release it after its last use
        }

        // Slow: in the rig, the sink answers the cancelled read after five seconds, and BlueZ ends the link two to
        // three seconds after it was asked to.
        @Test(
            "RW-1 a cancelled read returns at once, a cancelled write is never made; what waits behind them is answered"
        )
        func cancelsRead() async throws {
            let (world, central, sink) = try await Self.connectedSink()
            let slow = try await within { try await sink.discoverCharacteristic(sinkUUID(0x1B), in: sinkUUID(1)) }
            let hello = try await within { try await sink.discoverCharacteristic(sinkUUID(0x10), in: sinkUUID(1)) }
            // A machine may stand still for as long as the sink takes to answer: then nothing was left to cancel.
            try await eventually("both are cancelled before the sink answers") {
                let start = ContinuousClock.now
                let cancelled = Task { try await sink.readValue(for: slow) }
                let neverMade = Task { try await sink.writeValue(Data([1]), for: hello) }
                _ = await sink.isNotifying(slow)
                neverMade.cancel()
                cancelled.cancel()
                let read = await thrown { _ = try await within { try await cancelled.value } }
                let write = await thrown { try await within { try await neverMade.value } }
                let isRight = read is CancellationError && write is CancellationError
                let isLate = start.duration(to: .now) >= .milliseconds(Worlds.isRig ? 5000 : 500)
                #expect(isRight || isLate)
                return isRight || !isLate
            }
            #expect(try await within { try await sink.readValue(for: hello) } == Data("hello".utf8))
            try await within { try await central.cancelPeripheralConnection(sink) }
            withExtendedLifetime(world) {}  // optimized code would release it after its last use
        }

        @Test("ST-4 O-18 Bluetooth goes off: everything that waits throws; on again, the same objects work")
        func powersOff() async throws {
            let (world, central, sink) = try await Self.connectedSink()
            let characteristic = try await within {
                try await sink.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1))
            }
            let values = sink.values(for: characteristic)
            let scan = central.scanForPeripherals(withServices: [sinkUUID(0x999)])
            let other = try await Self.find("Rig Heart", CBUUID(string: "180D"), central)
            try await world.control("heart vanish")
            let pending = Task { try await central.connect(other) }
            let states = central.states
            let losses = try await LossWatch(world)
            try await world.control("rig power off")
            await #expect(throws: BluetoothError.unavailable(.poweredOff)) {
                try await within { try await pending.value }
            }
            let end = await thrown { try await within { for try await _ in values {} } }
            let isLoss = (end as? CBError)?.code == .peripheralDisconnected
            #expect(losses.isEarly && isLoss || end as? BluetoothError == .unavailable(.poweredOff))
            await #expect(throws: (any Error).self) { try await within { for try await _ in scan {} } }
            await #expect(throws: BluetoothError.unavailable(.poweredOff)) {
                try await within { try await central.waitUntilReady() }
            }
            await #expect(throws: BluetoothError.unavailable(.poweredOff)) {
                try await within { try await central.connect(sink) }
            }
            try await world.control("heart return")
            try await world.control("rig power on")
            try await within { for await state in states.dropFirst(2) where state == .poweredOn { return } }
            try await within { try await central.connect(sink) }
            try await within { try await central.cancelPeripheralConnection(sink) }
        }

        // Slow: in the rig, bluetoothd ends its link before it exits, and BlueZ ends the next one two to three seconds
        // after it was asked to.
        @Test(
            "ST-6 O-44 bluetoothd restarts: everything that waits throws; afterwards the same peripheral connects again"
        )
        func restarts() async throws {
            let (world, central, sink) = try await Self.connectedSink()
            let characteristic = try await within {
                try await sink.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1))
            }
            let values = sink.values(for: characteristic)
            let states = central.states
            for line in ["stop", "start"] { try await world.control("bluetoothd \(line)") }
            // A bluetoothd that is stopped in good order ends its links first.
            await #expect(throws: (any Error).self) { try await within { for try await _ in values {} } }
            try await within { for await state in states.dropFirst(2) where state == .poweredOn { return } }
            try await within { try await central.connect(sink) }
            try await within { try await central.cancelPeripheralConnection(sink) }
        }

        @Test("O-45 CN-15 releasing the manager ends what waits, and its connections")
        func releases() async throws {
            let world = try await Worlds.make()
            var central: CentralManager? = CentralManager(options: world.managerOptions)
            let sink = try await Self.find("Rig Sink", sinkUUID(1), try #require(central))
            try await within { [central] in try await central?.connect(sink) }
            let characteristic = try await within {
                try await sink.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1))
            }
            let values = sink.values(for: characteristic)
            let (states, events) = (try #require(central).states, try #require(central).events)
            _ = try await within { try await sink.readRSSI() }
            central = nil
            await #expect(throws: BluetoothError.managerReleased) { try await within { for try await _ in values {} } }
            try await within { for await _ in states {} }
            // Also for those who come later.
            for _ in 0..<2 { try await within { for await _ in events {} } }
            await #expect(throws: BluetoothError.managerReleased) {
                try await within { try await sink.discoverServices() }
            }
            try await world.awaitConnections("sink", 0)
        }

        // The connection was cancelled after those who wait had been told, who still read `.connected`.
        @Test(
            "CN-7 who catches the end of a connection finds the peripheral's state to be so",
            arguments: ["cancelled", "released"])
        func stateAtEnd(_ end: String) async throws {
            let world = try await Worlds.make()
            var central: CentralManager? = CentralManager(options: world.managerOptions)
            let sink = try await Self.find("Rig Sink", sinkUUID(1), try #require(central))
            try await within { [central] in try await central?.connect(sink) }
            let characteristic = try await within {
                try await sink.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1))
            }
            let values = sink.values(for: characteristic)
            let seen = EventLog<CBPeripheralState>()
            Task { do { for try await _ in values {} } catch { seen.append(sink.state) } }
            _ = try await within { try await sink.readRSSI() }
            if end == "cancelled" {
                try await within { [central] in try await central?.cancelPeripheralConnection(sink) }
            }
            central = nil
            let state = try await seen.next("the end of the values") { $0 }
            #expect(state == .disconnecting || state == .disconnected)
            try await world.awaitConnections("sink", 0)
        }

        @Test("CN-1 releasing the peripheral ends its connection")
        func releasesPeripheral() async throws {
            let world = try await Worlds.make()
            let central = CentralManager(options: world.managerOptions)
            do {
                let sink = try await Self.find("Rig Sink", sinkUUID(1), central)
                try await within { try await central.connect(sink) }
            }
            try await world.awaitConnections("sink", 0)
            #expect(central.state == .poweredOn)
        }

        @Test("RT-1 a peripheral is retrieved by its identifier, the same object as long as one is kept")
        func retrieves() async throws {
            let (world, central, sink) = try await Self.found("Rig Sink", sinkUUID(1))
            #expect(await central.retrievePeripherals(withIdentifiers: [sink.identifier, UUID()]) == [sink])
            let other = CentralManager(options: world.managerOptions)
            try await within { try await other.waitUntilReady() }
            // Although the other one knows it too.
            let found = await other.retrievePeripherals(withIdentifiers: [sink.identifier])
            #expect(found.map(\.identifier) == [sink.identifier] && found != [sink])
            let error = await thrown { try await within { try await other.connect(sink) } }
            #expect((error as? CBError)?.code == .unknownDevice)
            withExtendedLifetime(world) {}  // optimized code would release it after its last use
        }

        @Test("a task that is already cancelled makes no request of a central manager")
        func cancelledBefore() async throws {
            let (world, central, sink) = try await Self.connectedSink()
            let streaming = try await within { try await sink.discoverCharacteristic(sinkUUID(0x12), in: sinkUUID(1)) }
            let counter = try await within { try await sink.discoverCharacteristic(sinkUUID(0x1C), in: sinkUUID(1)) }
            let plain = try await within { try await sink.discoverCharacteristic(sinkUUID(0x11), in: sinkUUID(1)) }
            let notifying = try await within { try await sink.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1)) }
            try await within { try await sink.writeValue(Data([7]), for: plain) }
            try await within { try await sink.setNotifyValue(true, for: notifying) }
            let before = try await within { try await sink.readValue(for: counter) }
            for _ in 0..<10 {
                await expectCancelled { try await sink.writeValue(Data([1]), for: plain) }
                await expectCancelled { try await sink.writeValue(Data([1]), for: streaming, type: .withoutResponse) }
            }
            await expectCancelled { try await sink.setNotifyValue(false, for: notifying) }
            await expectCancelled {
                try await central.connect(sink, options: [CBConnectPeripheralOptionEnableAutoReconnect: true])
            }
            await expectCancelled { try await central.removeBond(with: sink) }
            #expect(try await within { try await sink.readValue(for: plain) } == Data([7]))
            #expect(try await within { try await sink.readValue(for: counter) } == before)
            #expect(await sink.isNotifying(notifying))
            // Its options have not been changed either.
            let events = central.events
            try await world.control("sink disconnect")
            try await within {
                for await case .didDisconnectPeripheral(sink, let isReconnecting, _) in events {
                    #expect(!isReconnecting)
                    return
                }
            }
        }

        @Test("CN-2 cancelling the end of a connection before it begins ends only the waiting: it is carried out")
        func cancelledDisconnect() async throws {
            let (world, central, sink) = try await Self.connectedSink()
            let task = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                try await central.cancelPeripheralConnection(sink)
            }
            _ = await task.result
            try await eventually("the connection has ended") { sink.state == .disconnected }
            try await world.awaitConnections("sink", 0)
        }

        @Test("AR-7 CN-2 a connect that waits for automatic reconnection, and is cancelled, calls it off")
        func cancelsReconnect() async throws {
            let (world, central, heart) = try await Self.found("Rig Heart", CBUUID(string: "180D"))
            try await within {
                try await central.connect(heart, options: [CBConnectPeripheralOptionEnableAutoReconnect: true])
            }
            _ = try await within { try await heart.discoverServices() }
            let events = noted(central.events)
            try await world.control("heart vanish")
            try await events.next("the loss", within: 2 * world_deadline) {
                if case .didDisconnectPeripheral(heart, true, _) = $0 { true } else { nil }
            }
            await #expect(throws: DeadlineExceeded.self) { try await within(0.5) { try await central.connect(heart) } }
            try await events.next("the end") {
                if case .didDisconnectPeripheral(heart, false, nil) = $0 { true } else { nil }
            }
            #expect(heart.state == .disconnected)
            try await world.heartReturns()
            _ = try await Self.find("Rig Heart", CBUUID(string: "180D"), central)
            #expect(heart.state == .disconnected)
        }

        @Test("CE-2 connection events: when a later consumer is gone, the one before it is heard again")
        func connectionEventsAgain() async throws {
            let world = try await Worlds.make()
            let watcher = CentralManager(options: world.managerOptions)
            try await within { try await watcher.waitUntilReady() }
            let events = noted(watcher.connectionEvents(matchingServices: [CBUUID(string: "180D")]))
            do { _ = watcher.connectionEvents(matchingServices: [CBUUID(string: "FF98")]) }
            _ = await watcher.retrievePeripherals(withIdentifiers: [])  // it is gone now
            let user = CentralManager(options: world.managerOptions)
            let heart = try await Self.find("Rig Heart", CBUUID(string: "180D"), user)
            try await within { try await user.connect(heart) }
            #expect(try await events.next("the connection") { $0 }.event == .peerConnected)
            _ = try await within { try await heart.discoverServices() }
            try await within { try await user.cancelPeripheralConnection(heart) }
        }
    }
}
