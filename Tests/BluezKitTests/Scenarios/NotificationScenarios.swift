import CoreBluetooth
import Foundation
import Testing

/// Notifications, indications and changes of the table. In the simulator and against the real bluetoothd.
extension Scenarios {
    @Suite struct NotificationScenarios {
        /// - Parameter bySocket: Whether notifications are to come by BlueZ's socket; nil: as BluezKit decides.
        private func connectedSink(bySocket: Bool? = nil) async throws -> (any World, Central, CBPeripheral) {
            let world = try await Worlds.make()
            let central = Central(world, options: Self.options(bySocket))
            try await central.powerOn()
            let sink = try await central.find("Rig Sink", services: [sinkUUID(1)])
            try await central.connect(sink)
            return (world, central, sink)
        }

        private static func options(_ bySocket: Bool?) -> [String: Any] {
            bySocket.map { [BluezManagerOptionNotificationSocketsKey: $0] } ?? [:]
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "NT-1 NT-4 O-23 D6 a notification arrives after the confirmation; none after the confirmation of the end",
            arguments: [false, true])
        func notifies(bySocket: Bool) async throws {
            let (world, central, sink) = try await connectedSink(bySocket: bySocket)
            let characteristic = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
            #expect(try await central.setNotify(true, characteristic) == nil)
            #expect(characteristic.isNotifying)
            try await world.control("sink notify 0013 0102")
            let value = try await central.next("notification") {
                if case .value(characteristic, let value, nil) = $0 { value } else { nil }
            }
            #expect(value == Data([1, 2]))
            // NT-6
            #expect(try await central.setNotify(true, characteristic) == nil)
            #expect(try await central.setNotify(false, characteristic) == nil)
            #expect(!characteristic.isNotifying)
            let before = central.records.count
            try await world.control("sink notify 0013 0304")
            try await central.settle(sink)
            #expect(central.records.count == before + 1)
            try await central.disconnect(sink)
        }

        @Test("NT-2 indications are confirmed by the system, and arrive like notifications")
        func indicates() async throws {
            let (world, central, sink) = try await connectedSink()
            let characteristic = try await central.characteristic(sinkUUID(0x14), of: sinkUUID(1), on: sink)
            #expect(try await central.setNotify(true, characteristic) == nil)
            for n in 1...5 {
                try await world.control("sink indicate 0014 0\(n)")  // answers when it is confirmed
                let value = try await central.next("indication") {
                    if case .value(characteristic, let value, nil) = $0 { value } else { nil }
                }
                #expect(value == Data([UInt8(n)]))
            }
            try await central.disconnect(sink)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "O-22 O-24 NT-4 DL-4 D6 1,000 notifications in order, none merged or duplicated, each with its own value",
            arguments: [false, true])
        func thousand(bySocket: Bool) async throws {
            let (world, central, sink) = try await connectedSink(bySocket: bySocket)
            let characteristic = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
            #expect(try await central.setNotify(true, characteristic) == nil)
            for _ in 0..<20 {
                // Linux keeps 95 for a bluetoothd that does not run for a while (on arm64); more would be lost there.
                try await world.control("sink burst 0013 50 20")
                var counters: [Int] = []
                while counters.count < 50 {
                    let value = try await central.next("notification \(counters.count)") {
                        if case .value(characteristic, let value, nil) = $0 { value } else { nil }
                    }
                    #expect(value.count == 20)
                    counters.append(value.prefix(4).littleEndian)
                }
                let first = counters[0]
                #expect(counters == Array(first..<first + 50))
            }
            try await central.disconnect(sink)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("RW-3 O-24 reading while subscribed neither duplicates nor loses a value", arguments: [false, true])
        func readsWhileNotifying(bySocket: Bool) async throws {
            let (world, central, sink) = try await connectedSink(bySocket: bySocket)
            let characteristic = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
            #expect(try await central.setNotify(true, characteristic) == nil)
            let start = central.records.count
            for n in 1...20 {
                try await world.control("sink notify 0013 \(n < 16 ? "0" : "")\(String(n, radix: 16))")
                sink.readValue(for: characteristic)
            }
            try await central.settle(sink)
            let count = central.records[start...].filter { if case .value = $0.event { true } else { false } }.count
            #expect(count == 40)
            try await central.disconnect(sink)
        }

        @Test("NT-3 a characteristic that cannot notify refuses")
        func refuses() async throws {
            let (_, central, sink) = try await connectedSink()
            let hello = try await central.characteristic(sinkUUID(0x10), of: sinkUUID(1), on: sink)
            let error = try await central.setNotify(true, hello)
            #expect((error as? CBATTError)?.code == .requestNotSupported && !hello.isNotifying)
            try await central.disconnect(sink)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("NT-7 a subscription ends with the link, and must be made again", arguments: [false, true])
        func endsWithLink(bySocket: Bool) async throws {
            let (world, central, sink) = try await connectedSink(bySocket: bySocket)
            let characteristic = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
            #expect(try await central.setNotify(true, characteristic) == nil)
            try await world.control("sink disconnect")
            try await central.next("didDisconnect") { if case .disconnected(sink, _, _) = $0 { true } else { nil } }
            #expect(!characteristic.isNotifying)
            try await central.connect(sink)
            let again = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
            let start = central.records.count
            try await world.control("sink notify 0013 01")
            try await central.settle(sink)
            #expect(central.records.count == start + 1)
            #expect(try await central.setNotify(true, again) == nil)
            try await world.control("sink notify 0013 02")
            try await central.next("notification") { if case .value(again, Data([2]), nil) = $0 { true } else { nil } }
            try await central.disconnect(sink)
        }

        @Test("O-31 IV-1 IV-2 a service is added and removed: each is reported once, the others keep notifying")
        func servicesChange() async throws {
            let (world, central, sink) = try await connectedSink()
            let characteristic = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
            let main = try #require(characteristic.service)
            #expect(try await central.setNotify(true, characteristic) == nil)
            func nextChange() async throws -> [CBService] {
                try await central.next("didModifyServices") {
                    if case .modified(sink, let services) = $0 { services } else { nil }
                }
            }
            try await world.control("sink services add")
            #expect(try await nextChange().isEmpty)
            let services = try await central.discoverServices(sink)
            #expect(services.map(\.uuid) == [sinkUUID(1), sinkUUID(3)] && services[0] === main)
            // bluetoothd 5.66 misses a change that comes while it still reads the last one (Docs/COMPATIBILITY.md):
            // these reads wait for its own.
            let hello = try await central.characteristic(sinkUUID(0x10), of: sinkUUID(1), on: sink)
            for _ in 0..<4 { _ = try await central.read(hello).get() }
            try await world.control("sink services remove")
            #expect(try await nextChange().map(\.uuid) == [sinkUUID(3)])
            #expect(sink.services?.map(\.uuid) == [sinkUUID(1)])
            try await world.control("sink notify 0013 05")
            try await central.next("notification") {
                if case .value(characteristic, Data([5]), nil) = $0 { true } else { nil }
            }
            try await central.disconnect(sink)
        }
    }
}
