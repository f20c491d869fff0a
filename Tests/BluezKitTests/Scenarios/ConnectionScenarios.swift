import CoreBluetooth
import Foundation
import Testing

/// Links: how they come, and how they end. In the simulator and against the real bluetoothd.
extension Scenarios {
    @Suite struct ConnectionScenarios {
        let heartRate = CBUUID(string: "180D")

        @Test("O-10 CN-3 connect: connecting at once, didConnect once, connected and no services inside it")
        func connects() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart", services: [heartRate])
            let stateAfterCall = await central.perform { () -> CBPeripheralState in
                central.manager.connect(heart)
                return heart.state
            }
            #expect(stateAfterCall == .connecting)
            let (state, services) = try await central.nextRecord("didConnect") { record in
                if case .connected(heart) = record.event { (record.peripheralState, record.services) } else { nil }
            }
            #expect(state == .connected && services == nil)
            try await central.settle(heart)
            #expect(central.count { if case .connected = $0 { true } else { false } } == 1)
            try await central.disconnect(heart)
        }

        @Test("CN-7 CN-11 cancel of a link: disconnecting at once, one didDisconnect without error, services gone")
        func cancels() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart", services: [heartRate])
            try await central.connect(heart)
            _ = try await central.discoverServices(heart)
            let stateAfterCall = await central.perform { () -> CBPeripheralState in
                central.manager.cancelPeripheralConnection(heart)
                return heart.state
            }
            #expect(stateAfterCall == .disconnecting)
            let record = try await central.nextRecord("didDisconnect") { record in
                if case .disconnected(heart, false, nil) = record.event { record } else { nil }
            }
            #expect(record.peripheralState == .disconnected && record.services == nil)
            try await world.awaitConnections("heart", 0)
            #expect(central.count { if case .disconnected = $0 { true } else { false } } == 1)
        }

        @Test(
            "O-15 CN-9 CN-10 O-16 the remote closes the link: one callback, error 6 or 7, nothing to the peripheral's delegate after it"
        )
        func remoteDisconnects() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart", services: [heartRate])
            try await central.connect(heart)
            _ = try await central.discoverServices(heart)
            try await world.control("heart disconnect")
            let error = try await central.nextRecord("didDisconnect") { record -> [(any Error)?]? in
                guard case .disconnected(heart, false, let error) = record.event,
                    record.peripheralState == .disconnected,
                    record.services == nil
                else { return nil }
                return [error]
            }[0]
            let code = (error as? CBError)?.code
            #expect(code == .connectionTimeout || code == .peripheralDisconnected)
            // A new link works, and shows that nothing came between.
            let before = central.records.count
            try await central.connect(heart)
            #expect(central.records.count == before + 1)
            try await central.disconnect(heart)
        }

        @Test("CN-9 a peripheral that vanishes ends the link with an error")
        func vanishes() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart", services: [heartRate])
            try await central.connect(heart)
            // BlueZ 5.66 crashes if the link is lost while it discovers.
            _ = try await central.discoverServices(heart)
            try await world.control("heart vanish")
            let error = try await central.next("didDisconnect") {
                if case .disconnected(heart, _, let error) = $0 { [error] } else { nil }
            }[0]
            #expect(error is CBError)
            try await world.control("heart return")
        }

        @Test("O-12 CN-2 LX-15 a connect waits for a peripheral that is away, and completes when it comes")
        func waitsForAbsent() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart", services: [heartRate])
            try await world.control("heart vanish")
            central.manager.connect(heart)
            // Longer than BlueZ's own limit for an attempt: nothing comes.
            await #expect(throws: EventLog<Central.Record>.Missing.self) {
                try await central.next("anything", within: world.connectTimeout + 3) { _ in true }
            }
            #expect(heart.state == .connecting)
            #expect(central.count { if case .failed = $0 { true } else { false } } == 0)
            try await world.control("heart return")
            try await central.next("didConnect") { if case .connected(heart) = $0 { true } else { nil } }
            try await central.disconnect(heart)
        }

        @Test("O-11 CN-7 a pending connect is cancelled: one didDisconnect without error, and nothing else")
        func cancelsPending() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart", services: [heartRate])
            try await world.control("heart vanish")
            central.manager.connect(heart)
            try await central.disconnect(heart)
            #expect(heart.state == .disconnected)
            try await world.control("heart return")
            // It is in range again: another link, made by another manager, shows that ours stays down.
            let other = Central(world)
            try await other.powerOn()
            let same = try await other.find("Rig Heart", services: [heartRate])
            try await other.connect(same)
            try await other.disconnect(same)
            #expect(central.count { if case .connected = $0 { true } else { false } } == 0)
            #expect(central.count { if case .failed = $0 { true } else { false } } == 0)
            #expect(central.count { if case .disconnected = $0 { true } else { false } } == 1)
        }

        @Test("O-43 DL-7 two managers on one link: each has its didConnect; one's cancel leaves the other's link")
        func twoManagers() async throws {
            let world = try await Worlds.make()
            let first = Central(world)
            let second = Central(world)
            try await first.powerOn()
            try await second.powerOn()
            let mine = try await first.find("Rig Heart", services: [heartRate])
            let theirs = try #require(second.manager.retrievePeripherals(withIdentifiers: [mine.identifier]).first)
            #expect(mine !== theirs)
            try await first.connect(mine)
            try await second.connect(theirs)
            try await first.disconnect(mine)
            #expect(theirs.state == .connected)
            // The link works.
            let location = try await second.characteristic(CBUUID(string: "2A38"), of: heartRate, on: theirs)
            #expect(try await second.read(location).get() == Data([1]))
            #expect(try await world.control("heart connections") == "1")
            try await second.disconnect(theirs)
            try await world.awaitConnections("heart", 0)
        }

        @Test("O-14 CN-1 MIS-5 releasing a connected peripheral ends its link, silently")
        func releasing() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            var heart: CBPeripheral? = try await central.find("Rig Heart", services: [heartRate])
            try await central.connect(try #require(heart))
            weak let gone = heart
            heart = nil
            central.forgetRecords()
            try await world.awaitConnections("heart", 0)
            #expect(gone == nil)
            #expect(central.count { if case .disconnected = $0 { true } else { false } } == 0)
        }
    }
}
