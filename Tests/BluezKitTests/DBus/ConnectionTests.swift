import BluezKitSimulator
import BluezDBus
import Dispatch
import Foundation
import Testing

@Suite("BluezDBus: calls")
struct ConnectionTests {
    @Test("a remote error keeps its name and message, whatever its arguments are")
    func remoteErrors() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        server.serve { connection, call in
            let text = (try? call.values())?.first?.stringValue ?? ""
            connection.refuse(call, name: "org.bluez.Error.Failed", message: text)
        }
        for text in ["Operation failed with ATT error: 0x81", "", "ä\n\"'<>", String(repeating: "x", count: 100_000)] {
            await #expect(throws: BusError.remote(name: "org.bluez.Error.Failed", message: text)) {
                try await client.echo(server, .string(text))
            }
        }
        server.serve { connection, call in connection.refuse(call, name: "no error name", message: "text") }
        await #expect(throws: BusError.remote(name: "org.freedesktop.DBus.Error.Failed", message: "text")) {
            try await client.echo(server)
        }
        await #expect(throws: BusError.self) { try await client.call("test.unowned", "/", "a.b", "C") }
    }

    @Test("an object that is not exported is UnknownObject, and Peer.Ping is answered automatically")
    func unknownObject() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        do {
            try await client.echo(server)
            Issue.record("answered")
        } catch let error as BusError { #expect(error.name == "org.freedesktop.DBus.Error.UnknownObject") }
        #expect(try await client.call(server.name, "/x", "org.freedesktop.DBus.Peer", "Ping") == [])
    }

    @Test(
        "a delivery that takes long holds up nothing: another thread receives, and may not deliver until there are two again"
    )
    func longDelivery() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        let (log, gate) = (client.order, DispatchSemaphore(value: 0))
        client.sync { connection in
            connection.onTurnEnd = { mayDeliver in
                let mayDeliver = mayDeliver()
                log.append("may deliver: \(mayDeliver)")
                guard mayDeliver else { return nil }
                return {
                    log.append("begins")
                    gate.wait()
                }
            }
        }
        func turn(_ member: String) async throws -> String {
            try server.emit("/", "a.b", member, to: client.name, [])
            try await log.next(member) { $0 == "signal \(member)" ? true : nil }
            return try await log.next("end of the turn") { $0.hasPrefix("may deliver") ? $0 : nil }
        }
        // The second thread is started by the first turn that could use it.
        #expect(try await turn("A") == "may deliver: false")
        for _ in 0..<2 {
            while try await turn("B") != "may deliver: true" {}
            try await log.next("delivery") { $0 == "begins" ? true : nil }
            for member in ["C", "D"] { #expect(try await turn(member) == "may deliver: false") }
            gate.signal()
        }
    }

    // dbus-broker waits with all others for a program that takes too few of them.
    @Test(
        "signals with descriptors that are there together are received together, although each takes a read of its own")
    func descriptorsTogether() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        let (log, gate, name) = (client.order, DispatchSemaphore(value: 0), client.name)
        client.sync { connection in
            connection.onTurnEnd = { _ in
                log.append("end of the turn")
                return nil
            }
        }
        let ends = try socketPair()
        defer { ends.forEach { close($0) } }
        DispatchQueue.global().async {
            client.sync { _ in
                log.append("held up")
                _ = gate.wait(timeout: .now() + 60)
            }
        }
        try await log.next("hold-up") { $0 == "held up" ? true : nil }
        for _ in 0..<48 { try server.emit("/", "a.b", "S", to: name, [.fileDescriptor(ends[0])]) }
        _ = try await server.call("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "GetId")
        log.forget()
        gate.signal()
        for _ in 0..<48 { try await log.next("signal") { $0 == "signal S" ? true : nil } }
        #expect(log.all.count { $0 == "end of the turn" } < 24)
    }

    /// Says when the queue that has it is released, and with it every thread that holds the queue.
    private final class Sentinel: Sendable {
        let log = EventLog<String>()
        deinit { log.append("released") }
    }

    @Test("close() ends the threads, also one that delivers, as soon as it has")
    func threadsEnd() async throws {
        let bus = try PrivateBus(policy: .open)
        let (log, gate, sentinel) = (EventLog<String>(), DispatchSemaphore(value: 0), Sentinel())
        let released = sentinel.log
        func connect(_ sentinel: Sentinel) throws -> Connection {
            let queue = DispatchQueue(label: "test.threads")
            queue.setSpecific(key: DispatchSpecificKey<Sentinel>(), value: sentinel)
            return try queue.sync {
                let connection = try Connection(address: bus.busAddress, queue: queue)
                connection.onTurnEnd = { [unowned connection] mayDeliver in
                    // Each turn leads to another one, until there are two threads.
                    guard mayDeliver() else {
                        let bus = "org.freedesktop.DBus"
                        let call = MethodCall(destination: bus, path: "/", interface: bus, member: "GetId")
                        connection.call(call, deadline: .seconds(20)) { _ in }
                        return nil
                    }
                    return {
                        log.append("begins")
                        gate.wait()
                    }
                }
                return connection
            }
        }
        do {
            let connection = try connect(consume sentinel)
            try await log.next("delivery") { $0 == "begins" ? true : nil }
            connection.queue.sync { connection.close() }
        }
        #expect(released.all.isEmpty)
        gate.signal()
        try await released.next("the end of all threads") { $0 == "released" ? true : nil }
    }

    @Test("the threads of a connection have a name that ps shows")
    func threadName() async throws {
        let bus = try PrivateBus(policy: .open)
        let peer = try await Peer.named(bus.busAddress)
        let threads = "/proc/self/task"
        let names = try FileManager.default.contentsOfDirectory(atPath: threads).compactMap {
            // Others may end meanwhile.
            try? String(contentsOfFile: "\(threads)/\($0)/comm", encoding: .utf8)
        }
        #expect(names.contains("bluezkit.bus\n"), "\(names)")
        withExtendedLifetime(peer) {}
    }

    @Test("a deadline gives timedOut once, and an answer that comes later is dropped")
    func deadline() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        let calls = EventLog<Held<IncomingCall>>()
        server.serve { _, call in calls.append(Held(value: call)) }
        let outcomes = EventLog<Result<Void, BusError>>()
        let (destination, start) = (server.name, ContinuousClock.now)
        client.sync { connection in
            let call = MethodCall(destination: destination, path: "/", interface: "a.b", member: "C")
            connection.call(call, deadline: .milliseconds(50)) { outcomes.append($0.map { _ in }) }
        }
        let outcome = try await outcomes.next("timeout") { $0 }
        #expect(throws: BusError.timedOut) { try outcome.get() }
        #expect(ContinuousClock.now - start >= .milliseconds(49))
        let late = try await calls.next("call") { $0 }
        server.sync { $0.reply(to: late.value) }
        try await server.settle()
        try await client.settle()
        #expect(outcomes.all.count == 1)
    }

    @Test(
        "deadlines fire in their own order, not in that of the calls, however late; a zero deadline is over at once",
        arguments: [false, true])
    func deadlineOrder(isLate: Bool) async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        server.serve { _, _ in }
        let destination = server.name
        var order = EventLog<Int>()
        // Where the calls themselves take as long as the deadlines differ, those are in another order.
        for _ in 0..<100 {
            let log = EventLog<Int>()
            order = log
            let isQuick = client.sync { connection in
                let begin = ContinuousClock.now
                for milliseconds in [120, 0, 60, 30] {
                    let call = MethodCall(destination: destination, path: "/", interface: "a.b", member: "C")
                    connection.call(call, deadline: .milliseconds(milliseconds)) { result in
                        if case .failure(.timedOut) = result { log.append(milliseconds) }
                    }
                }
                let end = ContinuousClock.now
                while isLate, ContinuousClock.now < end + .milliseconds(121) {}  // until all have passed
                return begin.duration(to: end) < .milliseconds(25)
            }
            if isQuick { break }
        }
        for expected in [0, 30, 60, 120] { #expect(try await order.next("timeout") { $0 } == expected) }
    }

    @Test("an infinite deadline never expires")
    func endlessDeadline() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        server.serveEcho()
        #expect(try await client.echo(server, .byte(1), deadline: .seconds(Int64.max)) == [.byte(1)])
    }

    @Test("completions are called in the order of the answers, after every signal sent before them")
    func order() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        server.serve { connection, call in
            for member in ["One", "Two"] {
                try? connection.emit(path: "/", interface: "a.b", member: member) { (_) throws(BusError) in }
            }
            connection.reply(to: call)
            try? connection.emit(path: "/", interface: "a.b", member: "Three") { (_) throws(BusError) in }
        }
        let destination = server.name
        client.sync { connection in
            connection.addMatch(MatchRule(sender: destination))
            for number in 1...2 {
                let call = MethodCall(destination: destination, path: "/", interface: "a.b", member: "C")
                connection.call(call, deadline: .seconds(20)) { [order = client.order] _ in
                    order.append("answer \(number)")
                }
            }
        }
        var seen: [String] = []
        while seen.count < 8 {
            seen.append(try await client.order.next("8 events") { $0.hasPrefix("signal Name") ? nil : $0 })
        }
        let turn = ["signal One", "signal Two"]
        let expected: [String] = turn + ["answer 1", "signal Three"] + turn + ["answer 2", "signal Three"]
        #expect(seen == expected)
    }

    @Test("a completion never runs before call() has returned, even for a call that could not be sent")
    func neverInside() async throws {
        let bus = try PrivateBus(policy: .open)
        let client = try await Peer.named(bus.busAddress)
        let log = EventLog<String>()
        client.sync { connection in
            connection.call(
                MethodCall(destination: "no name", path: "/", interface: "a.b", member: "C"), deadline: .seconds(1)
            ) { result in log.append("\(result.failureName)") }
            log.append("returned")
            connection.call(
                MethodCall(destination: "a.b", path: "/", interface: "a.b", member: "C") { (_) throws(BusError) in
                    throw .malformed("mine")
                }, deadline: .seconds(1)
            ) { result in log.append("\(result.failureName)") }
            log.append("returned")
        }
        for expected in [
            "returned", "returned", "org.freedesktop.DBus.Error.InvalidArgs",
            "org.freedesktop.DBus.Error.InvalidSignature",
        ] { #expect(try await log.next(expected) { $0 } == expected) }
    }

    @Test("a call that expects no reply gets none")
    func noReply() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        let calls = EventLog<Bool>()
        server.serve { connection, call in
            calls.append(call.expectsReply)
            connection.reply(to: call)
            connection.refuse(call, name: "a.b", message: "")
        }
        let destination = server.name
        try client.sync {
            try $0.send(MethodCall(destination: destination, path: "/", interface: "a.b", member: "C"))
        }
        #expect(try await calls.next("call") { $0 } == false)
        try await client.settle()
    }

    @Test("match rules are counted: one AddMatch and one RemoveMatch, however many users the rule has")
    func matchRules() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        let rule = MatchRule(sender: server.name, interface: "a.b", member: "S", path: "/p", argument0: "x")
        func rules() async throws -> Int {
            let stats = try? await client.call(
                "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.Debug.Stats",
                "GetConnectionStats", [.string(client.name)])
            return stats?.first?.dictionaryValue?["MatchRules"]?.intValue ?? -1
        }
        let before = try await rules()
        client.sync { for _ in 1...3 { $0.addMatch(rule) } }
        #expect(client.sync { $0.matchRuleCount } == 1)
        if before >= 0 { #expect(try await rules() == before + 1) }
        func heard() async throws -> Bool {
            let count = client.signals.all.filter { $0.member == "S" }.count
            try server.emit("/p", "a.b", "S", [.string("x")])
            try server.emit("/p", "a.b", "S", [.string("other")])
            try server.emit("/q", "a.b", "S", [.string("x")])
            try await server.settle()
            try await client.settle()
            return client.signals.all.filter { $0.member == "S" }.count == count + 1
        }
        #expect(try await heard())
        client.sync { for _ in 1...2 { $0.removeMatch(rule) } }
        #expect(try await heard())
        client.sync { $0.removeMatch(rule) }
        #expect(client.sync { $0.matchRuleCount } == 0)
        #expect(try await !heard())
        client.sync { $0.removeMatch(rule) }  // once too often
        if before >= 0 { #expect(try await rules() == before) }
    }

    @Test("a match rule that the bus refuses is reported, as is one that contains a quotation mark or a NUL")
    func refusedRule() async throws {
        let bus = try PrivateBus(policy: .open)
        let client = try await Peer.named(bus.busAddress)
        let refused = EventLog<String>()
        client.sync { connection in
            connection.onRuleRefused = { _, error in refused.append(error.name) }
            connection.addMatch(MatchRule(sender: "no name"))
            connection.addMatch(MatchRule(sender: "a.b", argument0: "it's"))
            connection.addMatch(MatchRule(sender: "a.b", argument0: "x\0"))
        }
        for _ in 1...3 { try await refused.next("refusal") { $0.hasPrefix("org.freedesktop.DBus.Error.") ? $0 : nil } }
        try await client.settle()
    }
}

@Suite("BluezDBus: file descriptors")
struct FileDescriptorTests {
    @Test("descriptors are duplicated both ways, close-on-exec, and work")
    func passes() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        #expect(client.sync { $0.carriesFileDescriptors })
        server.serveEcho()
        var ends: [Int32] = [-1, -1]
        #expect(pipe(&ends) == 0)
        let back = try await client.echo(server, .fileDescriptor(ends[1]), .structure([.fileDescriptor(ends[1])]))
        guard case .fileDescriptor(let first)? = back.first, back.count == 2,
            case .structure(let members) = back[1], case .fileDescriptor(let second)? = members.first
        else {
            Issue.record("\(back)")
            return
        }
        #expect(first != ends[1] && second != first && fcntl(first, F_GETFD) & FD_CLOEXEC != 0)
        close(ends[1])
        #expect(write(first, "x", 1) == 1 && write(second, "y", 1) == 1)
        close(first)
        close(second)
        var text = [UInt8](repeating: 0, count: 4)
        #expect(read(ends[0], &text, 4) == 2)
        #expect(await reachesEnd(ends[0]))
        close(ends[0])
    }

    @Test("descriptors of calls that are not read are closed")
    func closesUnread() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        server.serve { connection, call in connection.reply(to: call) }
        var ends: [Int32] = [-1, -1]
        #expect(pipe(&ends) == 0)
        for _ in 1...50 { try await client.echo(server, .fileDescriptor(ends[1])) }
        close(ends[1])
        try await client.settle()
        // The bus and the messages release theirs.
        #expect(await reachesEnd(ends[0]))
        close(ends[0])
    }
}

/// Something handed from one queue to another by a test.
struct Held<Value>: @unchecked Sendable {  // holds: used by one queue at a time
    let value: Value
}

extension Result where Failure == BusError {
    var failureName: String { if case .failure(let error) = self { error.name } else { "success" } }
}
