package import Foundation

/// What it takes to bring an app back to where it was: what was preserved, held against what is. A pure function (D12).
package struct RestorationPlan: Equatable, Sendable {
    /// What Bluetooth looks like now.
    package struct Live: Equatable, Sendable {
        /// As ``Snapshot/bluetooth``.
        package var bluetooth: String?
        package var adapter: String?
        /// Only those that BlueZ has answered for. Empty while Bluetooth is not on.
        package var peripherals: [UUID: Peripheral]

        package init(bluetooth: String?, adapter: String?, peripherals: [UUID: Peripheral]) {
            (self.bluetooth, self.adapter, self.peripherals) = (bluetooth, adapter, peripherals)
        }
    }

    package struct Peripheral: Equatable, Sendable {
        package var isConnected: Bool
        package var isBonded: Bool

        package init(isConnected: Bool, isBonded: Bool) { (self.isConnected, self.isBonded) = (isConnected, isBonded) }
    }

    /// What becomes of a peripheral.
    package enum Fate: Equatable, Sendable {
        /// The link is there: `.connected`, with what was discovered, subscribed again. No `didConnect`.
        case adopted
        /// `.connecting`; `didConnect` when there is a link, which may be at once.
        case connecting
        /// `.connected` in `willRestoreState`, then one `didDisconnectPeripheral`.
        case lost
        /// Not in the dictionary.
        case dropped
    }

    package struct Item: Equatable, Sendable {
        package let peripheral: Snapshot.Peripheral
        package let fate: Fate
        /// Why, for people.
        package let reason: String
    }

    package let scan: Snapshot.Scan?
    package let items: [Item]
    /// To be published again: BlueZ withdraws them with the process, and ends the subscriptions to them.
    package let services: [Snapshot.LocalService]
    /// To be on air again.
    package let advertisement: Snapshot.Advertisement?

    package init(_ snapshot: Snapshot, _ live: Live) {
        (scan, services, advertisement) = (snapshot.scan, snapshot.services, snapshot.advertisement)
        let isSameLife = snapshot.bluetooth != nil && snapshot.bluetooth == live.bluetooth
        items = snapshot.peripherals.map { preserved in
            let (fate, reason) = Self.fate(of: preserved, live.peripherals[preserved.identifier], live, isSameLife)
            return Item(peripheral: preserved, fate: fate, reason: reason)
        }
    }

    private static func fate(
        of preserved: Snapshot.Peripheral, _ now: Peripheral?, _ live: Live, _ isSameLife: Bool
    ) -> (Fate, String) {
        guard let now else { return (.connecting, "it is not known yet whether it is there") }
        if preserved.isBonded, !now.isBonded, preserved.adapter == live.adapter {
            return (.dropped, "it is not paired any more")
        }
        switch (preserved.state, isSameLife, now.isConnected) {
        case (.connected, true, true): return (.adopted, "the link outlived the process")
        case (.connected, true, false): return (.lost, "the link ended while no process was there")
        case (.connected, false, _):
            return (.connecting, "bluetoothd, the adapter or the computer was restarted, which ended the link")
        case (.connecting, _, true): return (.connecting, "it was connected while no process was there")
        case (.connecting, _, false): return (.connecting, "the attempt goes on")
        }
    }
}
