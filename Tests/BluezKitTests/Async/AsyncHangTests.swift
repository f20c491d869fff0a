import BluezKitSimulator
import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

/// While bluetoothd hangs, a cancelled task returns at once, whatever it and other tasks have asked of it.
@Suite struct AsyncHangTests {
    private func found(_ world: SimulatedWorld) async throws -> (CentralManager, CoreBluetoothAsync.Peripheral) {
        let central = CentralManager(options: world.managerOptions)
        return (central, try await Scenarios.AsyncCentralScenarios.find("Rig Sink", sinkUUID(1), central))
    }

    @Test("a cancelled removeBond returns although bluetoothd does not answer")
    func removesBond() async throws {
        let world = try await SimulatedWorld(.calm)
        let (central, sink) = try await found(world)
        world.simulator.hangDaemon()
        defer { world.simulator.continueDaemon() }
        let removal = Task { try await central.removeBond(with: sink) }
        for _ in 0..<10 {
            await Task.yield()
            _ = await central.retrievePeripherals(withIdentifiers: [])
        }
        removal.cancel()
        // BlueZ's own time limit is twenty seconds.
        await #expect(throws: CancellationError.self) { try await within(10) { try await removal.value } }
    }

    enum Question: CaseIterable { case connected, bonded }

    @Test(
        "a question about all devices, which bluetoothd does not answer, holds nothing back",
        arguments: Question.allCases)
    func retrieves(_ question: Question) async throws {
        // It gives up after two seconds, for which a machine may stand still: not each time.
        var order: [String] = []
        for _ in 0..<3 where order != ["cancelled"] { order = try await cancels(beside: question) }
        #expect(order == ["cancelled"])
    }

    /// - Returns: What had ended when a connect was cancelled, in order.
    private func cancels(beside question: Question) async throws -> [String] {
        let world = try await SimulatedWorld(.calm)
        let (central, sink) = try await found(world)
        world.sink.vanish()
        let pending = Task { try await central.connect(sink) }
        try await eventually("it connects") { sink.state == .connecting }
        world.simulator.hangDaemon()
        defer { world.simulator.continueDaemon() }
        let log = EventLog<String>()
        let asking = Task {
            switch question {
            case .connected: _ = await central.retrieveConnectedPeripherals(withServices: [sinkUUID(1)])
            case .bonded: _ = await central.retrieveBondedPeripherals()
            }
            log.append("answered")
        }
        for _ in 0..<100 { await Task.yield() }  // it has asked, most probably
        pending.cancel()
        _ = await pending.result
        log.append("cancelled")
        let order = log.all
        asking.cancel()
        try await within(10) { await asking.value }
        return order
    }
}
