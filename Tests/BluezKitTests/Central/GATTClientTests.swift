import BluezDBus
import Testing

@testable import BluezKit

/// Operations on a connected device's attributes, as they reach BlueZ, and BlueZ's answers as they reach the app.
@Suite struct GATTClientTests {
    private final class Stage {
        let script: ScriptedBus
        let app: DetachedApp
        let path: String
        var service: String { path + "/service0001" }
        var heart: String { service + "/char0002" }
        var control: String { service + "/char0005" }

        /// As BlueZ writes it.
        static func uuid(_ short: String) -> String { "0000\(short)-0000-1000-8000-00805f9b34fb" }

        /// Connected, with a table that BlueZ has not resolved yet.
        init() async throws {
            script = try await ScriptedBus {
                var timing = $0
                (timing.daemon.busyRetry, timing.gatt.writerRetry) = (.milliseconds(1), .milliseconds(1))
                timing.gatt.tableChange = .milliseconds(1)
                return timing
            }
            app = DetachedApp(on: script.address)
            path = ScriptedBus.path(app.device.identity)
            try await script.expect("GetAll").answer(ScriptedBus.adapter(isPowered: true))
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
        func resolve() throws {
            try script.add(service, BlueZ.service, [("UUID", .string(Self.uuid("180d"))), ("Primary", .bool(true))])
            for (path, uuid, flags) in [
                (heart, "2a37", ["read", "notify"]), (control, "2a39", ["read", "write", "write-without-response"]),
            ] {
                try script.add(
                    path, BlueZ.characteristic,
                    [("UUID", .string(Self.uuid(uuid))), ("Flags", .strings(flags)), ("MTU", .uint16(100))])
            }
            try script.add(heart + "/desc0004", BlueZ.descriptor, [("UUID", .string(Self.uuid("2902")))])
            try script.change(path, BlueZ.device, [("ServicesResolved", .bool(true))])
        }

        /// The app's characteristics.
        func discover() async throws -> (heart: CBCharacteristic, control: CBCharacteristic) {
            try resolve()
            app.peripheral.discoverServices(nil)
            try await expect("services 1")
            let service = try #require(app.peripheral.services?.first)
            app.peripheral.discoverCharacteristics(nil, for: service)
            try await expect("characteristics 2")
            let found = try #require(service.characteristics)
            return (found[0], found[1])
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

    @Test("the signal with which BlueZ announces the result of a read is no notification; another value is one")
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
        "a refused subscription is none: a value that comes nevertheless is not delivered, and the next try may succeed"
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

    @Test("operations on a service from which BlueZ removes something end with the change, without BlueZ's answer")
    func removed() async throws {
        let stage = try await Stage()
        let (heart, control) = try await stage.discover()
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

    @Test("a table that BlueZ had before is read level by level, and a refusal for being busy is no answer")
    func existingTable() async throws {
        let stage = try await Stage()
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(false))])
        try await stage.waitFor("disconnected, error")
        _ = try await stage.app.callbacks()
        stage.script.stopAnswering("Introspect")
        stage.app.manager.connect(stage.app.peripheral)
        let children = try await stage.script.expect("Introspect", at: stage.path)
        try await stage.script.expect("GetAll", at: stage.path).answer(
            .properties(
                ScriptedBus.properties(
                    stage.app.device.identity, connected: true, [("ServicesResolved", .bool(true))])))
        children.answer(.string("<node><node name=\"service0001\"/></node>"))
        try await stage.script.expect("Introspect", at: stage.service).answer(.string("<node/>"))
        for _ in 0..<3 { try await stage.script.expect("GetAll", at: stage.service).refuse(ScriptedBus.busy) }
        try await stage.expect("connected")
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
}
