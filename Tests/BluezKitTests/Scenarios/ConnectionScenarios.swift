import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Testing

@testable import BluezKit

/// Links: how they come, and how they end. In the simulator and against the real bluetoothd.
extension Scenarios {
    @Suite struct ConnectionScenarios {
        let heartRate = CBUUID(string: "180D")
        let heartPath: ObjectPath = "/org/bluez/hci0/dev_F0_F1_F2_00_00_01"

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
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
            try await world.letBlueZDiscover(.heart)
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

        @Test("O-15 CN-9 CN-10 O-16 the peer closes the link: one callback, error 6 or 7, then no call to its delegate")
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
            try await world.letBlueZDiscover(.heart)
            try await central.disconnect(heart)
        }

        @Test("CN-9 a peripheral that goes out of range ends the link with an error")
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

        // Slow: a connect outlasts BlueZ's own attempt, which takes 40 s in the rig.
        @Test("O-12 CN-2 LX-15 a connect waits for an absent peripheral, and completes when it appears")
        func waitsForAbsent() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart", services: [heartRate])
            try await world.control("heart vanish")
            central.manager.connect(heart)
            // Longer than BlueZ's own limit for an attempt: nothing comes.
            await #expect(throws: EventLog<Central.Record>.Missing.self) {
                try await central.next("anything", within: world.connectTimeout + (Worlds.isRig ? 3 : 1)) { _ in true }
            }
            #expect(heart.state == .connecting)
            #expect(central.count { if case .failed = $0 { true } else { false } } == 0)
            try await world.control("heart return")
            try await central.next("didConnect") { if case .connected(heart) = $0 { true } else { nil } }
            try await world.letBlueZDiscover(.heart)
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
            try await world.heartReturns()
            // It is in range again: another link, made by another manager, shows that ours stays down.
            let other = Central(world)
            try await other.powerOn()
            let same = try await other.find("Rig Heart", services: [heartRate])
            try await other.connect(same)
            try await world.letBlueZDiscover(.heart)
            try await other.disconnect(same)
            #expect(central.count { if case .connected = $0 { true } else { false } } == 0)
            #expect(central.count { if case .failed = $0 { true } else { false } } == 0)
            #expect(central.count { if case .disconnected = $0 { true } else { false } } == 1)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "O-11 CN-7 a connect that is cancelled at the moment the link is made: one didDisconnect, no didConnect",
            .enabled(if: Worlds.isRig, "the simulator's attempts end when they are called off"),
            arguments: ["late", "early"])
        func cancelCrosses(when: String) async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart", services: [heartRate])
            try await world.control("rig cross \(when)")
            central.manager.connect(heart)
            _ = try await world.nextEvent("an attempt") { $0 == "rig connects" }
            try await central.disconnect(heart)
            try await world.awaitConnections("heart", 1)
            // Linux 6.1 does not know about that link, so it can only be ended together with all others. If the cancel
            // was early, the kernel also keeps the attempt forever, and makes no other link.
            try await world.control("rig power off")
            try await central.next("powered off") { if case .state(.poweredOff) = $0 { true } else { nil } }
            #expect(central.count { if case .connected = $0 { true } else { false } } == 0)
            #expect(central.count { if case .disconnected = $0 { true } else { false } } == 1)
            central.forgetRecords()
            try await world.control("rig power on")
            try await central.powerOn()
            try await central.connect(heart)
            try await world.letBlueZDiscover(.heart)
            try await central.disconnect(heart)
        }

        @Test("O-14 CN-1 MIS-5 releasing a connected peripheral ends its link without a callback")
        func releasing() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            var heart: CBPeripheral? = try await central.find("Rig Heart", services: [heartRate])
            try await central.connect(try #require(heart))
            try await world.letBlueZDiscover(.heart)
            let gone = Weak(heart)
            heart = nil
            central.forgetRecords()
            try await world.awaitConnections("heart", 0)
            #expect(gone.object == nil)
            #expect(central.count { if case .disconnected = $0 { true } else { false } } == 0)
        }

        // Slow: in the rig, five links are made one after the other, and BlueZ ends them two to three seconds after it
        // was asked to.
        @Test("D7 CN-5 a hundred pending connects, five in range: those five connect, and the others keep waiting")
        func hundredPending() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            try await world.control("rig sensors 3")
            let inRange = ["heart", "sink", "sensor1", "sensor2", "sensor3"]
            for peripheral in inRange { try await world.control("\(peripheral) advertise on") }
            // Heart and sink, the sensors, and devices that do not exist.
            let numbers = [1, 2, 0x101, 0x102, 0x103] + (6...100).map { $0 + 0x1000 }
            let addresses = numbers.map { UInt64(0xF0F1_F200_0000 + $0) }
            let identifiers = addresses.map { DeviceIdentity(address: $0, isRandom: true).identifier }
            // Those in range come last.
            let all = central.manager.retrievePeripherals(withIdentifiers: identifiers.reversed())
            #expect(all.count == 100)
            for peripheral in all { central.manager.connect(peripheral) }
            var connected: Set<UUID> = []
            while connected.count < inRange.count {
                connected.insert(
                    try await central.next("connection", within: 4 * world_deadline) {
                        if case .connected(let peripheral) = $0 { peripheral.identifier } else { nil }
                    })
            }
            #expect(connected == Set(identifiers.prefix(inRange.count)))
            #expect(all.count { $0.state == .connecting } == 95)
            #expect(central.count { if case .failed = $0 { true } else { false } } == 0)
            // BlueZ 5.66 loses what it knows of a device's services if the link ends while it discovers them.
            for peripheral in all where peripheral.state == .connected {
                _ = try await central.discoverServices(peripheral)
            }
            for peripheral in all { central.manager.cancelPeripheralConnection(peripheral) }
            for _ in all {
                try await central.next("disconnection") {
                    if case .disconnected(_, false, nil) = $0 { true } else { nil }
                }
            }
            for peripheral in inRange { try await world.awaitConnections(peripheral, 0) }
            for sensor in inRange.dropFirst(2) { try await world.control("\(sensor) advertise off") }
        }

        @Test(
            "O-17 AR-1 AR-2 AR-4 AR-6 AR-7 auto-reconnect: the new variant, connecting, then didConnect; a cancel ends it"
        )
        func autoReconnect() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart", services: [heartRate])
            central.manager.connect(heart, options: [CBConnectPeripheralOptionEnableAutoReconnect: true])
            func nextLink() async throws {
                try await central.next("link", within: 2 * world_deadline) {
                    if case .connected(heart) = $0 { true } else { nil }
                }
                // BlueZ 5.66 crashes if the link is lost while it discovers.
                _ = try await central.discoverServices(heart)
            }
            try await nextLink()
            try await world.control("heart disconnect")
            let record = try await central.nextRecord("loss") { record in
                if case .disconnected(heart, true, _?) = record.event { record } else { nil }
            }
            #expect(record.peripheralState == .connecting && record.services == nil)
            try await nextLink()
            try await world.control("heart vanish")
            try await central.next("loss") { if case .disconnected(heart, true, _?) = $0 { true } else { nil } }
            central.manager.cancelPeripheralConnection(heart)
            try await central.next("disconnection") {
                if case .disconnected(heart, false, nil) = $0 { true } else { nil }
            }
            #expect(heart.state == .disconnected)
        }

        @Test("O-43 a link that another program, without BluezKit, has made: a cancel leaves it alone")
        func foreignLink() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart", services: [heartRate])
            let other = try await connectFromOutside(world)
            try await central.connect(heart)
            try await central.disconnect(heart)
            #expect(try await world.control("heart connections") == "1")
            try await central.connect(heart)
            _ = try await central.discoverServices(heart)
            try await other.call(foreign("Disconnect"))
            try await central.next("end") { if case .disconnected(heart, _, .some) = $0 { true } else { nil } }
            try await world.awaitConnections("heart", 0)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "O-43 CN-15 a manager released with a link or an attempt: another program's next link is not ended",
            arguments: [true, false])
        func foreignLinkAfterOwn(wasUp: Bool) async throws {
            let world = try await Worlds.make()
            func connectAndRelease() async throws {
                let central = Central(world)
                try await central.powerOn()
                let heart = try await central.find("Rig Heart", services: [heartRate])
                if wasUp {
                    try await central.connect(heart)
                    // BlueZ 5.66 crashes if the link is lost while it discovers.
                    _ = try await central.discoverServices(heart)
                } else {
                    try await world.control("heart vanish")
                    central.manager.connect(heart)
                    _ = await (world as? SimulatedWorld)?.simulator.waitForCalls("Connect")
                }
            }
            try await connectAndRelease()
            try await world.awaitConnections("heart", 0)
            // Before that, another program's attempt is refused.
            _ = await (world as? SimulatedWorld)?.simulator.waitForCalls("Disconnect")
            if !wasUp { try await world.heartReturns() }
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart", services: [heartRate])
            let other = try await connectFromOutside(world)
            try await central.connect(heart)
            // BlueZ 5.66 crashes if the link is lost while it discovers.
            _ = try await central.discoverServices(heart)
            try await central.disconnect(heart)
            try await disconnectFromOutside(other, world)
        }

        /// The simulator makes our first attempt fail as well.
        @Test(
            "O-43 CN-2 our attempt conflicts with another program's: the link is that program's, and left alone",
            seesCore,
            arguments: Worlds.isRig ? [false] : [false, true])
        func foreignAttempt(afterFailure: Bool) async throws {
            let world = try await Worlds.make()
            let simulator = (world as? SimulatedWorld)?.simulator
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart", services: [heartRate])
            try await world.control("heart vanish")
            if afterFailure {
                let unknown = "org.freedesktop.DBus.Error.UnknownObject"
                simulator?.inject(SimulatorFault("Connect", .fail(name: unknown, message: "")))
                central.manager.connect(heart)
                _ = await simulator?.waitForCalls("Connect")
            }
            let other = try await Peer.named(world.busAddress)
            other.sync { $0.call(foreign("Connect"), deadline: .seconds(60)) { _ in } }
            try await other.settle()
            _ = await simulator?.waitForCalls("Connect", count: afterFailure ? 2 : 1)
            // Ours are refused, also one that comes in the moment in which the link is made.
            let busy = "Operation already in progress"
            simulator?.inject(
                SimulatorFault("Connect", times: nil, .fail(name: "org.bluez.Error.Failed", message: busy)))
            if !afterFailure {
                central.manager.connect(heart)
                // Until that is answered, a link that comes up cannot be distinguished from ours.
                _ = await simulator?.waitForCalls("Connect", count: 2)
            }
            try await world.control("heart return")
            try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
            // BlueZ 5.66 crashes if the link is lost while it discovers.
            _ = try await central.discoverServices(heart)
            // The same applies to the attempt that we make when we hear it.
            let session = central.manager.session
            try await eventually("no attempt is under way") {
                session.queue.sync { !session.central.connected.contains { $0.connection?.isAttempting == true } }
            }
            // BlueZ may come to that attempt when the link is up already, and says that it has succeeded: the link is
            // ours as well then, as far as anyone can tell.
            let isOurs = session.queue.sync {
                session.central.connected.contains { $0.connection?.ownership.isOurs == true }
            }
            #expect(!isOurs || Worlds.isRig)
            try await central.disconnect(heart)
            if isOurs {
                try await world.awaitConnections("heart", 0)
            } else {
                try await disconnectFromOutside(other, world)
            }
        }

        /// A call by another program, without BluezKit, for the heart.
        private func foreign(_ member: String) -> MethodCall {
            MethodCall(destination: "org.bluez", path: heartPath, interface: "org.bluez.Device1", member: member)
        }

        /// Another program makes a link to the heart.
        private func connectFromOutside(_ world: any World) async throws -> Peer {
            let other = try await Peer.named(world.busAddress)
            try await other.call(foreign("Connect"), deadline: .seconds(60))
            return other
        }

        /// That link is still there, and the other program ends it.
        private func disconnectFromOutside(_ other: Peer, _ world: any World) async throws {
            #expect(try await world.control("heart connections") == "1")
            try await other.call(foreign("Disconnect"))
            try await world.awaitConnections("heart", 0)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("CE-1 CE-2 a registered manager is informed of matching links of other programs, and no longer after nil")
        func connectionEvents() async throws {
            let world = try await Worlds.make()
            let watcher = Central(world)
            let user = Central(world)
            try await watcher.powerOn()
            try await user.powerOn()
            let heart = try await user.find("Rig Heart", services: [heartRate])
            watcher.manager.registerForConnectionEvents(options: [.serviceUUIDs: [CBUUID(string: "180F")]])
            watcher.manager.registerForConnectionEvents(options: [.serviceUUIDs: [heartRate]])
            func next(_ expected: CBConnectionEvent) async throws {
                let event = try await watcher.next("connection event") {
                    if case .connectionEvent(let event, let peer) = $0 {
                        (event, peer.identifier, peer.state)
                    } else {
                        nil
                    }
                }
                #expect(event == (expected, heart.identifier, .disconnected))
            }
            try await user.connect(heart)
            try await next(.peerConnected)
            _ = try await user.discoverServices(heart)
            try await user.disconnect(heart)
            try await next(.peerDisconnected)
            // By identifier; other peers are not reported to it.
            watcher.manager.registerForConnectionEvents(options: [.peripheralUUIDs: [heart.identifier]])
            let sink = try await user.find("Rig Sink", services: [sinkUUID(1)])
            try await user.connect(sink)
            try await world.letBlueZDiscover(.sink)
            try await user.disconnect(sink)
            try await user.connect(heart)
            try await next(.peerConnected)
            try await world.letBlueZDiscover(.heart)
            watcher.manager.registerForConnectionEvents(options: nil)
            try await user.disconnect(heart)
            try await world.awaitConnections("heart", 0)
            #expect(watcher.count { if case .connectionEvent = $0 { true } else { false } } == 3)
        }

        @Test("O-43 two programs on one link: cancelling one keeps the other's; the last cancel ends it", seesCore)
        func twoPrograms() async throws {
            let world = try await Worlds.make()
            let one = Central(world)
            // With another choice of adapter it is another client of BlueZ, as another process would be.
            let other = Central(world, options: [BluezManagerOptionAdapterKey: "hci0"])
            try await one.powerOn()
            try await other.powerOn()
            #expect(one.manager.session !== other.manager.session)
            let mine = try await one.find("Rig Heart", services: [heartRate])
            let theirs = try #require(other.manager.retrievePeripherals(withIdentifiers: [mine.identifier]).first)
            try await one.connect(mine)
            try await other.connect(theirs)
            try await one.disconnect(mine)
            let location = try await other.characteristic(CBUUID(string: "2A38"), of: heartRate, on: theirs)
            #expect(try await other.read(location).get() == Data([1]))
            // It can come back, and is not alone then either.
            try await one.connect(mine)
            try await other.disconnect(theirs)
            _ = try await one.discoverServices(mine)
            #expect(try await world.control("heart connections") == "1")
            try await one.disconnect(mine)
            try await world.awaitConnections("heart", 0)
        }

        @Test("O-43 CN-7 two processes on one link: neither a cancel nor the exit of one ends the other's link")
        func twoProcesses() async throws {
            let stage = try await RestorationScenarios.Stage()
            let heart = RestorationScenarios.heart
            let staying = try await stage.launchBeating(nil)
            let leaving = try await stage.launchBeating(nil)
            #expect(try await stage.world.control("heart connections") == "1")
            func beats(_ value: String, for probes: Probe...) async throws {
                try await stage.world.control("heart notify 2a37 \(value)")
                for probe in probes { try await probe.next("value 2A37 \(value)") }
            }
            try await beats("0650", for: staying, leaving)
            leaving.send("cancel \(heart)")
            try await leaving.next("disconnected \(heart)", "reconnecting=false error=none", "disconnected:-")
            try await beats("0651", for: staying)
            #expect(try await stage.world.control("heart connections") == "1")
            // It restarts, and is killed.
            try await stage.beginBeating(leaving)
            try await beats("0652", for: staying, leaving)
            try await leaving.kill()
            try await beats("0653", for: staying)
            #expect(try await stage.world.control("heart connections") == "1")
            #expect(!staying.callbacks.contains("disconnected"))
            #expect(leaving.callbacks.filter { $0 == "disconnected" }.count == 1)
            #expect(!leaving.all.contains { $0.hasPrefix("value 2A37 0651") })
            staying.send("cancel \(heart)")
            try await staying.next("disconnected \(heart)", "reconnecting=false error=none")
            try await stage.world.awaitConnections("heart", 0)
        }

        // Slow: bluetoothd restarts twice, and each of five links ends for it two to three seconds after it was asked
        // to.
        @Test(
            "GD-9 IV-2 new firmware between two connections: the next discovery shows the new table, and nothing stale",
            arguments: [false, true])
        func firmware(isBonded: Bool) async throws { try await checkFirmware(cache: "always", isBonded: isBonded) }

        // Slow: as above.
        @Test(
            "GD-9 IV-2 new firmware where bluetoothd keeps no table, or that of bonded devices: the same",
            arguments: [("yes", false), ("no", true)])
        func firmwareWithoutCache(cache: String, isBonded: Bool) async throws {
            try await checkFirmware(cache: cache, isBonded: isBonded)
        }

        // Slow: three links, each of which ends for BlueZ two to three seconds after it was asked to.
        @Test("GD-1 GD-9 a service at handles where another one was on an earlier link is found, as a primary one")
        func replacedService() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            let sink = try await central.find("Rig Sink", services: [sinkUUID(1)])
            try await world.control("sink services add")
            for (change, number) in [("replace", 3), ("remove", 4)] {
                try await central.connect(sink)
                let services = try await central.discoverServices(sink)
                #expect(services.map(\.uuid) == [sinkUUID(1), sinkUUID(number)])
                #expect(services.allSatisfy { $0.isPrimary })
                try await central.disconnect(sink)
                try await world.awaitConnections("sink", 0)
                try await world.control("sink services \(change)")
            }
        }

        private func checkFirmware(cache: String, isBonded: Bool) async throws {
            let world = try await Worlds.make()
            try await world.restartDaemon(with: "cache \(cache)")
            try await checkFirmware(world, isBonded: isBonded)
            try await world.restartDaemon(with: "cache always")
        }

        private func checkFirmware(_ world: any World, isBonded: Bool) async throws {
            let central = Central(world)
            try await central.powerOn()
            try await world.control("sink pairing justworks")
            try await world.control("sink forget")
            let sink = try await central.find("Rig Sink", services: [sinkUUID(1)])
            if isBonded {
                central.manager.pairing = .justWorks
                try await central.connect(sink)
                let secret = try await central.characteristic(sinkUUID(0x16), of: sinkUUID(1), on: sink)
                _ = try await central.read(secret).get()
                try await central.disconnect(sink)
            }
            try await expectAtOnce("BlueZ has \(isBonded ? "a" : "no") bond") {
                central.manager.retrieveBondedPeripherals().contains(sink) == isBonded
            }
            for change in ["add", "remove"] {
                try await central.connect(sink)
                let before = try await central.discoverServices(sink)
                try await central.disconnect(sink)
                try await world.awaitConnections("sink", 0)
                try await world.control("sink services \(change)")
                try await central.connect(sink)
                // BlueZ may have the old table until the peripheral's indication has come.
                var now = try await central.discoverServices(sink)
                if now.count == before.count {
                    try await central.next("change") { if case .modified(sink, _) = $0 { true } else { nil } }
                    now = try await central.discoverServices(sink)
                }
                #expect(now.count == before.count + (change == "add" ? 1 : -1))
                #expect(!now.contains { new in before.contains { $0 === new } })
                let readable = try await central.characteristic(sinkUUID(0x10), of: sinkUUID(1), on: sink)
                #expect(try await central.read(readable).get() == Data("hello".utf8))
                try await central.disconnect(sink)
            }
            if isBonded { try await central.removeBond(sink) }
        }
    }
}
