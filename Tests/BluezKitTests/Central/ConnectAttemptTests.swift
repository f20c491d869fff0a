import BluezDBus
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

    @Test("a failed attempt ends its lease, unless BlueZ may still be at it, or it is called off, which ends the lease")
    func lease() {
        let error = BusError.remote(name: "org.bluez.Error.Failed", message: "le-connection-timeout")
        for hasExistingLease in [false, true] {
            let attempt = ConnectAttempt(hasExistingLease: hasExistingLease)
            for failure in [LinkStateMachine.Failure.transient, .unknownDevice, .final] {
                #expect(attempt.endsLease(after: error, failure, isWanted: true))
                #expect(!attempt.endsLease(after: error, failure, isWanted: false))
                #expect(!attempt.endsLease(after: .timedOut, failure, isWanted: true))
            }
            // Another program's attempt runs; or that of a process of ours that has died.
            for isWanted in [false, true] {
                let ends = attempt.endsLease(after: error, .inProgress, isWanted: isWanted)
                #expect(ends == !hasExistingLease)
            }
        }
    }
}
