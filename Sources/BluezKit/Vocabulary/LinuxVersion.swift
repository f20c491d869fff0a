import Foundation

/// A version of Linux, such as 6.12.117.
package struct LinuxVersion: Comparable, Sendable, CustomStringConvertible {
    package let major: Int
    package let minor: Int
    package let patch: Int

    package init(_ major: Int, _ minor: Int, _ patch: Int = 0) {
        (self.major, self.minor, self.patch) = (major, minor, patch)
    }

    /// From the kernel's release, such as `6.12.117+deb13-amd64`.
    package init?(release: String) {
        let parts = release.prefix { $0.isNumber || $0 == "." }.split(separator: ".").compactMap { Int($0) }
        guard parts.count >= 2 else { return nil }
        self.init(parts[0], parts[1], parts.count > 2 ? parts[2] : 0)
    }

    /// That of the running kernel. Nil: it does not say.
    package static let current: LinuxVersion? = {
        var name = utsname()
        guard uname(&name) == 0 else { return nil }
        func text<Field>(_ field: Field) -> String {
            withUnsafeBytes(of: field) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        }
        // Debian has the number in `version`: #1 SMP Debian 6.1.176-1; its release is 6.1.0-50-amd64.
        let version = text(name.version)
        return version.range(of: "Debian ").flatMap { LinuxVersion(release: String(version[$0.upperBound...])) }
            ?? LinuxVersion(release: text(name.release))
    }()

    /// From this version on, peripherals with a private address are connected only while a discovery runs.
    package static let privateBondsNeedDiscovery = LinuxVersion(6, 15)

    /// The first version of the series of `version` that gives the peer of an L2CAP channel no credits while the app
    /// does not read.
    fileprivate static func creditsFollowReading(_ version: LinuxVersion) -> LinuxVersion {
        switch (version.major, version.minor) {
        case (6, 1): LinuxVersion(6, 1, 93)
        case (6, 6): LinuxVersion(6, 6, 33)
        default: LinuxVersion(6, 8, 12)
        }
    }

    package var description: String { "\(major).\(minor).\(patch)" }

    package static func < (left: Self, right: Self) -> Bool {
        (left.major, left.minor, left.patch) < (right.major, right.minor, right.patch)
    }
}

/// What depends on the version of the kernel.
package struct LinuxFault: Sendable {
    package let versions: String
    package let applies: @Sendable (LinuxVersion) -> Bool
    package let what: String
    package let handling: String
    package let cure: String

    package static func all(of version: LinuxVersion) -> [LinuxFault] { all.filter { $0.applies(version) } }

    package static let all = [
        LinuxFault(
            versions: "before 6.1.93, 6.6.33 and 6.8.12", applies: { $0 < .creditsFollowReading($0) },
            what:
                "an L2CAP channel loses data if the app does not read for long: the kernel gives credits for what it has "
                + "no room for",
            handling: "nothing can be done", cure: "a newer kernel, or read at once"),
        LinuxFault(
            versions: "6.1.192", applies: { $0 == LinuxVersion(6, 1, 192) },
            what: "the kernel crashes when several links end at once (`list_del corruption` in `hci_chan_del`), and "
                + "bluetoothd with it",
            handling: "nothing can be done", cure: "another kernel; 6.1.176 does not have the fault"),
        LinuxFault(
            versions: "6.1 and later", applies: { $0 >= LinuxVersion(6, 1) },
            what: "an adapter may stop receiving when the computer goes to sleep in the moment a discovery ends",
            handling:
                "switching Bluetooth off and on helps: a manager with `BluezManagerOptionMayPowerCycleKey` does so "
                + "after two silent minutes of a scan", cure: ""),
        LinuxFault(
            versions: "6.12 and later", applies: { $0 >= LinuxVersion(6, 12) },
            what: "a discovery that begins while the computer is asleep may hear nothing after it has woken up",
            handling: "a scan that hears nothing for 5 seconds from its beginning is started again", cure: ""),
        LinuxFault(
            versions: "6.15 and later", applies: { $0 >= .privateBondsNeedDiscovery },
            what: "a bonded peripheral with a private address is connected only while a discovery runs, on adapters "
                + "without LL privacy (bluez/bluez#2503)",
            handling: "a discovery runs during its attempt", cure: ""),
    ]
}
