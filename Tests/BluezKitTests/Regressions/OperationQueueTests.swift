import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

// What is answered from the table, and a write without response that the socket takes, is over at once and began the next
// operation from inside itself: 700 of them behind one slow read overflowed the bus thread's stack. Now the next one
// begins when the one before has returned.
@Suite struct OperationQueueTests {
    @Test("RW-1 5,000 operations of each kind that wait behind a slow one are all answered, in order")
    func thousands() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        let command = try await central.characteristic(sinkUUID(0x12), of: sinkUUID(1), on: sink)
        let readable = try await central.characteristic(sinkUUID(0x10), of: sinkUUID(1), on: sink)
        let service = try #require(command.service)
        for kind in 0..<4 {
            // The daemon stands still, and so does the read: everything else gathers behind it.
            world.simulator.hangDaemon()
            await central.perform {
                sink.readValue(for: readable)
                for _ in 0..<5000 {
                    switch kind {
                    case 0: sink.discoverServices(nil)
                    case 1: sink.discoverCharacteristics(nil, for: service)
                    case 2: sink.discoverDescriptors(for: command)
                    default: sink.writeValue(Data([1]), for: command, type: .withoutResponse)
                    }
                }
            }
            world.simulator.continueDaemon()
            try await central.next("value") { if case .value(readable, _, nil) = $0 { true } else { nil } }
            for _ in 0..<(kind < 3 ? 5000 : 0) {
                try await central.next("answer") { event in
                    switch event {
                    case .services(_, nil), .characteristics(_, nil), .descriptors(_, nil): true
                    default: nil
                    }
                }
            }
            try await central.settle(sink)
            central.forgetRecords()
        }
        #expect(sink.state == .connected)
    }
}
