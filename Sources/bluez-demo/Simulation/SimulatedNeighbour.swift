import BluezKitSimulator

/// A device that only appears in scans.
struct SimulatedNeighbour {
    let name: String?
    var services: [String] = []
    var manufacturerData: AdvertisedEntries<UInt16> = [:]

    static let all = [
        SimulatedNeighbour(name: "Kitchen Thermometer", services: ["1809", "180F"]),
        SimulatedNeighbour(name: "Bike Cadence", services: ["1816"]),
        SimulatedNeighbour(name: nil, manufacturerData: [0xFFFF: [0x02, 0x15]]),
        SimulatedNeighbour(name: "Bathroom Scale", services: ["181D"]),
        SimulatedNeighbour(name: "Keyboard", services: ["1812", "180F"]),
        SimulatedNeighbour(name: "Weather Station", services: ["181A"]),
    ]

    func peripheral(number: Int) -> VirtualPeripheral {
        VirtualPeripheral(
            "F0:AA:00:00:00:0\(number)",
            VirtualAdvertisement(
                localName: name, serviceUUIDs: services, manufacturerData: manufacturerData,
                isConnectable: name != nil),
            interval: .milliseconds(500))
    }
}
