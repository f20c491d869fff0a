import CoreBluetooth
import Foundation
import Testing

/// Reads and writes by an independent central.
extension Scenarios {
    @Suite struct RequestScenarios {
        @Test("RQ-2 RQ-11 O-34 a long value is requested in parts, from each offset on; a fixed one is not")
        func longReads() async throws {
            let fixed = Data((0..<300).map { UInt8(truncatingIfNeeded: $0) })
            let (dynamic, fixedOne) = (local(0x110, .read), local(0x111, .read, value: fixed))
            let (world, publisher) = try await Publisher.connected([dynamic, fixedOne], mtu: 23)
            let value = Data((0..<50).map { UInt8($0) })
            publisher.answerReads(with: value)
            #expect(try await world.control("central read \(dynamic.uuid.line)") == value.hex)
            let offsets = publisher.events.compactMap {
                if case .read(let request) = $0 { request.offset } else { nil }
            }
            #expect(offsets == [0, 22, 44])
            #expect(try await world.control("central read \(fixedOne.uuid.line)") == fixed.hex)
            #expect(try await world.control("central readat \(fixedOne.uuid.line) 300") == "")
            #expect(await world.refusal("central readat \(fixedOne.uuid.line) 301")?.contains("att 0x07") == true)
            #expect(publisher.count { if case .read = $0 { true } else { false } } == 3)
            // More than fits is cut.
            publisher.answerReads(with: Data(count: 600))
            #expect(try await world.control("central readat \(dynamic.uuid.line) 500").count == 24)
        }

        @Test("ERR-9 RQ-3 each response of the app reaches the central as in the table")
        func errors() async throws {
            let characteristic = local(0x110, [.read, .write])
            let (world, publisher) = try await Publisher.connected([characteristic])
            func answers(_ code: CBATTError.Code, read: String, write: String) async throws {
                publisher.onEvent { manager, event in
                    switch event {
                    case .read(let request):
                        request.value = Data([1])
                        manager.respond(to: request, withResult: code)
                    case .write(let requests): manager.respond(to: requests[0], withResult: code)
                    default: break
                    }
                }
                let uuid = characteristic.uuid.line
                #expect(await world.refusal("central read \(uuid)")?.contains("att \(read)") == true, "\(code)")
                #expect(await world.refusal("central write \(uuid) 00")?.contains("att \(write)") == true, "\(code)")
            }
            try await answers(.readNotPermitted, read: "0x02", write: "0x03")
            try await answers(.writeNotPermitted, read: "0x02", write: "0x03")
            try await answers(.requestNotSupported, read: "0x06", write: "0x06")
            try await answers(.invalidOffset, read: "0x07", write: "0x07")
            try await answers(.insufficientAuthorization, read: "0x08", write: "0x08")
            try await answers(.invalidAttributeValueLength, read: "0x0d", write: "0x0d")
            for number in [0x80, 0x81, 0x9F] {
                let code = try #require(CBATTError.Code(rawValue: number))
                let text = "0x" + String(number, radix: 16)
                try await answers(code, read: text, write: text)
            }
            for code in [
                CBATTError.Code.unlikelyError, .insufficientAuthentication, .insufficientResources, .prepareQueueFull,
            ] { try await answers(code, read: "0x0e", write: "0x0e") }
            let reserved = try #require(CBATTError.Code(rawValue: 0xE0))
            try await answers(reserved, read: "0x0e", write: "0x0e")
        }

        @Test(
            "RQ-4 RQ-5 O-28 O-39 long and prepared writes arrive as one, with their offset; an error refuses all of it"
        )
        func writes() async throws {
            let characteristic = local(0x110, [.read, .write])
            let (world, publisher) = try await Publisher.connected([characteristic], mtu: 23)
            let uuid = characteristic.uuid.line
            // What the app keeps; "no" it refuses.
            let kept = ProtectedBox(Data())
            publisher.onEvent { manager, event in
                switch event {
                case .read(let request):
                    request.value = kept.withLock { $0 }.dropFirst(request.offset)
                    manager.respond(to: request, withResult: .success)
                case .write(let requests):
                    let refused = requests[0].value == Data("no".utf8)
                    if !refused {
                        kept.withLock { $0 = $0.prefix(requests[0].offset) + (requests[0].value ?? Data()) }
                    }
                    manager.respond(to: requests[0], withResult: refused ? .insufficientAuthorization : .success)
                default: break
                }
            }
            // BlueZ 5.66 takes 508 bytes at most, as it counts the header with the value.
            let long = Data((0..<508).map { UInt8(truncatingIfNeeded: $0 * 7) })
            _ = try await world.control("central writelong \(uuid) \(long.hex)")
            let requests = try await publisher.nextWrite()
            #expect(requests.map(\.offset) == [0])
            #expect(requests[0].value == long)
            #expect(try await world.control("central read \(uuid)") == long.hex)
            _ = try await world.control("central preparewrite \(uuid) 5 aabb")
            _ = try await world.control("central preparewrite \(uuid) 7 cc")
            _ = try await world.control("central execute 1")
            let prepared = try await publisher.nextWrite()
            #expect(prepared.map(\.offset) == [5])
            #expect(prepared[0].value == Data([0xAA, 0xBB, 0xCC]))
            // Cancelled: the app gets no request.
            _ = try await world.control("central preparewrite \(uuid) 0 dd")
            _ = try await world.control("central execute 0")
            #expect(await world.refusal("central write \(uuid) 6e6f")?.contains("att 0x08") == true)
            _ = try await publisher.nextWrite()
            #expect(try await world.control("central read \(uuid)") == (long.prefix(5) + [0xAA, 0xBB, 0xCC]).hex)
            _ = try await world.control("central write \(uuid) -")
            #expect(try await publisher.nextWrite()[0].value == Data())
            #expect(publisher.count { if case .write = $0 { true } else { false } } == 4)
        }

        @Test("RQ-6 O-40 writes without response arrive as requests, in order; responding to them is harmless")
        func commands() async throws {
            let characteristic = local(0x110, .writeWithoutResponse)
            let (world, publisher) = try await Publisher.connected([characteristic])
            publisher.onEvent { manager, event in
                guard case .write(let requests) = event else { return }
                manager.respond(to: requests[0], withResult: .success)
                manager.respond(to: requests[0], withResult: .unlikelyError)
            }
            for number in 0..<20 {
                _ = try await world.control("central write \(characteristic.uuid.line) \(Data([UInt8(number)]).hex) 0")
            }
            for number in 0..<20 { #expect(try await publisher.nextWrite()[0].value == Data([UInt8(number)])) }
        }

        @Test("RQ-7 access that properties or permissions forbid is refused without asking the app")
        func permissions() async throws {
            let (writeOnly, readOnly) = (local(0x110, .write), local(0x111, .read))
            let closed = local(0x112, [.read, .write], [])
            let (world, publisher) = try await Publisher.connected([writeOnly, readOnly, closed])
            let count = publisher.records.count
            #expect(await world.refusal("central read \(writeOnly.uuid.line)")?.contains("att 0x02") == true)
            #expect(await world.refusal("central write \(readOnly.uuid.line) 00")?.contains("att 0x03") == true)
            #expect(await world.refusal("central read \(closed.uuid.line)")?.contains("att 0x02") == true)
            #expect(await world.refusal("central write \(closed.uuid.line) 00")?.contains("att 0x03") == true)
            #expect(publisher.records.count == count)
        }

        // Slow: in the rig, BlueZ waits five seconds for an answer of the app.
        @Test(
            "RQ-1 RQ-10 MIS-18 a request that the app does not answer fails in time; late and second answers are ignored"
        )
        func unanswered() async throws {
            _ = LogCapture.shared
            let characteristic = local(0x110, [.read, .write])
            let (world, publisher) = try await Publisher.connected([characteristic])
            limitRequests(in: world, to: .seconds(1))
            let refusal = await world.refusal("central read \(characteristic.uuid.line)")
            #expect(refusal?.contains("att 0x0e") == true)
            let request = try await publisher.nextRead()
            try await LogCapture.shared.expect("has not answered a read of", characteristic.uuid.description)
            limitRequests(in: world, to: .seconds(world_deadline))
            // Late is no misuse: the app cannot know that BlueZ waits no longer.
            publisher.manager.respond(to: request, withResult: .success)
            publisher.manager.respond(to: request, withResult: .success)
            try await LogCapture.shared.expect("respond", "answered already")
            // And the link lives.
            publisher.answerReads(with: Data([5]))
            #expect(try await world.control("central read \(characteristic.uuid.line)") == "05")
        }

        @Test("RQ-9 requests of two centrals can be open at the same time, and answered in any order, from any thread")
        func twoCentrals() async throws {
            let characteristic = local(0x110, .read)
            let (world, publisher) = try await Publisher.connected([characteristic])
            try await world.connect("central2")
            let second = try RigWorld.another(like: world)
            let manager = try #require(publisher.manager)
            func readBoth() async throws {
                async let one = world.control("central read \(characteristic.uuid.line)")
                let first = try await publisher.nextRead()
                async let two = second.control("central2 read \(characteristic.uuid.line)")
                let other = try await publisher.nextRead()
                #expect(first.central.identifier != other.central.identifier)
                other.value = Data([2])
                DispatchQueue.global().async { manager.respond(to: other, withResult: .success) }
                #expect(try await two == "02")
                first.value = Data([1])
                DispatchQueue.global().async { manager.respond(to: first, withResult: .success) }
                #expect(try await one == "01")
            }
            do { try await readBoth() } catch is RigWorld.Refused where Worlds.isRig {
                // bluetoothd answers a central itself after 5 s, for which a machine may stand still.
                try await readBoth()
            }
        }
    }
}

extension Data {
    /// As control lines take it.
    var hex: String { map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() }

    init?(hex: some StringProtocol) {
        let digits = Array(hex.utf8)
        guard digits.count % 2 == 0 else { return nil }
        self.init(capacity: digits.count / 2)
        for index in stride(from: 0, to: digits.count, by: 2) {
            guard let byte = UInt8(String(decoding: digits[index..<index + 2], as: UTF8.self), radix: 16) else {
                return nil
            }
            append(byte)
        }
    }
}

extension RigWorld {
    /// Another way into the same world: the rig's socket takes one line after the other.
    static func another(like world: any World) throws -> any World { world is RigWorld ? try RigWorld() : world }
}
