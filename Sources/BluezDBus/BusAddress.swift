import Foundation

/// The address of a bus. Any address that libdbus accepts: `unix:path=…`, `unix:abstract=…`, `tcp:host=…,port=…`,
/// `unixexec:path=ssh,argv1=…`, or several, separated by semicolons.
public struct BusAddress: Hashable, Sendable, CustomStringConvertible {
    /// The address as libdbus accepts it.
    public let rawValue: String

    /// An address as libdbus accepts it. It is checked when a connection is made.
    public init(_ rawValue: String) { self.rawValue = rawValue }

    /// `DBUS_SYSTEM_BUS_ADDRESS`, otherwise the standard address.
    public static var system: BusAddress {
        BusAddress(environment("DBUS_SYSTEM_BUS_ADDRESS") ?? "unix:path=/run/dbus/system_bus_socket")
    }

    /// `DBUS_SESSION_BUS_ADDRESS`, otherwise the user's own bus.
    public static var session: BusAddress {
        if let address = environment("DBUS_SESSION_BUS_ADDRESS") { return BusAddress(address) }
        return BusAddress(environment("XDG_RUNTIME_DIR").map { "unix:path=\($0)/bus" } ?? "autolaunch:")
    }

    /// Without the identifiers of the buses (`guid=`), which an address need not have.
    package var endpoint: BusAddress {
        let buses = rawValue.split(separator: ";").map { bus in
            bus.split(separator: ",").filter { !$0.hasPrefix("guid=") }.joined(separator: ",")
        }
        return BusAddress(buses.joined(separator: ";"))
    }

    /// The address itself.
    public var description: String { rawValue }
}
