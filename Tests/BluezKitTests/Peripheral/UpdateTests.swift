import BluezDBus
import BluezKitSimulator
import Foundation
import Testing

@testable import BluezKit

// Updates stopped permanently, or for a long time, or were lost: after bluetoothd had hung with one in flight (the ping
// on the old connection was never answered, and no other was sent); when a central subscribed again before the end of
// its first subscription was noticed (its new socket was closed); after an empty value (a packet without bytes closes a
// socket); while one central did not confirm indications (one window for all). And an MTU below 23 trapped. Now these
// cases do not affect each other.
@Suite struct UpdateTests {
    @Test("UP-2 UP-3 updates continue after bluetoothd hung while one was in flight")
    func hang() async throws {
        var victim = try await Victim()
        let manager = try #require(victim.publisher.manager)
        let session = victim.session
        _ = try await victim.fake.acquire(victim.path(victim.notifying))
        _ = try await victim.publisher.nextSubscription()
        session.queue.sync {
            session.blueZ.timing.daemon.slowCall = .milliseconds(200)
            session.bus?.slowCall = .milliseconds(200)
        }
        victim.fake.daemon.queue.suspend()
        #expect(manager.updateValue(Data([1]), for: victim.notifying, onSubscribedCentrals: nil))
        try await victim.publisher.next("resetting") { if case .state(.resetting) = $0 { true } else { nil } }
        victim.fake.daemon.queue.resume()
        session.queue.sync {
            session.blueZ.timing.daemon.slowCall = .seconds(10)
            session.bus?.slowCall = .seconds(10)
        }
        try await victim.publisher.powerOn()
        #expect(try await victim.publisher.add(victim.service) == nil)
        try await victim.findPaths()
        _ = try await victim.fake.acquire(victim.path(victim.notifying))
        _ = try await victim.publisher.nextSubscription()
        for _ in 0..<3 * UpdateWindow.limit {
            while !manager.updateValue(Data([2]), for: victim.notifying, onSubscribedCentrals: nil) {
                try await victim.publisher.next("readiness") { if case .ready = $0 { true } else { nil } }
            }
        }
    }

    @Test("UP-4 the values that a simulated central is notified of are a sequence, in order")
    func valuesOfCentral() async throws {
        let world = try await SimulatedWorld()
        let characteristic = local(0x110, .notify)
        let publisher = Publisher(world)
        try await publisher.powerOn()
        #expect(try await publisher.add(localService(0x100, [characteristic])) == nil)
        #expect(try await publisher.advertise() == nil)
        let central = world.simulator.central()
        try await central.connect(to: "00:B1:5E:00:00:01")
        let uuid = characteristic.uuid.line
        let values = central.values(of: uuid)
        try await central.subscribe(uuid)
        _ = try await publisher.nextSubscription()
        for number in UInt8(0)..<20 {
            #expect(publisher.manager.updateValue(Data([number]), for: characteristic, onSubscribedCentrals: nil))
        }
        let all = try await within { await values.prefix(20).reduce(into: []) { $0 += $1 } }
        #expect(all == Array(0..<20))
    }

    @Test("UP-7 a central that resubscribes before its disconnection was noticed keeps its new socket")
    func resubscription() async throws {
        let victim = try await Victim(version: BlueZVersion(5, 79))
        let manager = try #require(victim.publisher.manager)
        let first = try #require(try await victim.fake.acquire(victim.path(victim.notifying)))
        _ = try await victim.publisher.nextSubscription()
        // BlueZ has ended the first, which is reported later.
        shutdown(first, Int32(SHUT_RDWR))
        let second = try #require(try await victim.fake.acquire(victim.path(victim.notifying)))
        defer { for socket in [first, second] { close(socket) } }
        _ = try await victim.publisher.nextUnsubscription()
        let (central, _) = try await victim.publisher.nextSubscription()
        #expect(manager.updateValue(Data([7]), for: victim.notifying, onSubscribedCentrals: [central]))
        #expect(await packet(second) == [7])
        #expect(await packet(first) == nil, "the old one has ended")
    }

    @Test("UP-5 an empty value is sent by signal, and leaves the sockets open")
    func emptyValue() async throws {
        let victim = try await Victim(version: BlueZVersion(5, 79))
        let manager = try #require(victim.publisher.manager)
        let socket = try #require(try await victim.fake.acquire(victim.path(victim.notifying)))
        defer { close(socket) }
        _ = try await victim.publisher.nextSubscription()
        #expect(manager.updateValue(Data(), for: victim.notifying, onSubscribedCentrals: nil))
        let signal = try await victim.fake.daemon.signals.next("the empty value") {
            $0.member == "PropertiesChanged" ? $0.values : nil
        }
        #expect(signal[1].dictionaryValue?["Value"]?.bytesValue == [])
        #expect(manager.updateValue(Data([1]), for: victim.notifying, onSubscribedCentrals: nil))
        #expect(await packet(socket) == [1])
    }

    @Test("UP-10 an impossible MTU is treated as the minimum", arguments: [0, 1, 3, 22])
    func unusualMTU(_ mtu: UInt16) async throws {
        let victim = try await Victim(version: BlueZVersion(5, 79))
        let manager = try #require(victim.publisher.manager)
        let socket = try #require(try await victim.fake.acquire(victim.path(victim.notifying), mtu: mtu))
        defer { close(socket) }
        let (central, _) = try await victim.publisher.nextSubscription()
        #expect(central.maximumUpdateValueLength == 20)
        #expect(manager.updateValue(Data(0..<30), for: victim.notifying, onSubscribedCentrals: nil))
        // BlueZ knows better what the link takes.
        #expect(await packet(socket) == Array(0..<30))
    }

    @Test("UP-2 UP-3 UP-9 a central that does not confirm delays its own characteristic, and no other")
    func unconfirmed() async throws {
        let victim = try await Victim()
        let manager = try #require(victim.publisher.manager)
        _ = try await victim.fake.acquire(victim.path(victim.indicating), ScriptedBus.device(1))
        _ = try await victim.fake.acquire(victim.path(victim.notifying), ScriptedBus.device(2))
        for _ in 0..<2 { _ = try await victim.publisher.nextSubscription() }
        var sent = 0
        while manager.updateValue(Data([1]), for: victim.indicating, onSubscribedCentrals: nil) { sent += 1 }
        #expect(sent == UpdateWindow.limit)
        #expect(manager.updateValue(Data([2]), for: victim.notifying, onSubscribedCentrals: nil))
        // Readiness is for the one that was refused. BlueZ confirms what it has.
        for _ in 0..<sent {
            try await victim.fake.daemon.signals.next("an indication") {
                guard $0.member == "PropertiesChanged" else { return nil as Bool? }
                return $0.values[1].dictionaryValue?["Value"]?.bytesValue == [1] ? true : nil
            }
            try victim.fake.send(victim.path(victim.indicating), "Confirm")
        }
        try await victim.publisher.next("readiness") { if case .ready = $0 { true } else { nil } }
        #expect(manager.updateValue(Data([3]), for: victim.indicating, onSubscribedCentrals: nil))
        #expect(victim.publisher.count { if case .ready = $0 { true } else { false } } == 1)
    }
}
