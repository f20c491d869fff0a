import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// Pairing: who starts it, which handler is called, and what is stored. In the simulator and against the real
/// bluetoothd, with an independent stack on the other side.
extension Scenarios {
    @Suite struct PairingScenarios {
        struct Setting {
            let world: any World
            let central: Central
            let sink: CBPeripheral
            private(set) var secret: CBCharacteristic

            var isBonded: Bool { central.manager.retrieveBondedPeripherals().contains(sink) }

            /// bluetoothd receives the bond and the value on two sockets, and may signal the value first.
            func expectBond() async throws {
                try await eventually("the sink is bonded") { isBonded }
            }

            /// Reads what needs encryption; the answer comes once.
            func read() async throws -> Result<Data, any Error> {
                central.forgetRecords()
                let result = try await central.read(secret)
                #expect(central.count { if case .value(secret, _, _) = $0 { true } else { false } } == 1)
                return result
            }

            /// The one answer is an error, nothing is paired, and the link, which BlueZ has made useless, ends.
            func expectRefusal(ofWriting isWrite: Bool = false) async throws {
                let error = isWrite ? try await central.write(Data([1]), to: secret) : try await read().failure
                #expect((error as? CBATTError)?.code == .insufficientAuthentication)
                let end = try await central.next("disconnection") {
                    if case .disconnected(sink, _, let error) = $0 { [error] } else { nil }
                }[0]
                #expect((end as? CBError)?.code == .encryptionTimedOut)
                #expect(!isBonded)
            }

            /// The link ends with the bond.
            func removeBond() async throws {
                try await central.removeBond(sink)
                try await central.next("disconnection") {
                    if case .disconnected(sink, _, .some) = $0 { true } else { nil }
                }
            }

            mutating func reconnect() async throws {
                try await central.connect(sink)
                secret = try await central.characteristic(sinkUUID(0x16), of: sinkUUID(1), on: sink)
            }

            /// Connects again, and reads what needs encryption, which the app allows now; or writes it first.
            mutating func useAllowed(_ isWrite: Bool = false) async throws {
                central.manager.pairing = .justWorks
                try await reconnect()
                if isWrite { #expect(try await central.write(Data("encrypted".utf8), to: secret) == nil) }
                #expect(try await central.read(secret).get() == Data("encrypted".utf8))
                try await expectBond()
            }

            /// The link ends in place of an answer, and there is no bond.
            /// - Parameter isKnown: Whether it is known that a pairing has failed: the app has taken part in it, or
            ///   BlueZ tells why the link ends.
            func expectFailedPairing(isKnown: Bool) async throws {
                _ = LogCapture.shared
                central.forgetRecords()
                sink.readValue(for: secret)
                let end = try await central.next("the end") {
                    if case .disconnected(sink, _, let error) = $0 { [error] } else { nil }
                }[0]
                #expect((end as? CBError)?.code == (isKnown ? .encryptionTimedOut : .peripheralDisconnected))
                #expect(!isBonded)
                if !isKnown { try await LogCapture.shared.expect("F0:F1:F2:00:00:02", "refuses to pair") }
            }

            /// Whether BlueZ tells why a link ends.
            var hasReasons: Bool {
                let core = central.manager.core.central
                return core.bus.queue.sync { core.adapter.daemon.givesReasons }
            }
        }

        /// Connected to a sink that pairs like this, and has no bonds.
        func prepare(
            _ kind: String, _ pairing: BluezPairing, in world: (any World)? = nil, options: [String: Any] = [:]
        ) async throws -> Setting {
            let world = if let world { world } else { try await Worlds.make() }
            let central = Central(world, options: options)
            try await central.powerOn()
            try await world.control("sink pairing \(kind)")
            try await world.control("sink forget")
            let identifier = DeviceIdentity(address: 0xF0F1_F200_0002, isRandom: true).identifier
            let sink = try #require(central.manager.retrievePeripherals(withIdentifiers: [identifier]).first)
            try await central.removeBond(sink)
            central.manager.pairing = pairing
            try await central.connect(sink)
            let secret = try await central.characteristic(sinkUUID(0x16), of: sinkUUID(1), on: sink)
            return Setting(world: world, central: central, sink: sink, secret: secret)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("CN-14 O-32 GD-10 just works, which the app allows: one answer; the bond is listed, kept and removed")
        func justWorks() async throws {
            let setting = try await prepare("justworks", .justWorks)
            #expect(!setting.isBonded)
            #expect(try await setting.read().get() == Data("encrypted".utf8))
            try await setting.expectBond()
            // The next link is encrypted automatically.
            try await setting.central.disconnect(setting.sink)
            setting.central.manager.pairing = BluezPairing()
            try await setting.central.connect(setting.sink)
            let secret = try await setting.central.characteristic(
                sinkUUID(0x16), of: sinkUUID(1), on: setting.sink)
            // A bonded peripheral indicates changes, so what was read before is available at once.
            #expect(secret !== setting.secret && secret.value == Data("encrypted".utf8))
            #expect(try await setting.central.read(secret).get() == Data("encrypted".utf8))
            try await setting.removeBond()
            #expect(!setting.isBonded)
        }

        @Test("CN-14 an app without pairing handlers: the read is refused at once, and nothing is paired")
        func nothingAllowed() async throws {
            try await prepare("justworks", BluezPairing()).expectRefusal()
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("CN-14 attributes whose pairing was refused can be read and written once the app allows it, repeatedly")
        func allowedAfterRefusal() async throws {
            var setting = try await prepare("justworks", BluezPairing())
            for round in 0..<2 {
                if round > 0 { try await setting.reconnect() }
                setting.central.manager.pairing = BluezPairing()
                // The next operation is the same, and would join the one that BlueZ has kept.
                let isWrite = round > 0
                try await setting.expectRefusal(ofWriting: isWrite)
                try await setting.useAllowed(isWrite)
                try await setting.removeBond()
            }
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("CN-14 a peripheral that leaves while the app is asked: the next link reads what this one could not")
        func leavesWhileAsked() async throws {
            let asked = EventLog<String>()
            var pairing = BluezPairing()
            pairing.consent = { _, _ in asked.append("consent") }
            var setting = try await prepare("justworks", pairing)
            setting.sink.readValue(for: setting.secret)
            _ = try await asked.next("question") { $0 }
            try await setting.world.control("sink disconnect")
            try await setting.central.next("disconnection") {
                if case .disconnected(setting.sink, _, .some) = $0 { true } else { nil }
            }
            try await setting.useAllowed()
            try await setting.removeBond()
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test(
            "CN-14 consent: the app is asked on its queue; false is a refusal, true creates a bond",
            arguments: [true, false])
        func consent(agrees: Bool) async throws {
            let asked = EventLog<String>()
            var pairing = BluezPairing()
            pairing.consent = { peripheral, decide in
                asked.append(Central.queues.isHere ? "on queue" : "elsewhere")
                DispatchQueue.global().async { decide(agrees) }
            }
            let setting = try await prepare("justworks", pairing)
            if agrees {
                #expect(try await setting.read().get() == Data("encrypted".utf8))
                try await setting.expectBond()
                try await setting.central.removeBond(setting.sink)
            } else {
                try await setting.expectRefusal()
            }
            #expect(asked.all == ["on queue"])
        }

        // Slow: in the rig, another adapter is plugged in, and BlueZ ends each link two to three seconds after it was
        // asked to.
        @Test(
            "CN-14 two adapters in one process: BlueZ asks the first one's agent, and the second one's app is asked",
            .enabled(if: !isHosted, "sessions of a keeper hand nothing on"), arguments: [true, false])
        func secondAdapter(agrees: Bool) async throws {
            let asked = EventLog<String>()
            func consenting(_ name: String) -> BluezPairing {
                var pairing = BluezPairing()
                pairing.consent = { _, decide in
                    asked.append(name)
                    decide(agrees)
                }
                return pairing
            }
            let world = try await Worlds.make()
            try await world.control("rig adapters 2")
            let first = Central(world, options: [BluezManagerOptionAdapterKey: "hci0"])
            try await first.powerOn()
            first.manager.pairing = consenting("first")
            let heart = try await first.find("Rig Heart")
            try await first.connect(heart)  // from now on its agent is the first one
            let setting = try await prepare(
                "justworks", consenting("second"), in: world, options: [BluezManagerOptionAdapterKey: "hci1"])
            if agrees {
                #expect(try await setting.read().get() == Data("encrypted".utf8))
                try await setting.expectBond()
                try await setting.removeBond()
            } else {
                try await setting.expectRefusal()
            }
            #expect(asked.all == ["second"])
            try await first.disconnect(heart)
        }

        @Test("CN-14 the peripheral shows a passkey: the app enters it", arguments: [123_456, 654_321])
        func entersPasskey(passkey: UInt32) async throws {
            var pairing = BluezPairing()
            pairing.enterPasskey = { _, enter in enter(passkey) }
            let setting = try await prepare("display 123456", pairing)
            if passkey == 123_456 {
                #expect(try await setting.read().get() == Data("encrypted".utf8))
                try await setting.expectBond()
                try await setting.central.removeBond(setting.sink)
            } else {
                try await setting.expectFailedPairing(isKnown: true)
            }
        }

        @Test("CN-14 the app shows a passkey, which is entered on the peripheral; then the app hides it")
        func displaysPasskey() async throws {
            let shown = EventLog<String>()
            var pairing = BluezPairing()
            pairing.displayPasskey = { shown.append($1) }
            pairing.ended = { _ in shown.append("ended") }
            let setting = try await prepare("keyboard", pairing)
            setting.sink.readValue(for: setting.secret)
            let passkey = try await shown.next("passkey") { $0 }
            #expect(passkey.count == 6 && passkey.allSatisfy(\.isNumber))
            _ = try await setting.world.nextEvent("passkey?") { $0 == "sink passkey?" }
            try await setting.world.control("sink enter \(passkey)")
            let value = try await setting.central.next("value") {
                if case .value(setting.secret, let value, nil) = $0 { value } else { nil }
            }
            #expect(value == Data("encrypted".utf8))
            try await setting.expectBond()
            #expect(try await shown.next("end") { $0 } == "ended")
            try await setting.central.removeBond(setting.sink)
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("CN-14 both devices show a number, and the app confirms it", seesCore, arguments: [true, false])
        func compares(areEqual: Bool) async throws {
            let shown = EventLog<String>()
            var pairing = BluezPairing()
            pairing.comparePasskey = { _, passkey, decide in
                shown.append(passkey)
                decide(areEqual)
            }
            let setting = try await prepare("numeric", pairing)
            if areEqual {
                #expect(try await setting.read().get() == Data("encrypted".utf8))
                try await setting.expectBond()
                try await setting.central.removeBond(setting.sink)
            } else {
                try await setting.expectRefusal()
            }
            #expect(shown.all.count == 1 && shown.all.allSatisfy { $0.count == 6 })
        }

        @Test(
            "CN-14 the peripheral refuses to pair: the link ends, an error or the log says why, and there is no bond",
            seesCore)
        func peripheralRefuses() async throws {
            let setting = try await prepare("reject", .justWorks)
            try await setting.expectFailedPairing(isKnown: setting.hasReasons)
            try await setting.world.control("sink pairing justworks")
        }

        // Slow: in the rig, BlueZ ends each link two to three seconds after it was asked to.
        @Test("CN-9 the peripheral has lost its keys: peerRemovedPairingInformation, although bluetoothd crashes")
        func lostKeys() async throws {
            let setting = try await prepare("justworks", .justWorks)
            #expect(try await setting.read().get() == Data("encrypted".utf8))
            try await setting.central.disconnect(setting.sink)
            try await setting.world.control("sink forget")
            // 5.66 may crash. Other versions report it; up to 5.82 at one of ten attempts (COMPATIBILITY.md).
            func attempt() async throws -> (any Error)?? {
                setting.central.manager.connect(setting.sink)
                return try await setting.central.next("the end, or a reset") { event -> [(any Error)?]? in
                    switch event {
                    case .failed(_, let error), .disconnected(_, _, let error): [error]
                    case .state(.resetting): []
                    default: nil
                    }
                }.first
            }
            var error = try await attempt()
            for _ in 1..<60 where (error as? CBError)?.code == .peripheralDisconnected { error = try await attempt() }
            var sink = setting.sink
            if let error {
                #expect((error as? CBError)?.code == .peerRemovedPairingInformation)
            } else {
                try await setting.world.control("bluetoothd start")
                try await setting.central.powerOn()
                sink = try #require(
                    setting.central.manager.retrievePeripherals(withIdentifiers: [sink.identifier]).first)
                setting.central.manager.connect(sink)
                let failure = try await setting.central.next("failure") { [sink] in
                    if case .failed(sink, let error) = $0 { [error] } else { nil }
                }[0]
                #expect((failure as? CBError)?.code == .peerRemovedPairingInformation)
            }
            // Without the bond it works again.
            try await setting.central.removeBond(sink)
            try await setting.central.connect(sink)
            let secret = try await setting.central.characteristic(sinkUUID(0x16), of: sinkUUID(1), on: sink)
            #expect(try await setting.central.read(secret).get() == Data("encrypted".utf8))
            try await setting.central.removeBond(sink)
        }

        // Slow: in the rig, bluetoothd restarts, and BlueZ ends each of three links two to three seconds after it was
        // asked to.
        @Test("ID-2 D8 a private address: bonded, it is found with the next one, and after a restart of bluetoothd")
        func privateAddress() async throws {
            let world = try await Worlds.make()
            try await world.withPrivateSink { try await checkPrivateAddress(world) }
        }

        private func checkPrivateAddress(_ world: any World) async throws {
            let central = Central(world)
            try await central.powerOn()
            let identity = DeviceIdentity(address: 0xF0F1_F200_0002, isRandom: true).identifier
            let sink = try await central.find("Rig Sink", services: [sinkUUID(1)])
            #expect(sink.identifier != identity && sink.identityIdentifier == sink.identifier)
            central.manager.pairing = .justWorks
            func connectAndRead() async throws {
                try await central.connect(sink)
                let secret = try await central.characteristic(sinkUUID(0x16), of: sinkUUID(1), on: sink)
                #expect(try await central.read(secret).get() == Data("encrypted".utf8))
            }
            try await connectAndRead()
            #expect(sink.identityIdentifier == identity)
            try await central.disconnect(sink)
            // Its next address.
            try await world.control("sink private")
            try await connectAndRead()
            try await central.disconnect(sink)
            // BlueZ creates its object again, with another path.
            try await world.control("bluetoothd stop")
            try await world.control("sink private")
            try await world.control("bluetoothd start")
            try await central.powerOn()
            let later = try #require(central.manager.retrievePeripherals(withIdentifiers: [sink.identifier]).first)
            central.manager.connect(later)
            // BlueZ's first attempt may miss the new address; it lasts 40 s.
            try await central.next("connection", within: 3 * world_deadline) {
                if case .connected(later) = $0 { true } else { nil }
            }
            let secret = try await central.characteristic(sinkUUID(0x16), of: sinkUUID(1), on: later)
            #expect(try await central.read(secret).get() == Data("encrypted".utf8))
            try await central.removeBond(later)
        }
    }
}
