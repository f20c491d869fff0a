import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

/// The reports of a scan, and their number.
@Suite struct ScanningTests {
    /// A world in which only a beacon advertises, when the test makes it. Calm, because the reports are counted, and
    /// the order of their kinds matters.
    private func quietWorld(
        _ advertisement: VirtualAdvertisement = VirtualAdvertisement(localName: "Beacon", serviceUUIDs: ["1815"])
    ) async throws -> (SimulatedWorld, VirtualPeripheral) {
        let world = try await SimulatedWorld(.calm)
        world.heart.advertise(false)
        world.sink.advertise(false)
        world.simulator.options.duplicateFilter = .none
        // Not used by other tests: the library remembers what a device it has connected to had advertised.
        let beacon = VirtualPeripheral("F0:00:00:00:05:CA", advertisement, interval: .seconds(3600))
        beacon.advertise(false)
        world.simulator.add(beacon)
        return (world, beacon)
    }

    private func isDiscovery(_ event: Central.Event) -> Bool { if case .discovered = event { true } else { false } }

    /// Scans, and waits until the scan runs.
    private func scan(
        _ central: Central, _ world: SimulatedWorld, services: [CBUUID]? = nil, options: [String: Any]? = nil,
        starts: Int = 1
    ) async throws {
        central.manager.scanForPeripherals(withServices: services, options: options)
        _ = await world.simulator.waitForCalls("StartDiscovery", count: starts)
        // The reply to StartDiscovery passes the same way as signals: what is emitted now comes after it.
    }

    @Test(
        "O-6 SC-1 SC-4 SC-5 isScanning is true after scan and false after stop; no discovery after a stop on the queue")
    func isScanning() async throws {
        let (world, beacon) = try await quietWorld()
        let central = Central(world)
        try await central.powerOn()
        let flags = await central.perform { () -> [Bool] in
            var flags = [central.manager.isScanning]
            central.manager.scanForPeripherals(withServices: nil)
            flags.append(central.manager.isScanning)
            return flags
        }
        #expect(flags == [false, true])
        _ = await world.simulator.waitForCalls("StartDiscovery")
        let stopped = await central.perform { () -> Bool in
            // These wait behind this block, and must not be delivered after it.
            for _ in 0..<10 { beacon.advertiseOnce() }
            central.manager.stopScan()
            return central.manager.isScanning
        }
        #expect(!stopped)
        let count = central.count(isDiscovery)
        _ = await world.simulator.waitForCalls("StopDiscovery")
        await central.perform {}
        #expect(central.count(isDiscovery) == count)
    }

    @Test("O-7 SC-6 identical packets give one discovery; a stop and a start one more")
    func oncePerScan() async throws {
        let (world, beacon) = try await quietWorld()
        let central = Central(world)
        try await central.powerOn()
        try await scan(central, world)
        for _ in 0..<5 { beacon.advertiseOnce(rssi: -60) }
        let peripheral = try await central.next("discovery") {
            if case .discovered(let p, _, _) = $0 { p } else { nil }
        }
        central.manager.stopScan()
        _ = await world.simulator.waitForCalls("StopDiscovery")
        #expect(central.count(isDiscovery) == 1)
        try await scan(central, world, starts: 2)
        for _ in 0..<5 { beacon.advertiseOnce(rssi: -61) }
        try await central.next("discovery") { if case .discovered(peripheral, _, _) = $0 { true } else { nil } }
        central.manager.stopScan()
        #expect(central.count(isDiscovery) == 2)
    }

    @Test("SC-6 new information gives a second discovery")
    func newInformation() async throws {
        let (world, beacon) = try await quietWorld(VirtualAdvertisement(serviceUUIDs: ["1815"]))
        let central = Central(world)
        try await central.powerOn()
        try await scan(central, world)
        beacon.advertiseOnce()
        let (peripheral, first) = try await central.next("discovery") {
            if case .discovered(let p, let data, _) = $0 {
                (p, data[CBAdvertisementDataLocalNameKey] as? String)
            } else {
                nil
            }
        }
        #expect(first == nil && peripheral.name == nil)
        beacon.advertisement.localName = "Beacon"
        beacon.advertiseOnce()
        let second = try await central.next("discovery with the name") {
            if case .discovered(peripheral, let data, _) = $0 {
                data[CBAdvertisementDataLocalNameKey] as? String
            } else {
                nil
            }
        }
        #expect(second == "Beacon" && peripheral.name == "Beacon")
    }

    @Test("O-8 SC-7 with AllowDuplicates n packets give n discoveries, in order, with fresh RSSI")
    func duplicates() async throws {
        let (world, beacon) = try await quietWorld()
        let central = Central(world)
        try await central.powerOn()
        let options: [String: Any] = [CBCentralManagerScanOptionAllowDuplicatesKey: NSNumber(value: true)]
        try await scan(central, world, options: options)
        for n in 0..<50 { beacon.advertiseOnce(rssi: Int16(-40 - n)) }
        var strengths: [Int] = []
        while strengths.last != -89 {
            strengths.append(
                try await central.next("discovery") {
                    if case .discovered(_, _, let rssi) = $0 { rssi.intValue } else { nil }
                })
        }
        #expect(strengths == (0..<50).map { -40 - $0 })
    }

    @Test("SC-2 scanning again with equal parameters changes nothing; other parameters replace the old ones")
    func again() async throws {
        let (world, beacon) = try await quietWorld()
        let central = Central(world)
        try await central.powerOn()
        let (short, long) = (CBUUID(string: "1234"), CBUUID(string: "00001234-0000-1000-8000-00805F9B34FB"))
        try await scan(central, world, services: [short])
        for _ in 0..<5 { central.manager.scanForPeripherals(withServices: [short]) }
        for same in [[long], [short, long]] { central.manager.scanForPeripherals(withServices: same) }
        beacon.advertiseOnce()
        central.manager.scanForPeripherals(withServices: nil)
        _ = await world.simulator.waitForCalls("StartDiscovery", count: 2)
        beacon.advertiseOnce(rssi: -70)
        try await central.next("discovery") { if case .discovered = $0 { true } else { nil } }
        #expect(world.simulator.calls("StartDiscovery").count == 2)
        #expect(central.count(isDiscovery) == 1)
    }

    @Test("SC-3 DL-7 each manager gets the devices that match its own filter, from one discovery of BlueZ")
    func twoFilters() async throws {
        let (world, beacon) = try await quietWorld()
        let other = VirtualPeripheral(
            "F0:00:00:00:00:02", VirtualAdvertisement(localName: "Other", serviceUUIDs: ["1234"]),
            interval: .seconds(3600))
        other.advertise(false)
        world.simulator.add(other)
        let first = Central(world)
        let second = Central(world)
        try await first.powerOn()
        try await second.powerOn()
        first.manager.scanForPeripherals(withServices: [CBUUID(string: "1815")])
        _ = await world.simulator.waitForCalls("StartDiscovery", count: 1)
        second.manager.scanForPeripherals(withServices: [CBUUID(string: "00001234-0000-1000-8000-00805F9B34FB")])
        _ = await world.simulator.waitForCalls("StartDiscovery", count: 2)
        beacon.advertiseOnce()
        other.advertiseOnce()
        try await first.next("beacon") {
            if case .discovered(let p, _, _) = $0, p.name == "Beacon" { true } else { nil }
        }
        try await second.next("other") {
            if case .discovered(let p, _, _) = $0, p.name == "Other" { true } else { nil }
        }
        #expect(first.count(isDiscovery) == 1 && second.count(isDiscovery) == 1)
        #expect(Set(world.simulator.calls("StartDiscovery").map(\.sender)).count == 1)
    }

    @Test("SC-8 SC-9 LX-6 everything an advertisement can carry arrives, typed as apps cast it")
    func advertisementData() async throws {
        let (world, beacon) = try await quietWorld(
            VirtualAdvertisement(
                localName: "Beacon", serviceUUIDs: ["1815", "bb1e0001-5d3b-4c6f-9a5e-000000000000"],
                serviceData: ["FEAA": [1, 2, 3]], manufacturerData: [0x004C: [2, 21]], txPower: -7))
        let central = Central(world)
        try await central.powerOn()
        try await scan(central, world)
        beacon.advertiseOnce(rssi: -42)
        let (data, rssi) = try await central.next("discovery") {
            if case .discovered(_, let data, let rssi) = $0 { (data, rssi) } else { nil }
        }
        #expect(rssi == -42)
        #expect(data[CBAdvertisementDataLocalNameKey] as? String == "Beacon")
        #expect(
            Set(data[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID] ?? []) == [CBUUID(string: "1815"), sinkUUID(1)])
        #expect(
            data[CBAdvertisementDataServiceDataKey] as? [CBUUID: Data] == [CBUUID(string: "FEAA"): Data([1, 2, 3])])
        #expect(data[CBAdvertisementDataManufacturerDataKey] as? Data == Data([0x4C, 0, 2, 21]))
        #expect(data[CBAdvertisementDataTxPowerLevelKey] as? NSNumber == -7)
        #expect(data[CBAdvertisementDataTxPowerLevelKey] as? Int == -7)
        #expect(data[CBAdvertisementDataIsConnectable] as? Bool == true)
        #expect(data[CBAdvertisementDataIsConnectable] as? Int == 1)
        #expect(data["kCBAdvDataTimestamp"] is NSNumber)
    }

    @Test("SC-8 data that is not advertised has no key")
    func absentKeys() async throws {
        let (world, beacon) = try await quietWorld(VirtualAdvertisement())
        let central = Central(world)
        try await central.powerOn()
        try await scan(central, world)
        beacon.advertiseOnce()
        let keys = try await central.next("discovery") {
            if case .discovered(_, let data, _) = $0 { Set(data.keys) } else { nil }
        }
        #expect(keys == [CBAdvertisementDataIsConnectable, "kCBAdvDataTimestamp"])
    }

    @Test("SC-3 a peripheral that solicits a service is reported under the solicited option")
    func solicited() async throws {
        let (world, beacon) = try await quietWorld(
            VirtualAdvertisement(localName: "Watch", solicitedServiceUUIDs: ["1805"]))
        world.simulator.options.isExperimental = true
        let central = Central(world)
        try await central.powerOn()
        try await scan(
            central, world, services: [CBUUID(string: "1234")],
            options: [CBCentralManagerScanOptionSolicitedServiceUUIDsKey: [CBUUID(string: "1805")]])
        beacon.advertiseOnce()
        let data = try await central.next("discovery") {
            if case .discovered(_, let data, _) = $0 { data } else { nil }
        }
        #expect(data[CBAdvertisementDataSolicitedServiceUUIDsKey] as? [CBUUID] == [CBUUID(string: "1805")])
    }

    @Test(
        "SC-10 CN-1 a peripheral that is not kept is released after the callback; disconnected, delegate nil"
    )
    func weakPeripherals() async throws {
        let (world, beacon) = try await quietWorld()
        let seen = ProtectedBox<(WeakBox, CBPeripheralState, Bool)?>(nil)
        let central = Central(world) { _, event in
            guard case .discovered(let peripheral, _, _) = event else { return }
            seen.withLock { $0 = (WeakBox(peripheral), peripheral.state, peripheral.delegate == nil) }
        }
        try await central.powerOn()
        try await scan(central, world)
        beacon.advertiseOnce()
        try await central.next("discovery") { if case .discovered = $0 { true } else { nil } }
        central.forgetRecords()
        await central.perform {}
        let (weakBox, state, hadNoDelegate) = try #require(seen.withLock { $0 })
        #expect(weakBox.object == nil && state == .disconnected && hadNoDelegate)
    }

    @Test(
        "O-9 ID-1 ID-3 the same device is the same object in discovery, retrieval and connection; another in another manager"
    )
    func identity() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        #expect(central.manager.retrievePeripherals(withIdentifiers: [heart.identifier]).first === heart)
        try await central.connect(heart)
        try await central.disconnect(heart)
        let again = try await central.find("Rig Heart")
        #expect(again === heart)
        let other = Central(world)
        try await other.powerOn()
        let theirs = try await other.find("Rig Heart")
        #expect(theirs !== heart && theirs.identifier == heart.identifier)
        other.manager.connect(heart)  // MIS-3
        #expect(heart.state == .disconnected)
    }

    @Test("SC-12 a device that this manager is connected to is reported again only if it continues to advertise")
    func connectedDevice() async throws {
        let (world, beacon) = try await quietWorld()
        let central = Central(world)
        try await central.powerOn()
        try await scan(central, world)
        beacon.advertiseOnce()
        let peripheral = try await central.next("discovery") {
            if case .discovered(let p, _, _) = $0 { p } else { nil }
        }
        central.manager.stopScan()
        beacon.advertise(true)
        try await central.connect(peripheral)
        beacon.advertise(false)
        let before = central.count(isDiscovery)
        central.manager.scanForPeripherals(withServices: nil)
        _ = await world.simulator.waitForCalls("StartDiscovery", count: 2)
        try await central.settle(peripheral)
        #expect(central.count(isDiscovery) == before)
        beacon.advertiseOnce(rssi: -66)
        try await central.next("discovery") { if case .discovered(peripheral, _, -66) = $0 { true } else { nil } }
    }

    @Test("LX-12 a device that BlueZ knows from before is reported when it advertises, not before")
    func knownFromBefore() async throws {
        let (world, beacon) = try await quietWorld()
        // Another program's scan finds it.
        let other = Central(world, options: [:])
        try await other.powerOn()
        try await scan(other, world)
        beacon.advertiseOnce()
        try await other.next("discovery") { if case .discovered = $0 { true } else { nil } }
        let central = Central(world)
        try await central.powerOn()
        central.manager.scanForPeripherals(withServices: nil)
        _ = await world.simulator.waitForCalls("StartDiscovery", count: 2)
        #expect(central.count(isDiscovery) == 0)
        beacon.advertiseOnce(rssi: -77)
        let name = try await central.next("discovery") {
            if case .discovered(let p, _, -77) = $0 { p.name } else { nil }
        }
        #expect(name == "Beacon")
    }

    @Test("MIS-10 AllowDuplicates on the main queue is logged, but not as misuse, because Apple allows it")
    func duplicatesOnMain() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world, queue: .main)
        try await central.powerOn()
        central.manager.scanForPeripherals(
            withServices: nil, options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
        try await LogCapture.shared.expect("warning", "AllowDuplicates on the main queue")
        central.manager.stopScan()
    }
}

struct WeakBox: @unchecked Sendable {  // holds: a weak reference is read atomically
    weak var object: AnyObject?
    init(_ object: AnyObject) { self.object = object }
}
