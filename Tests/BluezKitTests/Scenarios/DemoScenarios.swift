import BluezKit
import Foundation
import Testing

/// The programs of the demo at both ends, each on an adapter of its own. In the simulator and in the rig.
extension Scenarios {
    @Suite struct DemoScenarios {
        /// The words that run the demo in a world.
        private func demo(_ world: any World, _ words: [String]) -> [String] {
            let program = URL(fileURLWithPath: Probe.path).deletingLastPathComponent().path + "/bluez-demo"
            let bus = world.managerOptions[BluezManagerOptionBusAddressKey] as? String
            return ["/usr/bin/env"] + (bus.map { ["DBUS_SYSTEM_BUS_ADDRESS=\($0)"] } ?? []) + [program] + words
        }

        private func worldWithTwoAdapters() async throws -> any World {
            let world = try await Worlds.make()
            try await world.control("rig adapters 2")
            // The other sensor of this world is found as well.
            try await world.control("heart advertise off")
            // BlueZ does not look at what a device advertises once it has seen its table, which was another one then.
            try await world.forget("00:B1:5E:00:00:01", on: "hci1")
            return world
        }

        // Not yet 100,000 bytes in the rig: on a busy machine the link or the subscription ends before all has arrived.
        @Test(
            "a card arrives byte for byte, of any size",
            arguments: [0, 1, 19, 20, 21, 512, 513] + (Worlds.isRig ? [] : [100_000]))
        func exchangesCards(_ size: Int) async throws {
            let world = try await worldWithTwoAdapters()
            let folder = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
            try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
            defer { try? FileManager.default.removeItem(at: folder) }
            let (sent, received) = (folder.appendingPathComponent("a.vcf"), folder.appendingPathComponent("b.vcf"))
            let card = Data((0..<size).map { _ in UInt8.random(in: 0 ... .max) })
            try card.write(to: sent)
            let share = demo(world, ["card", "share", sent.path, "--count", "1", "--adapter", "hci0", "--json"])
            let receive = demo(
                world,
                ["card", "receive", "--output", received.path, "--min-rssi", "-127", "--adapter", "hci1", "--json"]
                    + ["--timeout", String(4 * world_deadline)])
            async let sharing = run(share)
            #expect(try await run(receive) == 0)
            #expect(try Data(contentsOf: received) == card)
            #expect(try await sharing == 0)
        }

        @Test("a virtual heart-rate sensor is found and understood")
        func measures() async throws {
            let world = try await worldWithTwoAdapters()
            let sensor = try spawn(
                demo(world, ["peripheral", "heart-rate", "--rate", "100", "--adapter", "hci0", "--json"]))
            defer { kill(sensor, SIGKILL) }
            let status = try await run(
                demo(
                    world,
                    ["heart-rate", "--count", "3", "--timeout", String(4 * world_deadline), "--adapter", "hci1"]
                        + ["--json"]))
            #expect(status == 0)
            kill(sensor, SIGINT)
            let ended = await withCheckedContinuation { continuation in
                Thread.detachNewThread {
                    var status: Int32 = 0
                    waitpid(sensor, &status, 0)
                    continuation.resume(returning: status)
                }
            }
            #expect(ended == 130 << 8)  // Ctrl-C
        }
    }
}
