import BluezKitSimulator
import CoreBluetooth
import Dispatch
import Foundation
import Testing

@testable import BluezKit

// Two threads that each hold a lock which the other wants wait for ever, and no test has to meet them: a book is written
// under its lock while it asks its manager, and a peripheral whose last reference went under the manager's lock asked the
// book. Locks have an order now, which debug builds check at each of them, and nothing of the app's goes under one.
@Suite struct LockOrderTests {
    /// One of the app's own, with something to say at its end.
    private final class Parting: CBMutableService, @unchecked Sendable {  // holds: set before it is added
        var atEnd: (@Sendable () -> Void)?
        deinit { atEnd?() }
    }

    @Test(
        "DL-5 a service that ends with a reset, or with removeAllServices, may ask its manager",
        arguments: [true, false])
    func lastReference(isReset: Bool) async throws {
        let world = try await SimulatedWorld()
        let publisher = Publisher(world)
        try await publisher.powerOn()
        let ended = EventLog<Bool>()
        let add = { [manager = publisher.manager] in
            let service = Parting(type: sinkUUID(0x100), primary: true)
            service.characteristics = [local(0x110, .read)]
            service.atEnd = { [weak manager] in ended.append(manager?.isAdvertising ?? true) }
            manager?.add(service)
        }
        add()
        try await publisher.next("service") { if case .added = $0 { true } else { nil } }
        publisher.forgetRecords()
        if isReset {
            try await world.simulator.restartDaemon()
            try await publisher.powerOn()
        } else {
            publisher.manager.removeAllServices()
        }
        #expect(try await ended.next("end of the service") { $0 ? nil : true })
    }

    /// The app's, with something to say at its end.
    private final class Ending: Sendable {
        private let atEnd: @Sendable () -> Void
        init(_ atEnd: @escaping @Sendable () -> Void) { self.atEnd = atEnd }
        deinit { atEnd() }
    }

    @Test("DL-5 what the app's part in pairing and its log handler hold may ask and log when they are replaced")
    func replacedHandlers() async throws {
        let central = Central(try await SimulatedWorld())
        try await central.powerOn()
        let manager = central.manager
        let ended = EventLog<String>()
        func pairing() -> BluezPairing {
            var pairing = BluezPairing()
            let asks = Ending { [weak manager] in ended.append("\(manager?.pairing.permitsAnything == false)") }
            pairing.ended = { _ in withExtendedLifetime(asks) {} }
            return pairing
        }
        manager?.pairing = pairing()
        manager?.pairing = BluezPairing()
        #expect(try await ended.next("end of the pairing") { $0 } == "true")
        await #expect(processExitsWith: .success) {
            func handler() -> BluezKitLog.Handler {
                let logs = Ending { Log.warning("the handler has ended") }
                return { _, _ in withExtendedLifetime(logs) {} }
            }
            BluezKitLog.handler = handler()
            BluezKitLog.handler = { _, _ in }
        }
    }

    #if DEBUG
    @Test(
        "a debug build ends where locks are taken in another order than that of all, or something is logged under one")
    func order() async {
        await #expect(processExitsWith: .success) {
            let (first, last) = (Protected(0, isFirst: true), Protected(0))
            first.withLock { _ in last.withLock { $0 += 1 } }
            last.withLock { $0 += 1 }
            Log.warning("nothing is held")
        }
        await #expect(processExitsWith: .failure) {
            let (first, last) = (Protected(0, isFirst: true), Protected(0))
            last.withLock { _ in first.withLock { $0 += 1 } }
        }
        await #expect(processExitsWith: .failure) {
            let (one, other) = (Protected(0), Protected(0))
            one.withLock { _ in other.withLock { $0 += 1 } }
        }
        await #expect(processExitsWith: .failure) { Protected(0).withLock { _ in Log.warning("a line") } }
    }
    #endif
}
