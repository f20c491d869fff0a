import BluezKitSimulator
import BluezDBus
import Foundation
import Testing

@testable import BluezDBus

@Suite("BluezDBus: the limit of open calls")
struct CallLimitTests {
    @Test("calls above the bus' limit wait, and are made in the order in which they were requested")
    func waits() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        // It answers only when nothing else comes: as many calls are open as ever will be.
        let held = ProtectedBox<(calls: [Held<IncomingCall>], most: Int, order: [Int])>(([], 0, []))
        server.serve { connection, call in
            held.withLock { held in
                held.calls.append(Held(value: call))
                held.most = max(held.most, held.calls.count)
                held.order.append((try? call.values())?.first?.intValue ?? -1)
            }
        }
        server.sync { connection in
            connection.onTurnEnd = { [unowned connection] _ in
                let calls = held.withLock { held in
                    defer { held.calls = [] }
                    return held.calls
                }
                for call in calls { connection.reply(to: call.value) }
                return nil
            }
        }
        let outcomes = EventLog<String>()
        let destination = server.name
        client.sync { connection in
            for number in 0..<1000 {
                let call = MethodCall(destination: destination, path: "/", interface: "a.b", member: "C") {
                    (writer) throws(BusError) in try writer.write(UInt32(number))
                }
                connection.call(call, deadline: .seconds(60)) { outcomes.append("\(number) \($0.failureName)") }
            }
        }
        for number in 0..<1000 {
            #expect(try await outcomes.next("answer \(number)") { $0 } == "\(number) success")
        }
        held.withLock { held in
            #expect(held.order == Array(0..<1000))
            #expect(held.most <= 100)
        }
    }

    @Test("an answer that arrived in time counts, even if this process reads it after the deadline")
    func stopped() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        let calls = EventLog<Held<IncomingCall>>()
        server.serve { _, call in calls.append(Held(value: call)) }
        let (outcomes, destination) = (EventLog<String>(), server.name)
        let goesOn = DispatchSemaphore(value: 0)
        let due = client.sync { connection in
            let call = MethodCall(destination: destination, path: "/", interface: "a.b", member: "C")
            connection.call(call, deadline: .milliseconds(200)) { outcomes.append($0.failureName) }
            // Its queue does nothing until the answer is there, as if the process were stopped: from this turn on, so
            // that the deadline is not noticed before.
            client.queue.async { _ = goesOn.wait(timeout: .now() + 20) }
            return DispatchTime.now().later(by: .milliseconds(200))
        }
        let call = try await calls.next("call") { $0 }
        try await eventually("the deadline has passed") { DispatchTime.now() > due }
        server.sync { $0.reply(to: call.value) }
        try await server.settle()
        goesOn.signal()
        #expect(try await outcomes.next("answer") { $0 } == "success")
        #expect(client.sync { $0.overdueCalls } == 0)
    }

    @Test("an answer that comes after the deadline makes room; until then the call counts, as it does for the bus")
    func late() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        let calls = EventLog<Held<IncomingCall>>()
        server.serve { _, call in calls.append(Held(value: call)) }
        let outcomes = EventLog<String>()
        let destination = server.name
        let call = { (deadline: Duration, what: String) in
            client.sync { connection in
                let call = MethodCall(destination: destination, path: "/", interface: "a.b", member: "C")
                connection.call(call, deadline: deadline) { outcomes.append("\(what) \($0.failureName)") }
            }
        }
        for _ in 1..<100 { call(.milliseconds(1), "early") }
        call(.seconds(60), "long")
        call(.seconds(60), "late")
        for _ in 1..<100 {
            _ = try await outcomes.next("deadline") { $0 == "early org.freedesktop.DBus.Error.NoReply" ? true : nil }
        }
        var held: [Held<IncomingCall>] = []
        for _ in 1...100 { held.append(try await calls.next("call") { $0 }) }
        try await client.settle()
        try await server.settle()
        #expect(calls.all.count == 100)
        let first = held[0]
        server.sync { $0.reply(to: first.value) }
        _ = try await calls.next("the call that waited") { $0 }
        #expect(outcomes.all.count == 99)
    }

    @Test("as many unanswered calls as may be open end the connection, because it can make no others")
    func stuck() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, client) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        server.serve { _, _ in }
        let outcomes = EventLog<String>()
        let destination = server.name
        client.sync { connection in
            for number in 1...101 {
                let call = MethodCall(destination: destination, path: "/", interface: "a.b", member: "C")
                connection.call(call, deadline: .milliseconds(number)) { outcomes.append($0.failureName) }
            }
        }
        for _ in 1...100 {
            #expect(try await outcomes.next("deadline") { $0 } == "org.freedesktop.DBus.Error.NoReply")
        }
        let limit = "org.freedesktop.DBus.Error.LimitsExceeded"
        #expect(try await outcomes.next("the end") { $0 } == limit)
        #expect(try await client.order.next("the end") { $0.hasPrefix("signal") ? nil : $0 } == "disconnected \(limit)")
    }

    @Test("urgent calls go first, but not before earlier ones to the same object")
    func urgent() {
        var queue = CallQueue<String>()
        queue.add("1 a", to: "/a", isUrgent: false)
        queue.add("2 b", to: "/b", isUrgent: false)
        queue.add("3 a", to: "/a", isUrgent: false)
        queue.add("4 b!", to: "/b", isUrgent: true)
        queue.add("5 c!", to: "/c", isUrgent: true)
        queue.add("6 b", to: "/b", isUrgent: false)
        #expect(queue.next(open: 120) == nil)
        #expect((1...3).map { _ in queue.next(open: 119) } == ["2 b", "4 b!", "5 c!"])
        #expect(queue.next(open: 100) == nil)
        #expect(queue.next(open: 99) == "1 a")
        queue.add("7 b!", to: "/b", isUrgent: true)
        #expect(queue.removeAll() == ["6 b", "7 b!", "3 a"])
        #expect(queue.next(open: 0) == nil)
    }
}
