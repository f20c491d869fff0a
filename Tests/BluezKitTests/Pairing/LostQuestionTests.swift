import BluezKitSimulator
import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

// When the bus was lost, BlueZ's question was forgotten before the links ended, which would have told of it: the app
// heard of the new state alone, and its dialog stayed. Now it hears first that the question has ended.
@Suite struct LostQuestionTests {
    @Test("CN-14 D10 the bus is lost while the app is asked: it hears that the question has ended, then of the state")
    func closesDialog() async throws {
        let world = try await SimulatedWorld()
        let told = EventLog<String>()
        let central = Central(world) { _, event in
            if case .state(.resetting) = event { told.append("resetting") }
        }
        try await central.powerOn()
        try await world.control("sink pairing justworks")
        var pairing = BluezPairing()
        pairing.consent = { _, _ in told.append("asked") }
        pairing.ended = { _ in told.append("ended") }
        central.manager.pairing = pairing
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        let secret = try await central.characteristic(sinkUUID(0x16), of: sinkUUID(1), on: sink)
        sink.readValue(for: secret)
        try await told.next("question") { $0 == "asked" ? true : nil }
        try await Peer.named(world.simulator.busAddress).killBus()
        try await told.next("resetting") { $0 == "resetting" ? true : nil }
        #expect(told.all == ["asked", "ended", "resetting"])
    }

    @Test("CN-14 D10 the bus is lost while a handler of an async app is asked: its task is cancelled")
    func cancelsHandler() async throws {
        let world = try await SimulatedWorld()
        let central = CentralManager(options: world.managerOptions)
        try await world.control("sink pairing justworks")
        let told = EventLog<String>()
        var pairing = Pairing()
        pairing.consent = { _ in
            told.append("asked")
            try? await Task.sleep(for: .seconds(2 * world_deadline))
            told.append(Task.isCancelled ? "ended" : "still there")
            return false
        }
        central.pairing = pairing
        let sink = try await Scenarios.AsyncCentralScenarios.find("Rig Sink", sinkUUID(1), central)
        try await within { try await central.connect(sink) }
        let secret = try await within { try await sink.discoverCharacteristic(sinkUUID(0x16), in: sinkUUID(1)) }
        let reading = Task { try await sink.readValue(for: secret) }
        try await told.next("question") { $0 == "asked" ? true : nil }
        try await Peer.named(world.simulator.busAddress).killBus()
        #expect(try await told.next("the end") { $0 } == "ended")
        await #expect(throws: (any Error).self) { try await within { try await reading.value } }
    }
}
