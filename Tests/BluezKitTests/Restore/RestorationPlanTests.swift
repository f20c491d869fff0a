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

    // Two adapters changed names when the computer started: BlueZ did not know the peripherals on the one that is hci0
    // now, and all that were bonded left the state for good.
    @Test("R-27 R-25 a bond is missed on the adapter it was made with, and on no other that has its name now")
    func renamedAdapters() throws {
        func outcome(
            _ then: (name: String?, address: String?), _ now: (name: String?, address: String?)
        ) throws -> RestorationPlan.Outcome? {
            var snapshot = Snapshot(role: .central, identifier: "x", app: "", boot: "", saved: Date())
            snapshot.peripherals = [
                Snapshot.Peripheral(
                    identifier: identifier, name: nil, adapter: then.name, adapterAddress: then.address,
                    state: .connecting, isBonded: true, options: ConnectRequest(options: [:]), services: nil)
            ]
            // Written, and read again.
            snapshot = try Snapshot(fileContent: snapshot.fileContent())
            let live = RestorationPlan.Live(
                bluetooth: nil, adapter: now.name, adapterAddress: now.address,
                peripherals: [identifier: .init(isConnected: false, isBonded: false)])
            return RestorationPlan(snapshot, live).items.first?.outcome
        }
        let (one, other) = ("00:1A:7D:DA:71:13", "00:1A:7D:DA:71:14")
        #expect(try outcome(("hci0", one), ("hci0", other)) == .connecting)
        #expect(try outcome(("hci0", one), ("hci1", one)) == .dropped)
        #expect(try outcome((nil, one), ("hci0", one)) == .dropped, "Bluetooth was away when it was written")
        // Of an older version, or of a BlueZ that does not tell.
        #expect(try outcome(("hci0", nil), ("hci0", one)) == .dropped)
        #expect(try outcome(("hci0", one), ("hci0", nil)) == .dropped)
        #expect(try outcome(("hci0", nil), ("hci1", one)) == .connecting)
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
