import Foundation
import Testing

@testable import BluezKit

@Suite struct DeviceIdentityTests {
    @Test("ID-1 ID-2 the identifier holds address and type, and is an RFC 9562 version-8 UUID")
    func roundTrip() throws {
        for (address, isRandom) in [(0xF0F1_F200_0001, true), (0, false), (0xFFFF_FFFF_FFFF, false), (1, true)] {
            let identity = DeviceIdentity(address: UInt64(address), isRandom: isRandom)
            let identifier = identity.identifier
            #expect(identifier.uuid.6 >> 4 == 8 && identifier.uuid.8 >> 6 == 0b10)
            #expect(DeviceIdentity(identifier: identifier) == identity)
        }
    }

    @Test("RT-1 identifiers that BluezKit did not make are unknown")
    func foreign() {
        for _ in 0..<1000 { #expect(DeviceIdentity(identifier: UUID()) == nil) }
    }

    @Test("a device address is written as BlueZ writes it")
    func text() {
        let identity = DeviceIdentity(address: "F0:F1:F2:00:00:0a", isRandom: true)
        #expect(identity?.addressText == "F0:F1:F2:00:00:0A")
        #expect(identity?.pathElement == "dev_F0_F1_F2_00_00_0A")
        for bad in ["", "F0", "F0:F1:F2:00:00:0", "F0:F1:F2:00:00:0A:", "F0-F1-F2-00-00-0A", "G0:F1:F2:00:00:0A"] {
            #expect(DeviceIdentity(address: bad, isRandom: true) == nil)
        }
    }
}
