import BluezKitRestore
import Foundation
import Testing

@testable import BluezKit

@Suite struct ScanTests {
    private let heart = CBUUID(string: "180D")
    private let battery = CBUUID(string: "180F")

    private func scan(
        _ services: Set<CBUUID>? = nil, solicited: Set<CBUUID> = [], duplicates: Bool = false
    ) -> Scan {
        Scan(
            ScanRequest(
                services: services.map { Array($0) }, solicitedServices: Array(solicited), allowsDuplicates: duplicates),
            token: 1)
    }

    private func device(
        _ number: Int = 1, _ services: [CBUUID] = [], solicited: [CBUUID] = [], name: String? = nil
    ) -> Device {
        var properties = DeviceProperties()
        (properties.services, properties.solicitedServices, properties.name) = (services, solicited, name)
        return DetachedCentral.device(number, properties)
    }

    @Test("SC-6 a device is reported once, and again with each new kind of information, but not when one is gone")
    func newKinds() {
        var scan = scan()
        #expect(scan.reportedKinds(of: DetachedCentral.identity(1)) == nil && scan.reportedCount == 0)
        #expect(scan.admit(device()) == true)
        #expect(scan.admit(device()) == false)
        #expect(scan.admit(device(name: "Heart")) == true)
        #expect(scan.admit(device()) == false)
        #expect(scan.admit(device(1, [heart])) == true)
        #expect(scan.admit(device(1, [battery], name: "Other")) == false, "new content of a known kind")
        #expect(scan.reportedKinds(of: DetachedCentral.identity(1)) == [.name, .services])
        #expect(scan.admit(device(2)) == true)
        #expect(scan.reportedCount == 2)
    }

    @Test("SC-6 with duplicates every advertisement is reported, and its kinds are noted")
    func duplicates() {
        var scan = scan(duplicates: true)
        for _ in 0..<3 { #expect(scan.admit(device(name: "Heart")) == true) }
        #expect(scan.reportedKinds(of: DetachedCentral.identity(1)) == .name && scan.reportedCount == 1)
    }

    @Test("SC-3 a filter takes any of its services, advertised or solicited, with duplicates too")
    func filters() {
        for duplicates in [false, true] {
            let filtered = scan([heart], solicited: [battery], duplicates: duplicates)
            func accepts(_ device: Device) -> Bool {
                var scan = filtered
                return scan.admit(device)
            }
            #expect(accepts(device(1, [battery, heart])) && accepts(device(1, solicited: [heart, battery])))
            #expect(!accepts(device()) && !accepts(device(1, [battery])) && !accepts(device(1, solicited: [heart])))
            var scan = filtered
            _ = scan.admit(device(1, [battery]))
            #expect(scan.reportedCount == 0, "what is left out is not noted")
            #expect(scan.admit(device(1, [heart])) == true)
        }
        var all = scan(nil, solicited: [battery])
        #expect(all.admit(device()) == true, "without a filter for services everything is found")
        var none = scan([])
        #expect(none.admit(device(1, [heart])) == false)
    }

    @Test("BlueZ is asked for the services, unless solicited ones are wanted, which it knows nothing of")
    func bluezFilter() {
        let long = "0000180d-0000-1000-8000-00805f9b34fb"
        #expect(scan().filter == .init(services: nil, wantsDuplicates: false))
        #expect(scan([heart]).filter == .init(services: [long], wantsDuplicates: false))
        #expect(scan([heart], duplicates: true).filter == .init(services: [long], wantsDuplicates: true))
        #expect(scan([heart], solicited: [battery]).filter == .init(services: nil, wantsDuplicates: false))
        #expect(scan([]).filter == .init(services: [], wantsDuplicates: false))
    }
}
