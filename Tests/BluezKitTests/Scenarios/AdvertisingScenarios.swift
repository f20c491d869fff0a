import CoreBluetooth
import Foundation
import Testing

/// What is on the air.
extension Scenarios {
    @Suite struct AdvertisingScenarios {
        private func heard(_ world: any World) async throws -> String {
            try await world.control("central advertisement \(world.adapterAddress)")
        }

        // Slow: in the rig, silence means that nothing was heard for five seconds.
        @Test("AD-1 AD-2 AD-3 AD-4 O-35 advertising is confirmed once, refused twice, and ends at once")
        func starting() async throws {
            let world = try await Worlds.make()
            let publisher = Publisher(world)
            try await publisher.powerOn()
            publisher.manager.startAdvertising([
                CBAdvertisementDataLocalNameKey: String(repeating: "n", count: 40),
                CBAdvertisementDataServiceUUIDsKey: [CBUUID(string: "180D"), sinkUUID(1), sinkUUID(2)],
                CBAdvertisementDataManufacturerDataKey: Data([1, 2, 3]),
            ])
            #expect(!publisher.manager.isAdvertising)
            let record = try await publisher.nextRecord("didStartAdvertising") {
                if case .advertising = $0.event { $0 } else { nil }
            }
            #expect(record.isAdvertising)
            guard case .advertising(nil) = record.event else { throw RigWorld.Refused(description: "\(record.event)") }
            #expect((try await publisher.advertise() as? CBError)?.code == .alreadyAdvertising)
            #expect(publisher.manager.isAdvertising)
            let text = try await heard(world)
            #expect(text.contains("connectable=1"))
            #expect(text.contains("flags=06"))
            #expect(text.contains("uuids=180d,\(sinkUUID(1).line) "))
            #expect(!text.contains("manufacturer"))
            #expect(text.contains("name=" + String(repeating: "n", count: 29)))
            publisher.manager.stopAdvertising()
            #expect(!publisher.manager.isAdvertising)
            try await world.awaitSilence()
            #expect(try await publisher.advertise() == nil)
            #expect(try await heard(world).contains("connectable=1"))
            #expect(publisher.count { if case .advertising = $0 { true } else { false } } == 3)
        }

        @Test("the additions are advertised: manufacturer data, service data, power; too much is refused")
        func additions() async throws {
            let world = try await Worlds.make()
            let publisher = Publisher(world)
            try await publisher.powerOn()
            var data: [String: Any] = [
                BluezAdvertisementManufacturerDataKey: Data([0xFF, 0xFF, 1, 2]),
                BluezAdvertisementServiceDataKey: [CBUUID(string: "180D"): Data([7])],
                BluezAdvertisementMinimumIntervalKey: 100, BluezAdvertisementMaximumIntervalKey: 200,
                CBAdvertisementDataLocalNameKey: "More",
            ]
            #expect(try await publisher.advertise(data) == nil)
            let text = try await heard(world)
            #expect(text.contains("manufacturer=ffff:0102"))
            #expect(text.contains("service=180d:07"))
            #expect(text.hasSuffix("name=More"))
            publisher.manager.stopAdvertising()
            #expect(
                try await publisher.advertise([
                    BluezAdvertisementSolicitedServiceUUIDsKey: [CBUUID(string: "1805")],
                    CBAdvertisementDataLocalNameKey: "Wish",
                ]) == nil)
            #expect(try await heard(world).contains("solicited=1805"))
            publisher.manager.stopAdvertising()
            data[BluezAdvertisementTxPowerKey] = 0
            #expect(try await publisher.advertise(data) == nil)
            #expect(try await heard(world).contains("txpower="))
            publisher.manager.stopAdvertising()
            data[BluezAdvertisementManufacturerDataKey] = Data(count: 40)
            let error = try #require(try await publisher.advertise(data) as? CBError)
            #expect(error.code == .invalidParameters)
            #expect(error.localizedDescription.contains("manufacturer data 42"))
            #expect(!publisher.manager.isAdvertising)
            // Undone before it is answered, as with one that is not refused.
            publisher.queue.sync {
                publisher.manager.startAdvertising(data)
                publisher.manager.stopAdvertising()
            }
            #expect(try await publisher.advertise() == nil)
            #expect(publisher.count { if case .advertising = $0 { true } else { false } } == 5)
        }

        // Slow: in the rig, silence means that nothing was heard for five seconds.
        @Test("AD-7 each manager has its own advertisement, until the adapter has no room")
        func several() async throws {
            let world = try await Worlds.make()
            var publishers: [Publisher] = []
            var refusal: CBError?
            while refusal == nil, publishers.count < 20 {
                let publisher = Publisher(world)
                try await publisher.powerOn()
                publishers.append(publisher)
                refusal =
                    try await publisher.advertise([CBAdvertisementDataLocalNameKey: "\(publishers.count)"]) as? CBError
            }
            let error = try #require(refusal)
            #expect(error.code == .outOfSpace)
            #expect(publishers.count > 2)
            #expect(error.localizedDescription.contains("\(publishers.count - 1) advertisements on air"))
            // One makes room for another.
            publishers[0].manager.stopAdvertising()
            try await eventually("there is room for another") {
                try await publishers[publishers.count - 1].advertise() == nil
            }
            #expect(publishers[publishers.count - 1].manager.isAdvertising)
            // A manager that is released takes its own away.
            for publisher in publishers { publisher.release() }
            try await world.awaitSilence()
        }

        @Test("ST-5 AD-3 power off ends advertising and keeps services; after power on the app can resume both")
        func powerCycle() async throws {
            let world = try await Worlds.make()
            let publisher = Publisher(world)
            try await publisher.powerOn()
            publisher.answerReads(with: Data([9]))
            let characteristic = local(0x110, [.read, .notify])
            try await publisher.add(localService(0x100, [characteristic]))
            try await publisher.advertise()
            try await world.connect()
            _ = try await world.control("central subscribe \(characteristic.uuid.line)")
            _ = try await publisher.nextSubscription()
            _ = try await world.control("rig power off")
            let record = try await publisher.nextRecord("power off") {
                if case .state(.poweredOff) = $0.event { $0 } else { nil }
            }
            #expect(!record.isAdvertising)
            #expect((characteristic.subscribedCentrals ?? []).isEmpty)
            _ = try await world.control("rig power on")
            try await publisher.powerOn()
            #expect(!publisher.manager.isAdvertising)
            #expect(try await publisher.advertise() == nil)
            #expect(publisher.manager.isAdvertising)
            try await world.connect()
            #expect(try await world.control("central read \(characteristic.uuid.line)") == "09")
            // New objects with an equal UUID are welcome.
            #expect(try await publisher.add(localService(0x100, [local(0x110, .read)])) == nil)
        }
    }
}

extension World {
    /// Waits until nothing is heard from the adapter.
    func awaitSilence() async throws {
        try await eventually("nothing is advertised") {
            await refusal("central advertisement \(adapterAddress)")?.contains("nothing heard") == true
        }
    }
}
