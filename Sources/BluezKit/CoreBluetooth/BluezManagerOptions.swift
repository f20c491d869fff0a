import BluezKitRestore
import BluezDBus
import Dispatch
import Foundation

/// **BluezKit addition.** Manager option: the D-Bus address of the bus on which `org.bluez` is found, a `String` in
/// libdbus' format (`unix:path=…`, `tcp:host=…`, `unixexec:path=ssh,argv1=gateway,…`). Default:
/// `DBUS_SYSTEM_BUS_ADDRESS`, then the system bus.
public let BluezManagerOptionBusAddressKey: String = "BluezManagerOptionBusAddress"

/// **BluezKit addition.** Manager option: the adapter to use, a `String`: its Bluetooth address, `"00:1A:7D:DA:71:13"`,
/// or its name, `"hci1"`. A name may be another adapter's after a restart; an address stays. Default: the environment
/// variable `BLUEZKIT_ADAPTER`, then the first adapter that is powered.
///
/// ```swift
/// central = CBCentralManager(
///     delegate: self, queue: nil, options: [BluezManagerOptionAdapterKey: "00:1A:7D:DA:71:13"])
/// ```
/// While there is no such adapter the state is `.unsupported`, and the log says which ones there are. Managers of one
/// process may use different adapters; bonds and links belong to an adapter.
public let BluezManagerOptionAdapterKey: String = "BluezManagerOptionAdapter"

/// **BluezKit addition.** Manager option, used together with a restore identifier: the directory in which state is
/// preserved, a `String` or a file `URL`. It must not be shared with another app. Default: the environment variable
/// `BLUEZKIT_STATE_DIR`, then the first directory in `STATE_DIRECTORY` (which systemd sets for `StateDirectory=`)
/// followed by `/bluezkit`, then `$XDG_STATE_HOME/NAME/bluezkit` with the name of the executable, where
/// `XDG_STATE_HOME` is `~/.local/state` if it is not set.
///
/// ```swift
/// let options: [String: Any] = [
///     CBCentralManagerOptionRestoreIdentifierKey: "heart",
///     BluezManagerOptionStateDirectoryKey: URL(fileURLWithPath: "/var/lib/heart-rate"),
/// ]
/// ```
/// The directory must belong to the user, and no one else may be able to write to it; otherwise nothing is preserved,
/// and the log says so.
public let BluezManagerOptionStateDirectoryKey: String = "BluezManagerOptionStateDirectory"

/// **BluezKit addition.** Manager option, Bool: whether scans, pending connects and connections resume automatically
/// after a restart of bluetoothd or when the adapter was replugged. The default is true with a restore identifier, and
/// false, as on Apple's systems, without one. Connections become pending connects: `didConnect` is called when they are
/// up again. In the meantime peripherals stay valid and `.connecting`, and `isScanning` stays true. A peripheral
/// manager publishes its services and channels and advertises again, without callbacks, except
/// `peripheralManager(_:didPublishL2CAPChannel:error:)`. Bluetooth that is switched off while the manager is
/// `.poweredOn` ends all of it in any case.
public let BluezManagerOptionResumeAfterResetKey: String = "BluezManagerOptionResumeAfterReset"

/// **BluezKit addition.** Manager option, NSNumber: the time in seconds after the first `.poweredOn` of this manager in
/// which the app must create its other managers with preserved state. After that the links of those that it did not
/// create are ended; their state is kept until they are created or their state is discarded. The default is 30, the
/// range 0 to 1,000,000. ``BluezPreservedState/identifiers(_:options:)`` tells which managers that are. What a keeper
/// does for peripheral managers that are not made again ends as well, after the longest period of the app's central
/// managers, or 30 s.
public let BluezManagerOptionClaimPeriodKey: String = "BluezManagerOptionClaimPeriod"

/// **BluezKit addition.** Option of a `CBPeripheralManager`, Bool: `add(_:)` accepts services that Apple reserves for
/// the system, such as Battery (180F) and Device Information (180A). BlueZ itself refuses only 1800 and 1801.
public let BluezManagerOptionAllowSystemServicesKey: String = "BluezManagerOptionAllowSystemServices"

/// **BluezKit addition.** Option of a `CBPeripheralManager`, Bool: centrals may pair with this computer without
/// confirmation, if they need encryption and there is no desktop agent that asks the user. Such a link is encrypted,
/// but not protected against a man in the middle during pairing. The default is false: they are refused.
///
/// It applies while the manager has services or advertises that it solicits some
/// (``BluezAdvertisementSolicitedServiceUUIDsKey``), and to the adapter in use. It permits more than access to those
/// services: BlueZ does not say why a device pairs, so any device in range can bond in that time, by classic Bluetooth
/// too if that is on, and a bond remains when the app has exited. A bonded device can use everything that other
/// programs offer to such devices.
public let BluezManagerOptionAllowJustWorksPairingKey: String = "BluezManagerOptionAllowJustWorksPairing"

/// **BluezKit addition.** Manager option, Bool: whether Bluetooth may be switched off and on, for all programs, if a
/// scan has heard nothing for two minutes and restarting it did not help. This is not done while this process has
/// connections or connect requests, in either role, nor again before something has been heard. The state is
/// `.resetting` in the meantime. The default is false: the log then suggests the option.
public let BluezManagerOptionMayPowerCycleKey: String = "BluezManagerOptionMayPowerCycle"

/// **BluezKit addition.** Option of a `CBCentralManager`, Bool: whether notifications come by a socket of BlueZ
/// (`AcquireNotify`) in place of signals on the bus, which takes less of the CPU in the app, and none in the bus
/// daemon. It is worth it from some hundred values a second on: a gateway with many sensors, or a slow computer. The
/// default is false, because of two disadvantages that no BlueZ is without:
///
/// - While this process has the socket of a characteristic, other programs cannot subscribe to it.
/// - Values that the peripheral sends before it has confirmed the subscription are lost, because BlueZ has no socket
///   for them yet.
///
/// It concerns characteristics with the property `notify`. If BlueZ refuses the socket, as while another program is
/// subscribed, signals are used. Managers of one process share a subscription as it was made first.
///
/// - Important: With a bluetoothd before 5.87, use true only for peripherals that are known to accept the subscription.
///   Before 5.84 it does not answer if the peripheral refuses, and the characteristic cannot be subscribed to until
///   bluetoothd is restarted; before 5.86 it may crash when a process is killed that has such a socket.
public let BluezManagerOptionNotificationSocketsKey: String = "BluezManagerOptionNotificationSockets"

/// **BluezKit addition.** Manager option, a ``BluezRelaunch``, used together with a restore identifier:
/// the manager's work is done by the user's keeper process, `bluezkit-keeper`, which continues while the app is not
/// running. What happens meanwhile is kept, and the app is started for it. Its next process gets `willRestoreState`,
/// the state, and then each event that it has missed, once and in order. See <doc:Keeper>.
///
/// If there is no keeper and none can be started, the log says so, and the manager restores as without this option. The
/// manager's initializer waits for the keeper: milliseconds, and 20 s at most while it is being started.
public let BluezManagerOptionKeeperKey: String = "BluezManagerOptionKeeper"

/// **BluezKit addition.** Manager option, Bool, used together with ``BluezManagerOptionKeeperKey``: whether the
/// callback that was running when the app's process ended is not called again by the next one. The default is false: it
/// is called again, because the app may not have acted on it.
public let BluezManagerOptionAtMostOnceKey: String = "BluezManagerOptionAtMostOnce"

/// **BluezKit addition.** Manager option, Int, used together with ``BluezManagerOptionKeeperKey``: how many events the
/// keeper keeps for the app at most, from 1 to 1,000,000. When there are more, the oldest values, requests and reports
/// of a scan are dropped, and counted in ``BluezRestoration/kept``. Other events stay; but if there are four times as
/// many, all are forgotten, and the app's next process restores as without a keeper. The default is 10,000.
public let BluezManagerOptionKeptEventsKey: String = "BluezManagerOptionKeptEvents"

/// **BluezKit addition.** Manager option, Int: likewise, how many bytes they may take, up to 256 MiB. The default is
/// 1 MiB.
public let BluezManagerOptionKeptBytesKey: String = "BluezManagerOptionKeptBytes"

extension KeeperHello {
    /// Nil: the app does not ask for a keeper.
    init?(
        _ role: Snapshot.Role, identifier: String?, options: [String: Any]?, _ book: IntentBook?,
        _ preserved: Snapshot?
    ) {
        var option = options?[BluezManagerOptionKeeperKey]
        var statePath = book?.path
        #if DEBUG
        if BorderFormat.isHosted { (option, statePath) = (BluezRelaunch.never, statePath ?? "/\(UUID())") }
        #endif
        guard let option else { return nil }
        guard let relaunch = option as? BluezRelaunch, identifier != nil || statePath != nil else {
            Log.misuse("BluezManagerOptionKeeperKey needs a BluezRelaunch and a restore identifier, and is ignored")
            return nil
        }
        // Without a file to preserve state in, the log has said why.
        guard let statePath else { return nil }
        func number(_ key: String) -> Int? { (options?[key] as? NSNumber)?.intValue }
        let key = Session.Key(options: options)
        var limits = EventLog.Limits()
        limits.events = number(BluezManagerOptionKeptEventsKey) ?? limits.events
        limits.bytes = number(BluezManagerOptionKeptBytesKey) ?? limits.bytes
        self.init(
            role: role, statePath: statePath, app: StateDirectory.app,
            address: key.address.rawValue, adapter: key.adapter?.text, preserved: preserved, relaunch: relaunch,
            limits: limits.bounded,
            isAtMostOnce: (options?[BluezManagerOptionAtMostOnceKey] as? NSNumber)?.boolValue ?? false)
    }
}

extension Session.Key {
    init(options: [String: Any]?) {
        func text(_ key: String) -> String? {
            guard let value = options?[key] else { return nil }
            if !(value is String) { Log.misuse("\(key)Key needs a String, and is ignored") }
            return value as? String
        }
        let address = text(BluezManagerOptionBusAddressKey).map { BusAddress($0) } ?? .system
        let adapter = text(BluezManagerOptionAdapterKey) ?? environment("BLUEZKIT_ADAPTER")
        self.init(address: address, adapter: adapter.flatMap { $0.isEmpty ? nil : AdapterChoice($0) })
    }

    /// The bus of a manager with these options.
    static func address(options: [String: Any]?) -> BusAddress {
        (options?[BluezManagerOptionBusAddressKey] as? String).map { BusAddress($0) } ?? .system
    }
}

extension ManagerTrace {
    /// Nil: there is no trace, which is all that is looked at then.
    static func make(
        _ role: Snapshot.Role, _ key: Session.Key, _ identifier: String?, isKept: Bool
    ) -> ManagerTrace? {
        TraceFile.shared.map { file in
            ManagerTrace(
                file,
                TraceManager(
                    role: role, address: key.address.rawValue, adapter: key.adapter?.text, identifier: identifier,
                    isKept: isKept))
        }
    }
}

/// Manager option: the ``CallbackPlace`` for callbacks, which comes before the queue. Set by the initializers of other
/// modules of this package: a designated initializer that apps do not see would keep their subclasses from inheriting
/// the others.
package let callbackPlaceOption = "BluezKit.callbackPlace"

/// Where the callbacks of a manager with these arguments are made.
func callbackPlace(_ queue: DispatchQueue?, _ options: [String: Any]?) -> any CallbackPlace {
    options?[callbackPlaceOption] as? any CallbackPlace ?? queue ?? .main
}
