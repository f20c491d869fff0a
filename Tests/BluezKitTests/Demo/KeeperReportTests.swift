import Foundation
import Testing

@testable import BluezKit
@testable import bluez_demo

@Suite struct KeeperReportTests {
    private let epoch = Date(timeIntervalSince1970: 0).timeIntervalSinceReferenceDate

    private func status(
        app: Int32? = nil, events: Int = 0, dropped: Int = 0, starts: Int = 0, reason: String? = nil,
        isGivenUp: Bool = false
    ) -> KeeperStatus {
        KeeperStatus(
            role: "central", statePath: "/s/central-heart.json", app: app, since: epoch,
            events: events, bytes: 60 * events, dropped: dropped, starts: starts,
            lastStart: starts > 0 ? epoch + 60 : nil, lastReason: reason,
            relaunch: "heart.service", isGivenUp: isGivenUp)
    }

    private func text(_ status: KeeperStatus) -> [String] { KeeperReport(status).text.map(\.text) }

    @Test("the app of a manager is running, or has died and events wait for it")
    func tellsOfTheApp() {
        #expect(
            text(status(app: 42)) == [
                "A keeper continues (central)", "  the app is process 42, since 1970-01-01T00:00:00Z",
                "  0 events wait for it, 0 bytes", "  how it is started: heart.service", "  /s/central-heart.json",
            ])
        #expect(
            text(status(events: 1, dropped: 3, starts: 2, reason: "a value", isGivenUp: true)) == [
                "A keeper continues (central)", "  the app is not running, since 1970-01-01T00:00:00Z",
                "  1 event waits for it, 60 bytes, 3 dropped", "  how it is started: heart.service",
                "  started 2 times, last 1970-01-01T00:01:00Z, because of a value",
                "  not started any more: it has ended at once too often", "  /s/central-heart.json",
            ])
    }

    @Test("for programs, all of it has a key, with null for what there is not")
    func writesJSON() {
        #expect(
            DemoEvent.keeps(KeeperReport(status(app: 42))).json.description
                == #"{"event":"keeps","role":"central","path":"/s/central-heart.json","app":42,"#
                + #""since":"1970-01-01T00:00:00Z","events":0,"bytes":0,"dropped":0,"starts":0,"lastStart":null,"#
                + #""lastReason":null,"relaunch":"heart.service","givenUp":false}"#)
        let started = KeeperReport(status(events: 2, starts: 1, reason: "a connect")).json.description
        #expect(started.contains(#""app":null,"#) && started.contains(#""events":2,"bytes":120,"#))
        #expect(started.contains(#""lastStart":"1970-01-01T00:01:00Z","lastReason":"a connect","#))
    }
}
