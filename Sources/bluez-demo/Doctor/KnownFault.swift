import BluezKit

/// A fault of BlueZ or Linux about which the user can do something. `Docs/COMPATIBILITY.md` has these, in the same
/// words, and those that BluezKit handles alone.
struct KnownFault {
    private let isPresent: Bool
    let what: String
    let cure: String

    private init(_ isPresent: Bool, _ what: String, cure: String) {
        (self.isPresent, self.what, self.cure) = (isPresent, what, cure)
    }

    /// Those of a version of BlueZ.
    static func all(of blueZ: BlueZVersion) -> [KnownFault] {
        let newBond = "remove the bond (`removeBond(with:)`, or `bluetoothctl remove`), and pair again"
        return [
            KnownFault(
                blueZ <= BlueZVersion(5, 81),
                "bluetoothd crashes when a bonded peripheral that has lost its keys is connected", cure: newBond),
            KnownFault(
                blueZ <= BlueZVersion(5, 82),
                "a link to a bonded peripheral that has lost its keys ends without a reason", cure: newBond),
            KnownFault(
                blueZ == BlueZVersion(5, 82),
                "bluetoothd crashes when a program that publishes services exits, after the bond of a central was "
                    + "removed that had come back subscribed",
                cure: "remove a central's bond while it is connected, or when no service is published"),
            KnownFault(
                blueZ <= BlueZVersion(5, 81), "bluetoothd crashes when a link is lost during service discovery",
                cure: "a newer BlueZ"),
            KnownFault(
                blueZ == BlueZVersion(5, 87),
                "bluetoothd crashes at the first advertisement of a scan with services (bluez/bluez#2282)",
                cure: "other programs' scans with services still crash it: BlueZ 5.88, or a package with the fix "
                    + "82af2beaf"),
            KnownFault(
                blueZ == BlueZVersion(5, 87),
                "bluetoothd may use a freed device when an unbonded central disconnects (bluez/bluez#2221)",
                cure: "BlueZ 5.88, or a package with the fix 5bc6aa79e"),
        ].filter(\.isPresent)
    }

    /// Those of a version of Linux.
    static func all(of linux: LinuxVersion) -> [KnownFault] {
        let creditsFollowReading =
            switch (linux.major, linux.minor) {
            case (6, 1): LinuxVersion(6, 1, 93)
            case (6, 6): LinuxVersion(6, 6, 33)
            default: LinuxVersion(6, 8, 12)
            }
        return [
            KnownFault(
                linux < creditsFollowReading,
                "an L2CAP channel loses data if the app does not read for long: the kernel gives credits for what it "
                    + "has no room for", cure: "a newer kernel, or read at once"),
            KnownFault(
                linux == LinuxVersion(6, 1, 192),
                "the kernel crashes when several links end at once (`list_del corruption` in `hci_chan_del`), and "
                    + "bluetoothd with it", cure: "another kernel; 6.1.176 does not have the fault"),
        ].filter(\.isPresent)
    }
}
