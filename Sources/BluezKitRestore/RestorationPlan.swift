package import Foundation

/// How to bring an app back to its previous state: compares what was preserved with the current state. A pure function
/// (D12).
///
/// The outcome depends on whether Bluetooth has been up continuously since the state was saved, that is, whether the
/// bus, the owner of `org.bluez` and the adapter's node in sysfs are the same. If not, a restart has ended all links.
///
/// | Preserved as | Up continuously | Connected now | Outcome | The app sees |
/// |---|---|---|---|---|
/// | connected | yes | yes | connected | `.connected`, with its table; subscribed again |
/// | connected | yes | no | disconnected | `.connected`, then `didDisconnectPeripheral` |
/// | connected | no | | connecting | `.connecting`, then `didConnect` |
/// | connecting | | | connecting | the same |
/// | any, bonded with this adapter | | not bonded any more | dropped | nothing |
package struct RestorationPlan: Codable, Equatable, Sendable {
    /// The current state of Bluetooth.
    package struct Live: Equatable, Sendable {
        /// As ``Snapshot/bluetooth``.
        package var bluetooth: String?
        package var adapter: String?
        /// As ``Snapshot/Peripheral/adapterAddress``.
        package var adapterAddress: String?
        /// Only the peripherals that BlueZ has reported. Empty while Bluetooth is not on.
        package var peripherals: [UUID: Peripheral]

        package init(
            bluetooth: String?, adapter: String?, adapterAddress: String? = nil, peripherals: [UUID: Peripheral]
        ) {
            (self.bluetooth, self.adapter, self.adapterAddress) = (bluetooth, adapter, adapterAddress)
            self.peripherals = peripherals
        }

        /// Whether it is the adapter that the peripheral was used with: one has no bonds of another. Two may have
        /// changed names when the computer started.
        fileprivate func hasAdapter(of preserved: Snapshot.Peripheral) -> Bool {
            guard let then = preserved.adapterAddress, let now = adapterAddress else {
                return preserved.adapter == adapter
            }
            return then == now
        }
    }

    package struct Peripheral: Equatable, Sendable {
        package var isConnected: Bool
        package var isBonded: Bool

        package init(isConnected: Bool, isBonded: Bool) { (self.isConnected, self.isBonded) = (isConnected, isBonded) }
    }

    /// The outcome for a peripheral.
    package enum Outcome: String, Codable, Sendable {
        /// The link is up: `.connected`, with the discovered attributes, subscribed again. No `didConnect`.
        case connected
        /// `.connecting`; `didConnect` when there is a link, which may be at once.
        case connecting
        /// `.connected` in `willRestoreState`, then one `didDisconnectPeripheral`.
        case disconnected
        /// Not in the dictionary.
        case dropped
    }

    package struct Item: Codable, Equatable, Sendable {
        package let peripheral: Snapshot.Peripheral
        package let outcome: Outcome
        /// The reason in words.
        package let reason: String
    }

    package let scan: ScanRequest?
    package let items: [Item]
    /// The services to publish again, because BlueZ withdraws them with the process and ends the subscriptions to them.
    package var services: [Snapshot.LocalService]
    /// The advertisement to start again.
    package let advertisement: AdvertisementRequest?
    /// The L2CAP channels to publish again, because the kernel withdraws them with the process.
    package let channels: [Snapshot.PublishedChannel]

    package init(_ snapshot: Snapshot, _ live: Live) {
        (scan, services, advertisement) = (snapshot.scan, snapshot.services, snapshot.advertisement)
        channels = snapshot.channels ?? []
        let isSameLife = snapshot.bluetooth != nil && snapshot.bluetooth == live.bluetooth
        items = snapshot.peripherals.map { preserved in
            let (outcome, reason) = Self.outcome(
                of: preserved, live.peripherals[preserved.identifier], live, isSameLife)
            return Item(peripheral: preserved, outcome: outcome, reason: reason)
        }
    }

    private static func outcome(
        of preserved: Snapshot.Peripheral, _ now: Peripheral?, _ live: Live, _ isSameLife: Bool
    ) -> (Outcome, String) {
        guard let now else { return (.connecting, "its state is not known yet") }
        if preserved.isBonded, !now.isBonded, live.hasAdapter(of: preserved) {
            return (.dropped, "it is no longer paired")
        }
        switch (preserved.state, isSameLife, now.isConnected) {
        case (.connected, true, true): return (.connected, "the link outlived the process")
        case (.connected, true, false): return (.disconnected, "the link ended while no process was running")
        case (.connected, false, _):
            return (.connecting, "bluetoothd, the adapter or the computer was restarted, which ended the link")
        case (.connecting, _, true): return (.connecting, "it was connected while no process was running")
        case (.connecting, _, false): return (.connecting, "the attempt continues")
        }
    }
}
