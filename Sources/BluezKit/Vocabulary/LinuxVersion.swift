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

    package var description: String { "\(major).\(minor).\(patch)" }

    package static func < (left: Self, right: Self) -> Bool {
        (left.major, left.minor, left.patch) < (right.major, right.minor, right.patch)
    }
}
