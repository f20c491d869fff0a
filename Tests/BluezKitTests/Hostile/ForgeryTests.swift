import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Testing

extension Hostile {
    @Suite struct ForgeryTests {
        /// What another program might want an app to believe.
        private func forgeries(_ world: HostileWorld) -> [Signal] {
            let (device, characteristic) = (world.device, world.subscribedPath)
            return [
                .changed(characteristic, "GattCharacteristic1", [("Value", .bytes([0xBA, 0xD0]))]),
                .changed(device, "Device1", [("Connected", .bool(false))]),
                .changed(device, "Device1", [("Name", .string("Forged"))]),
                .changed("/org/bluez/hci0", "Adapter1", [("Powered", .bool(false))]),
                .added(
                    device + "/service00ff", "GattService1",
                    [("UUID", .string("0000180d-0000-1000-8000-00805f9b34fb")), ("Primary", .bool(true))]),
                .added(
                    "/org/bluez/hci0/dev_F0_0B_AD_0B_AD_00", "Device1",
                    [("Address", .string("F0:0B:AD:0B:AD:00")), ("RSSI", .int16(-1))]),
                .removed([.path(ObjectPath(characteristic) ?? "/"), .strings(["org.bluez.GattCharacteristic1"])]),
                .removed([.path(ObjectPath(device) ?? "/"), .strings(["org.bluez.Device1"])]),
                .removed([.path("/org/bluez/hci0"), .strings(["org.bluez.Adapter1"])]),
                Signal(
                    path: device, interface: "org.bluez.Device1", member: "Disconnected",
                    arguments: [.string("org.bluez.Reason.Remote"), .string("forged")]),
            ]
        }

        @Test("forged signals in BlueZ's name are ignored with a log line, whether broadcast or sent only to us")
        func ignored() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            app.central.manager.scanForPeripherals(withServices: nil)
            for signal in forgeries(world) {
                // Another one each time: of one program only the first forgery is logged.
                let forger = try await Peer.named(world.simulator.busAddress)
                for destination in [nil, world.centralName] {
                    try forger.emit(
                        try #require(ObjectPath(signal.path)), signal.interface, signal.member, to: destination,
                        signal.arguments)
                    guard destination != nil else { continue }  // the bus itself keeps the broadcast from us
                    try await LogCapture.shared.expect("in the name of BlueZ", forger.name, signal.member, signal.path)
                }
                try await app.goesOn("\(signal)")
            }
            #expect(app.peripheral.name == "Victim" && app.central.manager.state == .poweredOn)
            let bad = app.central.count {
                switch $0 {
                case .discovered(let peripheral, _, _): peripheral.identifier.uuidString.hasSuffix("F00BAD0BAD00")
                case .modified, .name, .disconnected: true
                default: false
                }
            }
            #expect(bad == 0)
        }

        @Test("a program that takes the name org.bluez while bluetoothd is not running is trusted only as its owner")
        func impostor() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            let forger = try await Peer.named(world.simulator.busAddress)
            world.simulator.killDaemon()
            try await app.central.next("resetting") { if case .state(.resetting) = $0 { true } else { nil } }
            forger.serve { connection, call in
                connection.refuse(call, name: "org.freedesktop.DBus.Error.UnknownObject", message: "nothing here")
            }
            await withCheckedContinuation { continuation in
                forger.sync { $0.requestName("org.bluez") { _ in continuation.resume() } }
            }
            // No adapter there; then the name changes hands without a gap in what we see.
            _ = await withCheckedContinuation { continuation in
                forger.sync { $0.releaseName("org.bluez") { _ in continuation.resume() } }
            }
            try await world.simulator.startDaemon()
            try await app.central.powerOn()
            try forger.emit(
                "/org/bluez/hci0", "org.freedesktop.DBus.Properties", "PropertiesChanged", to: world.centralName,
                Signal.changed("/org/bluez/hci0", "Adapter1", [("Powered", .bool(false))]).arguments)
            let again = try await app.central.find("Victim")
            try await app.central.connect(again)
            #expect(app.central.manager.state == .poweredOn)
        }

        @Test("signals with descriptors, and from reserved places, as any user may send them, end nothing")
        func descriptors() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            let isBroker = ProcessInfo.processInfo.environment["BLUEZKIT_TEST_BUS"] == "dbus-broker"
            let descriptor = Value.fileDescriptor(0)
            // As many as the bus lets pass; the message is so long that it comes in pieces.
            let large =
                [.bytes([UInt8](repeating: 7, count: 40_000))]
                + [Value](repeating: descriptor, count: isBroker ? 253 : 16)
            for _ in 0..<5 {
                // Another one each time: a bus may end who sends what it does not let pass.
                let forger = try await Peer.named(world.simulator.busAddress)
                try forger.emit("/", "a.b", "Large", to: world.centralName, large)
                try forger.emit("/", "a.b", "Small", to: world.centralName, [descriptor])
                try forger.emit("/", "a.b", "Plain", to: world.centralName, [])
                _ = try await forger.bus("GetId")  // the bus has passed them on
                try await app.goesOn("descriptors")
                try? forger.emit("/org/freedesktop/DBus/Locally", "a.b", "Plain", to: world.centralName, [])
                try? forger.emit("/", "org.freedesktop.DBus.Locally", "Plain", to: world.centralName, [])
                _ = try? await forger.bus("GetId")
                try await app.goesOn("reserved places")
            }
        }

        @Test("method calls to the app's connection are refused, not obeyed")
        func calls() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            let forger = try await Peer.named(world.simulator.busAddress)
            for (path, interface, member) in [
                ("/", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects"),
                ("/org/bluez", "org.bluez.Agent1", "Release"), ("/", "org.freedesktop.DBus.Properties", "Set"),
            ] {
                await #expect(throws: BusError.self) {
                    try await forger.call(world.centralName, try #require(ObjectPath(path)), interface, member)
                }
            }
            try await app.goesOn()
        }
    }
}
