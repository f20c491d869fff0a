import Foundation
import Testing

@testable import BluezKitRestore

/// D12: every combination of what was preserved and what is.
@Suite struct RestorationPlanTests {
    private let identifier = UUID()

    private func fate(
        _ state: Snapshot.Peripheral.State, wasBonded: Bool = false, sameLife: Bool = true, sameAdapter: Bool = true,
        now: RestorationPlan.Peripheral?
    ) throws -> RestorationPlan.Outcome {
        var snapshot = Snapshot(role: .central, identifier: "x", app: "", boot: "", saved: Date())
        snapshot.bluetooth = "life"
        snapshot.peripherals = [
            Snapshot.Peripheral(
                identifier: identifier, name: nil, adapter: "hci0", state: state, isBonded: wasBonded,
                options: ConnectRequest(options: [:]),
                services: nil)
        ]
        let live = RestorationPlan.Live(
            bluetooth: sameLife ? "life" : "other", adapter: sameAdapter ? "hci0" : "hci1",
            peripherals: now.map { [identifier: $0] } ?? [:])
        return try #require(RestorationPlan(snapshot, live).items.first).outcome
    }

    @Test("the restoration table is complete: state, bond then and now, generation, adapter, link now")
    func table() throws {
        for state in [Snapshot.Peripheral.State.connecting, .connected] {
            for bits in 0..<32 {
                let (wasBonded, isBonded) = (bits & 1 != 0, bits & 2 != 0)
                let (sameLife, sameAdapter, isConnected) = (bits & 4 != 0, bits & 8 != 0, bits & 16 != 0)
                let found = try fate(
                    state, wasBonded: wasBonded, sameLife: sameLife, sameAdapter: sameAdapter,
                    now: .init(isConnected: isConnected, isBonded: isBonded))
                let expected: RestorationPlan.Outcome =
                    if wasBonded && !isBonded && sameAdapter {
                        .dropped
                    } else if state == .connecting || !sameLife {
                        .connecting
                    } else {
                        isConnected ? .connected : .disconnected
                    }
                #expect(found == expected, "\(state) \(bits)")
            }
            #expect(try fate(state, wasBonded: true, now: nil) == .connecting, "BlueZ has not answered")
        }
    }

    @Test("an unknown generation of bluetoothd never counts as the same")
    func unknownLife() throws {
        var snapshot = Snapshot(role: .central, identifier: "x", app: "", boot: "", saved: Date())
        snapshot.peripherals = [
            Snapshot.Peripheral(
                identifier: identifier, name: nil, adapter: nil, state: .connected, isBonded: false,
                options: ConnectRequest(options: [:]),
                services: nil)
        ]
        let live = RestorationPlan.Live(
            bluetooth: nil, adapter: nil, peripherals: [identifier: .init(isConnected: true, isBonded: false)])
        #expect(RestorationPlan(snapshot, live).items.map(\.outcome) == [.connecting])
    }

    @Test("the scan and the order of peripherals are kept, and every outcome has a reason")
    func rest() throws {
        let snapshot = try SnapshotTests.full()
        let plan = RestorationPlan(snapshot, .init(bluetooth: nil, adapter: nil, peripherals: [:]))
        #expect(plan.scan == snapshot.scan)
        #expect(PeripheralTable(plan.items.map(\.peripheral)) == snapshot.peripherals)
        #expect(plan.items.allSatisfy { !$0.reason.isEmpty })
    }
}
