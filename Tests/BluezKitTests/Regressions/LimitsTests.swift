import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit
@testable import BluezKitRestore

// Docs/LIMITS.md names every limit and what happens at it. These are the ones that no other suite shows.
@Suite("Limits") struct LimitsTests {
    @Test("300 managers in one process: all are told that Bluetooth is on, by one connection to the bus")
    func managers() async throws {
        let world = try await SimulatedWorld()
        let centrals = (0..<300).map { _ in Central(world) }
        for central in centrals { try await central.powerOn() }
        #expect(Set(centrals.map { ObjectIdentifier($0.manager.core.session) }).count == 1)
    }

    @Test("of UUIDs that devices invent, 4,096 are remembered; the others are understood all the same")
    func inventedUUIDs() {
        var pool = UUIDPool()
        for number in 0..<10_000 {
            let text = "\(String(0x1000_0000 + number, radix: 16))-dead-beef-dead-beefdeadbeef"
            #expect(text.withCString { pool[$0] } == CBUUID(string: text))
        }
        #expect(pool.count == UUIDPool.limit)
    }

    @Test("a state file of more than 16 MiB is refused by its length, and so is a path's element of 65 characters")
    func stateFiles() throws {
        let bytes = Snapshot.maximumBytes + 1
        #expect(throws: Snapshot.FileError.tooLarge(bytes: bytes)) {
            try Snapshot(fileContent: Data(repeating: UInt8(ascii: " "), count: bytes))
        }
        #expect(PathElement(String(repeating: "a", count: 64)) != nil)
        #expect(PathElement(String(repeating: "a", count: 65)) == nil)
    }
}
