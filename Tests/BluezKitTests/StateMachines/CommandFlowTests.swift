import Testing

@testable import BluezKit

@Suite struct CommandFlowTests {
    /// `#expect` takes no mutating calls.
    private final class Flow {
        private var flow = CommandFlow()
        var isFull: Bool { flow.isFull }
        var dropped: Int { flow.dropped }
        func add(_ size: Int) -> Bool { flow.add(size) }
        func remove(_ size: Int) -> Bool { flow.remove(size) }
        func removeUntilFull(_ size: Int) -> Bool { flow.remove(size, isSocketFull: true) }
        func announceRoom() -> Bool { flow.announceRoom() }
        func socketIsFull() { flow.socketIsFull() }
        func roomAnnounced() { flow.roomAnnounced() }
        func takeUnlogged() -> Int { flow.takeUnlogged() }
        func end() { flow.end() }
    }

    private func full(_ count: Int = CommandFlow.fullAt) -> Flow {
        let flow = Flow()
        for _ in 0..<count { #expect(flow.add(1)) }
        return flow
    }

    @Test("RW-9 the queue of writes is full at 64, and room is announced once, at 32")
    func room() {
        let flow = full(CommandFlow.fullAt - 1)
        #expect(!flow.isFull)
        #expect(flow.add(1) && flow.isFull)
        for _ in 0..<31 { #expect(!flow.remove(1)) }
        #expect(flow.remove(1), "32 wait")
        #expect(flow.isFull, "until the app hears of it")
        for _ in 0..<32 { #expect(!flow.remove(1)) }
        #expect(flow.announceRoom() && !flow.isFull)
        #expect(!flow.announceRoom())
    }

    @Test("O-26 if the queue is full again when room is to be reported, the app is informed later, once")
    func fullAgain() {
        let flow = full()
        for _ in 0..<32 { _ = flow.remove(1) }
        for _ in 0..<32 { #expect(flow.add(1)) }
        #expect(!flow.announceRoom() && flow.isFull)
        #expect((0..<64).filter { _ in flow.remove(1) }.count == 1)
        #expect(flow.announceRoom() && !flow.isFull)
    }

    @Test("RW-9 a full socket is announced when the writes that waited for it are gone")
    func socket() {
        let flow = Flow()
        #expect(flow.add(20))
        flow.socketIsFull()
        #expect(flow.isFull && flow.remove(20) && flow.announceRoom() && !flow.isFull)
        // Heard of when what waited is gone.
        flow.socketIsFull()
        #expect(!flow.isFull)
    }

    @Test("RW-9 some writes are taken, and the socket is full: those that wait announce the room")
    func fullAfterSome() {
        let flow = Flow()
        for _ in 0..<2 { #expect(flow.add(1)) }
        #expect(!flow.removeUntilFull(1) && flow.isFull)
        #expect(flow.remove(1) && flow.announceRoom() && !flow.isFull)
        // Nothing waits: the socket was full for what has been taken meanwhile.
        flow.roomAnnounced()
        #expect(flow.add(1) && !flow.removeUntilFull(1) && !flow.isFull)
        let busy = full()
        for _ in 0..<CommandFlow.roomAt { _ = busy.removeUntilFull(1) }
        #expect(busy.isFull && busy.remove(1) && busy.announceRoom())
    }

    @Test(
        "O-26 a socket that is full again while the app hears of room counts afterwards, unless nothing waits any more")
    func fullWhileAnnounced() {
        for drains in [false, true] {
            let flow = full()
            while !flow.remove(1) {}
            #expect(flow.announceRoom())
            flow.socketIsFull()
            #expect(!flow.isFull)
            if drains { for _ in 0..<CommandFlow.roomAt { #expect(!flow.remove(1)) } }
            flow.roomAnnounced()
            #expect(flow.isFull == !drains)
            if !drains { #expect(flow.remove(1) && flow.announceRoom() && !flow.isFull) }
        }
    }

    @Test("RW-10 1 MiB waits, and empty values count as well; the rest is dropped and counted")
    func limit() {
        for size in [0, 20, 512] {
            let flow = Flow()
            var count = 0
            while flow.add(size) { count += 1 }
            #expect(count == CommandFlow.limitBytes / (CommandFlow.overheadBytes + size))
            #expect(!flow.add(size) && flow.dropped == 2)
            #expect(flow.takeUnlogged() == 2 && flow.takeUnlogged() == 0)
            _ = flow.remove(size)
            #expect(flow.add(size) && flow.dropped == 2)
            flow.end()
            #expect(!flow.isFull && flow.add(size) && flow.dropped == 2, "the app may still ask")
        }
    }
}
