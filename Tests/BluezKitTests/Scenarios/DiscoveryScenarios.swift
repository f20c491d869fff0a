import BluezDBus
import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// Finding peripherals. In the simulator and against the real bluetoothd.
extension Scenarios {
    @Suite struct DiscoveryScenarios {
        let heartRate = CBUUID(string: "180D")

        // Slow: in the rig, BlueZ ends a link two seconds after it was asked to.
        @Test("SC-9 a peripheral whose link ended before its services were known is found by those that it advertises")
        func findsAfterLostServices() async throws {
            let world = try await Worlds.make()
            // While another program scans, a device is not forgotten to be found again.
            (world as? SimulatedWorld)?.simulator.options.bustle?.clients = 0
            try await world.prepareChannels()
            let central = Central(world)
            try await central.powerOn()
            _ = try await central.find("Rig CoC", services: [sinkUUID(0x40)])
            // Another program's link. The rig's peripheral answers so slowly that its services are not known in time.
            let simulator = (world as? SimulatedWorld)?.simulator
            let discovery = simulator?.timing.serviceDiscovery
            simulator?.timing.serviceDiscovery = .seconds(3600)
            let other = try await Peer.named(world.busAddress)
            for method in ["Connect", "Disconnect"] {
                _ = try await other.call(
                    "org.bluez", "/org/bluez/hci0/dev_F0_F1_F2_00_00_03", "org.bluez.Device1", method, [])
            }
            try await world.awaitConnections("coc", 0)
            discovery.map { simulator?.timing.serviceDiscovery = $0 }
            // As in a process that has just begun.
            AdvertisedServices.forgetAll()
            let next = Central(world)
            try await next.powerOn()
            _ = try await next.find("Rig CoC", services: [sinkUUID(0x40)])
        }

        @Test("SC-3 SC-8 SC-9 O-48 UU-6 UU-7 a filtered scan finds the heart-rate sensor and reports its advertisement")
        func findsByService() async throws {
            let world = try await Worlds.make()
            let central = Central(world)
            try await central.powerOn()
            central.manager.scanForPeripherals(withServices: [heartRate])
            let (peripheral, data, rssi) = try await central.next("discovery") {
                if case .discovered(let peripheral, let data, let rssi) = $0 {
                    Found(peripheral, data, rssi)
                } else {
                    nil
                }
            }.parts
            central.manager.stopScan()
            #expect(data[CBAdvertisementDataLocalNameKey] as? String == "Rig Heart")
            let services = try #require(data[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID])
            // For a device that was connected before, BlueZ also reports the services of its table (LX-14).
            #expect(Set(services.map(\.uuidString)).isSuperset(of: ["180D", "180F"]))
            #expect(Set(services.map(\.uuidString)).isDisjoint(with: ["1800", "1801"]))
            #expect(services.contains(CBUUID(string: "0000180d-0000-1000-8000-00805f9b34fb")))
            #expect(data[CBAdvertisementDataIsConnectable] as? Bool == true)
            #expect(data[CBAdvertisementDataIsConnectable] as? NSNumber == 1)
            #expect((-100...0).contains(rssi.intValue))
            #expect(peripheral.name == "Rig Heart")
            #expect(peripheral.state == .disconnected)
        }

        // Slow: in the rig, the controller reports an advertisement that does not change once in ten seconds.
        @Test("SC-8 manufacturer data of several companies: all in the packet's order, and in each report the same one")
        func twoCompanies() async throws {
            let world = try await Worlds.make()
            try await world.control("heart manufacturer 4c000215 88ec0003 5900")
            let central = Central(world)
            try await central.powerOn()
            central.manager.scanForPeripherals(
                withServices: [heartRate], options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
            for number in 1...3 {
                let (one, all) = try await central.next("report \(number)") {
                    guard case .discovered(let found, let data, _) = $0, found.name == "Rig Heart",
                        let one = data[CBAdvertisementDataManufacturerDataKey] as? Data
                    else { return nil as (Data, [Data]?)? }
                    return (one, data[BluezAdvertisementManufacturerEntriesKey] as? [Data])
                }
                #expect(one == Data([0x88, 0xEC, 0, 3]))
                #expect(all == [Data([0x4C, 0, 2, 0x15]), Data([0x88, 0xEC, 0, 3]), Data([0x59, 0])])
            }
            central.manager.stopScan()
            try await world.control("heart manufacturer 5900")
        }

        @Test("SC-3 SC-6 a scan without a filter finds all devices, each once, and a filter excludes others")
        func findsAllWithoutFilter() async throws {
            let world = try await Worlds.make()
            try await world.resetChannels()
            let central = Central(world)
            try await central.powerOn()
            central.manager.scanForPeripherals(withServices: nil)
            var names: Set<String> = []
            // The last one does not advertise that it is discoverable.
            while !names.isSuperset(of: ["Rig Heart", "Rig Sink", "Rig CoC"]) {
                let name = try await central.next("all peripherals after \(names)") {
                    if case .discovered(_, let data, _) = $0 {
                        data[CBAdvertisementDataLocalNameKey] as? String
                    } else {
                        nil
                    }
                }
                names.insert(name)
            }
            central.manager.stopScan()
            let filtered = Central(world)
            try await filtered.powerOn()
            let sink = try await filtered.find("Rig Sink", services: [sinkUUID(1)])
            #expect(
                filtered.count {
                    if case .discovered(let peripheral, _, _) = $0 {
                        peripheral.identifier != sink.identifier
                    } else {
                        false
                    }
                } == 0)
        }

        @Test(
            "O-47 RT-1 RT-2 SC-14 a peripheral is retrieved by its identifier and connected without a scan by the app")
        func connectsByIdentifier() async throws {
            let world = try await Worlds.make()
            let first = Central(world)
            try await first.powerOn()
            let identifier = try await first.find("Rig Heart", services: [heartRate]).identifier
            first.release()

            let second = Central(world)
            try await second.powerOn()
            let peripheral = try #require(
                second.manager.retrievePeripherals(withIdentifiers: [identifier, UUID()]).first)
            #expect(peripheral.identifier == identifier)
            try await second.connect(peripheral)
            #expect(second.count { if case .discovered = $0 { true } else { false } } == 0)
            try await world.letBlueZDiscover(.heart)
            try await second.disconnect(peripheral)
        }

        @Test(
            "D10 SC-4 ST-6 a controller falls silent: a restart, then a power cycle, and devices are heard again",
            seesCore)
        func deafController() async throws {
            let world = try await Worlds.make()
            LogCapture.shared.forget()
            let central = Central(
                world, options: [BluezManagerOptionMayPowerCycleKey: true, BluezManagerOptionResumeAfterResetKey: true])
            try await central.powerOn()
            let session = central.manager.session
            // Two minutes of silence, shortened.
            let window: Duration = Worlds.isRig ? .seconds(2) : .milliseconds(20)
            session.queue.sync { session.central.discovery.setWatchWindow(window, first: window) }
            try await world.control("rig deaf power")
            central.manager.scanForPeripherals(withServices: nil)
            for awaited in [CBManagerState.resetting, .poweredOn] {
                try await central.next("\(awaited)") { if case .state(awaited) = $0 { true } else { nil } }
                // Once is enough, however late the next advertisement is heard.
                session.queue.sync {
                    session.central.discovery.setWatchWindow(.seconds(3600), first: .seconds(3600))
                }
            }
            try await central.next("discovery") { if case .discovered = $0 { true } else { nil } }
            #expect(central.manager.isScanning)
            #expect(LogCapture.shared.count("heard nothing for a minute: restarting discovery") >= 1)
            #expect(LogCapture.shared.count("switching hci0 off and on") == 1)
        }
    }
}

struct Found: @unchecked Sendable {  // holds: handed over once
    let parts: (CBPeripheral, [String: Any], NSNumber)
    init(_ peripheral: CBPeripheral, _ data: [String: Any], _ rssi: NSNumber) { parts = (peripheral, data, rssi) }
}
