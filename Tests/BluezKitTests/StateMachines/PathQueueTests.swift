import Testing

@testable import BluezKit

@Suite struct PathQueueTests {
    private func remove(_ path: String, from queue: inout PathQueue) {
        path.withCString { queue.remove($0) }
    }

    @Test("each path is given out once, however often it is added before its answer")
    func once() {
        var queue = PathQueue()
        #expect(queue.isEmpty && queue.next() == nil)
        for _ in 0..<3 { queue.add("/a") }
        #expect(!queue.isEmpty && queue.next() == "/a")
        queue.add("/a")
        #expect(queue.next() == nil && !queue.isEmpty)
        #expect(queue.finish("/a") == true)
        #expect(queue.isEmpty)
        #expect(queue.finish("/a") == false)
        // What has been read may have to be read again.
        queue.add("/a")
        #expect(queue.next() == "/a")
    }

    @Test("at most 32 paths are read at a time, and each answer makes room for one")
    func limit() {
        var queue = PathQueue()
        for number in 0..<100 { queue.add("/\(number)") }
        var running: Set<String> = []
        while let path = queue.next() { running.insert(path) }
        #expect(running.count == 32)
        var done: Set<String> = []
        while let path = running.popFirst() {
            #expect(queue.finish(path) == true)
            done.insert(path)
            while let next = queue.next() { #expect(running.insert(next).inserted) }
            #expect(running.count == min(32, 100 - done.count))
        }
        #expect(done.count == 100 && queue.isEmpty)
    }

    @Test("a path removed while it waits is not read, and the answer is ignored if it is removed while it is read")
    func removal() {
        var queue = PathQueue()
        remove("/none", from: &queue)
        for path in ["/a", "/b"] { queue.add(path) }
        remove("/b", from: &queue)
        #expect(queue.next() == "/a" && queue.next() == nil)
        remove("/a", from: &queue)
        #expect(!queue.isEmpty, "its answer has not come")
        #expect(queue.finish("/a") == false)
        #expect(queue.isEmpty)
    }

    @Test("questions that may add paths count as one that is read, and answers too many make no room")
    func questions() {
        var queue = PathQueue()
        queue.questionAsked()
        #expect(!queue.isEmpty)
        for number in 0..<50 { queue.add("/\(number)") }
        var count = 0
        while queue.next() != nil { count += 1 }
        #expect(count == 31)
        for _ in 0..<3 { queue.questionAnswered() }
        #expect(queue.next() != nil && queue.next() != nil && queue.next() != nil && queue.next() == nil)
        var fresh = PathQueue()
        fresh.questionAnswered()
        _ = fresh.finish("/unknown")
        for number in 0..<50 { fresh.add("/\(number)") }
        count = 0
        while fresh.next() != nil { count += 1 }
        #expect(count == 32)
    }

    /// Every sequence of seven events about two objects, each of which comes and goes once.
    @Test("every interleaving: only what is there is given out, once, and only its answer is wanted")
    func everyInterleaving() {
        enum Event: CaseIterable { case add0, add1, remove0, remove1, next, finish0, finish1 }
        struct State {
            var queue = PathQueue()
            var (isThere, hasGone, isRunning, isDone) = (
                [false, false], [false, false], [false, false], [false, false]
            )
        }
        var frontier = [State()]
        for _ in 0..<7 {
            frontier = frontier.flatMap { old in
                Event.allCases.compactMap { event -> State? in
                    var state = old
                    func index(_ first: Event) -> Int { event == first ? 0 : 1 }
                    switch event {
                    case .add0, .add1:
                        let number = index(.add0)
                        guard !state.hasGone[number], !state.isDone[number] else { return nil }
                        state.isThere[number] = true
                        state.queue.add("/\(number)")
                    case .remove0, .remove1:
                        let number = index(.remove0)
                        guard state.isThere[number] else { return nil }
                        (state.isThere[number], state.hasGone[number]) = (false, true)
                        remove("/\(number)", from: &state.queue)
                    case .next:
                        let wanted = (0..<2).filter { state.isThere[$0] && !state.isRunning[$0] && !state.isDone[$0] }
                        let path = state.queue.next()
                        #expect((path == nil) == wanted.isEmpty)
                        guard let path, let number = Int(path.dropFirst()) else { break }
                        #expect(wanted.contains(number))
                        state.isRunning[number] = true
                    case .finish0, .finish1:
                        let number = index(.finish0)
                        guard state.isRunning[number] else { return nil }
                        #expect(state.queue.finish("/\(number)") == state.isThere[number])
                        (state.isRunning[number], state.isDone[number]) = (false, true)
                    }
                    return state
                }
            }
        }
        #expect(frontier.count > 1000)
    }
}
