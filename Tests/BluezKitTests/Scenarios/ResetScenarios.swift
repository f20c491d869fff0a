import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

extension Scenarios {
    /// bluetoothd restarts or hangs, the adapter goes off or is replaced: everything has ended, in BlueZ as well, and
    /// what is begun again is there once, can be used, and ends when it is ended. With delegates and with `async`; what
    /// is resumed with a restore identifier by the API of delegates is in the scenarios of restoration.
    @Suite struct ResetScenarios {
        private let heartRate = CBUUID(string: "180D"), location = CBUUID(string: "2A38")

        /// APIs that end everything with a reset, and whether it is preserved.
        static let kinds: [(API, Bool)] = [(.delegates, false), (.async, false), (.async, true)]

        private struct Stage {
            let world: any World
            let directory: TemporaryDirectory
            let api: API
            let isPreserved: Bool

            init(_ api: API, preserved: Bool = false) async throws {
                world = try await Worlds.make()
                directory = try TemporaryDirectory()
                (self.api, isPreserved) = (api, preserved)
            }

            private func options(_ key: String) -> [String: any Sendable] {
                let identifier = isPreserved ? [key: "app"] : [:]
                return identifier.merging([BluezManagerOptionStateDirectoryKey: directory.path]) { $1 }
            }

            func central() async throws -> any CentralApp {
                try await api.central(world, options: options(CBCentralManagerOptionRestoreIdentifierKey))
            }

            func publisher() async throws -> any PublishingApp {
                try await api.publisher(world, options: options(CBPeripheralManagerOptionRestoreIdentifierKey))
            }

            func restart(meanwhile line: String? = nil) async throws {
                for line in ["bluetoothd kill", line, "bluetoothd start"] {
                    if let line { try await world.control(line) }
                }
                // What is advertised while the last link ends Linux may advertise as not connectable, without its data.
                if Worlds.isRig { try await world.awaitConnections("central", 0) }
            }

            /// How often a central finds the service 0100.
            func countOfServices() async throws -> Int {
                try await world.connect()
                return try await world.control("central services").split(separator: " ")
                    .count { $0.hasPrefix("primary:\(sinkUUID(0x100).line)@") }
            }
        }

        private func publish(_ app: any PublishingApp) async throws {
            try await app.add(0x100) { [local(0x110, [.read, .notify])] }
            try await app.advertise("Kit")
        }

        // Slow: in the rig, bluetoothd restarts, and a central finds and connects to what is published three times.
        @Test(
            "ST-6 PB-6 services published again after a restart of bluetoothd are there once, and can be updated and withdrawn",
            arguments: Self.kinds)
        func publishesAgain(_ api: API, _ isPreserved: Bool) async throws {
            let stage = try await Stage(api, preserved: isPreserved)
            let (app, characteristic) = (try await stage.publisher(), sinkUUID(0x110).line)
            try await publish(app)
            #expect(try await stage.countOfServices() == 1)
            try await stage.restart()
            try await app.awaitState(.resetting)
            try await app.awaitState(.poweredOn)
            #expect(try await app.isAdvertising == false)
            // With delegates, the answer is the delegate's next `isReady`.
            if api == .async { await #expect(throws: CBError.self) { try await app.update(0x110, Data([1])) } }
            try await publish(app)
            #expect(try await stage.countOfServices() == 1)
            #expect(try await stage.world.control("central read \(characteristic)") == "2a")
            _ = try await stage.world.control("central subscribe \(characteristic)")
            try await app.subscriptions.next("a subscription") { $0 == (0x110, true) ? true : nil }
            async let notified = stage.world.nextEvent("the update") { $0 == "central notified \(characteristic) 0102" }
            try await app.update(0x110, Data([1, 2]))
            _ = try await notified
            try await app.removeEarlier(0x100)  // is gone already
            try await app.remove(0x100)
            try await eventually("the service is gone") { try await stage.countOfServices() == 0 }
        }

        // Slow: in the rig, bluetoothd restarts, and the heart's link ends by a timeout.
        @Test(
            "ST-6 CN-7 after a restart of bluetoothd a connection has ended: nothing is pending, and nothing connects",
            arguments: Self.kinds)
        func connectionHasEnded(_ api: API, _ isPreserved: Bool) async throws {
            let stage = try await Stage(api, preserved: isPreserved)
            let app = try await stage.central()
            let heart = try await app.find("Rig Heart", heartRate)
            try await app.connect(heart)
            try await stage.restart(meanwhile: "heart vanish")
            try await app.awaitState(.resetting)
            try await app.awaitState(.poweredOn)
            #expect(try app.state(of: heart) == .disconnected)
            // With delegates, objects from before a reset are of no use.
            if api == .async { try await app.disconnect(heart) }
            #expect(try app.state(of: heart) == .disconnected)
            try await stage.world.heartReturns()
            // It advertises, so it is not connected; and it can be connected again.
            #expect(try await app.find("Rig Heart", heartRate) == heart)
            #expect(try app.state(of: heart) == .disconnected)
            try await app.connect(heart)
            try await stage.world.letBlueZDiscover(.heart)
            try await app.disconnect(heart)
            try await stage.world.awaitConnections("heart", 0)
        }

        // Slow: in the rig, bluetoothd restarts, and what it has heard is heard again when the controller's next scan
        // begins.
        @Test(
            "ST-6 SC-5 after a restart of bluetoothd a scan has ended, in BlueZ as well, and another one begins",
            arguments: Self.kinds)
        func scanHasEnded(_ api: API, _ isPreserved: Bool) async throws {
            let stage = try await Stage(api, preserved: isPreserved)
            let app = try await stage.central()
            try await app.scan(heartRate).next("the heart") { $0 == "Rig Heart" ? true : nil }
            try await stage.restart()
            try await app.awaitState(.resetting)
            try await app.awaitState(.poweredOn)
            #expect(try await app.scanHasEnded())
            // A question to BlueZ, which would come after a scan that resumes.
            _ = try await app.retrieveConnected([heartRate])
            try await AsyncCentralScenarios.stopsScanning(stage.world)
            _ = try await app.find("Rig Heart", heartRate)
            try await AsyncCentralScenarios.stopsScanning(stage.world)
        }

        // Slow: in the rig, bluetoothd restarts.
        @Test(
            "L2-1 L2-9 ST-6 a channel published after a restart of bluetoothd is the one that was asked for",
            arguments: Self.kinds)
        func publishesChannelAgain(_ api: API, _ isPreserved: Bool) async throws {
            let stage = try await Stage(api, preserved: isPreserved)
            try await stage.world.prepareChannels()
            let app = try await stage.publisher()
            let plain = try await app.publishChannel(encrypted: false)
            async let restarted: Void = stage.restart()
            try await app.awaitState(.resetting)
            try await app.awaitState(.poweredOn)
            let encrypted = try await app.publishChannel(encrypted: true)
            try await restarted
            try await app.advertise("Kit")
            try await stage.world.connect()
            for psm in Set([plain, encrypted]) {
                await #expect(throws: (any Error).self, "\(psm) is open without encryption") {
                    try await stage.world.openChannel(psm)
                }
            }
            try await app.unpublishChannel(encrypted)
        }

        // With delegates the command would be dropped (MIS-1).
        @Test("PB-6 AD-3 services withdrawn with async while Bluetooth is off are gone when it is on again")
        func withdrawnWhileOff() async throws {
            let stage = try await Stage(.async)
            let app = try await stage.publisher()
            try await publish(app)
            try await app.add(0x101) { [local(0x111, .read)] }
            try await stage.world.control("rig power off")
            try await app.awaitState(.poweredOff)
            try await app.remove(0x100)
            try await stage.world.control("rig power on")
            try await app.awaitState(.poweredOn)
            try await app.advertise("Kit")
            try await eventually("the service is gone") { try await stage.countOfServices() == 0 }
            #expect(try await stage.world.control("central services").contains(sinkUUID(0x101).line))
        }

        @Test(
            "ST-5 AD-3 power off ends advertising and subscriptions, and keeps services; after power on the app can resume both",
            arguments: API.allCases)
        func powerCycle(_ api: API) async throws {
            let stage = try await Stage(api)
            let (app, characteristic) = (try await stage.publisher(), sinkUUID(0x110).line)
            try await publish(app)
            try await stage.world.connect()
            _ = try await stage.world.control("central subscribe \(characteristic)")
            try await app.subscriptions.next("a subscription") { $0 == (0x110, true) ? true : nil }
            try await stage.world.control("rig power off")
            try await app.awaitState(.poweredOff)
            #expect(try await app.isAdvertising == false)
            #expect(try await app.countOfSubscribers(0x110) == 0)
            try await stage.world.control("rig power on")
            try await app.awaitState(.poweredOn)
            #expect(try await app.isAdvertising == false)
            try await app.advertise("Kit")
            #expect(try await app.isAdvertising)
            #expect(try await stage.countOfServices() == 1)
            #expect(try await stage.world.control("central read \(characteristic)") == "2a")
            // Another service with an equal UUID is welcome.
            try await app.add(0x100) { [local(0x112, .read)] }
        }

        private func connectedHeart(_ app: any CentralApp) async throws -> UUID {
            let heart = try await app.find("Rig Heart", heartRate)
            try await app.connect(heart)
            #expect(try await app.read(location, of: heartRate, on: heart) == Data([1]))
            return heart
        }

        private func connectsAgain(_ app: any CentralApp) async throws {
            try await app.awaitState(.poweredOn)
            try await app.disconnect(connectedHeart(app))
        }

        // Slow: in the rig, the adapter has three seconds to come back, and BlueZ ends the link two to three seconds
        // after it was asked to.
        @Test(
            "ST-6 D10 the adapter is replaced by another one: resetting, powered on, and everything works",
            arguments: API.allCases)
        func otherAdapter(_ api: API) async throws {
            let stage = try await Stage(api)
            let app = try await stage.central()
            let heart = try await connectedHeart(app)
            let before = try app.object(of: heart)
            try await app.reset(reading: heart) {
                try await stage.world.control("rig adapters 2")
                try await stage.world.control("rig unplug 0")
            }
            do { try await connectsAgain(app) } catch BluetoothError.unavailable(.resetting) where Worlds.isRig {
                // bluetoothd may crash a moment after an adapter has gone (Docs/COMPATIBILITY.md): another reset.
                let rig = try #require(stage.world as? RigWorld)
                try await eventually("it has crashed") { try await rig.awaitDaemon() }
                try await connectsAgain(app)
            }
            // With delegates, objects from before a reset are of no use.
            let after = try app.object(of: heart)
            #expect((after == before) == (api == .async))
            try await stage.world.awaitConnections("heart", 0)
            try await stage.world.control("rig plug 0")
        }

        // Slow: in the rig, a call and then a `Ping` wait nine seconds each before bluetoothd counts as hung.
        @Test(
            "D10 ST-6 bluetoothd hangs: resetting, no other callback; when it resumes, everything works again",
            arguments: API.allCases)
        func hungDaemon(_ api: API) async throws {
            let stage = try await Stage(api)
            let app = try await stage.central()
            let heart = try await connectedHeart(app)
            noticeHangsSoon(in: stage.world)
            try await app.reset(reading: heart) { try await stage.world.control("bluetoothd hang") }
            noticeHangs(in: stage.world, after: .seconds(10))  // what is slow from now on does not hang
            try await stage.world.control("bluetoothd continue")
            try await connectsAgain(app)
        }
    }
}
