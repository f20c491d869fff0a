import BluezKitRestore
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit
@testable import CoreBluetoothAsync

extension CentralCore {
    /// Runs `body` in one turn of the manager's queue.
    fileprivate func turn(_ body: @Sendable (CBCentralManager) -> Void) {
        if let manager = delegate.manager { body(manager) }
    }
}

/// What a keeper has continued, where Bluetooth is not on when the app is there again.
@Suite struct AsyncSuspensionTests {
    // It was still taken for connected: what was asked of it was never answered, and a connect returned at once.
    @Test("RS-11 RS-15 a connection that a keeper has kept is an attempt after a first state that is not on")
    func suspended() async throws {
        let directory = try TemporaryDirectory()
        let central = CentralManager(options: [
            BluezManagerOptionBusAddressKey: "unix:path=/nonexistent/bluezkit",  // Bluetooth has no state for a while
            BluezManagerOptionStateDirectoryKey: directory.path,
            CBCentralManagerOptionRestoreIdentifierKey: "app",
        ])
        let restored = central.restoredState
        await central.core.turn { manager in
            let identity = DeviceIdentity(address: 1, isRandom: false)
            var snapshot = Snapshot(role: .central, identifier: "app", app: "app", boot: "boot", saved: Date())
            snapshot.peripherals = [
                Snapshot.Peripheral(
                    identifier: identity.identifier, name: "Kept", adapter: nil, state: .connected, isBonded: false,
                    options: .test(), services: nil)
            ]
            let work = KeptCentralWork(state: nil, lastRequest: 1, scan: nil, scanToken: 0, peripherals: [])
            manager.mirror.receive(
                .handedOver(
                    snapshot, HandOver(missed: 0, dropped: 0, repeatsFirst: false, work: .central(work))))
            manager.known(identity).map(manager.preserve)
            for state in [CBManagerState.poweredOff, .poweredOn] {
                manager.mirror.receive(.state(Coded(state), generation: 1, stack: nil, adapter: nil))
            }
        }
        let state = try #require(try await within { await restored.first { _ in true } })
        let peripheral = try #require(state.peripherals.first)
        #expect(peripheral.name == "Kept" && peripheral.state == .connecting)
        // Whatever Bluetooth's state is meanwhile, there is an answer.
        let error = await thrown { try await within { _ = try await peripheral.readRSSI() } }
        #expect((error as? CBError)?.code == .notConnected || error is BluetoothError, "\(String(describing: error))")
    }
}
