import BluezKitSimulator
import BluezDBus
import Foundation
import Testing

@testable import BluezKit

/// A published service in front of a BlueZ that does what it likes.
struct Victim {
    let fake: ScriptedBus
    let publisher: Publisher
    let dynamic = local(0x110, [.read, .write, .writeWithoutResponse])
    let fixed = local(0x111, .read, value: Data([1, 2, 3]))
    let notifying = local(0x112, .notify)
    let indicating = local(0x113, .indicate)
    let service: CBMutableService
    private(set) var paths: [CBUUID: ObjectPath] = [:]

    init(version: BlueZVersion = BlueZVersion(5, 66), options: [String: Any] = [:]) async throws {
        fake = try await ScriptedBus(serving: version)
        publisher = Publisher(fake, options: options)
        service = localService(0x100, [dynamic, fixed, notifying, indicating])
        try await publisher.powerOn()
        #expect(try await publisher.add(service) == nil)
        try await findPaths()
        publisher.answerEverything()
    }

    /// The object path of the characteristics of the service that was just added.
    mutating func findPaths() async throws {
        let call = try await fake.skip(to: "RegisterApplication")
        for object in try await fake.objects(below: call.object ?? "/") {
            let properties = object.interfaces[BlueZ.characteristic]?.dictionaryValue
            if let uuid = properties?["UUID"]?.stringValue { paths[CBUUID(string: uuid)] = object.path }
        }
        #expect(paths.count == 4)
    }

    func path(_ characteristic: CBMutableCharacteristic) -> ObjectPath { paths[characteristic.uuid] ?? "/" }
    var session: Session { publisher.manager.session }

    /// It still serves.
    func goesOn(_ after: String) async throws {
        try fake.setConnected(true)
        #expect(try await fake.read(path(dynamic)) == [42], "\(after)")
        #expect(try await fake.read(path(fixed)) == [1, 2, 3], "\(after)")
    }

    /// The name of the error that a call is answered with.
    func refusal(_ body: () async throws -> Void) async -> String? {
        do {
            try await body()
            return nil
        } catch { return (error as? BusError)?.name }
    }

    func isEmpty() -> Bool {
        let role = session.peripheral
        return session.queue.sync { role.requests.count == 0 && role.remoteCentrals.count == 0 }
    }
}

extension Hostile {
    @Suite("Publishing") struct Publishing {
        @Test(
            "options of wrong types, offsets out of range and oversized writes are errors, not traps",
            .timeLimit(.minutes(2)))
        func malformedRequests() async throws {
            let victim = try await Victim()
            let (fake, dynamic, fixed) = (victim.fake, victim.path(victim.dynamic), victim.path(victim.fixed))
            let wrong: [[(String, Value)]] = [
                [], [("device", .string("/x"))], [("device", .path("/")), ("offset", .string("1"))],
                [("device", .path("/")), ("mtu", .path("/"))], [("device", .variant(.path("/")))],
                [("offset", .int32(-1)), ("device", .path(ScriptedBus.device))],
            ]
            for options in wrong {
                #expect(await victim.refusal { _ = try await fake.read(dynamic, options) } != nil, "\(options)")
                #expect(await victim.refusal { try await fake.write(dynamic, [1], options) } != nil, "\(options)")
                #expect(
                    await victim.refusal {
                        try await fake.call(
                            victim.path(victim.notifying), BlueZ.characteristic, "AcquireNotify",
                            [.properties(options)])
                    } == "org.bluez.Error.NotSupported", "\(options)")
            }
            #expect(victim.publisher.records.count == 2)
            #expect(
                await victim.refusal { _ = try await fake.read(fixed, ScriptedBus.options(offset: 4)) }
                    == "org.bluez.Error.InvalidOffset")
            #expect(try await fake.read(fixed, ScriptedBus.options(offset: 3)) == [])
            #expect(try await fake.read(fixed, []) == [1, 2, 3])
            for (count, offset) in [(513, 0), (1, 512), (60_000, 65_535)] {
                #expect(
                    await victim.refusal {
                        try await fake.write(
                            dynamic, [UInt8](repeating: 0, count: count), ScriptedBus.options(offset: UInt16(offset)))
                    } == "org.bluez.Error.InvalidValueLength")
            }
            // An invalid device can still read.
            #expect(try await fake.read(dynamic, [("device", .path("/"))]) == [42])
            #expect(try await fake.read(dynamic, [("device", .path("/org/bluez/hci0/dev_XX"))]) == [42])
            try await fake.write(dynamic, [], ScriptedBus.options(offset: 512))
            // A probe is not a write.
            let writes = victim.publisher.count { if case .write = $0 { true } else { false } }
            try await fake.write(dynamic, [1], ScriptedBus.options() + [("prepare-authorize", .bool(true))])
            #expect(victim.publisher.count { if case .write = $0 { true } else { false } } == writes)
            try await victim.goesOn("malformed requests")
        }

        @Test("calls by programs other than BlueZ are refused without reaching the app")
        func strangers() async throws {
            let victim = try await Victim()
            let stranger = try await Peer.named(victim.fake.address)
            for (member, arguments) in [
                ("ReadValue", [Value.properties(ScriptedBus.options())]),
                ("WriteValue", [.bytes([1]), .properties(ScriptedBus.options())]),
                ("AcquireNotify", [.properties(ScriptedBus.options())]), ("StopNotify", []),
            ] {
                #expect(
                    await victim.refusal {
                        try await victim.fake.call(
                            victim.path(victim.dynamic), BlueZ.characteristic, member, arguments, from: stranger)
                    } == "org.freedesktop.DBus.Error.AccessDenied", "\(member)")
            }
            #expect(victim.publisher.records.count == 2)
            try await victim.goesOn("a stranger")
        }

        @Test("updates are sent only to BlueZ: other programs on the bus do not get them")
        func privacy() async throws {
            let victim = try await Victim()
            let listener = try await Peer.named(victim.fake.address)
            try await listener.bus("AddMatch", .string("type='signal',interface='org.freedesktop.DBus.Properties'"))
            #expect(try await victim.fake.acquire(victim.path(victim.notifying)) == nil)
            _ = try await victim.publisher.nextSubscription()
            #expect(victim.publisher.manager.updateValue(Data([7]), for: victim.notifying, onSubscribedCentrals: nil))
            let heard = try await victim.fake.daemon.signals.next("the value") {
                $0.member == "PropertiesChanged" ? $0.values : nil
            }
            #expect(heard[1].dictionaryValue?["Value"]?.bytesValue == [7])
            try await listener.settle()
            #expect(!listener.signals.all.contains { $0.member == "PropertiesChanged" })
        }

        @Test(
            "10,000 malformed or oversized writes, answered or not: others are served, and nothing is left",
            .timeLimit(.minutes(5)))
        func flood() async throws {
            let victim = try await Victim()
            let path = victim.path(victim.dynamic)
            var residentBytes = 0
            for number in 0..<10_000 {
                switch number % 4 {
                case 0: try victim.fake.send(path, "WriteValue", [.bytes([1]), .properties([])])
                case 1:
                    try victim.fake.send(
                        path, "WriteValue",
                        [.bytes([UInt8](repeating: 1, count: 600)), .properties(ScriptedBus.options())])
                case 2: try victim.fake.send(path, "WriteValue", [.string("x"), .int32(1)])
                default:
                    try victim.fake.send(
                        path, "WriteValue", [.bytes([1]), .properties([("device", .uint16(5)), ("offset", .byte(1))])])
                }
                // No more of them wait at a time, however long this process stands still: that would be memory.
                if number % 100 == 0 { try await victim.goesOn("write \(number)") }
                if number == 2000 { residentBytes = residentSize() }
            }
            try await victim.goesOn("the flood")
            #expect(residentSize() < residentBytes + 4_000_000)
            #expect(victim.publisher.count { if case .write = $0 { true } else { false } } == 0)
            try victim.fake.setConnected(false)
            try await victim.fake.settle()
            #expect(victim.isEmpty())
        }

        @Test(
            "1,000 centrals that subscribe and disappear: each is reported and removed, with and without sockets",
            .timeLimit(.minutes(5)), arguments: [false, true])
        func vanishing(givesSockets: Bool) async throws {
            let victim = try await Victim(version: BlueZVersion(5, givesSockets ? 79 : 66))
            let path = victim.path(victim.notifying)
            let open = openSockets()
            for number in 0..<1000 {
                let device = ScriptedBus.device(number)
                let socket = try await victim.fake.acquire(path, device)
                #expect((socket != nil) == givesSockets)
                if number % 3 == 0 { socket.map { _ = close($0) } }
                try victim.fake.setConnected(false, device)
                if number % 3 != 0 { socket.map { _ = close($0) } }
            }
            for _ in 0..<1000 { _ = try await victim.publisher.nextUnsubscription() }
            #expect(victim.publisher.count { if case .subscribed = $0 { true } else { false } } == 1000)
            #expect(victim.notifying.subscribedCentrals == [])
            try await victim.goesOn("1,000 centrals")
            try victim.fake.setConnected(false)
            try await victim.fake.settle()
            #expect(victim.isEmpty())
            #expect(openSockets() <= open + 8)
        }

        @Test("CN-15 O-45 requests during the manager's release are answered, and nothing follows")
        func release() async throws {
            let victim = try await Victim()
            let path = victim.path(victim.dynamic)
            victim.publisher.onEvent { _, _ in }
            async let refusal = victim.refusal { _ = try await victim.fake.read(path) }
            _ = try await victim.publisher.nextRead()
            let session = victim.session
            let core = Weak(victim.publisher.manager.core)
            victim.publisher.release()
            #expect(await refusal != nil)
            try await victim.fake.skip(to: "UnregisterApplication")
            #expect(await victim.refusal { _ = try await victim.fake.read(path) } != nil)
            #expect(
                session.queue.sync {
                    session.peripheral.requests.count == 0 && session.peripheral.managerCount == 0
                })
            try await eventually("the manager's core is released") { core.object == nil }
        }

        @Test("the bus is lost during many operations: no trap, and updateValue returns false")
        func busLoss() async throws {
            let victim = try await Victim()
            let path = victim.path(victim.notifying)
            _ = try await victim.fake.acquire(path)
            _ = try await victim.publisher.nextSubscription()
            victim.publisher.onEvent { _, _ in }
            _ = try await victim.publisher.advertise()
            for _ in 0..<30 {
                victim.publisher.manager.updateValue(Data([1]), for: victim.notifying, onSubscribedCentrals: nil)
            }
            try? await victim.fake.daemon.killBus()
            let record = try await victim.publisher.nextRecord("resetting") {
                if case .state(.resetting) = $0.event { $0 } else { nil }
            }
            #expect(!record.isAdvertising)
            #expect(!victim.publisher.manager.updateValue(Data(), for: victim.notifying, onSubscribedCentrals: nil))
            #expect(victim.publisher.count { if case .unsubscribed = $0 { true } else { false } } == 0)
        }
    }
}

/// What other versions of BlueZ than the rig's do.
@Suite(.serialized) struct PublishingVersionTests {
    @Test("UP-1 UP-10 with a socket for each central, an update reaches only the given central")
    func targeted() async throws {
        let victim = try await Victim(version: BlueZVersion(5, 79))
        let path = victim.path(victim.notifying)
        let (one, two) = (ScriptedBus.device(1), ScriptedBus.device(2))
        let first = try #require(try await victim.fake.acquire(path, one, mtu: 23))
        let second = try #require(try await victim.fake.acquire(path, two, mtu: 517))
        defer { for socket in [first, second] { close(socket) } }
        let (central, _) = try await victim.publisher.nextSubscription()
        let (other, _) = try await victim.publisher.nextSubscription()
        #expect(central.maximumUpdateValueLength == 20)
        #expect(other.maximumUpdateValueLength == 512)
        let long = Data((0..<100).map { UInt8($0) })
        let manager = try #require(victim.publisher.manager)
        #expect(manager.updateValue(long, for: victim.notifying, onSubscribedCentrals: [central]))
        #expect(manager.updateValue(Data([9]), for: victim.notifying, onSubscribedCentrals: [other]))
        #expect(manager.updateValue(Data([8]), for: victim.notifying, onSubscribedCentrals: nil))
        // BlueZ cuts it to what the link takes.
        #expect(await packet(first) == Array(long))
        #expect(await packet(first) == [8])
        #expect(await packet(second) == [9])
        #expect(await packet(second) == [8])
        #expect(!victim.fake.daemon.signals.all.contains { $0.member == "PropertiesChanged" })
    }

    @Test(
        "UP-2 UP-3 UP-8 O-37 a full socket makes updateValue return false; nothing is lost, readiness is reported once"
    )
    func fullSocket() async throws {
        let victim = try await Victim(version: BlueZVersion(5, 79))
        let socket = try #require(try await victim.fake.acquire(victim.path(victim.notifying), mtu: 517))
        defer { close(socket) }
        _ = try await victim.publisher.nextSubscription()
        let manager = try #require(victim.publisher.manager)
        var sent = 0
        // The socket takes some hundred packets, as fast as they come.
        let deadline = ContinuousClock.now + .seconds(world_deadline)
        while ContinuousClock.now < deadline {
            let value = Data([UInt8(sent >> 8), UInt8(sent & 255)]) + Data(count: 500)
            if manager.updateValue(value, for: victim.notifying, onSubscribedCentrals: nil) {
                sent += 1
            } else if victim.session.queue.sync(execute: { manager.core.updatesInFlight.count }) > 32 {
                // The socket is full: what waits now waits for the reader.
                break
            } else {
                try await victim.publisher.next("readiness") { if case .ready = $0 { true } else { nil } }
            }
        }
        #expect(sent > 64)
        let readyBefore = victim.publisher.count { if case .ready = $0 { true } else { false } }
        for number in 0..<sent {
            let packet = try #require(await packet(socket))
            #expect(packet.prefix(2) == [UInt8(number >> 8), UInt8(number & 255)])
        }
        try await victim.publisher.next("readiness") { if case .ready = $0 { true } else { nil } }
        #expect(victim.publisher.count { if case .ready = $0 { true } else { false } } == readyBefore + 1)
    }

    @Test("UP-7 O-36 a socket that BlueZ closes ends the subscription, once")
    func closedSocket() async throws {
        let victim = try await Victim(version: BlueZVersion(5, 79))
        let path = victim.path(victim.notifying)
        let socket = try #require(try await victim.fake.acquire(path))
        _ = try await victim.publisher.nextSubscription()
        // A message that reports a confirmation does not end it.
        #expect(send(socket, [1], 1, Int32(MSG_NOSIGNAL)) == 1)
        close(socket)
        _ = try await victim.publisher.nextUnsubscription()
        #expect(victim.notifying.subscribedCentrals == [])
        try victim.fake.setConnected(false)
        try await victim.goesOn("a closed socket")
        #expect(victim.publisher.count { if case .unsubscribed = $0 { true } else { false } } == 1)
    }

    @Test("UP-7 a bonded central's subscription outlives its link, as BlueZ keeps it")
    func bonded() async throws {
        let victim = try await Victim()
        victim.fake.bonded.withLock { _ = $0.insert(ScriptedBus.device.rawValue) }
        _ = try await victim.fake.acquire(victim.path(victim.notifying))
        let (central, _) = try await victim.publisher.nextSubscription()
        try victim.fake.setConnected(false)
        _ = try await victim.publisher.nextUnsubscription()
        try victim.fake.setConnected(true)
        let (again, _) = try await victim.publisher.nextSubscription()
        #expect(again.identifier == central.identifier)
        #expect(victim.publisher.manager.updateValue(Data([3]), for: victim.notifying, onSubscribedCentrals: [central]))
        _ = try await victim.fake.daemon.signals.next("the value") { $0.member == "PropertiesChanged" ? true : nil }
    }

    @Test("UP-9 an indication leaves the window when all receivers have confirmed it")
    func confirmations() async throws {
        let victim = try await Victim()
        let path = victim.path(victim.indicating)
        _ = try await victim.fake.acquire(path, ScriptedBus.device(1))
        _ = try await victim.fake.acquire(path, ScriptedBus.device(2))
        for _ in 0..<2 { _ = try await victim.publisher.nextSubscription() }
        let manager = try #require(victim.publisher.manager)
        for _ in 0..<2 { #expect(manager.updateValue(Data([1]), for: victim.indicating, onSubscribedCentrals: nil)) }
        func inFlight() async throws -> Int {
            try await victim.fake.settle()
            return manager.core.updatesInFlight.count
        }
        #expect(try await inFlight() == 2)
        try victim.fake.send(path, "Confirm")
        #expect(try await inFlight() == 2)
        try victim.fake.send(path, "Confirm")
        #expect(try await inFlight() == 1)
        // A central that disconnects will not confirm.
        try victim.fake.setConnected(false, ScriptedBus.device(2))
        #expect(try await inFlight() == 0)
        try victim.fake.send(path, "Confirm")
        #expect(try await inFlight() == 0)
    }

    @Test("PB-1 a refusal by BlueZ is reported with its message, and the service may be added again")
    func refusedService() async throws {
        let victim = try await Victim()
        victim.fake.refuseRoutinely("RegisterApplication", with: "org.bluez.Error.Failed")
        let service = localService(0x200, [local(0x210, .read)])
        let error = try #require(try await victim.publisher.add(service) as? CBError)
        let cause = error.userInfo[NSUnderlyingErrorKey] as? NSError
        #expect(cause?.userInfo[BluezErrorNameKey] as? String == "org.bluez.Error.Failed")
        victim.fake.answerRoutinely(["RegisterApplication": []])
        #expect(try await victim.publisher.add(service) == nil)
        try await victim.goesOn("a refusal")
    }

    @Test("AD-3 AD-7 a refused advertisement is reported with BlueZ's message; one that BlueZ releases has ended")
    func advertisement() async throws {
        let victim = try await Victim()
        victim.fake.refuseRoutinely("RegisterAdvertisement", with: "org.bluez.Error.NotPermitted")
        #expect(try await victim.publisher.advertise() is CBError)
        #expect(!victim.publisher.manager.isAdvertising)
        victim.fake.answerRoutinely(["RegisterAdvertisement": []])
        #expect(try await victim.publisher.advertise([BluezAdvertisementTxPowerKey: 4]) == nil)
        let calls = victim.fake.calls.all.filter { $0.member == "RegisterAdvertisement" }
        let path = try #require(calls.last?.object)
        #expect(calls.count == 2)
        // BlueZ writes back what the controller has chosen.
        try await victim.fake.call(
            path, "org.freedesktop.DBus.Properties", "Set",
            [.string(BlueZ.advertisement), .string("TxPower"), .variant(.int16(2))])
        let all = try await victim.fake.call(
            path, "org.freedesktop.DBus.Properties", "GetAll", [.string(BlueZ.advertisement)])
        let properties = try #require(all.first?.dictionaryValue)
        #expect(properties["Type"]?.stringValue == "peripheral")
        #expect(properties["Discoverable"]?.boolValue == true)
        #expect(properties["Includes"]?.stringsValue == ["tx-power"])
        #expect(properties["LocalName"] == nil)
        try await victim.fake.call(path, BlueZ.advertisement, "Release")
        try await victim.goesOn("a release")
        #expect(!victim.publisher.manager.isAdvertising)
        #expect(try await victim.publisher.advertise() == nil)
        #expect(victim.publisher.manager.isAdvertising)
    }

    @Test("PB-5 a service that includes two services of different applications merges the applications")
    func merging() async throws {
        let victim = try await Victim()
        let (one, two) = (localService(0x201, [local(0x211, .read)]), localService(0x202, [local(0x212, .read)]))
        let both = localService(0x203, [local(0x213, .read)])
        both.includedServices = [one, two]
        for service in [one, two, both] { #expect(try await victim.publisher.add(service) == nil) }
        let last = try #require(victim.fake.calls.all.last { $0.member == "RegisterApplication" }?.object)
        let objects = try await victim.fake.objects(below: last)
        let services = objects.compactMap { $0.interfaces["org.bluez.GattService1"]?.dictionaryValue }
        #expect(services.compactMap { $0["UUID"]?.stringValue } == [one.uuid.line, two.uuid.line, both.uuid.line])
        #expect(services.last?["Includes"]?.stringsValue?.count == 2)
        #expect(victim.session.queue.sync { victim.publisher.manager.core.gattServer.applications.count } == 2)
        // Taken back, the others stay.
        victim.publisher.manager.remove(both)
        try await victim.fake.skip(to: "RegisterApplication", of: last)
        try await victim.goesOn("merging")
    }
}

/// The next packet, once it is there.
func packet(_ socket: Int32) async -> [UInt8]? {
    await withCheckedContinuation { continuation in
        DispatchQueue.global().async {
            var entry = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
            var bytes = [UInt8](repeating: 0, count: 1024)
            guard poll(&entry, 1, 20_000) == 1 else { return continuation.resume(returning: nil) }
            let count = recv(socket, &bytes, bytes.count, 0)
            continuation.resume(returning: count > 0 ? Array(bytes.prefix(count)) : nil)
        }
    }
}
