import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// The computer sleeps and wakes, as far as Bluetooth is concerned: in the rig the kernel does to it what it does
/// before and after sleep, and bluetoothd is informed, while programs and their clocks keep running. In the simulator
/// also with a BlueZ that gives the reason why a link ended (5.83).
extension Scenarios {
    @Suite struct SuspendScenarios {
        private static let signalsDisconnectReason = Worlds.isRig ? [false] : [false, true]

        private func makeWorld(signalsDisconnectReason: Bool = false) async throws -> any World {
            let world = try await Worlds.make()
            (world as? SimulatedWorld)?.simulator.options.signalsDisconnectReason = signalsDisconnectReason
            try await world.endLinks()
            // A device that has not been heard yet.
            try await world.control("rig sensors 1")
            try await world.control("sensor1 advertise off")
            return world
        }

        /// Sleeps as long as `body` takes.
        private func sleeping(_ world: any World, _ body: () async throws -> Void = {}) async throws {
            try await world.control("rig suspend")
            do { try await body() } catch {
                _ = try? await world.control("rig resume")
                throw error
            }
            try await world.control("rig resume")
        }

        private func isState(_ event: Central.Event) -> Bool { if case .state = event { true } else { false } }

        /// What was on its way from BlueZ has come when this question is answered: in time, that is, and a machine that
        /// stands still has it asked again.
        private func settle(_ central: Central) async throws {
            try await eventually("BlueZ answers in time") {
                let start = ContinuousClock.now
                _ = central.manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180D")])
                return start.duration(to: .now) < BlueZTiming.Deadline.list
            }
            await central.perform {}
        }

        private func nextDiscovery(_ name: String, _ central: Central) async throws {
            try await central.next(name) {
                if case .discovered(let peripheral, _, _) = $0, peripheral.name == name { true } else { nil }
            }
        }

        // Slow: in the rig, both peripherals are connected again, one after the other, only seconds after the resume.
        @Test(
            "CN-9 CN-12 AR-2 AR-4 links end with peripheralDisconnected, once; with auto-reconnect they are back after resume",
            seesCore,
            arguments: signalsDisconnectReason)
        func links(signalsDisconnectReason: Bool) async throws {
            let world = try await makeWorld(signalsDisconnectReason: signalsDisconnectReason)
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart")
            let sink = try await central.find("Rig Sink")
            try await central.connect(heart)
            central.manager.connect(sink, options: [CBConnectPeripheralOptionEnableAutoReconnect: true])
            try await central.next("connection") { if case .connected(sink) = $0 { true } else { nil } }
            let notifying = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
            #expect(try await central.setNotify(true, notifying) == nil)
            try await world.letBlueZDiscover(.heart)
            central.forgetRecords()
            let session = central.manager.session
            let givesReasons =
                Worlds.isRig
                ? session.queue.sync { session.adapter.daemon.givesReasons } : signalsDisconnectReason
            try await sleeping(world) {
                try await world.awaitConnections("heart", 0)
                try await world.awaitConnections("sink", 0)
                var ends: [CBPeripheral: Central.Record] = [:]
                for _ in 0..<2 {
                    let record = try await central.nextRecord("didDisconnect") { record -> Central.Record? in
                        if case .disconnected = record.event { record } else { nil }
                    }
                    if case .disconnected(let peripheral, _, _) = record.event { ends[peripheral] = record }
                }
                for (peripheral, isReconnecting) in [(heart, false), (sink, true)] {
                    let record = try #require(ends[peripheral])
                    guard case .disconnected(_, let reconnects, let error) = record.event else { continue }
                    #expect(reconnects == isReconnecting)
                    #expect(record.peripheralState == (isReconnecting ? .connecting : .disconnected))
                    let failure = try #require(error as? CBError)
                    #expect(failure.code == .peripheralDisconnected)
                    let underlying = failure.userInfo[NSUnderlyingErrorKey] as? NSError
                    let reason = underlying?.userInfo[BluezErrorNameKey] as? String
                    #expect((reason == "org.bluez.Reason.Suspend") == givesReasons)
                }
                #expect(!notifying.isNotifying)
            }
            try await central.next("connection") { if case .connected(sink) = $0 { true } else { nil } }
            // Attributes are discovered and subscribed to again.
            let again = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
            #expect(try await central.setNotify(true, again) == nil)
            try await world.control("sink notify 0013 07")
            try await central.next("value") { if case .value(again, Data([7]), nil) = $0 { true } else { nil } }
            #expect(try await world.control("heart connections") == "0" && heart.state == .disconnected)
            #expect(central.count { if case .disconnected = $0 { true } else { false } } == 2)
            #expect(central.count(isState) == 0 && central.manager.state == .poweredOn)
            try await central.connect(heart)
        }

        @Test("D7 CN-2 a pending connect in progress is cancelled by the kernel, and completes after resume")
        func pendingConnect() async throws {
            let world = try await makeWorld(signalsDisconnectReason: true)
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart")
            try await world.control("heart vanish")
            central.manager.connect(heart)
            let simulator = (world as? SimulatedWorld)?.simulator
            _ = await simulator?.waitForCalls("Connect")
            if Worlds.isRig { try await world.control("rig scans F0:F1:F2:00:00:01") }
            central.forgetRecords()
            try await sleeping(world) {
                try await world.control("heart return")
                // It is on the air, and in the simulator tried again: the radio is deaf.
                _ = try await world.advertisement(of: "F0:F1:F2:00:00:01")
                _ = await simulator?.waitForCalls("Connect", count: 2)
                #expect(heart.state == .connecting)
                #expect(try await world.control("heart connections") == "0")
            }
            // Linux 6.12 and 7.2: a discovery that began in its sleep may hear nothing, and is begun again after 5
            // seconds.
            try await central.next("connection") { if case .connected(heart) = $0 { true } else { nil } }
            try await central.settle(heart)
            #expect(central.records.count == 2, "the connection and the question after it")
        }

        @Test("SC-4 a scan hears nothing during sleep, and resumes afterwards without a call by the app or to BlueZ")
        func scan() async throws {
            let world = try await makeWorld()
            let central = Central(world)
            try await central.powerOn()
            await central.perform { central.manager.scanForPeripherals(withServices: nil) }
            var missing: Set = ["Rig Heart", "Rig Sink"]
            while !missing.isEmpty {
                missing.remove(
                    try await central.next("\(missing)") {
                        if case .discovered(let peripheral, _, _) = $0 { peripheral.name ?? "" } else { nil }
                    })
            }
            try await sleeping(world) {
                try await settle(central)
                let before = central.records.count
                try await world.control("sensor1 advertise on")
                _ = try await world.advertisement(of: "F0:F1:F2:00:01:01")
                try await settle(central)
                #expect(central.records.count == before && central.manager.isScanning)
            }
            try await nextDiscovery("Rig Sensor 1", central)
            #expect(central.manager.isScanning && central.count(isState) == 1)
            if let simulator = (world as? SimulatedWorld)?.simulator {
                #expect(simulator.calls("StartDiscovery").count == 1 && simulator.calls("StopDiscovery").isEmpty)
            }
        }

        @Test(
            "AD-3 UP-7 services and advertisement are present after resume: a central subscribes again and is notified",
            arguments: signalsDisconnectReason)
        func published(signalsDisconnectReason: Bool) async throws {
            let world = try await makeWorld(signalsDisconnectReason: signalsDisconnectReason)
            let publisher = Publisher(world)
            try await publisher.powerOn()
            let beat = local(0x41, [.notify])
            try await publisher.add(localService(0x40, [beat]))
            try await publisher.advertise([CBAdvertisementDataLocalNameKey: "Kit"])
            func subscribe() async throws {
                let line = try await world.advertisement(of: world.adapterAddress)
                #expect(line.contains("name=Kit"))
                try await world.connect()
                try await world.control("central subscribe \(beat.uuid.line)")
                let (_, characteristic) = try await publisher.nextSubscription()
                #expect(characteristic === beat && beat.subscribedCentrals?.count == 1)
            }
            try await subscribe()
            try await sleeping(world) {
                let (_, characteristic) = try await publisher.nextUnsubscription()
                #expect(characteristic === beat && beat.subscribedCentrals?.isEmpty == true)
                _ = try await world.nextEvent("end of the link") { $0 == "central disconnected 0x15" }
                // The kernel (6.1) advertises again as soon as a central's link has ended, asleep or not.
                if world is SimulatedWorld { try await world.awaitSilence() }
                #expect(publisher.manager.isAdvertising && publisher.manager.state == .poweredOn)
            }
            try await subscribe()
            #expect(await publisher.perform { $0.updateValue(Data([5]), for: beat, onSubscribedCentrals: nil) })
            _ = try await world.nextEvent("notification") { $0 == "central notified \(beat.uuid.line) 05" }
            if let simulator = (world as? SimulatedWorld)?.simulator {
                #expect(simulator.calls("RegisterApplication").count == 1)
                #expect(simulator.calls("RegisterAdvertisement").count == 1)
            }
            #expect(publisher.count { if case .state = $0 { true } else { false } } == 1)
        }

        @Test(
            "RS-11 RS-12 AR-2 an app with a restore identifier keeps working, and its preserved state matches",
            arguments: signalsDisconnectReason)
        func preserved(signalsDisconnectReason: Bool) async throws {
            let stage = try await RestorationScenarios.Stage(
                makeWorld(signalsDisconnectReason: signalsDisconnectReason))
            let (heart, sink) = (RestorationScenarios.heart, RestorationScenarios.sink)
            let probe = try await stage.launchBeating()
            try await stage.connect(probe, sink, "reconnect")
            try await stage.world.letBlueZDiscover(.sink)
            probe.send("scan all")
            try await probe.next("end scan")
            if Worlds.isRig { try await stage.world.control("rig scans") }
            try await sleeping(stage.world) {
                try await probe.next("disconnected \(heart)", "reconnecting=false error=7", "disconnected:-")
            }
            try await probe.next("connected \(sink)", "same=true")
            try await stage.world.control("sensor1 advertise on")
            try await probe.next("discovered", "Rig Sensor 1")
            #expect(probe.all.contains { $0.hasPrefix("disconnected \(sink) reconnecting=true error=7") })
            #expect(probe.callbacks.filter { $0 == "state" }.count == 1)
            #expect(probe.callbacks.filter { $0 == "disconnected" }.count == 2)
            try await probe.kill()
            let again = try stage.launch()
            let restored = try await again.next("restored", "scanning=true", "\(sink):connected")
            #expect(!restored.contains(heart))
            try await again.next("state poweredOn")
        }

        @Test(
            "R-12 the computer slept while the app was not running: the link is lost, as reported after didUpdateState")
        func asleepWhileDead() async throws {
            let stage = try await RestorationScenarios.Stage(makeWorld(signalsDisconnectReason: true))
            let heart = RestorationScenarios.heart
            try await stage.launchBeating().kill()
            try await sleeping(stage.world)
            let again = try stage.launch()
            try await again.next("restored", "\(heart):connected")
            try await again.next("state poweredOn")
            try await again.next("disconnected \(heart)", "reconnecting=false error=7", "disconnected:-")
            #expect(again.callbacks == ["restored", "state", "disconnected"])
        }
    }
}
