/// What the simulated world is like, apart from its ``SimulatorTiming``.
public struct SimulatorOptions: Sendable {
    /// What the controllers take for a duplicate advertisement, which they report only once in a scan cycle.
    public enum DuplicateFilter: String, Sendable {
        /// The same address: what most controllers do.
        case address
        /// The same address and data.
        case data
        /// Nothing: every advertisement is reported.
        case none
    }

    /// What the controllers report only once.
    public var duplicateFilter = DuplicateFilter.address
    /// As with `bluetoothd -E`: some more properties.
    public var isExperimental = false
    /// `Includes` of services is filled after they were announced, with a signal, instead of before.
    public var fillsIncludesLate = false
    /// In a discovery with a filter, an RSSI that is the same as before is signalled again.
    public var repeatsEqualRSSI = false
    /// The reply to `Disconnect` comes after `Connected` = false has been signalled; otherwise before it.
    /// bluetoothd does both.
    public var signalsDisconnectionFirst = false
    /// A signal says why a link ends, as with bluetoothd 5.83 and later.
    public var tellsReasons = false
    /// Devices have `Bonded`, as with bluetoothd 5.65 and later; otherwise there is only `Paired`.
    public var tellsBonds = true

    /// bluetoothd passes on writes of any length and offset, as no version should: for applications that must survive
    /// it.
    public var passesAnyWrite = false

    /// bluetoothd crashes when it connects to a bonded peripheral that has lost its bond, as 5.66 does each time.
    /// Otherwise it connects, without encryption.
    public var diesOfLostBonds = true

    /// Whose services bluetoothd keeps when a link ends: `Cache` in its main.conf.
    public enum ServiceCache: String, Sendable {
        /// All devices', which is its default.
        case always
        /// Those of bonded devices.
        case yes
        /// Nobody's.
        case no
    }

    /// Whose services bluetoothd keeps when a link ends.
    public var serviceCache = ServiceCache.always

    /// How many of the calls that bluetoothd has got can be asked for, at least: the last ones.
    public var rememberedCalls = 10_000

    /// A bluetoothd that takes its time, phones that change their addresses, and other programs. Nil: calm, and nobody
    /// else is there.
    public var bustle: SimulatorBustle?

    /// A world as it usually is: no experimental interfaces, duplicates filtered by address.
    public init() {}
}
