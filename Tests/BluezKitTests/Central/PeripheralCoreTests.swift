import BluezDBus
import BluezKitRestore
import Dispatch
import Foundation
import Synchronization
import Testing

@testable import BluezKit

@Suite struct PeripheralCoreTests {
    private let core = DetachedCentral().peripheral()
    private let device = DetachedCentral.device()

    // MARK: The request

    @Test("an identifier is never given twice, on any thread, nor to two links of one connect")
    func identifiers() {
        let given = ProtectedBox<Set<ConnectionID>>([])
        let mirror = CentralMirror()
        DispatchQueue.concurrentPerform(iterations: 1000) { _ in
            let next = mirror.newConnectionID()
            given.withLock { _ = $0.insert(next) }
        }
        #expect(given.withLock { $0.count } == 1000 && !given.withLock { $0.contains(.none) })
        let first = ConnectionID(request: 1)
        #expect(given.withLock { $0.isDisjoint(with: [first.next, first.next.next]) })
    }

    @Test("a connect is wanted until it is cancelled, and is up when that is reported")
    func connect() {
        #expect(core.request == nil && core.device == nil && !core.isUp)
        core.connect(.test(reconnects: true), connectionID: 7, to: device)
        #expect(core.request?.connectionID == 7 && core.request?.reconnects == true && core.request?.wasUp == false)
        #expect(core.device === device && !core.isUp)
        core.connected()
        #expect(core.isUp && core.request?.wasUp == true)
        core.renew(.test())
        #expect(core.request?.connectionID == 7 && core.request?.reconnects == false && core.request?.wasUp == true)
        core.endRequest()
        #expect(core.request == nil && !core.isUp && core.device === device)
        core.renew(.test(reconnects: true))
        core.connected()
        #expect(core.request == nil, "nothing is wanted")
    }

    @Test("CN-7 each cancel waits for the end of the link")
    func cancels() {
        core.connect(.test(), connectionID: 1, to: device)
        core.connected()
        for count in 1...3 {
            core.awaitEndOfLink()
            #expect(core.pendingCancels == count)
        }
        core.linkEnded()
        #expect(core.pendingCancels == 0 && !core.isUp && core.request?.connectionID == 1)
        core.awaitEndOfLink()
        core.forgetCancels()
        #expect(core.pendingCancels == 0)
    }

    @Test("a lost link is reported once; with automatic reconnection the next one has another identifier")
    func lost() {
        core.connect(.test(), connectionID: 1, to: device)
        core.connected()
        let end = core.lost()
        #expect(end?.request.connectionID == 1 && end?.request.wasUp == true && end?.next == nil)
        #expect(core.request == nil && core.lost() == nil)
        let token = core.begin()
        core.connect(.test(reconnects: true), connectionID: token, to: device)
        core.connected()
        var tokens: Set<ConnectionID> = [token]
        for _ in 0..<3 {
            let next = core.lost()?.next
            #expect(next.map { tokens.insert($0).inserted } == true && core.request?.connectionID == next)
            #expect(core.request?.reconnects == true && core.request?.wasUp == false)
        }
    }

    @Test("a connect that has failed for good is reported once, and does not reconnect")
    func failed() {
        #expect(core.failed() == nil)
        core.connect(.test(reconnects: true), connectionID: 1, to: device)
        #expect(core.failed()?.connectionID == 1)
        #expect(core.failed() == nil && core.request == nil && core.lost() == nil)
    }

    @Test("the end of Bluetooth ends every connection and request of a peripheral")
    func drop() {
        core.connect(.test(reconnects: true), connectionID: 1, to: device)
        core.connected()
        core.awaitEndOfLink()
        core.drop()
        #expect(core.request == nil && !core.isUp && core.pendingCancels == 0 && core.device == nil)
    }

    @Test("a peripheral's core does not keep its device")
    func deviceIsWeak() {
        do { core.attach(DetachedCentral.device(5)) }
        #expect(core.device == nil)
        core.attach(device)
        #expect(core.device === device)
    }

    // MARK: Restoration

    /// What an app knew: services with these contents.
    private func link(_ layouts: [String: String]) -> RestoredLink {
        let services = layouts.compactMap { name, layout -> Snapshot.Service? in
            guard let element = PathElement(name), let uuid = AttributeUUID("180D") else { return nil }
            return Snapshot.Service(
                element: element, uuid: uuid, isPrimary: true, isOnlyIncluded: false, layout: layout,
                includedServices: nil, characteristics: nil)
        }
        return RestoredLink(
            Snapshot.Peripheral(
                identifier: core.identity.identifier, name: nil, adapter: nil, state: .connected, isBonded: false,
                options: .test(), services: services), at: "/d")
    }

    @Test("a restored connection counts as one that was up; its link is there, or is lost")
    func restore() {
        core.restore(.test(reconnects: true), connectionID: 3, link: nil)
        #expect(core.request?.wasUp == true && core.request?.reconnects == true && !core.isUp)
        #expect(core.reconcile { _ in nil }.isEmpty, "nothing of the old link is valid")
        core.restore(.test(), connectionID: 4, link: link([:]))
        #expect(core.isUp && core.request?.connectionID == 4 && core.request?.reconnects == false)
        #expect(core.reconcile { _ in nil }.isEmpty && core.restoredVersions.isEmpty)
    }

    @Test("IV-1 services that have changed since an earlier process knew them are found, once")
    func reconcile() {
        let layouts = ["same": "1", "changed": "2", "gone": "3", "unknown": ""]
        core.restore(.test(), connectionID: 3, link: link(layouts))
        let changed = core.reconcile { service in
            switch service {
            case "/d/same": ("1", 5)
            case "/d/changed": ("1", 6)
            case "/d/unknown": (nil, 1)
            default: nil
            }
        }
        #expect(changed == ["/d/changed", "/d/gone", "/d/unknown"] && core.restoredVersions == ["/d/same": 5])
        #expect(core.reconcile { _ in nil }.isEmpty && core.restoredVersions == ["/d/same": 5])
    }

    @Test("IV-1 the comparison waits for a complete table three times, and not once the connection has ended")
    func postponed() {
        #expect(!core.postponeComparison())
        core.restore(.test(), connectionID: 3, link: link(["a": "1"]))
        for _ in 0..<3 { #expect(core.postponeComparison()) }
        #expect(!core.postponeComparison())
        #expect(core.reconcile { _ in nil } == ["/d/a"])
        for end in [{ self.core.endRequest() }, { _ = self.core.lost() }, { self.core.drop() }] {
            core.restore(.test(), connectionID: 4, link: link(["a": "1"]))
            end()
            #expect(!core.postponeComparison() && core.reconcile { _ in nil }.isEmpty)
        }
    }

    // MARK: To the app

    @Test("didConnect is called for the current connect only")
    func announcement() async throws {
        let app = DetachedApp()
        app.turn { app.core.announceConnection() }
        #expect(try await app.callbacks() == [], "the app has asked for nothing")
        app.connect()
        app.turn { app.core.announceConnection() }
        #expect(try await app.callbacks() == ["connected"])
        #expect(app.peripheral.state == .connected && app.core.isUp)
        // The app cancels before it hears of the next one.
        app.turn { app.core.reportLoss(reason: nil) }
        #expect(try await app.callbacks() == ["disconnected, error"])
        app.connect()
        app.cancel()
        app.turn { app.core.announceConnection() }
        #expect(try await app.callbacks() == [])
        app.turn { app.core.reportRequestedDisconnect() }
        #expect(try await app.callbacks() == ["disconnected"])
        #expect(app.peripheral.state == .disconnected)
    }

    @Test("AR-1 a loss begins the next connection if it reconnects, and is the end otherwise")
    func losses() async throws {
        let app = DetachedApp()
        let token = app.connect(reconnects: true)
        app.turn { app.core.announceConnection() }
        app.turn {
            app.core.reportLoss(reason: nil)
            app.core.announceConnection()
            app.core.reportLoss(reason: ("org.bluez.Reason.Timeout", "timeout"))
        }
        #expect(
            try await app.callbacks() == [
                "connected", "disconnected, reconnecting, error", "connected", "disconnected, reconnecting, error",
            ])
        #expect(app.peripheral.state == .connecting && app.peripheral.shared.withLock { $0.connectionID } != token)
        app.turn { app.core.renew(.test()) }
        app.turn { app.core.reportLoss(reason: nil) }
        app.turn { app.core.reportLoss(reason: nil) }
        #expect(try await app.callbacks() == ["disconnected, error"])
        #expect(app.peripheral.state == .disconnected)
    }

    @Test("didFailToConnect is made once, and not for a connect that the app has cancelled")
    func failures() async throws {
        let app = DetachedApp()
        app.connect()
        for _ in 0..<2 { app.turn { app.core.fail(CBError(.connectionFailed)) } }
        #expect(try await app.callbacks() == ["failed, error"])
        #expect(app.peripheral.state == .disconnected)
        app.connect()
        app.cancel()
        app.turn { app.core.fail(CBError(.connectionFailed)) }
        #expect(try await app.callbacks() == [])
    }

    @Test("CN-10 events of an earlier connection do not reach the app")
    func posts() async throws {
        let app = DetachedApp()
        app.turn { app.core.servicesChanged([:]) }
        let connect = app.connect()
        app.turn {
            app.core.announceConnection()
            app.core.servicesChanged([:])
        }
        #expect(try await app.callbacks() == ["connected", "modified 0"])
        app.peripheral.shared.withLock { _ = app.peripheral.begin(&$0) }
        app.turn { app.core.post(.servicesChanged([], connect)) }
        #expect(try await app.callbacks() == [])
    }

    @Test("a new name causes a callback; the same name, or one that BlueZ knew already, does not")
    func names() async throws {
        let app = DetachedApp()
        app.turn {
            app.enter(.poweredOn)
            app.core.updateName("One")
            app.core.nameChanged("One")
            app.core.nameChanged("Two")
            app.core.nameChanged("Two")
        }
        #expect(try await app.callbacks() == ["name Two"])
    }

    @Test("O-18 O-44 a name that changes while Bluetooth is off, or on its way when it goes off, causes no callback")
    func nameWhileOff() async throws {
        let app = DetachedApp()
        app.turn {
            app.enter(.poweredOn)
            app.enter(.poweredOff)
            app.core.nameChanged("One")
        }
        #expect(try await app.callbacks() == [])
        #expect(app.peripheral.name == "One")
        app.turn {
            app.enter(.poweredOn)
            app.core.nameChanged("Two")
        }
        #expect(try await app.callbacks() == ["name Two"])
    }

    @Test("each question comes to its handler, with the digits as people read them; without one it is refused")
    func questions() {
        let (app, log) = (DetachedApp(), EventLog<String>())
        var pairing = BluezPairing()
        func ask() {
            for question: PairingQuestion in [.consent, .passkey, .display(42), .comparison(123_456)] {
                pairing.ask(question, about: app.peripheral) { log.append("\(question) \($0) \($1 ?? 0)") }
            }
        }
        ask()
        #expect(log.all == ["consent false 0", "passkey false 0", "comparison(123456) false 0"])
        log.forget()
        pairing.consent = { _, decide in decide(true) }
        pairing.enterPasskey = { _, enter in enter(7) }
        pairing.displayPasskey = { _, digits in log.append("display \(digits)") }
        pairing.comparePasskey = { _, digits, decide in
            log.append("compare \(digits)")
            decide(false)
        }
        ask()
        #expect(
            log.all == [
                "consent true 0", "passkey true 7", "display 000042", "compare 123456", "comparison(123456) false 0",
            ])
    }
}
