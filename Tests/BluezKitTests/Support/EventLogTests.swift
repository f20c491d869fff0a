import Testing

@Suite struct EventLogTests {
    private final class Witness: Sendable {}

    @Test("a wait that has failed keeps nothing of its test")
    func failedWait() async {
        let log = EventLog<Int>()
        weak var kept: Witness?
        do {
            let witness = Witness()
            kept = witness
            await #expect(throws: EventLog<Int>.Missing.self) {
                try await log.next("nothing", within: 0.01) { _ in withExtendedLifetime(witness) { nil as Int? } }
            }
        }
        #expect(kept == nil)
    }
}
