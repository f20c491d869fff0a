import BluezDBus
import Foundation
import Testing

@testable import BluezKit

@Suite struct SubscriptionTests {
    private let app = DetachedApp()
    private let path: ObjectPath = "/org/bluez/hci0/dev_F0_5E_00_00_00_77/service0001/char0002"
    private let characteristic: CBCharacteristic
    private let client: GATTClient
    private var role: CentralRole { app.manager.session.central }

    init() {
        characteristic = CBCharacteristic(
            uuid: CBUUID(string: "2A37"), properties: .notify, id: AttributeID(rawValue: 2), service: nil)
        client = GATTClient(of: app.device, in: app.manager.session.central)
        app.onConnect = { [app, characteristic] in
            app.peripheral.shared.withLock { $0.attributes[characteristic.id] = characteristic }
        }
    }

    /// In the table, as those that get values are.
    private func subscription(version: Int = 1) -> Subscription {
        app.turn {
            let new = Subscription(client, path: path, version: version)
            role.subscriptions[path.rawValue] = new
            return new
        }
    }

    private func subscriber() -> Subscription.Subscriber {
        .init(core: app.core, attribute: characteristic.id, connectionID: app.core.request?.connectionID ?? 0)
    }

    /// Another peripheral object of the same device, which does not hear of anything.
    private func other(_ number: Int) -> Subscription.Subscriber {
        .init(
            core: PeripheralCore(identity: DetachedCentral.identity(number), manager: app.core.manager),
            attribute: characteristic.id, connectionID: 1)
    }

    private func change(
        _ properties: [(String, Value)], interface: String = "org.bluez.GattCharacteristic1"
    ) throws -> Message {
        try receivedMessage([.string(interface), .properties(properties), .strings([])])
    }

    /// A subscription that is on, of an app that is connected.
    private func started() async throws -> Subscription {
        app.connect()
        let subscription = subscription()
        app.turn {
            app.core.announceConnection()
            #expect(subscription.set(true, for: subscriber(), isRestoring: false) == .start)
            subscription.startReplied(true, isRestoring: false)
        }
        #expect(try await app.callbacks() == ["connected", "notifying true"])
        return subscription
    }

    @Test("a subscription is asked for with the first subscriber and ended with the last, and is then forgotten")
    func life() {
        let subscription = subscription()
        let subscribers = (0..<3).map(other)
        app.turn {
            #expect(subscription.set(true, for: subscribers[0], isRestoring: false) == .start)
            subscription.startReplied(true, isRestoring: false)
            #expect(subscription.set(true, for: subscribers[1], isRestoring: false) == .none)
            #expect(subscription.description == "\(path): on, 2 subscribers")
            #expect(subscription.set(false, for: subscribers[2], isRestoring: false) == .none)
            #expect(subscription.set(false, for: subscribers[0], isRestoring: false) == .none)
            #expect(subscription.set(false, for: subscribers[1], isRestoring: false) == .stop)
            #expect(subscription.isCurrent)
            subscription.stopReplied()
            #expect(!subscription.isCurrent && role.subscriptions[path.rawValue] == nil)
        }
    }

    @Test("a subscription that BlueZ refuses is forgotten, and one that has been replaced leaves the new one alone")
    func refused() {
        let (old, new) = (subscription(version: 1), subscription(version: 2))
        app.turn {
            #expect(!old.isCurrent && new.isCurrent)
            _ = old.set(true, for: other(1), isRestoring: false)
            old.startReplied(false, isRestoring: false)
            #expect(new.isCurrent && new.version == 2)
            _ = new.set(true, for: other(1), isRestoring: false)
            new.startReplied(false, isRestoring: false)
            #expect(!new.isCurrent)
        }
    }

    @Test("NT-9 the app hears of the subscription first, then of the values that came before it, then of the others")
    func values() async throws {
        app.connect()
        let subscription = subscription()
        try app.turn {
            app.core.announceConnection()
            _ = subscription.set(true, for: subscriber(), isRestoring: false)
            try subscription.receiveChange(change([("Value", .bytes([1]))]))
            try subscription.receiveChange(change([("Value", .bytes([2])), ("Notifying", .bool(true))]))
            subscription.startReplied(true, isRestoring: false)
            try subscription.receiveChange(change([("Value", .bytes([3, 4]))]))
        }
        #expect(
            try await app.callbacks() == ["connected", "notifying true", "value 1", "value 2", "value 3 4"])
    }

    @Test("only the values of a characteristic are delivered, and one of a wrong type is an error")
    func otherChanges() async throws {
        let subscription = try await started()
        try app.turn {
            try subscription.receiveChange(change([("Value", .bytes([1]))], interface: "org.bluez.GattDescriptor1"))
            try subscription.receiveChange(change([("Notifying", .bool(false)), ("MTU", .uint16(23))]))
            #expect(throws: BusError.self) {
                try subscription.receiveChange(change([("Value", .string("text"))]))
            }
            #expect(throws: BusError.self) { try subscription.receiveChange(receivedMessage([.int32(1)])) }
            try subscription.receiveChange(change([("Value", .bytes([]))]))
        }
        #expect(try await app.callbacks() == ["value "])
    }

    @Test("the result of a read is not taken for a notification, and a notification during it is not lost")
    func readsAndValues() async throws {
        let subscription = try await started()
        func read(_ changes: [UInt8], result: [UInt8]?) throws {
            try app.turn {
                subscription.readStarted()
                for byte in changes { try subscription.receiveChange(change([("Value", .bytes([byte]))])) }
                guard let result else { return subscription.readReplied(nil) }
                result.withUnsafeBytes { subscription.readReplied($0) }
            }
        }
        try read([5], result: [5])
        try read([6, 7], result: [7])
        try read([8], result: [9])
        try read([10], result: nil)
        try read([], result: [11])
        #expect(try await app.callbacks() == ["value 6", "value 8", "value 10"])
    }

    @Test("a restored subscription is not reported again, and delivers its values")
    func restored() async throws {
        app.connect()
        let subscription = subscription()
        try app.turn {
            app.core.announceConnection()
            #expect(subscription.set(true, for: subscriber(), isRestoring: true) == .start)
            subscription.startReplied(true, isRestoring: true)
            #expect(subscription.set(true, for: subscriber(), isRestoring: true) == .none)
            try subscription.receiveChange(change([("Value", .bytes([1]))]))
        }
        #expect(try await app.callbacks() == ["connected", "value 1"])
    }

    @Test("CN-10 values of an earlier link are not delivered")
    func earlierLink() async throws {
        let subscription = try await started()
        let late = subscriber()
        app.peripheral.shared.withLock { _ = app.peripheral.begin(&$0) }
        try app.turn {
            try subscription.receiveChange(change([("Value", .bytes([1]))]))
            app.core.endRequest()
            _ = subscription.set(true, for: late, isRestoring: false)
        }
        #expect(try await app.callbacks() == [])
    }

    @Test("a subscriber that goes without a call ends the subscription with the last, also while BlueZ is asked")
    func drops() {
        let subscribers = (0..<2).map(other)
        let on = subscription()
        app.turn {
            for subscriber in subscribers {
                _ = on.set(true, for: subscriber, isRestoring: false)
                on.startReplied(true, isRestoring: false)
            }
            on.drop(subscribers[0].core)
            #expect(on.isCurrent && on.description == "\(path): on, 1 subscribers")
            on.drop(subscribers[0].core)
            #expect(on.isCurrent)
            on.drop(subscribers[1].core)
            #expect(!on.isCurrent)
        }
        let starting = subscription()
        app.turn {
            _ = starting.set(true, for: subscribers[0], isRestoring: false)
            starting.drop(subscribers[0].core)
            #expect(starting.isCurrent, "BlueZ has not answered")
            starting.startReplied(true, isRestoring: false)
            #expect(!starting.isCurrent)
        }
    }

    @Test("the end of the link, and a change of the characteristic, end it in every phase")
    func ends() {
        for end in [{ $0.linkEnded() }, { $0.end() }] as [(Subscription) -> Void] {
            for phase in 0..<3 {
                let subscription = subscription()
                app.turn {
                    _ = subscription.set(true, for: other(1), isRestoring: false)
                    if phase > 0 { subscription.startReplied(true, isRestoring: false) }
                    if phase > 1 { _ = subscription.set(false, for: other(1), isRestoring: false) }
                    end(subscription)
                    #expect(!subscription.isCurrent && role.subscriptions.all(of: client).isEmpty)
                }
            }
        }
    }
}
