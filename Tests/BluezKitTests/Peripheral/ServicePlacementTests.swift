import BluezDBus
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
            let published = PublishedService(service, core: manager.core, call: 1, isResumed: isResumed)
            script.turn { manager.core.gattServer.perform(.add(published)) }
        }

        /// The next registration, and the handle that its service asks for.
        func registration() async throws -> (call: ScriptedBus.Call, service: ObjectPath, handle: Value?) {
            let call = try await script.expect("RegisterApplication", at: ScriptedBus.hci0)
            guard case .path(let root)? = call.arguments.first else { throw BusError.malformed("no root") }
            let objects = try await script.call(root, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", [])
            guard case .dictionary(_, _, let entries)? = objects.first, case .path(let service)? = entries.first?.key
            else { throw BusError.malformed("no objects") }
            return (call, service, entries[0].value.dictionaryValue?[BlueZ.service]?.dictionaryValue?["Handle"])
        }
    }

    @Test(
        "bluetoothd says where it has placed a service; restored, it asks for this place, and for any where that is taken"
    )
    func taken() async throws {
        let stage = try await Stage()
        try stage.service.place(at: 0x40, in: stage.table)
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
        #expect(try stage.service.handle(in: stage.table) == 0x50)
    }

    // Another table may have an equal service of another program there, which bluetoothd would take for this one.
    @Test("a service that was placed by another bluetoothd, or that the app adds itself, is placed anywhere")
    func elsewhere() async throws {
        for isResumed in [true, false] {
            let stage = try await Stage()
            stage.service.place(at: 0x40, in: isResumed ? "another one" : try stage.table)
            stage.publish(isResumed: isResumed)
            #expect(try await stage.registration().handle == .uint16(0))
        }
    }
}
