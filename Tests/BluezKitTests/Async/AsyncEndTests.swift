import BluezKitSimulator
import CoreBluetooth
@testable import CoreBluetoothAsync
import Foundation
import Testing

/// What has ended is not there for others: a request that was answered, the connection of a manager that is released.
@Suite struct AsyncEndTests {
    @Test("a request that one consumer has answered is not given to another when a third one ends")
    func answered() async throws {
        let world = try await SimulatedWorld(.calm)
        let manager = PeripheralManager(options: world.managerOptions)
        let characteristic = try await within {
            try await manager.startAdvertising()
            return try await manager.add(localService(0x100, [local(0x110, .write)])).characteristics[0]
        }
        try await world.connect()
        func answering(_ requests: EventSequence<ATTRequest, Never>) -> (EventLog<Bool>, Task<Void, Never>) {
            let log = EventLog<Bool>()
            return (
                log,
                Task {
                    for await request in requests {
                        log.append(true)
                        request.respond()
                    }
                }
            )
        }
        func write() async throws {
            _ = try await world.control("central write \(characteristic.uuid.line) 07")
        }
        var idle: EventSequence<ATTRequest, Never>? = manager.requests
        let (first, task) = answering(manager.requests)
        try await write()
        try await first.next("the request") { $0 }
        task.cancel()
        await task.value
        withExtendedLifetime(idle) {}
        idle = nil
        _ = await manager.isAdvertising  // that is known now
        let (second, other) = answering(manager.requests)
        try await write()
        try await second.next("the next request") { $0 }
        #expect(second.all.count == 1)
        other.cancel()
    }

    // It ended with the answer to what was asked before it was there: here a subscription, on Apple's systems the end
    // of one as well.
    @Test(
        "a consumer of values that comes while the subscription of the one before it fails is subscribed, or gets the error",
        arguments: [false, true])
    func comesAfterFailure(isRefusedForGood: Bool) async throws {
        let world = try await SimulatedWorld(.calm)
        let central = CentralManager(options: world.managerOptions)
        let sink = try await Scenarios.AsyncCentralScenarios.find("Rig Sink", sinkUUID(1), central)
        try await within { try await central.connect(sink) }
        let characteristic = try await within {
            try await sink.discoverCharacteristic(sinkUUID(0x13), in: sinkUUID(1))
        }
        for member in ["AcquireNotify", "StartNotify"] {
            world.simulator.inject(
                SimulatorFault(
                    member, times: isRefusedForGood ? nil : 1, .fail(name: "org.bluez.Error.Failed", message: "no")))
        }
        world.simulator.hangDaemon()
        var first: EventSequence<Data, any Error>? = sink.values(for: characteristic)
        _ = await sink.isNotifying(characteristic)  // BlueZ is asked now
        withExtendedLifetime(first) {}
        first = nil
        _ = await sink.isNotifying(characteristic)
        let second = sink.values(for: characteristic)
        _ = await sink.isNotifying(characteristic)
        world.simulator.continueDaemon()
        guard !isRefusedForGood else {
            let error = await thrown { try await within { for try await _ in second {} } }
            #expect(error is CBATTError || error is CBError)
            #expect(world.simulator.calls("StartNotify").count <= 3)
            return
        }
        try await eventually("the second is subscribed") { await sink.isNotifying(characteristic) }
        #expect(world.simulator.calls("StartNotify").count + world.simulator.calls("AcquireNotify").count > 1)
        try await world.control("sink notify 0013 07")
        #expect(try await within { try await second.first { _ in true } } == Data([7]))
    }

    // BlueZ's own time limit is half a minute.
    @Test("removeBond ends when Bluetooth goes off, although bluetoothd has not answered it")
    func removesBond() async throws {
        let world = try await SimulatedWorld(.calm)
        let central = CentralManager(options: world.managerOptions)
        let heart = try await Scenarios.AsyncCentralScenarios.find("Rig Heart", CBUUID(string: "180D"), central)
        world.simulator.inject(SimulatorFault("RemoveDevice", .ignore))
        let removal = Task { try await central.removeBond(with: heart) }
        _ = await world.simulator.waitForCalls("RemoveDevice")
        try await world.control("rig power off")
        let error = await thrown { try await within(10) { try await removal.value } } as? BluetoothError
        #expect(error == .unavailable(.poweredOff))
    }

    @Test("a peripheral is disconnected when its manager is released")
    func released() async throws {
        let world = try await SimulatedWorld(.calm)
        var central: CentralManager? = CentralManager(options: world.managerOptions)
        let ended = try #require(central).states
        let heart = try await Scenarios.AsyncCentralScenarios.find(
            "Rig Heart", CBUUID(string: "180D"), #require(central))
        try await within { [central] in try await central?.connect(heart) }
        #expect(heart.state == .connected)
        central = nil
        try await within { for await _ in ended {} }
        #expect(heart.state == .disconnected)
    }

    @Test("a retrieval during which bluetoothd ends finds nothing, and what is found after it connects")
    func retrieves() async throws {
        let world = try await SimulatedWorld(.calm)
        let central = CentralManager(options: world.managerOptions)
        let identifier = try await Scenarios.AsyncCentralScenarios.find("Rig Sink", sinkUUID(1), central).identifier
        let (found, mayReturn) = (EventLog<Bool>(), DispatchSemaphore(value: 0))
        let retrieval = Task {
            await central.core.retrieveFromSystem { manager in
                let peripherals = manager.retrievePeripherals(withIdentifiers: [identifier])
                found.append(!peripherals.isEmpty)
                mayReturn.wait()
                return peripherals
            }
        }
        defer { mayReturn.signal() }
        try await found.next("the peripheral") { $0 }
        try await world.simulator.restartDaemon()
        let retrieved = try await within { await retrieval.value }
        #expect(retrieved.isEmpty)
        mayReturn.signal()
        try await eventually("Bluetooth is on again") { central.state == .poweredOn }
        let sink = try await Scenarios.AsyncCentralScenarios.find("Rig Sink", sinkUUID(1), central)
        try await within { try await central.connect(sink) }
    }
}
