import BluezDBus
import BluezKitRestore
import Foundation
import Synchronization
import Testing

@testable import BluezKit

/// Messages that cross on their way: of several threads of an app, of objects that it has released, and of a Bluetooth
/// that has gone meanwhile.
@Suite struct BorderOrderTests {
    @Test("MIS-17 a connect that the cancel of another thread has overtaken does not begin, and ends nothing later")
    func overtaken() async throws {
        let script = try await ScriptedBus()
        try await script.powerOn()
        let (identity, core) = (DetachedCentral.identity(1), script.manager())
        func send(_ request: CentralRequest) {
            script.turn { script.central.carryOut(CentralMessage(request: request), of: core) }
        }
        send(.cancel(identity, 2))
        send(.connect(identity, 1, .test()))
        try await script.expectNoCall()
        let peripheral = try #require(script.turn { core.known(identity) })
        #expect(peripheral.request == nil && peripheral.newest == 2)
        script.answerRoutinely(["RegisterAgent": [], "Introspect": [.string("<node/>")]])
        send(.connect(identity, 4, .test()))
        send(.cancel(identity, 3))
        #expect(peripheral.request?.connectionID == 4, "the connect came after that cancel")
    }

    @Test("CN-1 O-14 an object that the app has never connected hears nothing of one that it has released")
    func fresh() async throws {
        let app = DetachedApp()
        app.connect()
        app.cancel()
        app.turn { app.core.reportRequestedDisconnect() }
        #expect(try await app.callbacks() == ["disconnected"])
        let other = DetachedApp()
        other.turn { other.core.post(.cancelled(2)) }
        #expect(try await other.callbacks() == [])
    }

    @Test("CN-1 a new object for a device does not take over the connection of one that the app has released")
    func successor() async throws {
        let script = try await ScriptedBus()
        try await script.powerOn()
        script.answerRoutinely(["RegisterAgent": [], "Introspect": [.string("<node/>")]])
        let (identity, core) = (DetachedCentral.identity(1), script.manager())
        func send(_ request: CentralRequest) {
            script.turn { script.central.carryOut(CentralMessage(request: request), of: core) }
        }
        send(.connect(identity, 1, .test()))
        let first = try #require(script.turn { core.known(identity) })
        // The release of the first object comes late.
        send(.connect(identity, 2, .test()))
        let second = try #require(script.turn { core.known(identity) })
        #expect(first !== second && first.request == nil && second.request?.connectionID == 2)
        send(.release(identity, 1))
        let known = script.turn { core.known(identity) }
        #expect(known === second && second.request != nil)
        send(.release(identity, 2))
        let last = script.turn { core.known(identity) }
        #expect(last == nil)
    }

    /// Hears of reads.
    private final class Reader: NSObject, CBPeripheralManagerDelegate, @unchecked Sendable {  // holds: a lock
        let centrals = ProtectedBox<[ObjectIdentifier]>([])
        func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {}
        func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
            centrals.withLock { $0.append(ObjectIdentifier(request.central)) }
        }
    }

    private func publisher(_ delegate: any CBPeripheralManagerDelegate) -> CBPeripheralManager {
        CBPeripheralManager(
            delegate: delegate, queue: DispatchQueue(label: "test"),
            options: [BluezManagerOptionBusAddressKey: "unix:path=/nonexistent/bluezkit"])
    }

    @Test("ID-4 a central has one object as long as it is followed, whether or not the app keeps it")
    func centrals() {
        let reader = Reader()
        let manager = publisher(reader)
        _ = manager.mirror.publish(localService(0x100, [local(0x110, .read)]), call: 1) { _ in 0 }
        let info = CentralInfo(identifier: UUID(), maximumUpdateValueLength: 20)
        let access = AttributeAccess(
            ticket: 1, central: info, characteristic: LocalAttributeID(call: 1, index: 0), offset: 0, value: nil)
        for _ in 0..<2 { manager.mirror.receive(.access(access)) }
        let centrals = reader.centrals.withLock { $0 }
        #expect(centrals.count == 2 && centrals[0] == centrals[1])
        manager.mirror.receive(.centralForgotten(info.identifier))
        // Of a service that the core has let go of, nothing is heard.
        manager.mirror.receive(.withdrawn(call: 1, isForgotten: false))
        manager.mirror.receive(.access(access))
        #expect(reader.centrals.withLock { $0.count } == 2)
    }

    @Test("a waiting channel publication is released when Bluetooth is reset, and kept when it is off")
    func answers() {
        let manager = publisher(Reader())
        final class Owner: Sendable {}
        weak var owner: Owner?
        do {
            let kept = Owner()
            owner = kept
            _ = manager.mirror.await { _ in withExtendedLifetime(kept) {} }
        }
        func enter(_ state: CBManagerState) {
            manager.mirror.receive(.state(Coded(state), servicesGeneration: 0, adapterGeneration: 0))
        }
        enter(.poweredOff)
        #expect(owner != nil)
        enter(.resetting)
        #expect(owner == nil)
    }
}
