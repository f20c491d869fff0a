import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

/// Faults with a plan, and what can be asked of a peripheral meanwhile.
@Suite("Simulator: faults with a plan") struct FaultPlanTests {
    @Test("a plan is printed in the order of time, as it was written")
    func printed() {
        let plan = FaultPlan(
            seed: 7,
            [
                .hangDaemon(at: .seconds(8), for: .seconds(10)), .failReads(0.05),
                .vanish(at: .seconds(3), for: .milliseconds(250)), .rssi(from: -50, to: -90, over: .seconds(20)),
                .powerOff(at: .seconds(30), adapter: 1), .failWrites(0.125, with: .unlikely, at: .seconds(1)),
            ])
        #expect(
            "\(plan)" == """
                faults, seed 7
                  at 0 s: 5 % of reads fail with 0x0e
                  at 0 s: the RSSI walks from -50 to -90 dBm for 20 s
                  at 1 s: 12.5 % of writes fail with 0x0e
                  at 3 s: the peripheral vanishes for 0.25 s
                  at 8 s: bluetoothd hangs for 10 s
                  at 30 s: hci1 is switched off
                """)
    }

    @Test("a plan made by chance is the same for the same seed, and lies within its time")
    func random() {
        let plans = (0..<50).map { FaultPlan.random(seed: $0, over: .seconds(10), count: 20) }
        #expect(plans == (0..<50).map { FaultPlan.random(seed: $0, over: .seconds(10), count: 20) })
        #expect(Set(plans).count == 50)
        #expect(plans.allSatisfy { $0.steps.count == 20 })
    }

    /// A connected sensor whose one value is read and written.
    private func connected(
        options: [String: Any] = [:]
    ) async throws -> (SimulatedWorld, VirtualPeripheral, Central, CBCharacteristic) {
        let world = try await SimulatedWorld(.calm)
        let device = world.simulator.add(
            VirtualPeripheral(
                "F0:00:00:00:00:01", VirtualAdvertisement(localName: "Lamp", serviceUUIDs: ["1815"]),
                services: [
                    VirtualService(
                        "1815",
                        [VirtualCharacteristic("2A56", [.read, .write, .writeWithoutResponse, .notify], value: [1])])
                ]))
        let central = Central(world, options: options)
        try await central.powerOn()
        let lamp = try await central.find("Lamp")
        try await central.connect(lamp)
        let value = try await central.characteristic(CBUUID(string: "2A56"), of: CBUUID(string: "1815"), on: lamp)
        return (world, device, central, value)
    }

    private func failures(seed: UInt64) async throws -> [Int] {
        let (world, device, central, value) = try await connected()
        let run = world.simulator.run(FaultPlan(seed: seed, [.failReads(0.2, with: ATTFailure(0x80))]), on: device)
        await run.waitForEnd()
        var failed: [Int] = []
        for number in 0..<100 {
            if case .failure(let error) = try await central.read(value) {
                #expect((error as? CBATTError)?.errorCode == 0x80)
                failed.append(number)
            }
        }
        #expect(run.events.count == 1 + failed.count)
        #expect(run.events.last == "read of 2a56 failed")
        run.stop()
        for _ in 0..<20 { _ = try await central.read(value).get() }
        return failed
    }

    @Test("a part of the reads fails, the same ones for the same seed, until the run is stopped")
    func failedReads() async throws {
        let first = try await failures(seed: 7)
        #expect((5...40).contains(first.count), "\(first)")
        #expect(try await failures(seed: 7) == first)
        #expect(try await failures(seed: 8) != first)
    }

    @Test("writes fail without effect; those that succeed are listed, and come as a sequence")
    func failedWrites() async throws {
        let (world, device, central, value) = try await connected()
        let written = device.values(writtenTo: "2A56")
        let run = world.simulator.run(FaultPlan([.failWrites(1)]), on: device)
        await run.waitForEnd()
        #expect(try await central.write(Data([9]), to: value) != nil)
        #expect(device.writes.isEmpty && device.value(of: "2A56") == [1])
        run.stop()
        #expect(try await central.write(Data([8]), to: value) == nil)
        #expect(device.writes.map(\.value) == [[8]] && device.writes.map(\.uuid) == ["2a56"])
        #expect(device.writes.map(\.isAnswered) == [true])
        #expect(try await within { await written.first { _ in true } } == [8])
    }

    @Test("a peripheral tells who is connected, and subscribed to what")
    func connections() async throws {
        let (_, device, central, value) = try await connected()
        #expect(try await central.setNotify(true, value) == nil)
        let connection = try #require(device.connections.first)
        #expect((connection.central, connection.adapter) == ("00:B1:5E:00:00:01", 0))
        #expect((connection.mtu, connection.isEncrypted) == (517, false))
        #expect(connection.subscriptions == ["2a56"])
        device.disconnect()
        #expect(device.connections.isEmpty)
    }

    @Test("it vanishes and comes back when the plan says so, and the strength walks to its end")
    func vanishes() async throws {
        let (world, device, central, value) = try await connected()
        let lamp = try #require(value.service?.peripheral)
        let plan = FaultPlan([
            .vanish(at: .milliseconds(20), for: .seconds(1)),
            .rssi(from: -50, to: -90, over: .milliseconds(80)),
        ])
        let run = world.simulator.run(plan, on: device)
        try await central.next("the loss") { if case .disconnected = $0 { true } else { nil } }
        try await within { await run.waitForEnd() }
        #expect(device.rssi == -90)
        try await central.connect(lamp)
        #expect(
            run.events == [
                "at 0 s: the RSSI walks from -50 to -90 dBm for 0.08 s",
                "at 0.02 s: the peripheral vanishes for 1 s",
                "at 1.02 s: no longer: the peripheral vanishes",
            ])
    }

    @Test("a fault of two steps that overlap lasts until the second one has ended")
    func overlapping() async throws {
        let clock = SimulatorClock()
        let simulator = try await Simulator(clock: clock)
        let heart = simulator.add(.heartRateSensor())
        simulator.run(
            FaultPlan([
                .refuseLinks(at: .zero, for: .seconds(3)), .refuseLinks(at: .seconds(1), for: .seconds(10)),
            ]), on: heart)
        await clock.advance(by: .seconds(6))
        #expect(heart.refusesLinks)
        await clock.advance(by: .seconds(6))
        #expect(!heart.refusesLinks)
    }

    @Test("reads do not fail any more when the last of two equal steps has ended, in whatever order they end")
    func overlappingReads() async throws {
        let clock = SimulatorClock()
        let simulator = try await Simulator(clock: clock)
        let heart = simulator.add(.heartRateSensor())
        simulator.run(
            FaultPlan([.failReads(1, at: .zero, for: .seconds(9)), .failReads(1, at: .seconds(1), for: .seconds(2))]),
            on: heart)
        let central = simulator.central()
        try await central.connect(to: heart.address)
        await #expect(throws: ATTFailure.unlikely) { try await central.read("2A38") }
        await clock.advance(by: .seconds(10))
        #expect(try await central.read("2A38") == [1])
    }

    @Test("what a stopped run has begun is undone: the peripheral comes back, and bluetoothd answers")
    func stopped() async throws {
        let (world, device, central, value) = try await connected()
        let run = world.simulator.run(
            FaultPlan([.hangDaemon(at: .zero, for: .seconds(3600)), .refuseLinks(), .vanish(at: .seconds(3600))]),
            on: device)
        try await eventually("it hangs") { run.events.count == 2 }
        #expect(device.refusesLinks)
        run.stop()
        try await within { await run.waitForEnd() }
        #expect(!device.refusesLinks)
        #expect(try await central.read(value).get() == Data([1]))
    }

    // Values of a notification socket came nevertheless.
    @Test(
        "while bluetoothd hangs the world continues, and it signals that afterwards, in order",
        arguments: [false, true]
    )
    func hangs(bySocket: Bool) async throws {
        let (world, device, central, value) = try await connected(
            options: [BluezManagerOptionNotificationSocketsKey: bySocket])
        #expect(try await central.setNotify(true, value) == nil)
        world.simulator.hangDaemon()
        for number in 1...5 { #expect(device.notify("2A56", [UInt8(number)])) }
        #expect(world.simulator.isDaemonRunning)
        device.disconnect()
        #expect(central.count { if case .value = $0 { true } else { false } } == 0)
        world.simulator.continueDaemon()
        try await central.next("the loss") { if case .disconnected = $0 { true } else { nil } }
        let values = central.events.compactMap { if case .value(_, let value, nil) = $0 { value } else { nil } }
        #expect(values == (1...5).map { Data([UInt8($0)]) })
    }

    // They came nevertheless: the simulator read the socket on which they are.
    @Test("while bluetoothd hangs writes without response wait for it; if it is killed then, they are lost")
    func hangingWrites() async throws {
        let (world, device, central, value) = try await connected()
        let lamp = try #require(value.service?.peripheral)
        func write(_ number: UInt8) { lamp.writeValue(Data([number]), for: value, type: .withoutResponse) }
        func waitForWrites(_ count: Int) async throws {
            try await eventually("\(count) writes") { device.writes.count == count }
        }
        write(0)
        try await waitForWrites(1)
        world.simulator.hangDaemon()
        for number in UInt8(1)...50 { write(number) }
        for _ in 0..<100 { #expect(world.simulator.isDaemonRunning) }  // on its queue, which has its turn so
        #expect(device.writes.count == 1)
        world.simulator.continueDaemon()
        try await waitForWrites(51)
        #expect(device.writes.map(\.value) == (UInt8(0)...50).map { [$0] })

        world.simulator.hangDaemon()
        write(51)
        world.simulator.killDaemon()
        try await central.next("the reset") { if case .state(.resetting) = $0 { true } else { nil } }
        #expect(device.writes.count == 51)
    }
}
