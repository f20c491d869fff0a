import BluezDBus
import Testing

@testable import BluezKit

@Suite struct ConnectAttemptTests {
    private let role = DetachedCentral().role

    private func attempt(hasExistingLease: Bool) -> ConnectAttempt {
        ConnectAttempt(to: DetachedCentral.device(), in: role, hasExistingLease: hasExistingLease)
    }

    @Test("only the first answer to a connection attempt counts", arguments: [false, true])
    func answers(hasExistingLease: Bool) {
        let attempt = attempt(hasExistingLease: hasExistingLease)
        #expect(!attempt.isAnswered)
        #expect(attempt.answer() == true)
        #expect(attempt.isAnswered)
        for _ in 0..<3 { #expect(attempt.answer() == false) }
        #expect(attempt.isAnswered && attempt.hasExistingLease == hasExistingLease)
    }

    @Test("a failed attempt ends its lease, unless BlueZ may still be at it, or it is called off, which ends the lease")
    func lease() {
        let failed = "org.bluez.Error.Failed"
        let busy = BusError.remote(name: "org.bluez.Error.InProgress", message: "In Progress")
        for hasExistingLease in [false, true] {
            let attempt = attempt(hasExistingLease: hasExistingLease)
            for message in ["le-connection-timeout", "key-missing"] {
                #expect(attempt.endsLease(after: .remote(name: failed, message: message), isWanted: true))
                #expect(!attempt.endsLease(after: .remote(name: failed, message: message), isWanted: false))
            }
            #expect(!attempt.endsLease(after: .timedOut, isWanted: true))
            // Another program's attempt runs; or that of a process of ours that has died.
            for isWanted in [false, true] {
                #expect(attempt.endsLease(after: busy, isWanted: isWanted) == !hasExistingLease)
            }
        }
    }
}
