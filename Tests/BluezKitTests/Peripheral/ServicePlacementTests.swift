import BluezDBus
import BluezKitRestore
import Synchronization
import Testing

@testable import BluezKit

/// Where bluetoothd places the services of an app, and where it is asked to place those of an earlier process.
@Suite struct ServicePlacementTests {
    private final class Stage {
        let script: ScriptedBus
        let manager: CBPeripheralManager
        let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
        var table: String { get throws { try #require(script.turn { script.session.adapter.stackGeneration }) } }

        init() async throws {
            script = try await ScriptedBus()
            manager = CBPeripheralManager(
                delegate: nil, queue: nil, options: [BluezManagerOptionBusAddressKey: script.address.rawValue])
            script.answerRoutinely(["RegisterAgent": [], "Introspect": [.string("<node/>")]])
            try await script.expect("GetAll", at: ScriptedBus.hci0).answer(ScriptedBus.adapter(isPowered: true))
            try await script.states.next("power") { $0 == .poweredOn ? true : nil }
        }

        func publish(isResumed: Bool) {
            let published = manager.mirror.publish(service, call: 1) { _ in 0 }
            manager.core.send(.add(published, isResumed: isResumed))
        }

        /// Where an earlier process had it.
        func place(at handle: UInt16, in table: String) {
            service.placement.withLock { $0 = Snapshot.Placement(handle: handle, bluetooth: table) }
        }

        /// Its handle, as the app keeps it.
        func handle(in table: String) -> UInt16? {
            service.placement.withLock { $0?.bluetooth == table ? $0?.handle : nil }
        }

        /// The next registration, and the handle that its service asks for.
        func registration() async throws -> (call: ScriptedBus.Call, service: ObjectPath, handle: Value?) {
            let call = try await script.expect("RegisterApplication", at: ScriptedBus.hci0)
            let first = try await script.objects(below: #require(call.object)).first
            let service = try #require(first)
            return (call, service.path, service.interfaces[BlueZ.service]?.dictionaryValue?["Handle"])
        }
    }

    @Test(
        "bluetoothd says where it has placed a service; restored, it asks for this place, and for any where that is taken"
    )
    func taken() async throws {
        let stage = try await Stage()
        try stage.place(at: 0x40, in: stage.table)
        stage.publish(isResumed: true)
        let first = try await stage.registration()
        #expect(first.handle == .uint16(0x40))
        first.call.refuse("Failed", "Failed to create entry in database")
        let second = try await stage.registration()
        #expect(second.handle == .uint16(0))
        _ = try await stage.script.call(
            second.service, "org.freedesktop.DBus.Properties", "Set",
            [.string(BlueZ.service), .string("Handle"), .variant(.uint16(0x50))])
        second.call.answer()
        try await stage.script.expectNoCall()
        let table = try stage.table
        try await eventually("the app has the handle") { stage.handle(in: table) == 0x50 }
    }

    // Another table may have an equal service of another program there, which bluetoothd would take for this one.
    @Test("a service that was placed by another bluetoothd, or that the app adds itself, is placed anywhere")
    func elsewhere() async throws {
        for isResumed in [true, false] {
            let stage = try await Stage()
            stage.place(at: 0x40, in: isResumed ? "another one" : try stage.table)
            stage.publish(isResumed: isResumed)
            #expect(try await stage.registration().handle == .uint16(0))
        }
    }

    // Where Bluetooth went off before bluetoothd had been asked for all of them, the others were dropped: the app had
    // them, and could not add them again, but no central ever saw them.
    @Test("ST-5 RS-14 what an earlier process had published is published, although Bluetooth has just gone off")
    func switchedOff() async throws {
        let stage = try await Stage()
        try stage.script.change(ScriptedBus.hci0, BlueZ.adapter, [("Powered", .bool(false))])
        try await stage.script.states.next("power off") { $0 == .poweredOff ? true : nil }
        stage.publish(isResumed: true)
        try await stage.registration().call.answer()
        try await stage.script.settle()
        #expect(stage.script.turn { stage.manager.core.gattServer.calls } == [1])
    }
}
