import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

// Operations that are answered from the table, and writes without response that the socket accepts, finish at once and
// started the next operation recursively: 700 of them behind one slow read overflowed the bus thread's stack. Now the
// next one starts when the previous one has returned.
@Suite struct OperationQueueTests {
    @Test("RW-1 thousands of operations of each kind that wait behind a slow one are all answered, in order")
    func thousands() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        let command = try await central.characteristic(sinkUUID(0x12), of: sinkUUID(1), on: sink)
        let readable = try await central.characteristic(sinkUUID(0x10), of: sinkUUID(1), on: sink)
        let service = try #require(command.service)
        let count = max(1000, thorough(5000))
        for kind in 0..<4 {
            // The daemon is stopped, and so is the read: everything else queues up behind it.
            world.simulator.hangDaemon()
            await central.perform {
                sink.readValue(for: readable)
                for _ in 0..<count {
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
            for _ in 0..<(kind < 3 ? count : 0) {
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
