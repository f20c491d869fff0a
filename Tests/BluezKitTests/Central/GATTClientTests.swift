import BluezDBus
import Testing

@testable import BluezKit

/// Operations on a connected device's attributes, as they reach BlueZ, and BlueZ's answers as they reach the app.
@Suite struct GATTClientTests {
    final class Stage {
        let script: ScriptedBus
        let app: DetachedApp
        let path: String
        var service: String { path + "/service0001" }
        var heart: String { service + "/char0002" }
        var control: String { service + "/char0005" }

        /// As BlueZ writes it.
        static func uuid(_ short: String) -> String { "0000\(short)-0000-1000-8000-00805f9b34fb" }

        /// Connected, with a table that BlueZ has not resolved yet.
        init(
            mtu: Duration = .milliseconds(1), options: [String: Any] = [:], modalias: String = "usb:v1D6Bp0246d0542"
        ) async throws {
            script = try await ScriptedBus {
                var timing = $0
                (timing.daemon.busyRetry, timing.gatt.writerRetry) = (.milliseconds(1), .milliseconds(1))
                (timing.gatt.tableChange, timing.gatt.socketEnd) = (.milliseconds(1), .milliseconds(1))
                timing.gatt.mtu = mtu
                return timing
            }
            app = DetachedApp(on: script.address, options: options)
            path = ScriptedBus.path(app.device.identity)
            try await script.expect("GetAll").answer(ScriptedBus.adapter(isPowered: true, modalias: modalias))
            try await script.states.next("power") { $0 == .poweredOn ? true : nil }
            script.answerRoutinely([
                "RegisterAgent": [], "Get": [.variant(.bool(true))], "Introspect": [.string("<node/>")],
            ])
            try await app.settle()
            app.manager.connect(app.peripheral)
            try await script.expect("GetAll", at: path).answer(
                .properties(ScriptedBus.properties(app.device.identity, connected: true)))
            try await expect("connected")
        }

        /// BlueZ announces the table, and that it is complete.
        func resolve(hasConfiguration: Bool = true) throws {
            try script.add(service, BlueZ.service, [("UUID", .string(Self.uuid("180d"))), ("Primary", .bool(true))])
            for (path, uuid, flags) in [
                (heart, "2a37", ["read", "notify"]), (control, "2a39", ["read", "write", "write-without-response"]),
            ] {
                try script.add(
                    path, BlueZ.characteristic,
                    [("UUID", .string(Self.uuid(uuid))), ("Flags", .strings(flags)), ("MTU", .uint16(100))])
            }
            if hasConfiguration {
                try script.add(heart + "/desc0004", BlueZ.descriptor, [("UUID", .string(Self.uuid("2902")))])
            }
            try script.change(path, BlueZ.device, [("ServicesResolved", .bool(true))])
        }

        /// The app's characteristics.
        func discover(
            hasConfiguration: Bool = true
        ) async throws -> (heart: CBCharacteristic, control: CBCharacteristic) {
            try resolve(hasConfiguration: hasConfiguration)
            app.peripheral.discoverServices(nil)
            try await expect("services 1")
            let service = try #require(app.peripheral.services?.first)
            app.peripheral.discoverCharacteristics(nil, for: service)
            try await expect("characteristics 2")
            let found = try #require(service.characteristics)
            return (found[0], found[1])
        }

        /// The link ends, and the app connects again.
        /// - Returns: What BlueZ is asked then of the table that it had before.
        func connectAgain() async throws -> ScriptedBus.Call {
            try script.change(path, BlueZ.device, [("Connected", .bool(false))])
            try await waitFor("disconnected, error")
            _ = try await app.callbacks()
            script.stopAnswering("Introspect")
            app.manager.connect(app.peripheral)
            return try await script.expect("Introspect", at: path)
        }

        /// What the app has heard since the last time.
        func expect(_ events: String..., sourceLocation: SourceLocation = #_sourceLocation) async throws {
            try await script.settle()
            let came = try await app.callbacks()
            #expect(came == events, sourceLocation: sourceLocation)
        }

        /// Takes all up to this one.
        func waitFor(_ event: String) async throws { try await app.log.next(event) { $0 == event ? true : nil } }
    }

    @Test("GD-13 a discovery waits until BlueZ has resolved the services")
    func discovery() async throws {
        let stage = try await Stage()
        stage.app.peripheral.discoverServices(nil)
        try await stage.expect()
        try stage.resolve()
        try await stage.expect("services 1")
        try await stage.script.expectNoCall()
    }

    @Test("RW-1 an operation reaches BlueZ when the one before is answered, also if that was refused")
    func order() async throws {
        let stage = try await Stage()
        let (heart, control) = try await stage.discover()
        for characteristic in [heart, control, heart] { stage.app.peripheral.readValue(for: characteristic) }
        let first = try await stage.script.expect("ReadValue", at: stage.heart)
        try await stage.script.expectNoCall()
        first.answer(.bytes([1]))
        let second = try await stage.script.expect("ReadValue", at: stage.control)
        try await stage.script.expectNoCall()
        second.refuse("NotPermitted", "Read not permitted")
        try await stage.script.expect("ReadValue", at: stage.heart).answer(.bytes([3]))
        try await stage.expect("value 1", "value error ATT 2", "value 3")
    }

    @Test("NT-3 without a descriptor 2902, subscribing and unsubscribing are refused, and BlueZ is not asked")
    func withoutConfiguration() async throws {
        let stage = try await Stage()
        let (heart, control) = try await stage.discover(hasConfiguration: false)
        for isEnabled in [true, false] { stage.app.peripheral.setNotifyValue(isEnabled, for: heart) }
        stage.app.peripheral.setNotifyValue(false, for: control)
        try await stage.expect(
            "notifying false error ATT 10", "notifying false error ATT 10", "notifying false error ATT 6")
        try await stage.script.expectNoCall()
    }

    @Test("an answer that comes after the end of the link reaches no app, and nothing that waited is called")
    func late() async throws {
        let stage = try await Stage()
        let (heart, _) = try await stage.discover()
        for _ in 0..<3 { stage.app.peripheral.readValue(for: heart) }
        let read = try await stage.script.expect("ReadValue")
        try stage.script.emit(
            stage.path, BlueZ.device, "Disconnected", .string("org.bluez.Reason.Remote"), .string("gone"))
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(false))])
        try await stage.expect("disconnected, error")
        read.answer(.bytes([1]))
        try await stage.script.expectNoCall()
        try await stage.expect()
    }

    @Test(
        "CN-14 a refused pairing is called so, also if BlueZ fails the read before it tells of the end (seen with 5.87)"
    )
    func refusedPairing() async throws {
        let stage = try await Stage()
        let (heart, _) = try await stage.discover()
        stage.app.peripheral.readValue(for: heart)
        try await stage.script.expect("ReadValue").refuse("Failed", "Operation failed with ATT error: 0x0e")
        try stage.script.emit(
            stage.path, BlueZ.device, "Disconnected", .string("org.bluez.Reason.Local"), .string("local host"))
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(false))])
        #expect(try await stage.app.ends.next("the end") { $0 } == .encryptionTimedOut)
        #expect(try await stage.app.callbacks() == ["value error ATT 14", "disconnected, error"])
    }

    @Test("the signal that echoes a read is not delivered as a notification, and another value is")
    func readEcho() async throws {
        let stage = try await Stage()
        let (heart, _) = try await stage.discover()
        stage.app.peripheral.setNotifyValue(true, for: heart)
        try await stage.script.expect("StartNotify", at: stage.heart).answer()
        try await stage.expect("notifying true")
        for (signals, callbacks) in [([[7]], ["value 7"]), ([[5], [7]], ["value 5", "value 7"])]
            as [([[UInt8]], [String])]
        {
            stage.app.peripheral.readValue(for: heart)
            let read = try await stage.script.expect("ReadValue")
            for value in signals {
                try stage.script.change(stage.heart, BlueZ.characteristic, [("Value", .bytes(value))])
            }
            read.answer(.bytes([7]))
            try await stage.script.settle()
            #expect(try await stage.app.callbacks() == callbacks)
        }
    }

    @Test(
        "a refused subscription delivers no values, and may succeed at the next try"
    )
    func refusedSubscription() async throws {
        let stage = try await Stage()
        let (heart, _) = try await stage.discover()
        stage.app.peripheral.setNotifyValue(true, for: heart)
        let start = try await stage.script.expect("StartNotify")
        start.refuse("NotPermitted")
        try stage.script.change(stage.heart, BlueZ.characteristic, [("Value", .bytes([9]))])
        try await stage.script.settle()
        let came = try await stage.app.callbacks()
        #expect(came.count == 1 && came.first?.hasPrefix("notifying false error") == true)
        stage.app.peripheral.setNotifyValue(true, for: heart)
        try await stage.script.expect("StartNotify").answer()
        try stage.script.change(stage.heart, BlueZ.characteristic, [("Value", .bytes([9]))])
        try await stage.expect("notifying true", "value 9")
    }

    @Test("a write that BlueZ refuses because a socket is still closing is repeated, and not without end")
    func writeAcquired() async throws {
        let stage = try await Stage()
        let (_, control) = try await stage.discover()
        stage.app.peripheral.writeValue(.init([1]), for: control, type: .withResponse)
        for _ in 0..<3 {
            try await stage.script.expect("WriteValue", at: stage.control).refuse("NotPermitted", "Write acquired")
        }
        try await stage.script.expect("WriteValue").answer()
        try await stage.expect("wrote")
        stage.app.peripheral.writeValue(.init([1]), for: control, type: .withResponse)
        let tries = stage.script.turn { stage.script.bus.timing.gatt.writerRetries }
        for _ in 0...tries { try await stage.script.expect("WriteValue").refuse("NotPermitted", "Write acquired") }
        try await stage.script.expectNoCall()
        try await stage.expect("wrote error unknown")
    }

    @Test("CN-14 an operation that is repeated after its pairing, and never answered, ends the link as any other does")
    func silentAfterPairing() async throws {
        let stage = try await Stage()
        stage.app.manager.pairing = .justWorks
        stage.script.turn { stage.script.bus.timing.gatt.pairingAnswer = .seconds(2) }
        let (_, control) = try await stage.discover()
        stage.app.peripheral.readValue(for: control)
        try await stage.script.expect("ReadValue", at: stage.control).refuse("NotPermitted", "Not paired")
        try await stage.script.expect("Pair", at: stage.path).answer()
        try await stage.script.expect("ReadValue", at: stage.control)
        try await stage.script.expect("Disconnect", at: stage.path)
    }

    // It is the connection that has the agent, and cannot be replaced as others are.
    @Test(
        "pairing does not start while too many calls on the first connection are unanswered: the app gets the refusal")
    func noPairing() async throws {
        let stage = try await Stage()
        stage.app.manager.pairing = .justWorks
        let (_, control) = try await stage.discover()
        stage.script.turn { stage.script.bus.firstLane?.abandoned = 60 }
        stage.app.peripheral.readValue(for: control)
        try await stage.script.expect("ReadValue", at: stage.control).refuse("NotPermitted", "Not paired")
        try await stage.waitFor("value error ATT 5")
        try await stage.script.expectNoCall()
    }

    @Test("a pairing that BlueZ leaves unanswered counts as an operation does")
    func unansweredPairing() async throws {
        let stage = try await Stage()
        stage.app.manager.pairing = .justWorks
        let (_, control) = try await stage.discover()
        stage.app.peripheral.readValue(for: control)
        try await stage.script.expect("ReadValue", at: stage.control).refuse("NotPermitted", "Not paired")
        let pairing = try await stage.script.expect("Pair", at: stage.path)
        stage.script.turn {
            (stage.script.bus.timing.unanswered.calls, stage.script.bus.timing.unanswered.late) = (1, .zero)
            #expect(stage.script.central.unanswered.pause(of: stage.app.device.identity) != nil)
        }
        pairing.answer()
    }

    @Test("operations on a service from which BlueZ removes something end with the change, without BlueZ's answer")
    func removed() async throws {
        let stage = try await Stage()
        let (heart, control) = try await stage.discover()
        // Long enough that both removals are one change on a busy machine as well.
        stage.script.turn { stage.script.bus.timing.gatt.tableChange = .seconds(1) }
        stage.app.peripheral.readValue(for: heart)
        let read = try await stage.script.expect("ReadValue", at: stage.heart)
        stage.app.peripheral.readValue(for: control)
        for path in [stage.heart + "/desc0004", stage.heart] {
            try stage.script.remove(path, path == stage.heart ? BlueZ.characteristic : BlueZ.descriptor)
        }
        try await stage.waitFor("modified 1")
        read.answer(.bytes([1]))
        try await stage.script.expectNoCall()
        #expect(
            try await stage.app.callbacks() == ["value error invalidHandle", "value error invalidHandle", "modified 1"])
    }

    @Test("an attribute table that BlueZ had before is read level by level, again where BlueZ was busy")
    func existingTable() async throws {
        let stage = try await Stage()
        let children = try await stage.connectAgain()
        try await stage.script.expect("GetAll", at: stage.path).answer(
            .properties(
                ScriptedBus.properties(
                    stage.app.device.identity, connected: true, [("ServicesResolved", .bool(true))])))
        children.answer(.string("<node><node name=\"service0001\"/></node>"))
        try await stage.script.expect("Introspect", at: stage.service).answer(.string("<node/>"))
        for _ in 0..<3 { try await stage.script.expect("GetAll", at: stage.service).refuse(ScriptedBus.busy) }
        try await stage.waitFor("connected")
        _ = try await stage.app.callbacks()
        stage.app.peripheral.discoverServices(nil)
        try await stage.expect()
        try await stage.script.expect("GetAll", at: stage.service).answer(
            .properties([("UUID", .string(Stage.uuid("180d"))), ("Primary", .bool(true))]))
        // The services could be announced after `ServicesResolved`: BlueZ is asked once more.
        try await stage.script.expect("Introspect", at: stage.path).answer(
            .string("<node><node name=\"service0001\"/></node>"))
        try await stage.script.expect("Introspect", at: stage.service).answer(.string("<node/>"))
        try await stage.expect("services 1")
    }
    @Test("RW-6 the MTU of a link that BlueZ had before is known in didConnect")
    func existingMTU() async throws {
        let stage = try await Stage(mtu: .seconds(3600))
        let children = try await stage.connectAgain()
        try await stage.script.expect("GetAll", at: stage.path).answer(
            .properties(
                ScriptedBus.properties(
                    stage.app.device.identity, connected: true, [("ServicesResolved", .bool(true))])))
        children.answer(.string("<node><node name=\"service0001\"/></node>"))
        let below = try await stage.script.expect("Introspect", at: stage.service)
        try await stage.script.expect("GetAll", at: stage.service).answer(
            .properties([("UUID", .string(Stage.uuid("180d"))), ("Primary", .bool(true))]))
        below.answer(.string("<node><node name=\"char0002\"/></node>"))
        try await stage.script.expect("Introspect", at: stage.heart).answer(.string("<node/>"))
        let properties = try await stage.script.expect("GetAll", at: stage.heart)
        try await stage.expect()
        properties.answer(
            .properties([
                ("UUID", .string(Stage.uuid("2a37"))), ("Flags", .strings(["notify"])), ("MTU", .uint16(185)),
            ]))
        try await stage.waitFor("connected")
        #expect(stage.app.peripheral.maximumWriteValueLength(for: .withoutResponse) == 182)
    }

    // Each call failed first: the app heard of an error, and of the new state after it. An attempt that BlueZ was at
    // lost its lease.
    @Test(
        "CN-10 ST-6 an operation that runs when the bus is lost is not answered: the app hears of the new state alone")
    func lostBus() async throws {
        let stage = try await Stage()
        let (heart, _) = try await stage.discover()
        stage.app.peripheral.readValue(for: heart)
        _ = try await stage.script.expect("ReadValue")
        stage.app.peripheral.readValue(for: heart)
        try await stage.script.daemon.killBus()
        try await stage.script.states.next("the loss") { $0 == .resetting ? true : nil }
        #expect(try await stage.app.callbacks() == [])
    }

    // BlueZ may make a link without `Connected`. That it is up and that it is resolved was one signal then, and the
    // second of these did not wait for the question that the first had asked: 20 bytes instead of 182.
    @Test("RW-6 the MTU of a link that BlueZ does not signal is known in didConnect")
    func unsignalledMTU() async throws {
        let stage = try await Stage(mtu: .seconds(3600))
        let children = try await stage.connectAgain()
        children.answer(.string("<node><node name=\"service0001\"/></node>"))
        try await stage.script.expect("GetAll", at: stage.path).answer(
            .properties(ScriptedBus.properties(stage.app.device.identity, connected: false)))
        // The attempt, and what BlueZ has of the table, in either order.
        func call(_ member: String, _ path: String) async throws -> ScriptedBus.Call {
            try await stage.script.next(member) { $0.member == member && $0.path == path }
        }
        let below = try await call("Introspect", stage.service)
        try await call("GetAll", stage.service).answer(
            .properties([("UUID", .string(Stage.uuid("180d"))), ("Primary", .bool(true))]))
        below.answer(.string("<node><node name=\"char0002\"/></node>"))
        try await call("Introspect", stage.heart).answer(.string("<node/>"))
        try await call("GetAll", stage.heart).answer(
            .properties([("UUID", .string(Stage.uuid("2a37"))), ("Flags", .strings(["notify"]))]))
        try await stage.script.settle()
        stage.script.stopAnswering("Get")
        try stage.script.change(stage.path, BlueZ.device, [("ServicesResolved", .bool(true))])
        let question = try await stage.script.skip(to: "Get")
        try await stage.expect()
        question.answer(.variant(.uint16(185)))
        try await stage.waitFor("connected")
        #expect(stage.app.peripheral.maximumWriteValueLength(for: .withoutResponse) == 182)
    }

    @Test("RW-6 an MTU never becomes smaller while the link is up, and one of AcquireWrite counts as well")
    func growingMTU() async throws {
        let stage = try await Stage()
        let (_, control) = try await stage.discover()
        let peripheral = stage.app.peripheral
        #expect(peripheral.maximumWriteValueLength(for: .withoutResponse) == 97)
        try stage.script.change(stage.heart, BlueZ.characteristic, [("MTU", .uint16(23))])
        try await stage.expect()
        #expect(peripheral.maximumWriteValueLength(for: .withoutResponse) == 97)
        let pair = try SocketPair()
        peripheral.writeValue(Data([1]), for: control, type: .withoutResponse)
        try await stage.script.expect("AcquireWrite").answer(.fileDescriptor(pair.ours), .uint16(247))
        Glibc.close(pair.ours)
        try await stage.expect()
        #expect(peripheral.maximumWriteValueLength(for: .withoutResponse) == 244)
        peripheral.writeValue(Data(repeating: 2, count: 244), for: control, type: .withoutResponse)
        #expect(pair.receiveAll().map(\.count) == [1, 244])
    }

    // MARK: Writes without response

    @Test("RW-8 O-27 a write without response is sent within the call where nothing waits, and waits behind what does")
    func directWrites() async throws {
        let stage = try await Stage()
        let (heart, control) = try await stage.discover()
        let peripheral = stage.app.peripheral
        let pair = try SocketPair()
        func write(_ number: UInt8, _ type: CBCharacteristicWriteType = .withoutResponse) {
            peripheral.writeValue(Data([number]), for: control, type: type)
        }
        write(1)
        try await stage.script.expect("AcquireWrite", at: stage.control).answer(
            .fileDescriptor(pair.ours), .uint16(100))
        Glibc.close(pair.ours)
        try await stage.expect()
        #expect(pair.receiveAll() == [[1]])
        stage.script.turn {}  // what waited on the bus queue has passed
        write(2)
        write(3)
        #expect(pair.receiveAll() == [[2], [3]])
        peripheral.readValue(for: heart)
        let read = try await stage.script.expect("ReadValue")
        write(4)
        try await stage.script.expectNoCall()
        #expect(pair.receive() == nil, "the read is first")
        read.answer(.bytes([9]))
        try await stage.expect("value 9")
        #expect(pair.receiveAll() == [[4]])
        stage.script.turn {}
        write(5)
        #expect(pair.receiveAll() == [[5]])
        // A write with response needs the socket to be closed.
        write(6, .withResponse)
        write(7)
        let request = try await stage.script.expect("WriteValue", at: stage.control)
        #expect(pair.receiveAll() == [] && pair.receive() == [])
        request.answer()
        try await stage.script.expect("AcquireWrite").refuse("NotSupported")
        let command = try await stage.script.expect("WriteValue", at: stage.control)
        #expect(command.arguments.first?.bytesValue == [7])
        command.answer()
        try await stage.expect("wrote")
        #expect(peripheral.droppedWritesWithoutResponse == 0)
    }

    @Test("RW-9 O-26 canSendWriteWithoutResponse is false while BlueZ's socket is full; nothing is lost")
    func fullSocket() async throws {
        let stage = try await Stage()
        let (_, control) = try await stage.discover()
        let peripheral = stage.app.peripheral
        let pair = try SocketPair()
        peripheral.writeValue(Data([0]), for: control, type: .withoutResponse)
        try await stage.script.expect("AcquireWrite").answer(.fileDescriptor(pair.ours), .uint16(100))
        Glibc.close(pair.ours)
        try await stage.expect()
        var sent: [[UInt8]] = [[0]]
        while peripheral.canSendWriteWithoutResponse {
            sent.append([UInt8(truncatingIfNeeded: sent.count)])
            peripheral.writeValue(Data(sent.last ?? []), for: control, type: .withoutResponse)
        }
        try await stage.expect()
        #expect(!peripheral.canSendWriteWithoutResponse)
        #expect(sent.count > 64, "the socket has more room than the queue")
        for number in 0..<10 {
            sent.append([1, UInt8(number)])
            peripheral.writeValue(Data(sent.last ?? []), for: control, type: .withoutResponse)
        }
        var received: [[UInt8]] = []
        try await eventually("\(sent.count) values have come: \(received.count)") {
            received += pair.receiveAll()
            return received.count >= sent.count
        }
        #expect(received == sent)
        try await stage.waitFor("ready true")
        #expect(peripheral.canSendWriteWithoutResponse && peripheral.droppedWritesWithoutResponse == 0)
    }

    @Test("RW-9 a socket on which a write waits for room is not given back, however long the bus queue was held up")
    func idleFullSocket() async throws {
        // Which of two events comes first is up to libdispatch.
        for _ in 0..<5 {
            let stage = try await Stage()
            let (_, control) = try await stage.discover()
            let peripheral = stage.app.peripheral
            let pair = try SocketPair()
            stage.script.turn { stage.script.bus.timing.gatt.idleWriter = .milliseconds(1) }
            var count = 1
            peripheral.writeValue(Data([0]), for: control, type: .withoutResponse)
            try await stage.script.expect("AcquireWrite").answer(.fileDescriptor(pair.ours), .uint16(100))
            Glibc.close(pair.ours)
            try await stage.expect()
            while peripheral.canSendWriteWithoutResponse {
                peripheral.writeValue(Data([1]), for: control, type: .withoutResponse)
                count += 1
            }
            try await stage.expect()
            var received = 0
            stage.script.turn {
                received += pair.receiveAll().count
                let end = ContinuousClock.now + .milliseconds(3)
                while ContinuousClock.now < end {}
            }
            try await eventually("\(count) values have come: \(received)") {
                received += pair.receiveAll().count
                return received >= count
            }
            try await stage.waitFor("ready true")
        }
    }

    @Test("RW-1 a slow link has longer: for what BlueZ was given without response before, and for long values")
    func slowLink() async throws {
        let stage = try await Stage()
        let (heart, control) = try await stage.discover()
        let device = try #require(stage.script.turn { stage.script.central.store.known(stage.app.device.identity) })
        func deadline() throws -> Duration {
            try #require(
                stage.script.turn {
                    device.connection?.client.proxy(device.path, BlueZ.characteristic)?.attributeDeadline
                })
        }
        let usual = try deadline()
        stage.script.turn {
            (stage.script.bus.timing.gatt.unsentByte, stage.script.bus.timing.gatt.longestUnsent) = (
                .seconds(100), .seconds(3600)
            )
        }
        let pair = try SocketPair()
        stage.app.peripheral.writeValue(Data(repeating: 1, count: 50), for: control, type: .withoutResponse)
        try await stage.script.expect("AcquireWrite").answer(.fileDescriptor(pair.ours), .uint16(100))
        Glibc.close(pair.ours)
        try await stage.expect()
        #expect(pair.receiveAll().count == 1)
        // 50 bytes, but no more than the longest, and less by the time since.
        #expect(try deadline() > usual + .seconds(3000) && deadline() <= usual + .seconds(3600))
        // What one packet cannot carry takes several; the answer says that all has been sent.
        stage.script.turn {
            stage.script.bus.timing.gatt.pairingAnswer = .zero
            stage.script.bus.timing.gatt.furtherAnswer = .seconds(3600)
        }
        stage.app.peripheral.readValue(for: heart)
        let read = try await stage.script.expect("ReadValue")
        for _ in 0..<3 { try await stage.script.expectNoCall() }
        read.answer(.bytes([7]))
        try await stage.expect("value 7")
        #expect(try deadline() == .zero)
    }

    @Test("RW-8 while another program has the socket of a characteristic, it is asked for again after a moment")
    func foreignSocket() async throws {
        let stage = try await Stage()
        let (_, control) = try await stage.discover()
        stage.script.turn { stage.script.bus.timing.gatt.idleWriter = .zero }
        for number in 0..<2 {
            stage.app.peripheral.writeValue(Data([UInt8(number)]), for: control, type: .withoutResponse)
            try await stage.script.expect("AcquireWrite").refuse("NotPermitted", "Write acquired")
            try await stage.script.expect("WriteValue").refuse("NotPermitted", "Write acquired")
            try await stage.script.expect("WriteValue").answer()
        }
        #expect(stage.app.peripheral.droppedWritesWithoutResponse == 0)
    }

    @Test("IV-1 a change while the table is read again is reported")
    func changeWhileRead() async throws {
        let stage = try await Stage()
        _ = try await stage.discover()
        stage.script.stopAnswering("Introspect")
        let device = try #require(stage.script.turn { stage.script.central.store.known(stage.app.device.identity) })
        stage.script.turn { device.connection?.client.reader.readAgain() }
        try await stage.script.expect("Introspect", at: stage.path)
        try stage.script.remove(stage.control, BlueZ.characteristic)
        try await stage.waitFor("modified 1")
    }

    @Test("RW-9 if BlueZ gives no socket, one write is in progress at a time, and the others wait for its answer")
    func writesByCall() async throws {
        let stage = try await Stage()
        let (_, control) = try await stage.discover()
        let peripheral = stage.app.peripheral
        var count: UInt8 = 0
        while peripheral.canSendWriteWithoutResponse {
            peripheral.writeValue(Data([count]), for: control, type: .withoutResponse)
            count += 1
        }
        #expect(count == 64)
        try await stage.script.expect("AcquireWrite").refuse("NotPermitted", "Write acquired")
        for number in 0..<count {
            let write = try await stage.script.expect("WriteValue")
            #expect(write.arguments.first?.bytesValue == [number])
            if number < 3 { try await stage.script.expectNoCall() }
            if number == count - 1 { write.refuse("Failed", "Failed to initiate write") } else { write.answer() }
        }
        try await stage.waitFor("ready true")
        try await stage.script.settle()
        #expect(peripheral.droppedWritesWithoutResponse == 1, "BlueZ has refused it")
    }
}
