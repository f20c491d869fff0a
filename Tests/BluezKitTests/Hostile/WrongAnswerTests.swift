import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Testing

extension Hostile {
    @Suite struct WrongAnswerTests {
        private static let wrong: [[Value]] = [[]] + WrongSignals.ofEveryType.map { [$0] }

        private func value(_ central: Central, _ characteristic: CBCharacteristic) async throws -> (any Error)? {
            if case .failure(let error) = try await central.read(characteristic) { error } else { nil }
        }

        @Test("ReadValue answered with anything but bytes is an error for the app, once, and the next read works")
        func readValue() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            for answer in Self.wrong where answer.first?.signature != "ay" {
                world.simulator.inject(SimulatorFault("ReadValue", .answer(answer)))
                #expect(try await value(app.central, app.characteristic) is CBError, "\(answer)")
            }
            #expect(try await value(app.central, app.characteristic) == nil)
            try await app.goesOn()
        }

        @Test(
            "AcquireWrite answered without a socket, or with something else: the write uses a call instead",
            arguments: [
                [], [.string("x")], [.uint16(23)], [.byte(1), .byte(2)], [.structure([.byte(1)])],
                [.int32(0), .uint16(23)],
            ] as [[Value]])
        func acquireWrite(_ answer: [Value]) async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            let target = try await writable(app)
            world.simulator.inject(SimulatorFault("AcquireWrite", times: nil, .answer(answer)))
            app.peripheral.writeValue(Data([1, 2, 3]), for: target, type: .withoutResponse)
            await world.simulator.waitForCalls("WriteValue")
            #expect(try await app.central.read(target).get() == Data([1, 2, 3]))
            try await app.goesOn()
        }

        @Test(
            "AcquireWrite answered with a non-socket or an invalid ATT_MTU harms no later operation",
            arguments: [
                .uint16(0), .uint16(3), .uint16(.max), .string("large"),
            ] as [Value])
        func acquireWriteNonsense(_ mtu: Value) async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            let target = try await writable(app)
            let file = open("/dev/null", O_RDWR | O_CLOEXEC)
            defer { close(file) }
            world.simulator.inject(SimulatorFault("AcquireWrite", times: nil, .answer([.fileDescriptor(file), mtu])))
            app.peripheral.writeValue(Data([1, 2, 3]), for: target, type: .withoutResponse)
            // Dropped, or written by call; later operations work in any case.
            #expect(try await app.central.write(Data([9]), to: target) == nil)
            #expect(try await app.central.read(target).get() == Data([9]))
            try await app.goesOn()
        }

        private func writable(_ app: Subscriber) async throws -> CBCharacteristic {
            let service = try #require(app.characteristic.service)
            let found = try await app.central.discoverCharacteristics(service, [HostileWorld.writable])
            return try #require(found.first { $0.uuid == HostileWorld.writable })
        }

        // Slow: each wrong answer, one of every type, needs a link of its own.
        @Test("GetAll, Get and Introspect of attributes answered with anything: invalid parts are ignored")
        func attributes() async throws {
            let world = try await HostileWorld()
            let other = try await Peer.named(world.simulator.busAddress)
            try await other.call("org.bluez", "/org/bluez/hci0", "org.bluez.Adapter1", "StartDiscovery")
            let central = Central(world)
            try await central.powerOn()
            func servicesFound() async throws -> Int {
                // BlueZ answers after its signals: they have been handled, and were not recorded.
                central.manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "1800")])
                let peripheral = try #require(
                    central.manager.retrievePeripherals(withIdentifiers: [world.identifier]).first)
                try await central.connect(peripheral)
                defer { world.simulator.clearFaults() }
                return try await central.discoverServices(peripheral).count
            }
            func disconnect() async throws {
                try await central.disconnect(
                    try #require(central.manager.retrievePeripherals(withIdentifiers: [world.identifier]).first))
            }
            try await connect(other, world)
            #expect(try await servicesFound() == 2)
            try await disconnect()
            let paths = Set(world.simulator.calls("GetAll").map(\.path)).subtracting([world.device]).sorted()
            try #require(paths.count >= 7)
            for (number, answer) in Self.wrong.enumerated() {
                try await connect(other, world)
                let path = paths[number % paths.count]
                world.simulator.inject(SimulatorFault("GetAll", path: path, .answer(answer)))
                world.simulator.inject(SimulatorFault("Introspect", path: paths.last, .answer(answer)))
                world.simulator.inject(SimulatorFault("GetAll", .answer(answer)))
                #expect(try await servicesFound() <= 2, "\(answer)")
                try await disconnect()
            }
            try await connect(other, world)
            #expect(try await servicesFound() == 2)
        }

        @Test("GetAll of a device answered with a wrong type: connected nevertheless")
        func deviceProperties() async throws {
            let world = try await HostileWorld()
            let central = Central(world)
            try await central.powerOn()
            let peripheral = try await central.find("Victim")
            world.simulator.inject(SimulatorFault("GetAll", path: world.device, .answer([.string("x")])))
            try await central.connect(peripheral)
            #expect(try await central.discoverServices(peripheral).count == 2)
        }

        /// Another program connects first: the attributes are not announced to us, so they are read.
        private func connect(_ other: Peer, _ world: HostileWorld) async throws {
            let device = try #require(ObjectPath(world.device))
            try await eventually("another program has connected") {
                (try? await other.call("org.bluez", device, "org.bluez.Device1", "Connect")) != nil
            }
            // Its attributes must be there before we look: those are the ones that are read.
            let resolved: [Value] = [.string("org.bluez.Device1"), .string("ServicesResolved")]
            try await eventually("its services are resolved") {
                try await other.call("org.bluez", device, "org.freedesktop.DBus.Properties", "Get", resolved).first?
                    .boolValue == true
            }
        }

        private static let invalidXML: [Brief] = [
            "", "<", "<node ", "<node name=\"", "<node name=\"service\"/><node name=\"\"/>",
            "<node><node name=\"service0001\"/><node name=\"service0001/char0002\"/><node name=\"../x\"/></node>",
            Brief("<node><node name=\"service1\"/>" + String(repeating: "<node name=\"service2\"/>", count: 5_000)),
            Brief("<node>" + (0..<300).map { "<node name=\"service\($0)\"/>" }.joined() + "</node>"), "hci0",
            "\u{0}x", "ä€𝄞",
        ]

        @Test("introspection data that is not XML or names unexpected children is ignored", arguments: invalidXML)
        func introspection(_ xml: Brief) async throws {
            let world = try await HostileWorld()
            let central = Central(world)
            try await central.powerOn()
            let peripheral = try await central.find("Victim")
            world.simulator.inject(SimulatorFault("Introspect", times: nil, .answer([.string(xml.text)])))
            try await central.connect(peripheral)
            #expect(try await central.discoverServices(peripheral).count == 2)
        }

        @Test("Powered answered with a wrong type: asked again, and Bluetooth is on")
        func powered() async throws {
            let wrong = [Value.string("on"), .byte(1), .strings([])].map { [Value.properties([("Powered", $0)])] }
            for answer in wrong + [[], [.string("on")], [.bool(true)]] {
                let world = try await HostileWorld()
                world.simulator.inject(SimulatorFault("GetAll", .answer(answer)))
                let central = Central(world)
                try await central.powerOn()
            }
        }

        @Test("success of StartNotify, StopNotify, WriteValue, Connect and StartDiscovery may carry any arguments")
        func superfluous() async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            let target = try await writable(app)
            for member in ["StopNotify", "WriteValue", "StartNotify", "StopDiscovery", "StartDiscovery"] {
                world.simulator.inject(SimulatorFault(member, .answer([.string("x"), .byte(1), .bytes([])])))
            }
            #expect(try await app.central.write(Data([1]), to: target) == nil)
            #expect(try await app.central.setNotify(false, app.characteristic) == nil)
            #expect(try await app.central.setNotify(true, app.characteristic) == nil)
        }

        @Test(
            "every call fails with an unknown error: each operation is answered once with an error that has its name",
            arguments: [
                ("org.bluez.Error.Failed", ""), ("org.bluez.Error.Failed", "Operation failed with ATT error: 0xZZ"),
                ("org.bluez.Error.Failed", "Operation failed with ATT error: 0x00"),
                ("org.bluez.Error.Failed", "Operation failed with ATT error: 0x"),
                ("org.bluez.Error.Failed", "Operation failed with ATT error: 0xFFFFFFFFFFFFFFFFFFFF"),
                ("org.bluez.Error.Failed", Brief(String(repeating: "f", count: 100_000))), ("a.b", "ä\u{7}\n"),
                ("org.bluez.Error.NotPermitted", "Not paired"), ("org.freedesktop.DBus.Error.NoReply", "x"),
            ] as [(String, Brief)])
        func strangeErrors(_ name: String, _ message: Brief) async throws {
            let world = try await HostileWorld()
            let app = try await Subscriber(world)
            let target = try await writable(app)
            world.simulator.inject(SimulatorFault(times: nil, .fail(name: name, message: message.text)))
            let errors = [
                try await value(app.central, app.characteristic), try await app.central.write(Data([1]), to: target),
            ]
            for error in errors {
                let underlying = (error as? any CustomNSError)?.errorUserInfo[NSUnderlyingErrorKey] as? NSError
                #expect(underlying?.userInfo[BluezErrorNameKey] as? String == name, "\(String(describing: error))")
            }
            world.simulator.clearFaults()
            try await app.goesOn()
        }
    }
}
