import Testing

@testable import BluezKit

@Suite struct AdvertisedServicesTests {
    private let services = [CBUUID(string: "180D"), CBUUID(string: "180F")]

    private func device(_ number: Int, _ services: [CBUUID] = [], isRandom: Bool = true) -> Device {
        var properties = DeviceProperties()
        properties.services = services
        return DetachedCentral.device(0x0A00_0000 + number, isRandom: isRandom, properties)
    }

    private func recalled(_ device: Device) -> [CBUUID] {
        AdvertisedServices.recall(device)
        return device.properties.services
    }

    @Test("a device's advertised services are remembered by its identity, not by its object")
    func remembers() {
        AdvertisedServices.record(device(1, services))
        #expect(recalled(device(1)) == services)
        #expect(recalled(device(2)) == [])
        #expect(recalled(device(1, isRandom: false)) == [], "another address of the same digits")
    }

    @Test("services that BlueZ lists replace remembered ones, and a device without a list replaces nothing")
    func newest() {
        let other = [CBUUID(string: "180A")]
        AdvertisedServices.record(device(3, services))
        #expect(recalled(device(3, other)) == other)
        AdvertisedServices.record(device(3))
        #expect(recalled(device(3)) == services)
        AdvertisedServices.record(device(3, other))
        #expect(recalled(device(3)) == other)
    }

    @Test("the memory of advertised services has a limit")
    func limit() {
        AdvertisedServices.record(device(4, services))
        for number in 100..<1100 { AdvertisedServices.record(device(number, services)) }
        #expect(recalled(device(4)) == [])
        #expect(recalled(device(1099)) == services)
    }
}
