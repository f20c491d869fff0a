import CBluezL2CAP

/// Which links there are to a dual-mode device. BlueZ's `Connected` and `ServicesResolved` are true of either bearer
/// (src/device.c, `dev_property_get_connected`), and do not change while the other one stays; the kernel tells any
/// program. It is asked about devices that have classic Bluetooth as well, when BlueZ says something of their links,
/// and before a `Disconnect`. Confined to the bus queue.
final class LinkBearers {
    struct Bearers: OptionSet, Sendable {
        let rawValue: Int32
        static let classic = Bearers(rawValue: Int32(CL2CAP_CLASSIC_LINK))
        static let le = Bearers(rawValue: Int32(CL2CAP_LE_LINK))
        /// The device has made the link of classic Bluetooth.
        static let incoming = Bearers(rawValue: Int32(CL2CAP_INCOMING_CLASSIC_LINK))
    }

    private let adapter: AdapterController
    /// By the number of the adapter and the device's address. Empty: it does not tell, and BlueZ is believed. Tests set
    /// another one.
    var source: (_ adapter: UInt16, _ address: UInt64) -> Bearers = {
        Bearers(rawValue: cl2cap_link_bearers($0, $1))
    }

    init(_ adapter: AdapterController) { self.adapter = adapter }

    /// Empty also for a device that has only one bearer, as far as is known: one without a `Class`, or with an address
    /// that classic Bluetooth does not have.
    func bearers(of properties: DeviceProperties) -> Bearers {
        guard properties.hasClass, let identity = properties.identity else { return [] }
        return links(to: identity).subtracting(.incoming)
    }

    /// Whether a `Disconnect` would end a link of classic Bluetooth. The `Class` need not be known: of what a process
    /// has left that has died, there is only the address.
    /// - Parameter isOurs: Whether there was none before an attempt of this process, which makes no incoming one.
    func hasClassicLink(to identity: DeviceIdentity, isOurs: Bool = false) -> Bool {
        let links = links(to: identity)
        return links.contains(.classic) && (!isOurs || links.contains(.incoming))
    }

    private func links(to identity: DeviceIdentity) -> Bearers {
        guard !identity.isRandom, let name = adapter.name, name.hasPrefix("hci"),
            let number = UInt16(name.dropFirst(3))
        else { return [] }
        return source(number, identity.address)
    }

    /// What BlueZ has said is taken to be about LE, and only about LE.
    /// - Parameters:
    ///   - changes: What the message has changed.
    ///   - old: Whether it was connected before, and resolved.
    /// - Returns: What it has changed of LE.
    func leaveOutClassic(
        of properties: inout DeviceProperties, _ changes: DeviceProperties.Changes,
        old: (isConnected: Bool, areServicesResolved: Bool)
    ) -> DeviceProperties.Changes {
        guard properties.hasClass, !changes.isDisjoint(with: [.connected, .servicesResolved]) else { return changes }
        if !changes.contains(.connected), properties.hasOnlyClassicLink { properties.isConnected = true }
        let bearers = properties.isConnected ? bearers(of: properties) : []
        properties.hasOnlyClassicLink = bearers == .classic
        var changes = changes
        if properties.hasOnlyClassicLink {
            (properties.isConnected, properties.areServicesResolved) = (false, false)
            changes.subtract([.connected, .servicesResolved])
        } else if bearers.contains(.le), old == (true, true) {
            // Classic Bluetooth has ended, and `ServicesResolved` is false, though the services of LE are known.
            properties.areServicesResolved = true
        }
        if properties.isConnected != old.isConnected { changes.insert(.connected) }
        return changes
    }
}
