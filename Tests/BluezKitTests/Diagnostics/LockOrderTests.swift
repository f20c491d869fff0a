import BluezDBus
import BluezKitSimulator
import CoreBluetooth
import Dispatch
import Foundation
import Testing

@testable import BluezKit

private let checksLocks = ConditionTrait.enabled(if: isDebugBuild, "only a debug build checks locks")

// Two threads that each hold a lock which the other one needs deadlock, whether or not a test runs into it: a book was
// written under its lock while it called its manager, and a peripheral whose last reference was released under the
// manager's lock called the book. Now locks have an order, which debug builds check at each of them, and no object of
// the app is released under a lock.
@Suite struct LockOrderTests {
    /// An object of the app that calls the library when it is released.
    private final class Parting: CBMutableService, @unchecked Sendable {  // holds: set before it is added
        var atEnd: (@Sendable () -> Void)?
        deinit { atEnd?() }
    }

    @Test(
        "DL-5 a service that is released by a reset, or by removeAllServices, may call its manager in deinit",
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

    /// An object of the app that logs when it is released.
    private final class Ending: Sendable {
        private let atEnd: @Sendable () -> Void
        init(_ atEnd: @escaping @Sendable () -> Void) { self.atEnd = atEnd }
        deinit { atEnd() }
    }

    #if compiler(>=6.2)  // exit tests
    @Test("DL-5 objects held by pairing and log handlers may call the library and log when they are released")
    func replacedHandlers() async throws {
        let central = Central(try await SimulatedWorld())
        try await central.powerOn()
        let manager = central.manager
        let ended = EventLog<String>()
        func pairing() -> BluezPairing {
            var pairing = BluezPairing()
            let asks = Ending { [weak manager] in ended.append("\(manager?.pairing.abilities.isEmpty == true)") }
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
    #endif

    @Test(
        "DL-5 apps release peripherals while their manager looks for released ones: the last reference may be its own",
        checksLocks)
    func lastReferenceIsTheManagers() {
        let manager = CBCentralManager(
            delegate: nil, queue: nil, options: [BluezManagerOptionBusAddressKey: "unix:path=/nonexistent"])
        @Sendable func peripheral(_ number: Int) -> CBPeripheral {
            let peripheral = manager.peripheral(DeviceIdentity(address: UInt64(number), isRandom: true))
            _ = peripheral.beginConnecting(.test())  // the end of one that has had a connection takes locks
            return peripheral
        }
        for round in 0..<100 {
            let first = round * 1000
            let living = ProtectedBox((first..<first + 60).map(peripheral))
            DispatchQueue.concurrentPerform(iterations: 2) { thread in
                if thread == 0 {
                    while living.withLock({ $0.popLast() }) != nil {}
                } else {
                    for number in first + 60..<first + 500 { _ = peripheral(number) }
                }
            }
        }
    }

    #if compiler(>=6.2)  // exit tests
    @Test(
        "a debug build traps if locks are taken in the wrong order, or something is logged while a lock is held",
        checksLocks)
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
