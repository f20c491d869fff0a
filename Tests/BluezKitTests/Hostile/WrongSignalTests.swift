import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Testing

extension Hostile {
    @Suite struct WrongSignalTests {
        /// Sends signals to a subscribed and optionally scanning app, and checks regularly that it still works.
        private func send(isScanning: Bool, _ signals: (WrongSignals) -> [Signal]) async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            if isScanning {
                app.central.manager.scanForPeripherals(
                    withServices: nil, options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
            }
            let all = signals(WrongSignals(device: world.device, characteristic: world.subscribedPath))
            for (number, signal) in all.enumerated() {
                try world.emit(signal)
                if number % 10 == 0 { try await app.goesOn("\(signal)") }
            }
            try await app.goesOn("all of them")
            #expect(try await app.central.read(app.characteristic).get().first != nil)
            #expect(app.central.count { if case .disconnected = $0 { true } else { false } } == 0)
        }

        @Test("properties of every wrong type are ignored", arguments: [false, true])
        func wrongTypes(isScanning: Bool) async throws { try await send(isScanning: isScanning) { $0.wrongProperties } }

        @Test("invalid UUIDs, advertising data and addresses in signals are ignored", arguments: [false, true])
        func nonsense(isScanning: Bool) async throws { try await send(isScanning: isScanning) { $0.nonsense } }

        @Test("signals with empty, short, long and foreign bodies are ignored", arguments: [false, true])
        func wrongBodies(isScanning: Bool) async throws { try await send(isScanning: isScanning) { $0.wrongBodies } }

        @Test("signals about objects at impossible paths are ignored", arguments: [false, true])
        func oddPaths(isScanning: Bool) async throws { try await send(isScanning: isScanning) { $0.oddPaths } }

        @Test("a faulty signal is logged with the name of its object")
        func logged() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            try world.emit(.changed(world.subscribedPath, "GattCharacteristic1", [("Value", .string("text"))]))
            try await LogCapture.shared.expect("malformed signal", world.subscribedPath)
            try world.emit(.changed(world.device, "Device1", [("RSSI", .string("loud"))]))
            try await LogCapture.shared.expect(world.device)
            try await app.goesOn()
        }

        @Test("a wrong value does not hide the right ones of the same signal")
        func keepsTheRest() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            try world.emit(
                .changed(world.device, "Device1", [("RSSI", .string("loud")), ("Name", .string("Renamed"))]))
            try await app.central.next("name") { if case .name(app.peripheral) = $0 { true } else { nil } }
            #expect(app.peripheral.name == "Renamed")
            try world.emit(
                .changed(world.device, "Device1", [("Connected", .bool(false)), ("TxPower", .string("much"))]))
            try await app.central.next("disconnection") {
                if case .disconnected(app.peripheral, _, _) = $0 { true } else { nil }
            }
        }

        @Test("a device with one property of a wrong type is discovered without it")
        func discoversAnyway() async throws {
            let world = try await HostileWorld()
            let central = Central(world)
            try await central.powerOn()
            central.manager.scanForPeripherals(withServices: nil)
            await world.simulator.waitForCalls("StartDiscovery")
            try await central.next("Victim") { if case .discovered = $0 { true } else { nil } }
            try world.emit(
                .added(
                    "/org/bluez/hci0/dev_F0_00_00_00_00_77", "Device1",
                    [
                        ("Address", .string("F0:00:00:00:00:77")), ("AddressType", .string("random")),
                        ("ServiceData", .dictionary(key: "q", value: "v", [.init(.uint16(1), .variant(.byte(1)))])),
                        (
                            "ManufacturerData",
                            .dictionary(key: "q", value: "v", [.init(.uint16(1), .variant(.bytes([7])))])
                        ),
                        ("UUIDs", .int32(3)), ("Name", .string("Half right")), ("RSSI", .int16(-40)),
                    ]))
            let data = try await central.next("Half right") {
                if case .discovered(_, let data, _) = $0,
                    data[CBAdvertisementDataLocalNameKey] as? String == "Half right"
                {
                    data
                } else {
                    nil
                }
            }
            #expect(data[CBAdvertisementDataManufacturerDataKey] as? Data == Data([1, 0, 7]))
            #expect(data[CBAdvertisementDataServiceDataKey] == nil && data[CBAdvertisementDataServiceUUIDsKey] == nil)
        }

        @Test("10 MB as a value and as manufacturer data arrive whole, and the app continues")
        func large() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            app.central.manager.scanForPeripherals(
                withServices: nil, options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
            let bytes = [UInt8](repeating: 0x5A, count: 10_000_000)
            try world.emit(.changed(world.subscribedPath, "GattCharacteristic1", [("Value", .bytes(bytes))]))
            let value = try await app.central.next("the large value") {
                if case .value(app.characteristic, let value?, nil) = $0 { value } else { nil }
            }
            #expect(value.count == bytes.count)
            try world.emit(
                .added(
                    "/org/bluez/hci0/dev_F0_00_00_00_00_78", "Device1",
                    [
                        ("Address", .string("F0:00:00:00:00:78")), ("RSSI", .int16(-40)),
                        (
                            "ManufacturerData",
                            .dictionary(key: "q", value: "v", [.init(.uint16(1), .variant(.bytes(bytes)))])
                        ),
                    ]))
            let data = try await app.central.next("the large advertisement") {
                if case .discovered(let found, let data, _) = $0,
                    found.identifier.uuidString.hasSuffix("F00000000078")
                {
                    data[CBAdvertisementDataManufacturerDataKey] as? Data
                } else {
                    nil
                }
            }
            #expect(data.count == bytes.count + 2)
            app.central.forgetRecords()
            try await app.goesOn()
        }

        @Test("truncated solicitation data gives only the complete UUIDs in it")
        func truncatedSolicitation() async throws {
            let world = try await HostileWorld()
            let central = Central(world)
            try await central.powerOn()
            central.manager.scanForPeripherals(
                withServices: [CBUUID(string: "1234")],
                options: [CBCentralManagerScanOptionSolicitedServiceUUIDsKey: [CBUUID(string: "1805")]])
            await world.simulator.waitForCalls("StartDiscovery")
            try world.emit(
                .added(
                    "/org/bluez/hci0/dev_F0_00_00_00_00_79", "Device1",
                    [
                        ("Address", .string("F0:00:00:00:00:79")), ("RSSI", .int16(-40)),
                        (
                            "AdvertisingData",
                            .dictionary(
                                key: "y", value: "v",
                                [
                                    .init(.byte(0x14), .variant(.bytes([0x05, 0x18, 0x06]))),
                                    .init(.byte(0x15), .variant(.bytes([UInt8](repeating: 1, count: 15)))),
                                    .init(.byte(0x1F), .variant(.bytes([1, 2, 3, 4, 5]))),
                                ])
                        ),
                    ]))
            let found = try await central.next("the soliciting device") {
                if case .discovered(_, let data, _) = $0 {
                    data[CBAdvertisementDataSolicitedServiceUUIDsKey] as? [CBUUID]
                } else {
                    nil
                }
            }
            #expect(Set(found) == [CBUUID(string: "1805"), CBUUID(string: "04030201")])
        }
    }
}
