import CoreBluetooth
import Foundation
import Testing

/// What is on the air.
extension Scenarios {
    @Suite struct AdvertisingScenarios {
        private func heard(_ world: any World) async throws -> String {
            try await world.advertisement(of: world.adapterAddress)
        }

        // Slow: in the rig, silence means that nothing was heard for five seconds.
        @Test("AD-1 AD-2 AD-3 AD-4 O-35 advertising is confirmed once, refused twice, and ends at once")
        func starting() async throws {
            let world = try await Worlds.make()
            let publisher = Publisher(world)
            try await publisher.powerOn()
            // On its queue: elsewhere BlueZ may have confirmed it already.
            let isEarly = await publisher.perform { manager in
                manager.startAdvertising([
                    CBAdvertisementDataLocalNameKey: String(repeating: "n", count: 40),
                    CBAdvertisementDataServiceUUIDsKey: [CBUUID(string: "180D"), sinkUUID(1), sinkUUID(2)],
                    CBAdvertisementDataManufacturerDataKey: Data([1, 2, 3]),
                ])
                return manager.isAdvertising
            }
            #expect(!isEarly)
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
    }
}

extension World {
    /// The next advertisement of a device. The rig listens for five seconds, in which a busy machine may do nothing.
    func advertisement(of address: String) async throws -> String {
        var heard = ""
        try await eventually("\(address) is heard") {
            do { heard = try await control("central advertisement \(address)") } catch {
                guard "\(error)".contains("nothing heard") else { throw error }
                return false
            }
            return true
        }
        return heard
    }

    /// Waits until nothing is heard from the adapter.
    func awaitSilence() async throws {
        try await eventually("nothing is advertised") {
            await refusal("central advertisement \(adapterAddress)")?.contains("nothing heard") == true
        }
    }
}
