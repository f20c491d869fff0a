/// The behaviour of the simulator, apart from its ``SimulatorTiming``.
public struct SimulatorOptions: Sendable {
    /// What the controllers consider a duplicate advertisement, which they report only once in a scan cycle.
    public enum DuplicateFilter: String, Sendable {
        /// The same address, as most controllers do.
        case address
        /// The same address and data.
        case data
        /// Nothing: every advertisement is reported.
        case none
    }

    /// Which version of bluetoothd is imitated. ``init(version:)`` sets other options to what that version does. The
    /// default is the oldest one, which tells apps least: what passes there does not depend on something that a user's
    /// computer lacks.
    public var version = SimulatorVersion.v5_66
    /// What adapters have as `Modalias`, as set by `DeviceID` in main.conf; nil: BlueZ's own, which tells the version.
    public var modalias: String?
    /// What the controllers report only once.
    public var duplicateFilter = DuplicateFilter.address
    /// As with `bluetoothd -E`: some additional properties.
    public var isExperimental = false
    /// `Includes` of services is set after they were announced, with a signal, instead of before.
    public var fillsIncludesLate = false
    /// In a discovery with a filter, an unchanged RSSI is signalled again.
    public var repeatsEqualRSSI = false
    /// The reply to `Disconnect` comes after `Connected` = false has been signalled; otherwise before it.
    /// bluetoothd does both.
    public var signalsDisconnectionFirst = false
    /// A signal gives the reason why a link ended, as with bluetoothd 5.83 and later.
    public var signalsDisconnectReason = false
    /// Devices have `Bonded`, as with bluetoothd 5.65 and later; otherwise only `Paired`.
    public var exposesBonded = true

    /// bluetoothd forwards writes of any length and offset, as no version should: to test that applications survive it.
    public var forwardsOutOfRangeWrites = false

    /// bluetoothd keeps what a program asks for that has ended before its call is handled: a pairing agent, a
    /// discovery. All versions do, as Docs/BLUEZ-REPORTS.md tells. Off, so that a test may kill a program at any
    /// moment.
    public var keepsGoneClients = false

    /// bluetoothd crashes when it connects to a bonded peripheral that has lost its bond, as 5.66 does each time.
    /// Otherwise it connects, without encryption.
    public var crashesOnMissingBond = true

    /// The devices whose services bluetoothd keeps when a link ends: `Cache` in its main.conf.
    public enum ServiceCache: String, Sendable {
        /// All devices, the default.
        case always
        /// Bonded devices.
        case yes
        /// None.
        case no
    }

    /// The devices whose services bluetoothd keeps when a link ends.
    public var serviceCache = ServiceCache.always

    /// How fast links are: each operation then takes time in a ``LinkModel``, which ``VirtualPeripheral/linkUsage``
    /// reports. Nil: time on the air is not calculated. ``VirtualPeripheral/linkParameters`` override it.
    public var linkParameters: LinkParameters?

    /// The minimum number of most recent calls that ``Simulator/calls`` returns.
    public var rememberedCalls = 10_000

    /// Background activity: delays in bluetoothd, phones that change their addresses, and other programs. Nil: none.
    public var bustle: SimulatorBustle?

    /// The usual options: BlueZ 5.66, no experimental interfaces, duplicates filtered by address.
    public init() {
        self.init(version: .v5_66)
    }

    /// The usual options with another version of BlueZ.
    public init(version: SimulatorVersion) {
        self.version = version
        signalsDisconnectReason = version >= .v5_83
        crashesOnMissingBond = version == .v5_66
    }
}
