import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

/// Pairing, bonds and the choice of an adapter with `async`. In the simulator and against the real bluetoothd.
extension Scenarios {
    @Suite struct AsyncPairingScenarios {
        private struct Setting {
            let world: any BluezKitTests.World
            let central: CentralManager
            let sink: CoreBluetoothAsync.Peripheral
            let secret: Characteristic

            func read() async throws -> Data {
                let (sink, secret) = (sink, secret)
                return try await within { try await sink.readValue(for: secret) }
            }

            /// Reads what demands a pairing. That succeeds, and is undone; or it is refused.
            func expectPairing<Refusal: Error>(
                _ succeeds: Bool, else refusal: Refusal.Type = CBATTError.self
            ) async throws {
                if succeeds {
                    #expect(try await read() == Data("encrypted".utf8))
                    try await expectBond()
                    try await removeBond()
                } else {
                    await #expect(throws: refusal) { try await read() }
                    try await expectBond(false)
                }
            }

            func expectBond(_ isBonded: Bool = true) async throws {
                try await eventually("the sink is bonded: \(isBonded)") {
                    await central.retrieveBondedPeripherals().contains(sink) == isBonded
                }
            }

            func removeBond() async throws {
                let (central, sink) = (central, sink)
                try await within { try await central.removeBond(with: sink) }
                try await expectBond(false)
            }
        }

        /// Connected to a sink that pairs like this, and has no bonds.
        private func prepare(_ kind: String, _ pairing: Pairing) async throws -> Setting {
            let world = try await Worlds.make()
            let central = CentralManager(options: world.managerOptions)
            try await world.control("sink pairing \(kind)")
            try await world.control("sink forget")
            let identifier = try #require(UUID(uuidString: "426C7A4B-0100-8000-8000-F0F1F2000002"))
            let sink = try #require(await central.retrievePeripherals(withIdentifiers: [identifier]).first)
            try await within { try await central.removeBond(with: sink) }
            central.pairing = pairing
            try await within { try await central.connect(sink) }
            let secret = try await within { try await sink.discoverCharacteristic(sinkUUID(0x16), in: sinkUUID(1)) }
            return Setting(world: world, central: central, sink: sink, secret: secret)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("CN-14 GD-10 just works, which the app allows: one answer; the bond is listed, and ends with its link")
        func justWorks() async throws {
            let setting = try await prepare("justworks", .justWorks)
            try await setting.expectBond(false)
            #expect(try await setting.read() == Data("encrypted".utf8))
            try await setting.expectBond()
            #expect(await setting.sink.identityIdentifier == setting.sink.identifier)
            let events = setting.central.events
            try await setting.removeBond()
            try await within { [sink = setting.sink] in
                for await event in events { if case .didDisconnectPeripheral(sink, _, _?) = event { return } }
            }
            await #expect(throws: CBError.self) { try await setting.read() }
        }

        @Test("CN-14 an app without pairing handlers: the read is refused at once, and nothing is paired")
        func nothingAllowed() async throws {
            let setting = try await prepare("justworks", Pairing())
            let error = await thrown { _ = try await setting.read() }
            #expect((error as? CBATTError)?.code == .insufficientAuthentication)
            try await setting.expectBond(false)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("CN-14 consent: a handler is asked, and takes its time; false is a refusal", arguments: [true, false])
        func consent(agrees: Bool) async throws {
            let asked = EventLog<UUID>()
            var pairing = Pairing()
            pairing.consent = { peripheral in
                asked.append(peripheral.identifier)
                _ = await peripheral.services  // uses the manager meanwhile
                return agrees
            }
            let setting = try await prepare("justworks", pairing)
            try await setting.expectPairing(agrees)
            #expect(asked.all == [setting.sink.identifier])
        }

        @Test("CN-14 the peripheral shows a passkey: the app enters it", arguments: [123_456, 654_321])
        func entersPasskey(passkey: UInt32) async throws {
            var pairing = Pairing()
            pairing.enterPasskey = { _ in passkey }
            let setting = try await prepare("display 123456", pairing)
            try await setting.expectPairing(passkey == 123_456, else: CBError.self)
        }

        @Test("CN-14 the app shows a passkey until pairing has ended, which cancels the handler's task")
        func displaysPasskey() async throws {
            let shown = EventLog<String>()
            var pairing = Pairing()
            pairing.displayPasskey = { _, passkey in
                shown.append(passkey)
                try? await Task.sleep(for: .seconds(2 * world_deadline))
                shown.append(Task.isCancelled ? "ended" : "still there")
            }
            let setting = try await prepare("keyboard", pairing)
            let reading = Task { try await setting.read() }
            let passkey = try await shown.next("passkey") { $0 }
            #expect(passkey.count == 6 && passkey.allSatisfy(\.isNumber))
            _ = try await setting.world.nextEvent("passkey?") { $0 == "sink passkey?" }
            try await setting.world.control("sink enter \(passkey)")
            #expect(try await reading.value == Data("encrypted".utf8))
            #expect(try await shown.next("the end") { $0 } == "ended")
            try await setting.expectBond()
            try await setting.removeBond()
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("CN-14 both devices show a number, and the app confirms it", arguments: [true, false])
        func compares(areEqual: Bool) async throws {
            let shown = EventLog<String>()
            var pairing = Pairing()
            pairing.comparePasskey = { _, passkey in
                shown.append(passkey)
                return areEqual
            }
            let setting = try await prepare("numeric", pairing)
            try await setting.expectPairing(areEqual)
            #expect(shown.all.count == 1 && shown.all.allSatisfy { $0.count == 6 })
        }

        @Test("ST-6 an adapter that is not there is an error that does not say what it cannot know")
        func noSuchAdapter() async throws {
            let world = try await Worlds.make()
            let central = CentralManager(
                options: world.managerOptions.merging([BluezManagerOptionAdapterKey: "hci7"]) { $1 })
            let error = try #require(
                await thrown { try await within { try await central.waitUntilReady() } } as? BluetoothError)
            #expect(error == .unavailable(.unsupported))
            #expect(error.description.contains("adapter") && error.description.contains("log"))
            let peripheral = PeripheralManager(
                options: world.managerOptions.merging([BluezManagerOptionAdapterKey: "hci0"]) { $1 })
            try await within { try await peripheral.waitUntilReady() }
        }
    }
}
