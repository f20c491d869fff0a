/// Beacons that have no objects of their own: they exist only as advertisements.
final class BeaconSwarm {
    unowned(unsafe) let simulator: Simulator  // holds: stopped by the simulator's deinit; see Adapter
    let count: Int
    let interval: Duration
    /// The manufacturer data of a beacon changes with every `change`-th advertisement; 0: never.
    let change: Int
    private var turn = 0
    private var next: Alarm?

    init(simulator: Simulator, count: Int, interval: Duration, change: Int) {
        (self.simulator, self.count, self.interval, self.change) = (simulator, count, interval, change)
    }

    static func address(_ number: Int) -> String {
        "F0:C0:D0:00:" + Hex.byte(UInt8(number >> 8 & 255)).uppercased() + ":"
            + Hex.byte(UInt8(number & 255)).uppercased()
    }

    /// Beacons advertise only while an adapter scans.
    func update() {
        let due = simulator.adapters.contains { $0.isScanning }
        if !due {
            stop()
        } else if next == nil {
            advertise(slice: 0)
        }
    }

    func stop() {
        next?.cancel()
        next = nil
    }

    /// The advertisements of an interval are spread over ten slices.
    private func advertise(slice: Int) {
        next = simulator.afterAlways(interval / 10) { [weak self] in
            guard let self else { return }
            for number in count * slice / 10..<count * (slice + 1) / 10 { emit(number) }
            if slice == 9 { turn += 1 }
            advertise(slice: (slice + 1) % 10)
        }
    }

    private func emit(_ number: Int) {
        let counter = change == 0 ? 0 : turn / change
        let data = [number & 255, number >> 8 & 255, counter & 255, counter >> 8 & 255].map { UInt8($0) }
        simulator.emit(
            AdvertisingReport(
                address: Self.address(number), addressType: "random", rssi: -50 - Int16.random(in: 0..<20),
                content: VirtualAdvertisement(manufacturerData: [0xFFFF: data], flags: 0x06, isConnectable: false)))
    }
}

extension Simulator {
    /// Replaces all beacons by this many. Each advertises manufacturer data of company 0xFFFF: its number and a
    /// counter, two bytes each.
    /// - Parameters:
    ///   - count: The number of beacons; 0: none.
    ///   - interval: The time between two advertisements of a beacon.
    ///   - change: The counter is incremented with every `change`-th advertisement; 0: never.
    public func setCrowd(_ count: Int, interval: Duration = .seconds(1), change: Int = 1) {
        sync {
            beacons?.stop()
            beacons = count > 0 ? BeaconSwarm(simulator: self, count: count, interval: interval, change: change) : nil
            beacons?.update()
        }
    }

    /// Adds this many devices to those that bluetoothd knows, as if they had been seen or connected before.
    public func addKnownDevices(_ count: Int, adapter index: Int = 0) {
        sync {
            guard let adapter = adapters.first(where: { $0.controller.index == index }) else { return }
            for number in 0..<count {
                let address = BeaconSwarm.address(number)
                guard adapter.devices[address] == nil else { continue }
                let device = adapter.addDevice(address, type: "random")
                device.name = "Beacon \(number)"
                device.manufacturerData = [(0xFFFF, [UInt8(number & 255), UInt8(number >> 8 & 255), 0, 0])]
            }
        }
    }
}
