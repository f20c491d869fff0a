import BluezDBus
import Foundation
import Testing

@testable import BluezKit

// Updates stopped for good, or for long, or were lost: after bluetoothd had hung with one on its way (nobody answered the
// question that had been asked on the old connection, and no other was asked); when a central subscribed again before
// the end of its first subscription was seen (its new socket was closed); after an empty value (a packet without bytes is
// the end of a socket); while one central confirmed no indications (one window for everybody). And an MTU below 23 was a
// trap. Each now concerns nothing but itself.
@Suite struct UpdateTests {
    @Test("UP-2 UP-3 updates go on after bluetoothd hung with one on its way")
    func hang() async throws {
        var victim = try await Victim()
        let manager = try #require(victim.publisher.manager)
        let session = victim.session
        _ = try await victim.fake.acquire(victim.path(victim.notifying))
        _ = try await victim.publisher.nextSubscription()
        session.queue.sync {
            session.blueZ.timing.patience = .milliseconds(200)
            session.bus?.patience = .milliseconds(200)
        }
        victim.fake.peer.queue.suspend()
        #expect(manager.updateValue(Data([1]), for: victim.notifying, onSubscribedCentrals: nil))
        try await victim.publisher.next("resetting") { if case .state(.resetting) = $0 { true } else { nil } }
        victim.fake.peer.queue.resume()
        session.queue.sync {
            session.blueZ.timing.patience = .seconds(10)
            session.bus?.patience = .seconds(10)
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

    @Test("UP-7 a central that subscribes again before its end was seen keeps its new socket, and hears")
    func resubscription() async throws {
        let victim = try await Victim(givesSockets: true)
        let manager = try #require(victim.publisher.manager)
        let first = try #require(try await victim.fake.acquire(victim.path(victim.notifying)))
        _ = try await victim.publisher.nextSubscription()
        let second = try #require(try await victim.fake.acquire(victim.path(victim.notifying)))
        defer { for socket in [first, second] { close(socket) } }
        _ = try await victim.publisher.nextUnsubscription()
        let (central, _) = try await victim.publisher.nextSubscription()
        #expect(manager.updateValue(Data([7]), for: victim.notifying, onSubscribedCentrals: [central]))
        #expect(await packet(second) == [7])
        #expect(await packet(first) == nil, "the old one has ended")
    }

    @Test("UP-5 an empty value goes by a signal, and leaves the sockets as they are")
    func emptyValue() async throws {
        let victim = try await Victim(givesSockets: true)
        let manager = try #require(victim.publisher.manager)
        let socket = try #require(try await victim.fake.acquire(victim.path(victim.notifying)))
        defer { close(socket) }
        _ = try await victim.publisher.nextSubscription()
        #expect(manager.updateValue(Data(), for: victim.notifying, onSubscribedCentrals: nil))
        let signal = try await victim.fake.peer.signals.next("the empty value") {
            $0.member == "PropertiesChanged" ? $0.values : nil
        }
        #expect(signal[1].dictionaryValue?["Value"]?.bytesValue == [])
        #expect(manager.updateValue(Data([1]), for: victim.notifying, onSubscribedCentrals: nil))
        #expect(await packet(socket) == [1])
    }

    @Test("UP-10 an MTU that no link can have is taken for the least", arguments: [0, 1, 3, 22])
    func unusualMTU(_ mtu: UInt16) async throws {
        let victim = try await Victim(givesSockets: true)
        let manager = try #require(victim.publisher.manager)
        let socket = try #require(try await victim.fake.acquire(victim.path(victim.notifying), mtu: mtu))
        defer { close(socket) }
        let (central, _) = try await victim.publisher.nextSubscription()
        #expect(central.maximumUpdateValueLength == 20)
        #expect(manager.updateValue(Data(0..<30), for: victim.notifying, onSubscribedCentrals: nil))
        #expect(await packet(socket) == Array(0..<20))
    }

    @Test("UP-2 UP-3 UP-9 a central that confirms nothing holds up its own characteristic, and no other")
    func unconfirmed() async throws {
        let victim = try await Victim()
        let manager = try #require(victim.publisher.manager)
        _ = try await victim.fake.acquire(victim.path(victim.indicating), FakeBlueZ.device(1))
        _ = try await victim.fake.acquire(victim.path(victim.notifying), FakeBlueZ.device(2))
        for _ in 0..<2 { _ = try await victim.publisher.nextSubscription() }
        var sent = 0
        while manager.updateValue(Data([1]), for: victim.indicating, onSubscribedCentrals: nil) { sent += 1 }
        #expect(sent == UpdateWindow.limit)
        #expect(manager.updateValue(Data([2]), for: victim.notifying, onSubscribedCentrals: nil))
        // Readiness is for the one that was refused.
        for _ in 0..<sent { try victim.fake.send(victim.path(victim.indicating), "Confirm", []) }
        try await victim.publisher.next("readiness") { if case .ready = $0 { true } else { nil } }
        #expect(manager.updateValue(Data([3]), for: victim.indicating, onSubscribedCentrals: nil))
        #expect(victim.publisher.count { if case .ready = $0 { true } else { false } } == 1)
    }
}
