import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Testing

extension Hostile {
    @Suite struct FailureTests {
        private func state(_ wanted: CBManagerState, _ central: Central) async throws {
            try await central.next("\(wanted)") { if case .state(wanted) = $0 { true } else { nil } }
        }

        @Test(
            "AccessDenied for everything: unauthorized, denied, a line that names the remedy, and no further callback")
        func accessDenied() async throws {
            let world = try await HostileWorld()
            world.simulator.inject(.accessDenied)
            // `authorization` is of the process, and other tests power on beside this one: look inside the callback.
            let seen = EventLog<CBManagerAuthorization>()
            var sawDenied = false
            for _ in 1...5 where !sawDenied {
                let central = Central(world) { _, event in
                    if case .state(.unauthorized) = event { seen.append(CBManager.authorization) }
                }
                try await state(.unauthorized, central)
                sawDenied = try await seen.next("authorization") { $0 } == .denied
                central.manager.scanForPeripherals(withServices: nil)
                #expect(!central.manager.isScanning)
                #expect(central.manager.retrievePeripherals(withIdentifiers: [world.identifier]).isEmpty)
            }
            #expect(sawDenied)
            try await LogCapture.shared.expect("does not let this user talk to BlueZ", "bluetooth")
        }

        @Test(
            "AccessDenied during a session: each request gets its error, values continue, and later requests work"
        )
        func deniedInTheMiddle() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            let victim = app.peripheral
            world.simulator.inject(.accessDenied)
            #expect(try await app.central.read(app.characteristic).failure != nil)
            #expect(try await app.central.write(Data([1]), to: app.characteristic) != nil)
            app.central.manager.scanForPeripherals(withServices: nil)
            try await app.goesOn("a refused read, write and scan")
            #expect(app.central.manager.state == .poweredOn)
            world.victim.disconnect()
            try await app.central.next("the end") { if case .disconnected(victim, _, _) = $0 { true } else { nil } }
            app.central.manager.connect(victim)
            let failure = try await app.central.next("failure") {
                if case .failed(victim, let error) = $0 { [error] } else { nil }
            }
            #expect(failure[0] != nil)
            world.simulator.clearFaults()
            try await app.central.connect(victim)
            let again = try await app.central.characteristic(
                HostileWorld.notifying, of: HostileWorld.service, on: victim)
            #expect(try await app.central.read(again).get() == Data([0]))
        }

        @Test("calls that are never answered do not delay others: the link ends, and everything works on the next one")
        func neverAnswered() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            for member in ["ReadValue", "WriteValue", "AcquireWrite", "StopNotify"] {
                world.simulator.inject(SimulatorFault(member, times: nil, .ignore))
            }
            let doomed = try await app.central.characteristic(
                CBUUID(string: "2A6E"), of: HostileWorld.doomedService, on: app.peripheral)
            let calls = app.central.events.count
            app.peripheral.readValue(for: doomed)
            await world.simulator.waitForCalls("ReadValue")
            app.peripheral.setNotifyValue(false, for: app.characteristic)
            app.peripheral.readRSSI()
            try await app.goesOn("a read without an answer")
            world.victim.disconnect()
            try await app.central.next("the end") { if case .disconnected = $0 { true } else { nil } }
            #expect(app.central.events.count == calls + 2)  // the notification and the end: nothing else is answered
            world.simulator.clearFaults()
            try await app.central.connect(app.peripheral)
            let again = try await app.central.characteristic(
                HostileWorld.notifying, of: HostileWorld.service, on: app.peripheral)
            #expect(try await app.central.read(again).get() == Data([0]))
        }

        @Test("a first query that is never answered ends with the daemon, and the next one is answered")
        func mute() async throws {
            let world = try await HostileWorld()
            world.simulator.inject(SimulatorFault("GetAll", times: nil, .ignore))
            let central = Central(world)
            _ = try #require(await world.simulator.waitForCalls("GetAll"))
            world.simulator.clearFaults()
            try await world.simulator.restartDaemon()
            try await central.powerOn()
        }

        @Test("Connect that is never answered can be cancelled")
        func connectNeverAnswered() async throws {
            let world = try await HostileWorld()
            let central = Central(world)
            try await central.powerOn()
            let peripheral = try await central.find("Victim")
            world.simulator.inject(SimulatorFault("Connect", times: nil, .ignore))
            central.manager.connect(peripheral)
            await world.simulator.waitForCalls("Connect")
            try await central.disconnect(peripheral)
            #expect(peripheral.state == .disconnected)
            world.simulator.clearFaults()
            try await central.connect(peripheral)
        }

        @Test("attributes that are removed during operations: each is answered once with an error, then the rest works")
        func attributesVanish() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            let doomed = try await app.central.characteristic(
                CBUUID(string: "2A6E"), of: HostileWorld.doomedService, on: app.peripheral)
            #expect(try await app.central.setNotify(true, doomed) == nil)
            // The first read has no answer when the service is removed; the others find nothing.
            world.simulator.inject(SimulatorFault("ReadValue", .delay(.seconds(600))))
            for _ in 1...3 { app.peripheral.readValue(for: doomed) }
            app.peripheral.discoverDescriptors(for: doomed)
            app.peripheral.setNotifyValue(false, for: doomed)
            await world.simulator.waitForCalls("ReadValue")
            world.victim.removeService("181A")
            for _ in 1...3 {
                let error = try await app.central.next("a failed read") {
                    if case .value(doomed, _, let error) = $0 { [error] } else { nil }
                }
                #expect((error[0] as? CBError)?.code == .invalidHandle)
            }
            let ending = try await app.central.next("the end of the subscription") {
                if case .notifying(doomed, _, let error) = $0 { [error] } else { nil }
            }
            #expect((ending[0] as? CBError)?.code == .invalidHandle)
            try await app.goesOn()
            app.peripheral.readValue(for: doomed)  // misuse, logged
            try await app.goesOn()
        }

        @Test("bluetoothd is killed during many operations: resetting, powered on, and everything works again")
        func killed() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            app.central.manager.scanForPeripherals(withServices: nil)
            let unknown = try #require(UUID(uuidString: "426C7A4B-0100-8000-8000-F00000000042"))
            let absent = try #require(app.central.manager.retrievePeripherals(withIdentifiers: [unknown]).first)
            app.central.manager.connect(absent)
            world.simulator.inject(SimulatorFault("ReadValue", .ignore))
            app.peripheral.readValue(for: app.characteristic)
            app.peripheral.setNotifyValue(false, for: app.characteristic)
            app.peripheral.readRSSI()
            await world.simulator.waitForCalls("ReadValue")
            world.simulator.killDaemon()
            try await state(.resetting, app.central)
            let after = app.central.events.count
            #expect(app.peripheral.state == .disconnected && !app.central.manager.isScanning)
            #expect(!app.characteristic.isNotifying)
            try await world.simulator.startDaemon()
            try await state(.poweredOn, app.central)
            #expect(app.central.events.count == after + 1)
            let found = try await app.central.find("Victim")
            try await app.central.connect(found)
            let characteristic = try await app.central.characteristic(
                HostileWorld.notifying, of: HostileWorld.service, on: found)
            #expect(try await app.central.read(characteristic).get() == Data([0]))
        }

        // Slow: a simulated bluetoothd is killed and started twenty times.
        @Test("killed twenty times in a row, at random times: powered on again each time")
        func killedOften() async throws {
            let world = try await HostileWorld()
            let central = Central(world)
            try await central.powerOn()
            for number in 1...20 {
                central.manager.scanForPeripherals(withServices: nil)
                let peripheral = try #require(
                    central.manager.retrievePeripherals(withIdentifiers: [world.identifier]).first)
                central.manager.connect(peripheral)
                switch number % 4 {
                case 0: break
                case 1: await world.simulator.waitForCalls("SetDiscoveryFilter")
                case 2: await world.simulator.waitForCalls("Connect")
                default: try await central.next("connected") { if case .connected = $0 { true } else { nil } }
                }
                world.simulator.killDaemon()
                world.simulator.forgetCalls()
                try await state(.resetting, central)
                try await world.simulator.startDaemon()
                try await state(.poweredOn, central)
            }
        }

        @Test("the bus itself is killed and comes back at the same address: resetting, then powered on")
        func busKilled() async throws {
            let path = FileManager.default.temporaryDirectory.appendingPathComponent("bluezkit-\(UUID().uuidString)")
                .path
            var bus: ConfiguredBus? = try ConfiguredBus(listen: ["unix:path=\(path)"])
            let first = try await HostileWorld(address: "unix:path=\(path)")
            let app = try await Subscriber(first)
            try await Peer.named(first.simulator.busAddress).killBus()
            try await state(.resetting, app.central)
            try await LogCapture.shared.expect("no connection to the bus", path)
            #expect(app.peripheral.state == .disconnected)
            bus = nil
            bus = try ConfiguredBus(listen: ["unix:path=\(path)"])
            let second = try await HostileWorld(address: "unix:path=\(path)")
            try await state(.poweredOn, app.central)
            let found = try await app.central.find("Victim")
            try await app.central.connect(found)
            withExtendedLifetime((bus, second)) {}
        }

        @Test("values of 40 MB from the app are refused, and the bus connection is kept")
        func largeWrites() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            let service = try #require(app.characteristic.service)
            let found = try await app.central.discoverCharacteristics(service, [HostileWorld.writable])
            let target = try #require(found.first { $0.uuid == HostileWorld.writable })
            let large = Data(repeating: 1, count: 40_000_000)
            #expect(
                (try await app.central.write(large, to: target) as? CBATTError)?.code == .invalidAttributeValueLength)
            app.peripheral.writeValue(large, for: target, type: .withoutResponse)
            try await app.goesOn()
            #expect(world.simulator.calls("WriteValue").isEmpty)
        }
    }
}
