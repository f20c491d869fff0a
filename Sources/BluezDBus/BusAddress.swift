import Foundation

/// Where a bus is. Any address that libdbus takes: `unix:path=…`, `unix:abstract=…`, `tcp:host=…,port=…`,
/// `unixexec:path=ssh,argv1=…`, or several, separated by semicolons.
public struct BusAddress: Hashable, Sendable, CustomStringConvertible {
    /// The address as libdbus takes it.
    public let rawValue: String

    /// An address as libdbus takes it. It is checked when somebody connects.
    public init(_ rawValue: String) { self.rawValue = rawValue }

    /// `DBUS_SYSTEM_BUS_ADDRESS`, else the usual place.
    public static var system: BusAddress {
        BusAddress(environment("DBUS_SYSTEM_BUS_ADDRESS") ?? "unix:path=/run/dbus/system_bus_socket")
    }

    /// `DBUS_SESSION_BUS_ADDRESS`, else the user's own bus.
    public static var session: BusAddress {
        if let address = environment("DBUS_SESSION_BUS_ADDRESS") { return BusAddress(address) }
        return BusAddress(environment("XDG_RUNTIME_DIR").map { "unix:path=\($0)/bus" } ?? "autolaunch:")
    }

    /// The address itself.
    public var description: String { rawValue }
}
