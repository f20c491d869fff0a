import CoreBluetooth
import Foundation
import Testing

/// What an independent central finds of this process. In the simulator and against the real bluetoothd.
extension Scenarios {
    @Suite struct PublishingScenarios {
        @Test("PB-1 PB-4 PB-13 ID-4 O-34 AD-5 RQ-8 UP-6 a central finds what was added, reads and writes it")
        func endToEnd() async throws {
            let world = try await Worlds.make()
            let publisher = Publisher(world)
            try await publisher.powerOn()
            let dynamic = local(0x111, [.read, .write])
            let service = localService(0x100, [local(0x110, .read, value: Data("fixed".utf8)), dynamic])
            #expect(try await publisher.add(service) == nil)
            #expect(service.peripheral == nil)
            #expect(dynamic.service === service)
            #expect(
                try await publisher.advertise([
                    CBAdvertisementDataLocalNameKey: "Kit", CBAdvertisementDataServiceUUIDsKey: [service.uuid],
                ]) == nil)
            #expect(try await world.connect().contains(service.uuid.line))
            #expect(try await world.control("central read \(sinkUUID(0x110).line)") == "6669786564")
            async let read = world.control("central read \(dynamic.uuid.line)")
            let request = try await publisher.nextRead()
            #expect(request.characteristic === dynamic)
            #expect(request.offset == 0)
            #expect(request.central.identifier.uuidString == "426C7A4B-0100-8000-8000-F0F1F2000004")
            #expect(request.central.maximumUpdateValueLength == 512)
            request.value = Data([1, 2, 3])
            publisher.manager.respond(to: request, withResult: .success)
            #expect(try await read == "010203")
            #expect(dynamic.value == nil)
            async let written = world.control("central write \(dynamic.uuid.line) 0a0b")
            let requests = try await publisher.nextWrite()
            #expect(requests.count == 1)
            #expect(requests[0].value == Data([10, 11]))
            #expect(requests[0].central === request.central)
            publisher.manager.respond(to: requests[0], withResult: .success)
            _ = try await written
            // The read of the fixed value has not reached the app.
            #expect(publisher.count { if case .read = $0 { true } else { false } } == 1)
            #expect(publisher.manager.isAdvertising)
            // Another link, with a smaller MTU: the same central.
            try await world.connect(mtu: 23)
            async let again = world.control("central read \(dynamic.uuid.line)")
            let second = try await publisher.nextRead()
            #expect(second.central.maximumUpdateValueLength == 20)
            #expect(second.central.identifier == request.central.identifier)
            second.value = Data()
            publisher.manager.respond(to: second, withResult: .success)
            #expect(try await again == "")
        }

        @Test("PB-2 PB-5 PB-8 O-33 the whole tree: secondary and included services, properties, descriptors, in order")
        func wholeTree() async throws {
            let world = try await Worlds.make()
            let publisher = Publisher(world)
            try await publisher.powerOn()
            let secondary = CBMutableService(type: sinkUUID(0x101), primary: false)
            secondary.characteristics = [local(0x120, .read, value: Data("in".utf8))]
            let described = local(0x110, .read, value: Data([1]))
            described.descriptors = [
                CBMutableDescriptor(type: CBUUID(string: "2901"), value: "A name"),
                CBMutableDescriptor(type: CBUUID(string: "2904"), value: Data([0x19, 0, 0, 0x27, 1, 0, 0])),
                CBMutableDescriptor(type: sinkUUID(0x130), value: Data([7, 8])),
            ]
            let primary = localService(
                0x100,
                [
                    described, local(0x111, [.read, .write]), local(0x112, .writeWithoutResponse),
                    local(0x113, .notify),
                    local(0x114, .indicate), local(0x115, [.read, .notify, .indicate]),
                ])
            primary.includedServices = [secondary]
            let other = localService(0x102, [local(0x121, .read)])
            // Three calls: the answers arrive in the order of the calls.
            for service in [secondary, primary, other] { publisher.manager.add(service) }
            for service in [secondary, primary, other] {
                let (added, error) = try await publisher.next("didAdd") {
                    if case .added(let added, let error) = $0 { Pair(added, error) } else { nil }
                }.parts
                #expect(added === service)
                #expect(error == nil)
            }
            // Frozen: this changes nothing.
            primary.characteristics = []
            try await publisher.advertise()
            try await world.connect()
            let table = try await world.control("central services")
            let words = table.split(separator: " ").map { word in
                word.split(separator: "@").enumerated().map { $0 == 0 ? String($1) : String($1.dropFirst(4)) }.joined()
            }
            let start = try #require(words.firstIndex(of: "primary:\(primary.uuid.line)"))
            #expect(
                Array(words[start...].prefix(14)) == [
                    "primary:\(primary.uuid.line)", "include:\(secondary.uuid.line)",
                    "characteristic:\(sinkUUID(0x110).line):read", "descriptor:2901", "descriptor:2904",
                    "descriptor:\(sinkUUID(0x130).line)", "characteristic:\(sinkUUID(0x111).line):read,write",
                    "characteristic:\(sinkUUID(0x112).line):write-without-response",
                    "characteristic:\(sinkUUID(0x113).line):notify", "descriptor:2902",
                    "characteristic:\(sinkUUID(0x114).line):indicate", "descriptor:2902",
                    "characteristic:\(sinkUUID(0x115).line):read,notify,indicate", "descriptor:2902",
                ], "\(table)")
            #expect(words.contains("secondary:\(secondary.uuid.line)"))
            #expect(words.contains("primary:\(other.uuid.line)"))
            #expect(try await world.control("central read \(sinkUUID(0x120).line)") == "696e")
            let name = "central readdescriptor \(described.uuid.line)"
            #expect(try await world.control("\(name) 2901") == "41206e616d65")
            #expect(try await world.control("\(name) 2904") == "19000027010000")
            #expect(try await world.control("\(name) \(sinkUUID(0x130).line)") == "0708")
        }

        @Test(
            "PB-6 PB-11 PB-12 two services may share a UUID; removed ones, and those of a released manager, disappear"
        )
        func removal() async throws {
            let world = try await Worlds.make()
            let (publisher, second) = (Publisher(world), Publisher(world))
            try await publisher.powerOn()
            try await second.powerOn()
            let notifying = local(0x110, .notify)
            let (first, twin) = (localService(0x100, [notifying]), localService(0x100, [local(0x111, .read)]))
            #expect(try await publisher.add(first) == nil)
            #expect(try await publisher.add(twin) == nil)
            #expect(try await second.add(localService(0x105, [local(0x112, .read)])) == nil)
            try await publisher.advertise()
            let found = try await world.connect()
            #expect(found.components(separatedBy: first.uuid.line).count == 3)
            #expect(found.contains(sinkUUID(0x105).line))
            _ = try await world.control("central subscribe \(notifying.uuid.line)")
            _ = try await publisher.nextSubscription()
            publisher.manager.remove(first)
            publisher.manager.remove(localService(0x109, []))
            let (_, characteristic) = try await publisher.nextUnsubscription()
            #expect(characteristic === notifying)
            try await world.awaitTable { $0.components(separatedBy: first.uuid.line).count == 2 }
            // It may be added again.
            #expect(try await publisher.add(first) == nil)
            try await world.awaitTable { $0.components(separatedBy: first.uuid.line).count == 3 }
            publisher.manager.removeAllServices()
            try await world.awaitTable { !$0.contains(first.uuid.line) }
            second.release()
            try await world.awaitTable { !$0.contains(sinkUUID(0x105).line) }
        }

        @Test("PB-10 access that needs encryption is refused to an unpaired central, without asking the app")
        func encryption() async throws {
            let world = try await Worlds.make()
            let publisher = Publisher(world)
            try await publisher.powerOn()
            let guarded = local(0x110, [.read, .write], [.readEncryptionRequired, .writeEncryptionRequired])
            let notifying = local(0x111, .notifyEncryptionRequired)
            let indicating = local(0x112, .indicateEncryptionRequired)
            #expect(try await publisher.add(localService(0x100, [guarded, notifying, indicating])) == nil)
            try await publisher.advertise()
            try await world.connect()
            for line in [
                "read \(guarded.uuid.line)", "write \(guarded.uuid.line) 00", "subscribe \(notifying.uuid.line)",
                "subscribe \(indicating.uuid.line)",
            ] {
                let error = await world.refusal("central \(line)")
                #expect(
                    ["0x05", "0x0f"].contains { error?.contains("att \($0)") == true }, "\(line): \(error ?? "done")")
            }
            #expect(publisher.records.count == 3)
        }

        @Test(
            "PB-10 UP-1 a paired central reads, writes and subscribes to characteristics that need encryption",
            arguments: ["the desktop's agent", "this program, if the app allows it"])
        func pairing(_ decider: String) async throws {
            let world = try await Worlds.make()
            let isOurs = decider != "the desktop's agent"
            let agent = isOurs ? nil : try await PairingAgent(world)
            let publisher = Publisher(world, options: [BluezManagerOptionAllowJustWorksPairingKey: isOurs])
            try await publisher.powerOn()
            let guarded = local(0x110, [.read, .write], [.readEncryptionRequired, .writeEncryptionRequired])
            let notifying = local(0x111, .notifyEncryptionRequired)
            #expect(try await publisher.add(localService(0x100, [guarded, notifying])) == nil)
            publisher.answerReads(with: Data([0x5E]))
            try await publisher.advertise()
            try await world.connect()
            #expect(await world.refusal("central read \(guarded.uuid.line)") != nil)
            _ = try await world.control("central pair")
            #expect(try await world.control("central read \(guarded.uuid.line)") == "5e")
            publisher.onEvent { manager, event in
                if case .write(let requests) = event { manager.respond(to: requests[0], withResult: .success) }
            }
            _ = try await world.control("central write \(guarded.uuid.line) 0102")
            #expect(try await publisher.nextWrite()[0].value == Data([1, 2]))
            _ = try await world.control("central subscribe \(notifying.uuid.line)")
            let (central, _) = try await publisher.nextSubscription()
            #expect(publisher.manager.updateValue(Data([7]), for: notifying, onSubscribedCentrals: [central]))
            _ = try await world.nextEvent("the value") { $0.hasSuffix("notified \(notifying.uuid.line) 07") }
            // A bond outlives the link, and would outlive this test.
            _ = try await world.control("central disconnect")
            _ = try await publisher.nextUnsubscription()
            _ = try await world.control("central forget")
            try await world.forget("F0:F1:F2:00:00:04")
            withExtendedLifetime(agent) {}
        }

        @Test("ST-6 a restart of bluetoothd empties the table without callbacks; the same objects can be added again")
        func daemonRestart() async throws {
            let world = try await Worlds.make()
            let publisher = Publisher(world)
            try await publisher.powerOn()
            let notifying = local(0x110, .notify)
            let service = localService(0x100, [notifying])
            try await publisher.add(service)
            try await publisher.advertise()
            try await world.connect()
            _ = try await world.control("central subscribe \(notifying.uuid.line)")
            _ = try await publisher.nextSubscription()
            _ = try await world.control("bluetoothd kill")
            let record = try await publisher.nextRecord("resetting") {
                if case .state(.resetting) = $0.event { $0 } else { nil }
            }
            #expect(!record.isAdvertising)
            #expect((notifying.subscribedCentrals ?? []).isEmpty)
            _ = try await world.control("bluetoothd start")
            try await publisher.powerOn()
            #expect(publisher.count { if case .unsubscribed = $0 { true } else { false } } == 0)
            #expect(!publisher.manager.isAdvertising)
            #expect(try await publisher.add(service) == nil)
            #expect(try await publisher.advertise() == nil)
            #expect(try await world.connect().contains(service.uuid.line))
            _ = try await world.control("central subscribe \(notifying.uuid.line)")
            let (central, _) = try await publisher.nextSubscription()
            #expect(notifying.subscribedCentrals?.map(\.identifier) == [central.identifier])
        }

        @Test("both roles at once on one adapter: a central reads from us while we are subscribed to a sensor")
        func bothRoles() async throws {
            let world = try await Worlds.make()
            let publisher = Publisher(world)
            try await publisher.powerOn()
            publisher.answerReads(with: Data([0x42]))
            let characteristic = local(0x110, .read)
            try await publisher.add(localService(0x100, [characteristic]))
            try await publisher.advertise()
            let central = Central(world)
            try await central.powerOn()
            let heart = try await central.find("Rig Heart", services: [CBUUID(string: "180D")])
            try await central.connect(heart)
            let rate = try await central.characteristic(CBUUID(string: "2A37"), of: CBUUID(string: "180D"), on: heart)
            #expect(try await central.setNotify(true, rate) == nil)
            try await world.connect()
            for number in 0..<3 {
                _ = try await world.control("heart measure \(60 + number)")
                let value = try await central.next("a measurement") {
                    if case .value(rate, let value?, nil) = $0 { value } else { nil }
                }
                #expect(value[1] == UInt8(60 + number))
                #expect(try await world.control("central read \(characteristic.uuid.line)") == "42")
            }
            try await central.disconnect(heart)
            #expect(try await world.control("central read \(characteristic.uuid.line)") == "42")
        }
    }
}

extension World {
    /// What the world refuses a line with; nil: it does not.
    func refusal(_ line: String) async -> String? {
        do {
            _ = try await control(line)
            return nil
        } catch { return "\(error)" }
    }

    /// Waits until the central finds a table that fits.
    func awaitTable(_ fits: (String) -> Bool) async throws {
        var table = ""
        try await eventually("the central finds a table that fits: \(table)") {
            table = try await control("central discover")
            return fits(table)
        }
    }
}

/// Two values that need not be Sendable.
struct Pair<A, B>: @unchecked Sendable {  // holds: handed over once
    let parts: (A, B)
    init(_ a: A, _ b: B) { parts = (a, b) }
}

extension Publisher {
    /// Answers every read with this.
    func answerReads(with value: Data) {
        onEvent { manager, event in
            guard case .read(let request) = event else { return }
            request.value = value.dropFirst(request.offset)
            manager.respond(to: request, withResult: .success)
        }
    }
}
