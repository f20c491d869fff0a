import CoreBluetooth
import Foundation
import Testing

/// Subscribers, and what reaches them.
extension Scenarios {
    @Suite struct UpdateScenarios {
        private func heard(_ world: any World, _ what: String) async throws -> String {
            try await world.nextEvent(what) { $0.contains(what) }
        }

        @Test("UP-1 UP-4 UP-7 UP-8 O-36 subscribers are listed in the callbacks, get updates in order, and are removed")
        func subscribing() async throws {
            let (first, second) = (local(0x110, [.read, .notify]), local(0x111, .notify))
            let (world, publisher) = try await Publisher.connected([first, second])
            #expect(publisher.manager.updateValue(Data([1]), for: first, onSubscribedCentrals: nil))
            for characteristic in [first, second] {
                _ = try await world.control("central subscribe \(characteristic.uuid.line)")
                let record = try await publisher.nextRecord("a subscription") {
                    if case .subscribed = $0.event { $0 } else { nil }
                }
                guard case .subscribed(let central, let subscribed) = record.event else { return }
                #expect(subscribed === characteristic)
                #expect(record.subscribers == [central])
                #expect(central.identifier.uuidString == "426C7A4B-0100-8000-8000-F0F1F2000004")
            }
            for number in UInt8(0)..<5 {
                #expect(publisher.manager.updateValue(Data([number]), for: first, onSubscribedCentrals: nil))
            }
            for number in UInt8(0)..<5 {
                let event = try await heard(world, "notified \(first.uuid.line)")
                #expect(event.hasSuffix(" " + Data([number]).hex))
            }
            #expect(first.value == nil)
            _ = try await world.control("central unsubscribe \(first.uuid.line)")
            let (_, left) = try await publisher.nextUnsubscription()
            #expect(left === first)
            #expect(first.subscribedCentrals == [])
            #expect(second.subscribedCentrals?.count == 1)
            // A lost link unsubscribes from what is left, once.
            _ = try await world.control("central subscribe \(first.uuid.line)")
            _ = try await publisher.nextSubscription()
            _ = try await world.control("central disconnect")
            for _ in 0..<2 {
                let record = try await publisher.nextRecord("the end of a subscription") {
                    if case .unsubscribed = $0.event { $0 } else { nil }
                }
                #expect(record.subscribers == [])
            }
            try await world.connect()
            _ = try await world.control("central subscribe \(second.uuid.line)")
            _ = try await publisher.nextSubscription()
            #expect(publisher.count { if case .unsubscribed = $0 { true } else { false } } == 3)
        }

        @Test("UP-1 UP-9 UP-10 two centrals, one with indications: each is known, and gets updates as it requested")
        func twoCentrals() async throws {
            let characteristic = local(0x110, [.notify, .indicate])
            let (world, publisher) = try await Publisher.connected([characteristic])
            try await world.connect("central2")
            _ = try await world.control("central subscribe \(characteristic.uuid.line)")
            let (one, _) = try await publisher.nextSubscription()
            _ = try await world.control("central2 indications \(characteristic.uuid.line)")
            let (two, _) = try await publisher.nextSubscription()
            #expect(one.identifier.uuidString.hasSuffix("F0F1F2000004"))
            #expect(two.identifier.uuidString.hasSuffix("F0F1F2000005"))
            #expect(characteristic.subscribedCentrals?.map(\.identifier) == [one.identifier, two.identifier])
            #expect(publisher.manager.updateValue(Data([0xAB]), for: characteristic, onSubscribedCentrals: nil))
            var events: Set<String> = []
            while events.count < 2 { events.insert(try await heard(world, "\(characteristic.uuid.line) ab")) }
            #expect(
                events == [
                    "central notified \(characteristic.uuid.line) ab",
                    "central2 indicated \(characteristic.uuid.line) ab",
                ])
            // One of two unsubscribes.
            _ = try await world.control("central disconnect")
            let (gone, _) = try await publisher.nextUnsubscription()
            #expect(gone.identifier == one.identifier)
            #expect(characteristic.subscribedCentrals?.map(\.identifier) == [two.identifier])
            // The list of the app names one that is there, and one that is not.
            #expect(publisher.manager.updateValue(Data([1]), for: characteristic, onSubscribedCentrals: [one]))
            #expect(publisher.manager.updateValue(Data([2]), for: characteristic, onSubscribedCentrals: [one, two]))
            #expect(try await heard(world, "central2 indicated").hasSuffix(" 02"))
            // BlueZ 5.66 crashes if a service is removed before its last indication is confirmed.
            _ = try await world.control("central2 disconnect")
            _ = try await publisher.nextUnsubscription()
        }

        @Test("UP-1 UP-10 when the central that subscribed last leaves, the one before it still gets updates")
        func oneOfTwo() async throws {
            let characteristic = local(0x110, .notify)
            let (world, publisher) = try await Publisher.connected([characteristic])
            try await world.connect("central2")
            _ = try await world.control("central subscribe \(characteristic.uuid.line)")
            let (one, _) = try await publisher.nextSubscription()
            _ = try await world.control("central2 subscribe \(characteristic.uuid.line)")
            _ = try await publisher.nextSubscription()
            // BlueZ 5.76 to 5.87 closes the socket of the first as well.
            _ = try await world.control("central2 disconnect")
            let (gone, _) = try await publisher.nextUnsubscription()
            #expect(gone.identifier != one.identifier)
            for number in UInt8(7)..<9 {
                #expect(publisher.manager.updateValue(Data([number]), for: characteristic, onSubscribedCentrals: nil))
                #expect(try await heard(world, "central notified").hasSuffix(" " + Data([number]).hex))
            }
            #expect(characteristic.subscribedCentrals?.map(\.identifier) == [one.identifier])
        }

        @Test("UP-5 O-38 a longer value is cut to the central's limit")
        func longValues() async throws {
            let characteristic = local(0x110, .notify)
            let (world, publisher) = try await Publisher.connected([characteristic], mtu: 50)
            _ = try await world.control("central subscribe \(characteristic.uuid.line)")
            let (central, _) = try await publisher.nextSubscription()
            #expect(central.maximumUpdateValueLength == 47)
            let value = Data((0..<600).map { UInt8(truncatingIfNeeded: $0) })
            #expect(publisher.manager.updateValue(value, for: characteristic, onSubscribedCentrals: [central]))
            #expect(try await heard(world, "notified").hasSuffix(" " + value.prefix(47).hex))
            #expect(publisher.manager.updateValue(Data(), for: characteristic, onSubscribedCentrals: nil))
            #expect(try await heard(world, "notified").hasSuffix(characteristic.uuid.line + " "))
        }

        // Slow: in the rig, 400 updates go over the air one after the other.
        @Test("UP-2 UP-3 UP-8 O-37 send until false, wait for readiness: all arrives in order")
        func flow() async throws {
            let characteristic = local(0x110, .notify)
            let (world, publisher) = try await Publisher.connected([characteristic])
            _ = try await world.control("central subscribe \(characteristic.uuid.line)")
            _ = try await publisher.nextSubscription()
            let count = 400
            let sent = ProtectedBox(0)
            let refusals = ProtectedBox(0)
            let pump: @Sendable (CBPeripheralManager) -> Void = { manager in
                while sent.withLock({ $0 }) < count {
                    let number = sent.withLock { $0 }
                    let data = Data([UInt8(number >> 8), UInt8(number & 255)])
                    guard manager.updateValue(data, for: characteristic, onSubscribedCentrals: nil) else {
                        return refusals.withLock { $0 += 1 }
                    }
                    sent.withLock { $0 += 1 }
                }
            }
            publisher.onEvent { manager, event in if case .ready = event { pump(manager) } }
            await publisher.perform(pump)
            for number in 0..<count {
                let event = try await heard(world, "notified")
                #expect(event.hasSuffix(" " + Data([UInt8(number >> 8), UInt8(number & 255)]).hex))
            }
            let ready = publisher.count { if case .ready = $0 { true } else { false } }
            #expect(refusals.withLock { $0 } == ready)
            #expect(ready > 0)
        }

        @Test("UP-8 UP-9 indications arrive in order")
        func indications() async throws {
            let characteristic = local(0x110, .indicate)
            let (world, publisher) = try await Publisher.connected([characteristic])
            _ = try await world.control("central subscribe \(characteristic.uuid.line)")
            _ = try await publisher.nextSubscription()
            for number in UInt8(0)..<10 {
                #expect(publisher.manager.updateValue(Data([number]), for: characteristic, onSubscribedCentrals: nil))
            }
            for number in UInt8(0)..<10 {
                #expect(try await heard(world, "indicated").hasSuffix(" " + Data([number]).hex))
            }
            _ = try await world.control("central disconnect")
            _ = try await publisher.nextUnsubscription()
        }

        @Test("UP-9 an indication that is not confirmed holds back the next, and in the end updateValue")
        func unconfirmed() async throws {
            let characteristic = local(0x110, .indicate)
            let (world, publisher) = try await Publisher.connected([characteristic])
            _ = try await world.control("central subscribe \(characteristic.uuid.line)")
            _ = try await publisher.nextSubscription()
            _ = try await world.control("central confirm off")
            var sent = 0
            while publisher.manager.updateValue(Data([UInt8(sent)]), for: characteristic, onSubscribedCentrals: nil) {
                sent += 1
            }
            #expect(sent == 64)
            #expect(try await heard(world, "indicated").hasSuffix(" 00"))
            _ = try await world.control("central confirm on")
            // What it does not confirm ends its subscription, and that makes room.
            _ = try await world.control("central disconnect")
            try await publisher.next("readiness") { if case .ready = $0 { true } else { nil } }
            #expect(publisher.count { if case .ready = $0 { true } else { false } } == 1)
        }
    }
}
