import Foundation
import Testing

@testable import bluez_demo

@Suite struct CardQueueTests {
    private let a = UUID(), b = UUID(), c = UUID()
    private let card = Data(0..<100)

    /// Sends with room for this many frames.
    private func send(_ queue: inout CardQueue, room: Int = .max) -> (done: [UUID], to: [UUID]) {
        var (room, to) = (room, [UUID]())
        let done = queue.send(upTo: { _ in 20 }) { _, central in
            guard room > 0 else { return false }
            room -= 1
            to.append(central)
            return true
        }
        return (done, to)
    }

    @Test("one central at a time receives the card, in order of arrival")
    func takesTurns() {
        var queue = CardQueue(card)
        #expect(queue.current == nil && send(&queue).done.isEmpty)
        for central in [a, b, a, c] { queue.join(central) }
        #expect(queue.current == a && queue.waitingCount == 2)
        #expect(send(&queue, room: 3).to == [a, a, a])
        #expect(queue.sent == 30)
        let (done, to) = send(&queue)
        #expect(done == [a, b, c])
        #expect(to == Array(repeating: a, count: 6) + Array(repeating: b, count: 9) + Array(repeating: c, count: 9))
        #expect(queue.current == nil)
    }

    @Test("a central that leaves makes room for the next one, and its progress is known")
    func leaves() {
        var queue = CardQueue(card)
        for central in [a, b, c] { queue.join(central) }
        _ = send(&queue, room: 2)
        #expect(queue.leave(b) == .unserved)
        #expect(queue.leave(a) == .early(sent: 15))
        #expect(queue.current == c && queue.sent == 0)
        #expect(send(&queue).done == [c])
        #expect(queue.leave(c) == .complete)
        #expect(queue.leave(c) == .unserved && queue.leave(a) == .unserved)
    }

    @Test("a central that subscribes again gets the card again")
    func comesBack() {
        var queue = CardQueue(card)
        queue.join(a)
        #expect(send(&queue).done == [a])
        queue.join(a)
        #expect(send(&queue).done == [a])
        #expect(queue.leave(a) == .complete)
    }
}
