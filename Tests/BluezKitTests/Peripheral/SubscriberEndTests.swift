import BluezDBus
import BluezKitSimulator
import Foundation
import Testing

@testable import BluezKit

// What BlueZ says of the end of a subscription, and what it does not say. A central lost its updates when another one's
// link ended (5.76 and later), or when another one subscribed and unsubscribed faster than the app was asked (all); one
// with a socket got each value twice beside one without; and a bonded one that had been subscribed when Bluetooth went
// off was never heard of again.
@Suite struct SubscriberEndTests {
    private static let sockets = BlueZVersion(5, 82)
    private let one = ScriptedBus.device(1)
    private let two = ScriptedBus.device(2)

    /// The next value that is signalled.
    private func signalled(_ victim: Victim) async throws -> [UInt8] {
        try await victim.fake.daemon.signals.next("a signal") {
            $0.member == "PropertiesChanged" ? $0.values[1].dictionaryValue?["Value"]?.bytesValue : nil
        }
    }

    private func update(_ victim: Victim, _ value: [UInt8], for centrals: [CBCentral]? = nil) throws {
        let manager = try #require(victim.publisher.manager)
        #expect(manager.updateValue(Data(value), for: victim.notifying, onSubscribedCentrals: centrals))
    }

    private func ends(_ victim: Victim) -> Int {
        victim.publisher.count { if case .unsubscribed = $0 { true } else { false } }
    }

    /// A bonded central subscribes, goes, and comes back: BlueZ asks for no socket then.
    private func subscribeAndReturn(_ victim: Victim, _ device: ObjectPath) async throws -> CBCentral {
        victim.fake.bonded.withLock { _ = $0.insert(device.rawValue) }
        let socket = try await victim.fake.acquire(victim.path(victim.notifying), device)
        _ = try await victim.publisher.nextSubscription()
        try victim.fake.setConnected(false, device)
        _ = try await victim.publisher.nextUnsubscription()
        socket.map { _ = close($0) }
        try victim.fake.setConnected(true, device)
        return try await victim.publisher.nextSubscription().0
    }

    // MARK: The end of a link

    @Test(
        "UP-1 UP-10 when the later one of two centrals leaves, the other one gets updates, whatever BlueZ it is",
        arguments: [SimulatorVersion.v5_66, .v5_79, .v5_82, .v5_87])
    func oneOfTwo(_ version: SimulatorVersion) async throws {
        let world = try await SimulatedWorld(SimulatorOptions(version: version))
        let publisher = Publisher(world)
        let characteristic = local(0x110, .notify)
        try await publisher.powerOn()
        #expect(try await publisher.add(localService(0x100, [characteristic])) == nil)
        #expect(try await publisher.advertise() == nil)
        var centrals: [CBCentral] = []
        for name in ["central", "central2"] {
            try await world.connect(name)
            try await world.control("\(name) subscribe \(characteristic.uuid.line)")
            centrals.append(try await publisher.nextSubscription().0)
        }
        try await world.control("central2 disconnect")
        #expect(try await publisher.nextUnsubscription().0.identifier == centrals[1].identifier)
        for number in UInt8(7)..<9 {
            #expect(publisher.manager.updateValue(Data([number]), for: characteristic, onSubscribedCentrals: nil))
            let event = try await world.nextEvent("a value") { $0.hasPrefix("central notified") }
            #expect(event.hasSuffix(" 0\(number)"))
        }
        #expect(characteristic.subscribedCentrals?.map(\.identifier) == [centrals[0].identifier])
    }

    @Test(
        "UP-7 UP-10 a central whose socket BlueZ closes as another one's link ends stays subscribed, by signals",
        arguments: [false, true])
    func otherLink(isSocketFirst: Bool) async throws {
        let victim = try await Victim(version: Self.sockets)
        let (fake, path) = (victim.fake, victim.path(victim.notifying))
        let first = try #require(try await fake.acquire(path, one))
        let second = try #require(try await fake.acquire(path, two))
        let (central, _) = try await victim.publisher.nextSubscription()
        _ = try await victim.publisher.nextSubscription()
        if isSocketFirst {
            // Both wait for the bus queue.
            try fake.turn {
                for socket in [first, second] { close(socket) }
                try fake.setConnected(false, two)
            }
            _ = try await victim.publisher.nextUnsubscription()
        } else {
            try fake.setConnected(false, two)
            _ = try await victim.publisher.nextUnsubscription()
            for socket in [first, second] { close(socket) }
        }
        try await fake.settle()
        try update(victim, [7])
        #expect(try await signalled(victim) == [7])
        #expect(ends(victim) == 1)
        #expect(victim.notifying.subscribedCentrals?.map(\.identifier) == [central.identifier])
    }

    // What was in the socket was lost without a word.
    @Test(
        "O-37 UP-7 a central whose socket BlueZ closes while values are sent has subscribed again, for the app to begin"
    )
    func cut() async throws {
        let victim = try await Victim(version: Self.sockets)
        let path = victim.path(victim.notifying)
        victim.fake.turn { victim.fake.bus.timing.gatt.updateReading = .seconds(60) }
        let first = try #require(try await victim.fake.acquire(path, one))
        let second = try #require(try await victim.fake.acquire(path, two))
        defer { for socket in [first, second] { close(socket) } }
        let (central, _) = try await victim.publisher.nextSubscription()
        let (other, _) = try await victim.publisher.nextSubscription()
        try update(victim, [7])
        try await victim.fake.settle()
        try victim.fake.setConnected(false, two)
        #expect(try await victim.publisher.nextUnsubscription().0.identifier == central.identifier)
        #expect(try await victim.publisher.nextSubscription().0.identifier == central.identifier)
        #expect(try await victim.publisher.nextUnsubscription().0.identifier == other.identifier)
    }

    // MARK: With and without a socket

    @Test("UP-8 a socket that BlueZ reads no more holds up a value for all only so long")
    func unreadSocket() async throws {
        let victim = try await Victim(version: Self.sockets)
        victim.fake.turn {
            victim.fake.bus.timing.gatt.unreadSocket = .milliseconds(5)
            victim.fake.bus.timing.gatt.updateReading = .milliseconds(5)
        }
        _ = try await subscribeAndReturn(victim, one)
        let socket = try #require(try await victim.fake.acquire(victim.path(victim.notifying), two))
        defer { close(socket) }
        let (other, _) = try await victim.publisher.nextSubscription()
        try update(victim, [2], for: [other])
        for value in UInt8(3)...4 {
            try update(victim, [value])
            #expect(try await signalled(victim) == [value])
        }
        // That of the bonded one, before; and that of the socket, whose central has subscribed again.
        try await eventually("it has subscribed again") { ends(victim) == 2 }
        #expect(victim.notifying.subscribedCentrals?.count == 2)
    }

    @Test("UP-1 UP-8 beside a central without a socket each value is sent once, by signal, and in order")
    func once() async throws {
        let victim = try await Victim(version: Self.sockets)
        _ = try await subscribeAndReturn(victim, one)
        let socket = try #require(try await victim.fake.acquire(victim.path(victim.notifying), two))
        defer { close(socket) }
        let (other, _) = try await victim.publisher.nextSubscription()
        try update(victim, [1])
        #expect(try await signalled(victim) == [1])
        try update(victim, [2], for: [other])
        // BlueZ has not read the packet.
        try update(victim, [3])
        try update(victim, [4], for: [other])
        try await victim.fake.settle()
        #expect(victim.fake.daemon.signals.all.count { $0.member == "PropertiesChanged" } == 1)
        #expect(await packet(socket) == [2])
        #expect(try await signalled(victim) == [3])
        #expect(await packet(socket) == [4])
    }

    @Test("UP-5 UP-6 a central gets values of the length that it has reached since it subscribed")
    func grownMTU() async throws {
        let victim = try await Victim(version: Self.sockets)
        let socket = try #require(
            try await victim.fake.acquire(victim.path(victim.notifying), ScriptedBus.device, mtu: 23))
        defer { close(socket) }
        let (central, _) = try await victim.publisher.nextSubscription()
        _ = try await victim.fake.read(victim.path(victim.dynamic), ScriptedBus.options(mtu: 247))
        #expect(try await victim.publisher.nextRead().central === central)
        #expect(central.maximumUpdateValueLength == 244)
        let value = [UInt8](repeating: 9, count: 244)
        try update(victim, value, for: [central])
        #expect(await packet(socket) == value)
    }

    // MARK: StopNotify

    @Test("UP-7 a central that unsubscribes while BlueZ asks for its socket ends no other central's subscription")
    func takenBack() async throws {
        let victim = try await Victim(version: Self.sockets)
        let path = victim.path(victim.notifying)
        let first = try #require(try await victim.fake.acquire(path, one))
        let second = try #require(try await victim.fake.acquire(path, two))
        defer { for socket in [first, second] { close(socket) } }
        for _ in 0..<2 { _ = try await victim.publisher.nextSubscription() }
        // BlueZ has not counted the second, and takes it from the count.
        try await victim.fake.call(path, BlueZ.characteristic, "StopNotify")
        try update(victim, [7])
        #expect(await packet(first) == [7])
        #expect(ends(victim) == 0)
    }

    // BlueZ asks twice, takes the first socket, and keeps the second without reading it. The first was closed for the
    // second, in which some hundred values were lost, and the central's end was not seen before that of its link. Now
    // the first stays.
    @Test("UP-1 UP-7 a central that subscribes twice before BlueZ has its socket keeps the one that BlueZ takes")
    func askedTwice() async throws {
        let victim = try await Victim(version: Self.sockets)
        let path = victim.path(victim.notifying)
        let socket = try #require(try await victim.fake.acquire(path, one))
        defer { close(socket) }
        let (central, _) = try await victim.publisher.nextSubscription()
        #expect(
            await victim.refusal {
                try await victim.fake.call(
                    path, BlueZ.characteristic, "AcquireNotify", [.properties(ScriptedBus.options(one))])
            } == "org.bluez.Error.Failed")
        try update(victim, [7])
        #expect(await packet(socket) == [7])
        #expect(ends(victim) == 0)
        shutdown(socket, Int32(SHUT_RDWR))
        #expect(try await victim.publisher.nextUnsubscription().0.identifier == central.identifier)
    }

    @Test("UP-7 the last central without a socket unsubscribes by StopNotify")
    func lastWithoutSocket() async throws {
        let victim = try await Victim(version: Self.sockets)
        let central = try await subscribeAndReturn(victim, one)
        try await victim.fake.call(victim.path(victim.notifying), BlueZ.characteristic, "StopNotify")
        #expect(try await victim.publisher.nextUnsubscription().0.identifier == central.identifier)
        #expect(victim.notifying.subscribedCentrals == [])
    }

    @Test("UP-7 before 5.76, a StopNotify between a refused AcquireNotify and its StartNotify ends that central alone")
    func takenBackWithoutSockets() async throws {
        let victim = try await Victim()
        let (fake, path) = (victim.fake, victim.path(victim.notifying))
        _ = try await fake.acquire(path, one)
        let (central, _) = try await victim.publisher.nextSubscription()
        #expect(
            await victim.refusal {
                try await fake.call(
                    path, BlueZ.characteristic, "AcquireNotify", [.properties(ScriptedBus.options(two))])
            } == "org.bluez.Error.NotSupported")
        let (other, _) = try await victim.publisher.nextSubscription()
        for member in ["StopNotify", "StartNotify"] { try await fake.call(path, BlueZ.characteristic, member) }
        #expect(try await victim.publisher.nextUnsubscription().0.identifier == other.identifier)
        #expect(victim.notifying.subscribedCentrals?.map(\.identifier) == [central.identifier])
        try update(victim, [7])
        #expect(try await signalled(victim) == [7])
        // The next one is the last one's.
        try await fake.call(path, BlueZ.characteristic, "StopNotify")
        #expect(try await victim.publisher.nextUnsubscription().0.identifier == central.identifier)
    }

    // MARK: Bonds

    @Test(
        "UP-7 ST-5 a bonded central that was subscribed when Bluetooth went off is subscribed when it returns",
        arguments: [false, true])
    func off(isLinkFirst: Bool) async throws {
        let victim = try await Victim()
        let fake = victim.fake
        fake.bonded.withLock { _ = $0.insert(one.rawValue) }
        _ = try await fake.acquire(victim.path(victim.notifying), one)
        let (central, _) = try await victim.publisher.nextSubscription()
        if isLinkFirst {
            try fake.setConnected(false, one)
            _ = try await victim.publisher.nextUnsubscription()
        }
        try fake.change(ScriptedBus.hci0, BlueZ.adapter, [("Powered", .bool(false))])
        try await victim.publisher.next("off") { if case .state(.poweredOff) = $0 { true } else { nil } }
        #expect(victim.notifying.subscribedCentrals?.isEmpty != false)
        if !isLinkFirst { try fake.setConnected(false, one) }
        try fake.change(ScriptedBus.hci0, BlueZ.adapter, [("Powered", .bool(true))])
        try await victim.publisher.powerOn()
        try fake.setConnected(true, one)
        let (again, _) = try await victim.publisher.nextSubscription()
        #expect(again.identifier == central.identifier)
        try update(victim, [3], for: [again])
        #expect(try await signalled(victim) == [3])
        #expect(ends(victim) == (isLinkFirst ? 1 : 0))
    }

    @Test("UP-7 a central whose bond is removed while it is away is forgotten, and not subscribed when it returns")
    func removedBond() async throws {
        let victim = try await Victim()
        let fake = victim.fake
        fake.bonded.withLock { _ = $0.insert(one.rawValue) }
        _ = try await fake.acquire(victim.path(victim.notifying), one)
        _ = try await victim.publisher.nextSubscription()
        try fake.setConnected(false, one)
        _ = try await victim.publisher.nextUnsubscription()
        try fake.remove(one.rawValue, BlueZ.device)
        fake.bonded.withLock { _ = $0.remove(one.rawValue) }
        try await fake.settle()
        #expect(fake.turn { victim.session.peripheral.remoteCentrals.count } == 0)
        try fake.setConnected(true, one)
        try await fake.settle()
        #expect(victim.publisher.count { if case .subscribed = $0 { true } else { false } } == 1)
    }

    // MARK: Services

    @Test("UP-7 PB-5 a service that is registered again with one that includes it has no subscribers any more")
    func registeredAgain() async throws {
        let victim = try await Victim()
        _ = try await victim.fake.acquire(victim.path(victim.notifying), one)
        let (central, _) = try await victim.publisher.nextSubscription()
        let other = localService(0x200, [local(0x210, .read)])
        other.includedServices = [victim.service]
        victim.publisher.manager.add(other)
        #expect(try await victim.publisher.nextUnsubscription().0.identifier == central.identifier)
        #expect(victim.notifying.subscribedCentrals == [])
        try await victim.publisher.next("didAdd") { if case .added(_, nil) = $0 { true } else { nil } }
    }

    @Test("L2-3 a channel whose central BlueZ forgets before it has said who that is takes no place")
    func forgottenChannel() async throws {
        let victim = try await Victim()
        let (fake, channels) = (victim.fake, try #require(victim.publisher.manager).core.channels)
        fake.stopAnswering("GetAll")
        var ends: [Int32] = [0, 0]
        try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        defer { close(ends[1]) }
        fake.turn {
            channels.accepted(
                ChannelSocket(descriptor: ends[0]), DeviceIdentity(address: 0xF000_0000_0001, isRandom: true), 0x80)
            #expect(channels.openCount == 1)
        }
        try fake.remove(one.rawValue, BlueZ.device)
        try await fake.settle()
        #expect(fake.turn { channels.openCount } == 0)
    }
}
