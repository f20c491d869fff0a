import BluezDBus
import BluezKitSimulator
import Foundation
import Testing

@testable import BluezKit

/// Notifications by BlueZ's socket (D6).
@Suite struct NotificationSocketTests {
    private typealias Stage = GATTClientTests.Stage
    private static var sockets: [String: Any] { [BluezManagerOptionNotificationSocketsKey: true] }
    /// `Adapter1.Modalias` of 5.87.
    private static let clean = "usb:v1D6Bp0246d0557"

    /// Subscribed by a socket, of which the test has BlueZ's end.
    private func subscribed() async throws -> (Stage, heart: CBCharacteristic, SocketPair) {
        let stage = try await Stage(options: Self.sockets)
        let (heart, _) = try await stage.discover()
        stage.app.peripheral.setNotifyValue(true, for: heart)
        let pair = try SocketPair()
        try await stage.script.expect("AcquireNotify", at: stage.heart).answer(
            .fileDescriptor(pair.ours), .uint16(100))
        Glibc.close(pair.ours)
        try await stage.expect("notifying true")
        return (stage, heart, pair)
    }

    /// BlueZ's end has been read by us.
    private func awaitRead(_ pair: SocketPair) async throws {
        var unread: Int32 = 1
        try await eventually("all is read: \(unread) bytes are not") {
            #expect(ioctl(pair.blueZs, UInt(TIOCOUTQ), &unread) == 0)
            return unread == 0
        }
    }

    @Test("NT-9 NT-4 D6 values come by the socket, in order and after the confirmation, an empty one as well")
    func values() async throws {
        let stage = try await Stage(options: Self.sockets)
        let (heart, _) = try await stage.discover()
        stage.app.peripheral.setNotifyValue(true, for: heart)
        let pair = try SocketPair()
        for value in [[1], [], [2, 3]] as [[UInt8]] { pair.send(value) }
        try await stage.script.expect("AcquireNotify", at: stage.heart).answer(
            .fileDescriptor(pair.ours), .uint16(100))
        Glibc.close(pair.ours)
        try await stage.waitFor("value 2 3")
        #expect(try await stage.app.callbacks() == ["notifying true", "value 1", "value ", "value 2 3"])
        // What BlueZ signals then is the result of a read.
        try stage.script.change(stage.heart, BlueZ.characteristic, [("Value", .bytes([9]))])
        try await stage.expect()
        stage.app.peripheral.setNotifyValue(false, for: heart)
        let stop = try await stage.script.expect("StopNotify", at: stage.heart)
        pair.send([4])
        pair.closeBlueZs()
        stop.answer()
        try await stage.expect("value 4", "notifying false")
        try await stage.script.expectNoCall()
    }

    @Test("O-24 a value that is read meanwhile is neither doubled nor held back")
    func reads() async throws {
        let (stage, heart, pair) = try await subscribed()
        stage.app.peripheral.readValue(for: heart)
        let read = try await stage.script.expect("ReadValue")
        pair.send([7])
        try stage.script.change(stage.heart, BlueZ.characteristic, [("Value", .bytes([7]))])
        read.answer(.bytes([7]))
        try await stage.expect("value 7", "value 7")
    }

    @Test(
        "D6 O-22 10,000 values that come while the app's queue is blocked are all delivered, in order",
        arguments: [true, false])
    func blockedApp(bySocket: Bool) async throws {
        let stage = try await Stage(options: [BluezManagerOptionNotificationSocketsKey: bySocket])
        let (heart, _) = try await stage.discover()
        stage.app.peripheral.setNotifyValue(true, for: heart)
        let pair = try SocketPair()
        if bySocket {
            try await stage.script.expect("AcquireNotify").answer(.fileDescriptor(pair.ours), .uint16(100))
        } else {
            try await stage.script.expect("StartNotify").answer()
        }
        Glibc.close(pair.ours)
        try await stage.expect("notifying true")
        let go = DispatchSemaphore(value: 0)
        stage.app.queue.async { go.wait() }
        func value(_ number: Int) -> [UInt8] { [UInt8(number & 255), UInt8(number >> 8)] }
        for number in 0..<10_000 {
            if bySocket {
                pair.send(value(number))
            } else {
                try stage.script.change(stage.heart, BlueZ.characteristic, [("Value", .bytes(value(number)))])
            }
            // As long as the app is blocked, nothing may wait in the socket, which holds 278.
            if bySocket, number % 100 == 99 { try await awaitRead(pair) }
        }
        try await stage.script.settle()
        go.signal()
        let last = value(9999)
        try await stage.waitFor("value \(last[0]) \(last[1])")
        let expected = (0..<10_000).map { number in "value \(value(number).map { "\($0)" }.joined(separator: " "))" }
        #expect(try await stage.app.callbacks() == expected)
    }

    @Test(
        "D6 after any refusal of a socket BlueZ is asked for signals, and not for a socket again on that link",
        arguments: [
            ("InProgress", "In Progress"), ("NotPermitted", "Notify acquired"),
            ("NotSupported", "Operation is not supported"),
            ("Failed", "Not connected"), ("NotConnected", "Not Connected"),
            ("org.freedesktop.DBus.Error.UnknownMethod", "no such method"),
        ])
    func refused(name: String, message: String) async throws {
        let stage = try await Stage(options: Self.sockets)
        let (heart, _) = try await stage.discover()
        stage.app.peripheral.setNotifyValue(true, for: heart)
        try await stage.script.expect("AcquireNotify").refuse(name, message)
        let start = try await stage.script.expect("StartNotify")
        try stage.script.change(stage.heart, BlueZ.characteristic, [("Value", .bytes([1]))])
        start.answer()
        try stage.script.change(stage.heart, BlueZ.characteristic, [("Value", .bytes([2]))])
        try await stage.expect("notifying true", "value 1", "value 2")
        for (enabled, call) in [(false, "StopNotify"), (true, "StartNotify")] {
            stage.app.peripheral.setNotifyValue(enabled, for: heart)
            try await stage.script.expect(call).answer()
        }
        try await stage.expect("notifying false", "notifying true")
    }

    @Test("D6 a subscription that another program has ended is made again, by signals, without a callback")
    func ended() async throws {
        let (stage, heart, pair) = try await subscribed()
        pair.send([1])
        pair.closeBlueZs()
        let start = try await stage.script.expect("StartNotify")
        start.answer()
        try stage.script.change(stage.heart, BlueZ.characteristic, [("Value", .bytes([2]))])
        try await stage.expect("value 1", "value 2")
        #expect(heart.isNotifying)
    }

    @Test("NT-7 the end of the link ends the subscription; what BlueZ has sent before it is delivered")
    func linkEnds() async throws {
        let (stage, heart, pair) = try await subscribed()
        pair.send([1])
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(false))])
        try await stage.script.expect("StopNotify").refuse("Failed", "No notify session started")
        try await stage.waitFor("disconnected, error")
        #expect(try await stage.app.callbacks() == ["value 1", "disconnected, error"])
        #expect(!heart.isNotifying && pair.receive() == [])
    }

    @Test("D6 if the link ends before AcquireNotify is answered, the characteristic gets no further call")
    func unanswered() async throws {
        let stage = try await Stage(options: Self.sockets)
        let (heart, _) = try await stage.discover()
        stage.app.peripheral.setNotifyValue(true, for: heart)
        try await stage.script.expect("AcquireNotify")
        try stage.script.change(stage.path, BlueZ.device, [("Connected", .bool(false))])
        try await stage.waitFor("disconnected, error")
        try await stage.script.expectNoCall()
    }

    @Test(
        "D6 sockets are used only where the app asks for them",
        arguments: [
            (clean, nil, "StartNotify"), (clean, true, "AcquireNotify"), (clean, false, "StartNotify"),
            ("usb:v1D6Bp0246d0556", nil, "StartNotify"),
        ]
            as [(String, Bool?, String)])
    func choice(modalias: String, choice: Bool?, call: String) async throws {
        let options = choice.map { [BluezManagerOptionNotificationSocketsKey: $0] } ?? [:]
        let stage = try await Stage(options: options, modalias: modalias)
        let (heart, _) = try await stage.discover()
        stage.app.peripheral.setNotifyValue(true, for: heart)
        try await stage.script.expect(call)
    }

    // MARK: In the simulator

    private func connectedSink(
        _ version: SimulatorVersion, options: [String: Any] = [:]
    ) async throws -> (SimulatedWorld, Central, CBPeripheral, CBCharacteristic) {
        let world = try await SimulatedWorld(SimulatorOptions(version: version))
        let central = Central(world, options: options)
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        return (world, central, sink, try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink))
    }

    @Test("NT-3 ERR-6 a peer that refuses the subscription is reported with its reason, as without sockets")
    func refusedByPeer() async throws {
        let world = try await SimulatedWorld(SimulatorOptions(version: .v5_87))
        let device = VirtualPeripheral(
            "F0:00:00:00:00:01", VirtualAdvertisement(localName: "Device"),
            services: [
                VirtualService("1815", [VirtualCharacteristic("2A56", .notify, subscribeFailure: ATTFailure(0x80))])
            ])
        world.simulator.add(device)
        let central = Central(world)
        try await central.powerOn()
        let peripheral = try await central.find("Device")
        try await central.connect(peripheral)
        let found = try await central.characteristic(CBUUID(string: "2A56"), of: CBUUID(string: "1815"), on: peripheral)
        #expect((try await central.setNotify(true, found) as NSError?)?.code == 0x80)
        #expect(!found.isNotifying)
    }

    @Test("D6 values come by signals while another program is subscribed, and not at all while it has the socket")
    func otherProgram() async throws {
        let (world, central, sink, characteristic) = try await connectedSink(.v5_87)
        let other = try await BusClient(world.simulator.busAddress)
        let path = sink.path(of: characteristic)
        _ = try await other.characteristic(path, "StartNotify")
        #expect(try await central.setNotify(true, characteristic) == nil)
        try await world.control("sink notify 0013 01")
        try await central.next("value") { if case .value(characteristic, Data([1]), nil) = $0 { true } else { nil } }
        #expect(try await central.setNotify(false, characteristic) == nil)
        _ = try await other.characteristic(path, "StopNotify")
        try await central.disconnect(sink)
        try await central.connect(sink)
        let again = try await central.characteristic(sinkUUID(0x13), of: sinkUUID(1), on: sink)
        let answer = try await other.characteristic(sink.path(of: again), "AcquireNotify", .noOptions)
        guard case .fileDescriptor(let descriptor) = answer[0] else { throw BusError.malformed("no descriptor") }
        #expect(try await central.setNotify(true, again) != nil && !again.isNotifying)
        Glibc.close(descriptor)
        try await eventually("the socket is free") { try await central.setNotify(true, again) == nil }
        #expect(again.isNotifying)
    }

    @Test("D6 with BlueZ 5.66 on request: subscribing, unsubscribing and leaving in any order does bluetoothd no harm")
    func oldBlueZ() async throws {
        let (world, central, sink, characteristic) = try await connectedSink(.v5_66, options: Self.sockets)
        for number: UInt8 in 1...5 {
            #expect(try await central.setNotify(true, characteristic) == nil)
            try await world.control("sink notify 0013 0\(number)")
            try await central.next("value") { if case .value(_, Data([number]), nil) = $0 { true } else { nil } }
            #expect(try await central.setNotify(false, characteristic) == nil)
        }
        #expect(try await central.setNotify(true, characteristic) == nil)
        #expect(world.simulator.calls("AcquireNotify").count == 6)
        central.release()
        let second = Central(world)
        try await second.powerOn()
        let again = try await second.find("Rig Sink")
        try await second.connect(again)
        #expect(second.count { if case .state(.resetting) = $0 { true } else { false } } == 0)
        withExtendedLifetime(sink) {}
    }
}
