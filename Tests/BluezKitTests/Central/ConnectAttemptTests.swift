import Testing

@testable import BluezKit

@Suite struct ConnectAttemptTests {
    @Test("only the first answer counts", arguments: [false, true])
    func answers(hasExistingLease: Bool) {
        let attempt = ConnectAttempt(hasExistingLease: hasExistingLease)
        #expect(!attempt.isAnswered)
        #expect(attempt.answer() == true)
        #expect(attempt.isAnswered)
        for _ in 0..<3 { #expect(attempt.answer() == false) }
        #expect(attempt.isAnswered && attempt.hasExistingLease == hasExistingLease)
    }
}
