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

/// The bluetoothd that is running, as far as its adapter tells.
struct BlueZDaemon: Equatable {
    /// Nil: main.conf hides it, or nothing is known yet.
    var version: BlueZVersion?
    /// `Adapter1.Connectable`, which came with 5.79.
    var hasConnectable = false

    /// Whether it has what ``BlueZDifference`` lists.
    func has(_ difference: BlueZDifference) -> Bool {
        difference.row.applies(to: version ?? (hasConnectable ? BlueZVersion(5, 79) : BlueZDifference.oldest))
    }
}
