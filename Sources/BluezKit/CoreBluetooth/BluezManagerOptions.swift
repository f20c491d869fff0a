import BluezDBus
import Foundation

/// **BluezKit addition.** Manager option: the D-Bus address of the bus on which `org.bluez` is found, a `String` as
/// libdbus takes it (`unix:path=…`, `tcp:host=…`, `unixexec:path=ssh,argv1=gateway,…`). Without it
/// `DBUS_SYSTEM_BUS_ADDRESS` counts, and without that the system bus.
public let BluezManagerOptionBusAddressKey: String = "BluezManagerOptionBusAddress"

/// **BluezKit addition.** Manager option: which adapter to use, a `String`, `"hci1"`. Without it the environment variable
/// `BLUEZKIT_ADAPTER` counts, and without that the first adapter that is powered.
public let BluezManagerOptionAdapterKey: String = "BluezManagerOptionAdapter"

/// **BluezKit addition.** Manager option, used together with a restore identifier: the directory in which state is
/// preserved, a `String` or a file `URL`. Nobody but this app should use it. Without it counts the environment variable
/// `BLUEZKIT_STATE_DIR`, then the first directory in `STATE_DIRECTORY` (which systemd sets for `StateDirectory=`) with
/// `/bluezkit` behind it, then `$XDG_STATE_HOME/NAME/bluezkit` with the name of the executable, where `XDG_STATE_HOME`
/// is `~/.local/state` if it is not set.
public let BluezManagerOptionStateDirectoryKey: String = "BluezManagerOptionStateDirectory"

/// **BluezKit addition.** Manager option, Bool: whether scan, pending connects and connections go on by themselves after
/// bluetoothd was restarted or the adapter was replugged. The default is true with a restore identifier, and false, as on
/// Apple, without one. Connections become pending connects: `didConnect` follows when they are back. Meanwhile peripherals
/// stay valid and say `.connecting`, and `isScanning` stays true.
public let BluezManagerOptionResumeAfterResetKey: String = "BluezManagerOptionResumeAfterReset"

/// **BluezKit addition.** Manager option, NSNumber: how many seconds after its first `.poweredOn` this manager gives the
/// app to create its other managers with preserved state. After that the links of those that it did not create are
/// ended; their state is kept until they are created or their state is discarded. The default is 30.
public let BluezManagerOptionClaimPeriodKey: String = "BluezManagerOptionClaimPeriod"

/// **BluezKit addition.** Option of a `CBPeripheralManager`, Bool: `add(_:)` accepts services that Apple keeps for the system,
/// such as Battery (180F) and Device Information (180A). BlueZ itself refuses 1800 and 1801 only.
public let BluezManagerOptionAllowSystemServicesKey: String = "BluezManagerOptionAllowSystemServices"

/// **BluezKit addition.** Option of a `CBPeripheralManager`, Bool: centrals may pair with this computer without anybody being
/// asked, for what needs encryption, where no desktop has an agent that asks its user. Such a link is encrypted, but
/// whoever was in between when it was paired can read it. The default is false: they are refused.
///
/// It counts while the manager has services, and for the adapter that is used. It opens more than those services: BlueZ
/// does not say what a device pairs for, so whoever is near can bond then, by classic Bluetooth too if that is on, and a
/// bond stays when the app has gone. A bonded device can use whatever other programs offer to such devices.
public let BluezManagerOptionAllowJustWorksPairingKey: String = "BluezManagerOptionAllowJustWorksPairing"

/// **BluezKit addition.** Manager option, Bool: whether Bluetooth may be switched off and on, for every program, when a scan
/// has heard nothing for two minutes and starting it anew has not helped. Not while this process has connections, in either
/// role, or wants any; and not again before something was heard. The state is `.resetting` meanwhile. The default is false:
/// the log says then that it would be worth trying.
public let BluezManagerOptionMayPowerCycleKey: String = "BluezManagerOptionMayPowerCycle"

extension Session.Key {
    init(options: [String: Any]?) {
        let address = (options?[BluezManagerOptionBusAddressKey] as? String).map { BusAddress($0) } ?? .system
        let adapter = options?[BluezManagerOptionAdapterKey] as? String ?? environment("BLUEZKIT_ADAPTER")
        self.init(address: address, adapter: adapter.flatMap { $0.isEmpty ? nil : $0 })
    }
}
