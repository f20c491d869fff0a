import CoreBluetooth
import Foundation
import Testing

/// Several managers of one program: what one does, another does not notice. With delegates and with `async`.
extension Scenarios {
    @Suite struct ManagersScenarios {
        private let heartRate = CBUUID(string: "180D"), location = CBUUID(string: "2A38")

        /// Two managers, each with its own object for the peripheral, and a link.
        private func connected(
            _ api: API, _ name: String, _ service: CBUUID, options: [String: any Sendable] = [:]
        ) async throws -> (world: any World, first: any CentralApp, second: any CentralApp, peripheral: UUID) {
            let world = try await Worlds.make()
            let first = try await api.central(world, options: options)
            let second = try await api.central(world, options: options)
            let peripheral = try await first.find(name, service)
            try await second.retrieve(peripheral)
            let objects = [try first.object(of: peripheral), try second.object(of: peripheral)]
            #expect(objects[0] != objects[1])
            try await first.connect(peripheral)
            try await second.connect(peripheral)
            return (world, first, second, peripheral)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "O-43 DL-7 two managers on one link: each is connected; cancelling one keeps the other's link",
            arguments: API.allCases)
        func link(_ api: API) async throws {
            let (world, first, second, heart) = try await connected(api, "Rig Heart", heartRate)
            try await first.disconnect(heart)
            let states = try [first, second].map { try $0.state(of: heart) }
            #expect(states == [.disconnected, .connected])
            #expect(try await second.read(location, of: heartRate, on: heart) == Data([1]))
            #expect(try await world.control("heart connections") == "1")
            try await second.disconnect(heart)
            try await world.awaitConnections("heart", 0)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("O-43 O-45 a manager is released with its peripheral: the other's link stays", arguments: API.allCases)
        func released(_ api: API) async throws {
            let (world, first, second, heart) = try await connected(api, "Rig Heart", heartRate)
            try await first.release()
            #expect(try await second.read(location, of: heartRate, on: heart) == Data([1]))
            #expect(try await world.control("heart connections") == "1")
            try await second.disconnect(heart)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "NT-8 D6 two managers subscribe to one characteristic: each gets every value once; one unsubscribes",
            arguments: API.allCases, [false, true])
        func subscribers(_ api: API, bySocket: Bool) async throws {
            let (world, first, second, sink) = try await connected(
                api, "Rig Sink", sinkUUID(1), options: [BluezManagerOptionNotificationSocketsKey: bySocket])
            var logs: [EventLog<Data>] = []
            for app in [first, second] {
                let log = try await app.values(of: sinkUUID(0x13), of: sinkUUID(1), on: sink)
                logs.append(log)
                // A task that iterates takes part when it has a value.
                try await eventually("the app listens") {
                    try await world.control("sink notify 0013 00")
                    return !log.all.isEmpty
                }
            }
            func values(_ index: Int) -> [Data] { logs[index].all.filter { $0 != Data([0]) } }
            for number in 1...3 { try await world.control("sink notify 0013 0\(number)") }
            for log in logs { try await log.next("the last value") { $0 == Data([3]) ? true : nil } }
            #expect(values(0) == [Data([1]), Data([2]), Data([3])] && values(1) == values(0))
            try await first.unsubscribe(sink)
            try await world.control("sink notify 0013 04")
            try await logs[1].next("a value after that") { $0 == Data([4]) ? true : nil }
            // An answer comes after everything that came before.
            #expect(try await first.read(sinkUUID(0x10), of: sinkUUID(1), on: sink) == Data("hello".utf8))
            #expect(values(0).count == 3 && values(1).count == 4)
            try await second.disconnect(sink)
            try await first.disconnect(sink)
        }

        // BlueZ 5.66 kept a discovery for no client when both ended at once, and the next scan for the same services
        // heard nothing.
        @Test(
            "SC-2 SC-4 two managers scan for different services: each hears its own; both end at once, and the next one hears",
            arguments: API.allCases)
        func scans(_ api: API) async throws {
            let world = try await Worlds.make()
            let apps = [try await api.central(world), try await api.central(world)]
            let services = [heartRate, sinkUUID(1)]
            var logs: [EventLog<String>] = []
            for (app, service) in zip(apps, services) { logs.append(try await app.scan(service)) }
            for (log, name) in zip(logs, ["Rig Heart", "Rig Sink"]) {
                try await log.next(name) { $0 == name ? true : nil }
            }
            #expect(!logs[0].all.contains("Rig Sink") && !logs[1].all.contains("Rig Heart"))
            for app in apps { await app.stopScan() }
            try await AsyncCentralScenarios.stopsScanning(world)
            _ = try await apps[1].find("Rig Sink", services[1])
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "RT-3 a connected peripheral is retrieved by its service, and connects at once for another manager",
            arguments: API.allCases)
        func retrievesConnected(_ api: API) async throws {
            let world = try await Worlds.make()
            let (first, second) = (try await api.central(world), try await api.central(world))
            let heart = try await first.find("Rig Heart", heartRate)
            try await first.connect(heart)
            // BlueZ knows which services it has when they are discovered.
            _ = try await first.read(location, of: heartRate, on: heart)
            try await expectAtOnce("it is retrieved") { try await second.retrieveConnected([heartRate]) == [heart] }
            let objects = [try first.object(of: heart), try second.object(of: heart)]
            #expect(objects[0] != objects[1])
            #expect(try second.state(of: heart) == .disconnected)
            #expect(try await second.retrieveConnected([CBUUID(string: "1234")]).isEmpty)
            #expect(try await second.retrieveConnected([]).isEmpty)
            try await second.connect(heart)
            try await second.disconnect(heart)
            try await first.disconnect(heart)
        }

        // Slow: in the rig, silence means that nothing was heard for five seconds.
        @Test(
            "AD-7 each manager has its own advertisement, until the adapter has no room", arguments: API.allCases)
        func advertisements(_ api: API) async throws {
            let world = try await Worlds.make()
            var apps: [any PublishingApp] = []
            var refusal: CBError?
            while refusal == nil, apps.count < 20 {
                let app = try await api.publisher(world)
                apps.append(app)
                do { try await app.advertise("\(apps.count)") } catch { refusal = try #require(error as? CBError) }
            }
            #expect(refusal?.code == .outOfSpace && apps.count > 2)
            #expect(refusal?.localizedDescription.contains("\(apps.count - 1) advertisements on air") == true)
            // One makes room for another.
            try await apps[0].stopAdvertising()
            let last = apps[apps.count - 1]
            try await eventually("there is room for another") {
                await thrown { try await last.advertise("last") } == nil
            }
            #expect(try await last.isAdvertising)
            // A manager that is released takes its own away.
            for app in apps { try await app.release() }
            try await world.awaitSilence()
        }

        @Test("L2-8 the released manager's channels end, and nothing is published any more", arguments: API.allCases)
        func channels(_ api: API) async throws {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            let app = try await api.publisher(world)
            let psm = try await app.publishChannel(encrypted: false)
            try await app.advertise("Kit")
            try await world.connect()
            try await world.openChannel(psm)
            let ends = try await app.nextChannel()
            try await app.release()
            try await ends()
            try await world.awaitChannel("central", "closed")
            // The end of a manager is carried out some moments later.
            try await eventually("nothing is published") { await thrown { try await world.openChannel(psm) } != nil }
        }
    }
}
