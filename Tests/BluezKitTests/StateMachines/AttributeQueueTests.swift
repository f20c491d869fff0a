import Testing

@testable import BluezKit

@Suite struct AttributeQueueTests {
    @Test("RW-1 operations on attributes run one at a time, in call order")
    func order() {
        var queue = AttributeQueue<Int>()
        #expect(queue.add(1)?.operation == 1)
        for n in 2...500 { #expect(queue.add(n) == nil) }
        for n in 2...500 { #expect(queue.finish(n - 2)?.operation == n) }
        #expect(queue.finish(499) == nil && queue.isEmpty)
    }

    @Test("an answer from a link that has ended starts nothing")
    func staleAnswer() {
        var queue = AttributeQueue<Int>()
        _ = queue.add(1)
        queue.removeAll()
        #expect(queue.add(2)?.id == 1)
        #expect(queue.finish(0) == nil)
        #expect(queue.running?.operation == 2)
    }

    @Test("a waiting operation can be withdrawn; a running one cannot")
    func withdraws() {
        var queue = AttributeQueue<Int>()
        for n in 0..<10 { _ = queue.add(n) }
        queue.removeWaiting { $0 % 2 == 0 }
        var order: [Int] = []
        while let running = queue.running {
            order.append(running.operation)
            _ = queue.finish(running.id)
        }
        #expect(order == [0, 1, 3, 5, 7, 9])
    }

    @Test("operations can be withdrawn after others have finished, and the rest keeps its order")
    func withdrawsLater() {
        var queue = AttributeQueue<Int>()
        for n in 0..<10 { _ = queue.add(n) }
        for n in 0..<3 { _ = queue.finish(n) }
        queue.removeWaiting { $0 % 2 == 0 }
        var order: [Int] = []
        while let running = queue.running {
            order.append(running.operation)
            _ = queue.finish(running.id)
        }
        #expect(order == [3, 5, 7, 9] && queue.isEmpty)
    }
}
