/// A version of BlueZ, such as 5.66.
package struct BlueZVersion: Comparable, Hashable, Sendable, CustomStringConvertible {
    package let major: Int
    package let minor: Int

    package init(_ major: Int, _ minor: Int) { (self.major, self.minor) = (major, minor) }

    /// From `Adapter1.Modalias`: `usb:v1D6Bp0246d0542` is BlueZ (Linux Foundation 1D6B, product 0246), version 5.66.
    /// Nil where main.conf has a `DeviceID` of its own.
    /// - SeeAlso: BlueZ src/main.c, `parse_did`; doc/org.bluez.Adapter.rst.
    package init?(modalias: String) {
        let prefix = "usb:v1D6Bp0246d"
        let digits = modalias.dropFirst(prefix.count)
        guard modalias.hasPrefix(prefix), digits.count == 4, digits.allSatisfy(\.isHexDigit),
            let number = UInt16(digits, radix: 16)
        else { return nil }
        self.init(Int(number >> 8), Int(number & 0xFF))
    }

    package var description: String { "\(major).\(minor)" }

    package static func < (left: Self, right: Self) -> Bool { (left.major, left.minor) < (right.major, right.minor) }
}

/// The bluetoothd that is running, as far as its adapter tells: the only place that decides by its version. All that
/// depends on the version is in Docs/COMPATIBILITY.md.
struct BlueZDaemon: Equatable {
    /// Nil: main.conf hides it, or nothing is known yet.
    var version: BlueZVersion?
    /// `Adapter1.Connectable`, which came with 5.79.
    var hasConnectable = false

    /// The version, or the oldest that it may be.
    private var atLeast: BlueZVersion { version ?? BlueZVersion(5, hasConnectable ? 79 : 62) }

    /// Each subscriber of a local characteristic gets a socket of its own.
    var givesSubscriberSockets: Bool { atLeast >= BlueZVersion(5, 76) }
    /// `Device1.AdvertisingFlags` is there without `bluetoothd -E`.
    var showsAdvertisingFlags: Bool { atLeast >= BlueZVersion(5, 78) }
    /// A subscriber's socket tells which indications were confirmed.
    var tellsConfirmations: Bool { atLeast >= BlueZVersion(5, 80) }
    /// Until a `Connect` is answered, or called off, it refuses every other one (src/device.c, `dev_connect`). Where
    /// the version is hidden it may: that would last, and what is called off without need is tried again.
    var refusesSecondConnect: Bool { version.map { $0 >= BlueZVersion(5, 81) } ?? hasConnectable }
    /// It crashes at the first advertisement of a scan with services.
    var crashesOnFilters: Bool { atLeast == BlueZVersion(5, 87) }
    /// If a link ends before its services are known, `UUIDs` stays empty, whatever the peripheral advertises.
    var losesServices: Bool { atLeast <= BlueZVersion(5, 68) }
}
