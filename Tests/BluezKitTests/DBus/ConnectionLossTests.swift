import BluezKitSimulator
import BluezDBus
import Dispatch
import Foundation
import Testing

@Suite("BluezDBus: loss of the bus")
struct ConnectionLossTests {
    @Test("the bus is killed: onDisconnected is called once, then pending calls fail in order, and calls fail at once")
    func killed() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        server.serve { _, _ in }
        let destination = server.name
        let log = client.order
        client.sync { connection in
            for number in 1...3 {
                let call = MethodCall(destination: destination, path: "/", interface: "a.b", member: "C")
                connection.call(call, deadline: .seconds(60)) { log.append("call \(number) \($0.failureName)") }
            }
        }
        try await server.killBus()
        let lost = "org.freedesktop.DBus.Error.Disconnected"
        for expected in ["disconnected \(lost)", "call 1 \(lost)", "call 2 \(lost)", "call 3 \(lost)"] {
            #expect(try await log.next(expected) { $0.hasPrefix("signal") ? nil : $0 } == expected)
        }
        await #expect(throws: BusError.disconnected(name: lost, message: "not connected to a bus")) {
            try await client.bus("GetId")
        }
        client.sync { connection in
            #expect(!connection.carriesFileDescriptors)
            connection.addMatch(MatchRule(sender: "a.b"))
            connection.close()
            connection.close()
        }
        #expect(throws: BusError.self) { try client.emit("/", "a.b", "C", []) }
        #expect(log.all.filter { $0.hasPrefix("disconnected") }.count == 1)
    }

    @Test("close() fails all calls without an answer, in order and before it returns; no onDisconnected")
    func closed() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        let arrived = EventLog<Bool>()
        server.serve { _, _ in arrived.append(true) }
        let destination = server.name
        let log = EventLog<String>()
        client.sync { connection in
            for number in 1...200 {
                let call = MethodCall(destination: destination, path: "/", interface: "a.b", member: "C")
                connection.call(call, deadline: .seconds(30)) { [unowned connection] result in
                    log.append("\(number) \(result.failureName)")
                    // It is already closed for calls made here.
                    connection.call(call, deadline: .seconds(30)) { log.append("again \($0.failureName)") }
                }
            }
        }
        try await arrived.next("call") { $0 }
        client.sync { connection in
            connection.close()
            log.append("closed")
        }
        let lost = "org.freedesktop.DBus.Error.Disconnected"
        for expected in (1...200).map({ "\($0) \(lost)" }) + ["closed"] {
            #expect(try await log.next(expected) { $0 } == expected)
        }
        for _ in 1...200 { #expect(try await log.next("again") { $0 } == "again \(lost)") }
        try await server.killBus()
        try await server.order.next("the end of the bus") { $0.hasPrefix("disconnected") ? true : nil }
        client.sync { _ in }
        #expect(client.order.all.allSatisfy { $0.hasPrefix("signal") })
    }

    // Some of these calls are never answered.
    @Test(
        "close() leaves the bus at once, or when the calls are handled that bind the caller; nothing is received then")
    func leavesWhenHandled() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        let other = try await Peer.named(bus.busAddress)
        let (arrived, log) = (EventLog<Bool>(), client.order)
        server.serve { _, _ in arrived.append(true) }
        let (name, destination) = (client.name, server.name)
        server.queue.suspend()  // it hangs
        client.sync { connection in
            func call(bindsCaller: Bool) {
                let call = MethodCall(
                    destination: destination, path: "/", interface: "a.b", member: "C", bindsCaller: bindsCaller)
                connection.call(call, deadline: .seconds(60)) { log.append("answer \($0.failureName)") }
            }
            for bindsCaller in [true, true, false] { call(bindsCaller: bindsCaller) }
            connection.close()
            connection.leave { log.append("settled") }
        }
        let closed = "answer org.freedesktop.DBus.Error.Disconnected"
        #expect(log.all.filter { $0 != "signal NameAcquired" } == [closed, closed, closed])
        func isThere() async throws -> Bool {
            try await other.bus("NameHasOwner", .string(name)).first?.boolValue == true
        }
        try other.emit("/", "a.b", "Signal", to: name, [])
        // The one who leaves is asked meanwhile, and refuses.
        await #expect(throws: BusError.self) { try await other.call(name, "/", "a.b", "C") }
        #expect(try await isThere() && !log.all.contains("settled"))
        server.queue.resume()
        for _ in 0..<3 { try await arrived.next("call") { $0 } }
        try await eventually("the client has left") { try await !isThere() }
        try await log.next("settled") { $0 == "settled" ? true : nil }
        #expect(!log.all.contains("signal Signal"))
    }

    @Test("a connection that is about to leave makes no call that binds it, and all others")
    func bindsNoMore() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        server.serveEcho()
        let (log, destination) = (client.order, server.name)
        client.sync { connection in
            connection.leave { log.append("settled") }
            for bindsCaller in [true, false] {
                let call = MethodCall(
                    destination: destination, path: "/", interface: "a.b", member: "C", bindsCaller: bindsCaller)
                connection.call(call, deadline: .seconds(60)) { log.append("\(bindsCaller) \($0.failureName)") }
            }
        }
        for expected in ["settled", "true org.freedesktop.DBus.Error.Disconnected", "false "] {
            try await log.next(expected) { $0.hasPrefix(expected) ? true : nil }
        }
    }

    @Test("a connection may be closed in any of its own callbacks")
    func closedInside() async throws {
        let bus = try PrivateBus(policy: .open)
        let server = try await Peer.named(bus.busAddress)
        server.serveEcho()
        let inAnswer = try await Peer.named(bus.busAddress)
        let log = EventLog<String>()
        let destination = server.name
        inAnswer.sync { connection in
            for _ in 1...2 {
                let call = MethodCall(destination: destination, path: "/", interface: "a.b", member: "C")
                connection.call(call, deadline: .seconds(20)) { [unowned connection] _ in
                    log.append("answer")
                    connection.close()
                }
            }
        }
        // The second one fails by the closing.
        for _ in 1...2 { #expect(try await log.next("answer") { $0 } == "answer") }
        let inSignal = try await Peer.named(bus.busAddress)
        inSignal.sync { connection in
            connection.onSignal = { [unowned connection] _ in
                log.append("signal")
                connection.close()
            }
        }
        for _ in 1...2 { try server.emit("/", "a.b", "C", to: inSignal.name, []) }
        try await log.next("signal") { $0 == "signal" ? true : nil }
        try await server.settle()
        inSignal.sync { _ in }
        #expect(log.all.filter { $0 == "signal" }.count == 1)
        let inLoss = try await Peer.named(bus.busAddress)
        inLoss.sync { connection in
            connection.onDisconnected = { [unowned connection] _ in
                log.append("lost")
                connection.close()
            }
        }
        try await server.killBus()
        try await log.next("loss") { $0 == "lost" ? true : nil }
    }

    #if compiler(>=6.2)  // exit tests
    @Test("a missing program: a thrown error, or the end of the connection")
    func noProgram() async {
        // In a process of its own: libdbus leaves its child for this process to reap, and the test runner waits for
        // children of its own.
        await #expect(processExitsWith: .success) {
            let queue = DispatchQueue(label: "test")
            let ended = DispatchSemaphore(value: 0)
            let connection = queue.sync { () -> Connection? in
                let connection = try? Connection(
                    address: BusAddress("unixexec:path=/nonexistent/program"), queue: queue)
                connection?.onDisconnected = { _ in ended.signal() }
                return connection
            }
            exit(connection == nil || ended.wait(timeout: .now() + 20) == .success ? 0 : 1)
        }
    }
    #endif

    @Test(
        "a missing bus, an invalid address: a thrown error that says why",
        arguments: [
            "unix:path=/nonexistent/bus", "", "nonsense", "unix:", "tcp:host=127.0.0.1,port=1", "unix:path=a\0b",
            "unix:path=/dev/null", ";;;", "unix:abstract=bluezkit-unowned",
        ])
    func noBus(_ address: String) async {
        let queue = DispatchQueue(label: "test")
        do {
            // What opens in the background fails by the greeting.
            let log = EventLog<String>()
            let connection = try queue.sync {
                let connection = try Connection(address: BusAddress(address), queue: queue)
                connection.onDisconnected = { log.append($0.name) }
                return connection
            }
            _ = try? await log.next("the end") { $0 }
            #expect(log.all.count == 1)
            queue.sync { connection.close() }
        } catch {
            guard case .disconnected(let name, let message) = error as? BusError else {
                Issue.record("\(error)")
                return
            }
            #expect(name.hasPrefix("org.freedesktop.DBus.Error.") && !message.isEmpty)
        }
    }

    @Test(
        "a server that refuses us, says nothing, or does not speak D-Bus, is a lost connection, whatever is sent meanwhile",
        arguments: ["HTTP/1.1 400 Bad Request\r\n\r\n", "REJECTED EXTERNAL\r\n", ""])
    func noDBus(_ greeting: String) async throws {
        let directory = FileManager.default.temporaryDirectory.appendingPathComponent("bluezkit-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: directory) }
        let path = directory.appendingPathComponent("s").path
        let listener = try #require(listeningSocket(path))
        let rounds = 20
        Thread.detachNewThread {
            for _ in 0..<rounds {
                let client = accept(listener, nil, nil)
                _ = send(client, greeting, greeting.utf8.count, Int32(MSG_NOSIGNAL))
                close(client)
            }
            close(listener)
        }
        let queue = DispatchQueue(label: "test")
        for _ in 0..<rounds {
            let log = EventLog<String>()
            let connection = try queue.sync {
                let connection = try Connection(address: BusAddress("unix:path=\(path)"), queue: queue)
                connection.onDisconnected = { log.append($0.name) }
                // libdbus may notice the end while it writes these.
                for _ in 0..<20 {
                    let call = MethodCall(destination: "a.b", path: "/", interface: "a.b", member: "C")
                    connection.call(call, deadline: .seconds(60)) { _ in }
                }
                return connection
            }
            #expect(try await log.next("the end") { $0 }.hasPrefix("org.freedesktop.DBus.Error."))
            queue.sync { connection.close() }
        }
    }

    @Test("ten thousand calls at once are all answered, in order")
    func manyCalls() async throws {
        let bus = try PrivateBus(policy: .open)
        let client = try await Peer.named(bus.busAddress)
        let server = try await Peer.named(bus.busAddress)
        server.serveEcho()
        let answers = EventLog<Int>()
        let destination = server.name
        client.sync { connection in
            for number in 0..<10_000 {
                let call = MethodCall(destination: destination, path: "/", interface: "a.b", member: "C") {
                    (writer) throws(BusError) in try writer.write(Int32(number))
                }
                connection.call(call, deadline: .seconds(60)) { result in
                    var reader = (try? result.get())?.reader
                    answers.append(Int((try? reader?.readInt32()) ?? -1))
                }
            }
        }
        try await answers.next("the last answer", within: 60) { $0 == 9_999 ? true : nil }
        #expect(answers.all == Array(0..<10_000))
    }
}

/// A unix socket that listens.
func listeningSocket(_ path: String) -> Int32? {
    let listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
    let result = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            bind(listener, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
    }
    return result == 0 && listen(listener, 4) == 0 ? listener : nil
}
