import DBus
import Foundation

/// **BluezKit addition.** Manager option: the D-Bus address of the bus on which `org.bluez` is found, a `String` as
/// libdbus takes it (`unix:path=…`, `tcp:host=…`, `unixexec:path=ssh,argv1=gateway,…`). Without it
/// `DBUS_SYSTEM_BUS_ADDRESS` counts, and without that the system bus.
public let BluezManagerOptionBusAddressKey: String = "BluezManagerOptionBusAddress"

/// **BluezKit addition.** Manager option: which adapter to use, a `String`, `"hci1"`. Without it the environment variable
/// `BLUEZKIT_ADAPTER` counts, and without that the first adapter that is powered.
public let BluezManagerOptionAdapterKey: String = "BluezManagerOptionAdapter"

/// **BluezKit addition.** Option of a `CBPeripheralManager`, Bool: `add(_:)` accepts services that Apple keeps for the system,
/// such as Battery (180F) and Device Information (180A). BlueZ itself refuses 1800 and 1801 only.
public let BluezManagerOptionAllowSystemServicesKey: String = "BluezManagerOptionAllowSystemServices"

extension Session.Key {
    init(options: [String: Any]?) {
        let address = (options?[BluezManagerOptionBusAddressKey] as? String).map { BusAddress($0) } ?? .system
        let environment = getenv("BLUEZKIT_ADAPTER").map { String(cString: $0) }
        let adapter = options?[BluezManagerOptionAdapterKey] as? String ?? environment
        self.init(address: address, adapter: adapter.flatMap { $0.isEmpty ? nil : $0 })
    }
}
