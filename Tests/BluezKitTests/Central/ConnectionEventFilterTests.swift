import Foundation
import Testing

@testable import BluezKit

@Suite struct ConnectionEventFilterTests {
    private let heart = CBUUID(string: "180D")
    private let battery = CBUUID(string: "180F")
    private let one = DetachedCentral.identity(1)
    private let two = DetachedCentral.identity(2)

    @Test("CE-1 a peer matches by its identifier, or by any of its services")
    func matches() {
        let filter = ConnectionEventFilter([
            .serviceUUIDs: [heart, CBUUID(string: "180A")], .peripheralUUIDs: [one.identifier],
        ])
        #expect(filter.matches(one, []) && filter.matches(one, [battery]))
        #expect(filter.matches(two, [battery, heart]))
        #expect(filter.matches(two, [CBUUID(string: "0000180D-0000-1000-8000-00805F9B34FB")]), "the same in long")
        #expect(!filter.matches(two, []) && !filter.matches(two, [battery]))
    }

    @Test("a filter by services alone matches no identifier, and one by identifiers alone no services")
    func oneOption() {
        let services = ConnectionEventFilter([.serviceUUIDs: [heart]])
        #expect(services.matches(one, [heart]) && !services.matches(one, []))
        let peers = ConnectionEventFilter([.peripheralUUIDs: [one.identifier]])
        #expect(peers.matches(one, []) && !peers.matches(two, [heart]))
    }

    @Test("options that are empty or of a wrong type match nothing")
    func nothing() {
        for options: [CBConnectionEventMatchingOption: Any] in [
            [:], [.serviceUUIDs: [CBUUID](), .peripheralUUIDs: [UUID]()],
            [.serviceUUIDs: ["180D"], .peripheralUUIDs: [one.identifier.uuidString]],
            [.serviceUUIDs: heart, .peripheralUUIDs: one.identifier],
        ] {
            let filter = ConnectionEventFilter(options)
            #expect(filter.services.isEmpty && filter.identifiers.isEmpty)
            #expect(!filter.matches(one, [heart]))
        }
    }
}
