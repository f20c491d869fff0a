import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit
@testable import CoreBluetoothAsync

/// Who gets the requests that a consumer has not taken when it ends.
@Suite struct ReceivedRequestsTests {
    private struct Stage {
        private var requests = ReceivedRequests()
        private var consumers: [String: EventSubscription<ATTRequest, Never>] = [:]
        private let untaken = EventLog<[ATTRequest]>()
        private let core = PeripheralManagerCore()
        private let characteristic = local(0x110, .writeWithoutResponse)
        private let central = CBCentral(identifier: UUID())

        mutating func add(_ name: String, room: Int = 8) {
            let consumer = EventSubscription<ATTRequest, Never>(bufferSize: room, dropped: DropCounter()) {
                [untaken] rest, _ in
                untaken.append(rest.compactMap { $0 })
            }
            consumers[name] = consumer
            requests.add(consumer)
        }

        mutating func receive(_ number: UInt64) {
            let request = ATTRequest(
                .write([]), number, CoreBluetoothAsync.Central(central), ServiceTable().handle(characteristic),
                core: core)
            let received = CBATTRequest(central: central, characteristic: characteristic, offset: 0, value: nil)
            requests.receive(request, as: received)
        }

        /// These consumers end at once, before the first of them gives back what it has not taken.
        /// - Returns: The numbers of what each of them gives back.
        mutating func end(_ names: String...) -> [[UInt64]] {
            untaken.forget()
            for name in names { consumers[name] = nil }
            let all = untaken.all
            for rest in all { requests.giveBack(rest, hasTaken: false) }
            return all.map { $0.map(\.number) }
        }
    }

    // The consumer that came since got them behind those that both were sent, and of two give-backs the last one first.
    @Test("RQ-1 requests that are given back go before newer ones, also if two consumers give them back")
    func order() {
        var stage = Stage()
        stage.add("first")
        stage.receive(1)
        stage.add("second")
        stage.receive(2)
        stage.add("third")
        stage.receive(3)
        #expect(stage.end("first") == [[1, 2, 3]])
        #expect(stage.end("second") == [[1, 2, 3]])
        #expect(stage.end("third") == [[1, 2, 3]])
    }

    @Test("RQ-1 requests that two consumers give back wait for the next one in their order")
    func orderWithoutConsumer() {
        var stage = Stage()
        stage.add("first")
        stage.receive(1)
        stage.add("second")
        stage.receive(2)
        #expect(stage.end("first", "second") == [[1, 2], [2]])
        stage.receive(3)
        stage.add("third")
        #expect(stage.end("third") == [[1, 2, 3]])
    }

    // The consumer that had dropped it counted as one that holds it, so that it was refused.
    @Test("RQ-1 a request that one consumer has dropped, and another one gives back, goes to one that came later")
    func droppedByOne() {
        var stage = Stage()
        stage.add("slow", room: 1)
        stage.add("other")
        stage.receive(1)
        stage.receive(2)
        stage.add("late")
        #expect(stage.end("other") == [[1, 2]])
        #expect(stage.end("late") == [[1]])
        #expect(stage.end("slow") == [[2]])
    }
}
