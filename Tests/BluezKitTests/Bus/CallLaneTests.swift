import BluezKitSimulator
import BluezDBus
import Foundation
import Testing

@testable import BluezKit

@Suite struct CallLaneTests {
    // Answers on one connection and signals on another have no order of their own.
    @Test("an answer is handled after the signals that were sent before it to the connection that has them")
    func order() async throws {
        let bus = try PrivateBus(policy: .open)
        let (server, main) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        // Both on one queue, as the connections of a process are.
        let lane = ProtectedBox(
            try main.sync { CallLane(try Connection(address: bus.busAddress, queue: main.queue), signals: $0) })
        let receiver = main.name
        server.serve { connection, call in
            for _ in 0..<20 {
                try? connection.emit(path: "/", interface: "a.b", member: "S", to: receiver) { _ in }
            }
            connection.reply(to: call)
        }
        let destination = server.name
        for round in 1...100 {
            let seen = EventLog<Int>()
            main.sync { _ in
                let call = MethodCall(destination: destination, path: "/", interface: "a.b", member: "C")
                lane.withLock { lane in
                    lane.connection.call(
                        call, deadline: .seconds(20),
                        completion: lane.inOrder { _ in seen.append(main.signals.all.count { $0.member == "S" }) })
                }
            }
            #expect(try await seen.next("answer") { $0 } == 20 * round)
        }
    }

    @Test("an answer is handled also where the connection that has the signals has ended")
    func alone() async throws {
        let bus = try PrivateBus(policy: .open)
        let main = try await Peer.named(bus.busAddress)
        let answers = EventLog<Bool>()
        try main.sync { connection in
            let lane = CallLane(try Connection(address: bus.busAddress, queue: main.queue), signals: connection)
            connection.close()
            lane.inOrder { _ in answers.append(true) }(.failure(.timedOut))
        }
        #expect(try await answers.next("answer") { $0 })
    }
}
