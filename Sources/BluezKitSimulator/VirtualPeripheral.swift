import Foundation

/// A simulated Bluetooth LE peripheral.
///
/// ```swift
/// let lamp = VirtualPeripheral(
///     "F0:00:00:00:00:01", VirtualAdvertisement(localName: "Lamp", serviceUUIDs: ["1815"]),
///     services: [VirtualService("1815", [VirtualCharacteristic("2A56", [.read, .write, .notify], value: [0])])])
/// simulator.add(lamp)
/// lamp.notify("2A56", [1])
/// ```
public final class VirtualPeripheral: @unchecked Sendable {  // holds: all state is touched inside `sync`
    /// Six bytes in upper case, with colons.
    public let address: String
    /// `random` or `public`.
    public let addressType: String

    private let lock = NSRecursiveLock()
    private weak var home: Simulator?

    /// The address from which it advertises, if not its identity address.
    var privateAddress: String?
    /// The address from which it advertises now.
    var airAddress: String { privateAddress ?? address }

    // State, confined to the simulator's queue once the peripheral has been added.
    var content: VirtualAdvertisement
    var interval: Duration?
    var isAdvertisingEnabled = true
    var isInRange = true
    var signalStrength: Int16 = -50
    var faults = PeripheralFaults()
    var written = WriteRecord()
    var table: GATTTable
    var links: [Link] = []
    var advertising: Alarm?
    var supervision: Alarm?
    var streams: [String: Alarm] = [:]
    var pairing = VirtualPairing.justWorks
    var passkey: UInt32 = 123_456
    var holdsBond = false
    /// Waits for a passkey to be entered, or holds one that was entered before.
    var passkeyEntry: PasskeyEntry?
    var offeredMTU: UInt16 = 517
    /// Who opens a channel is served by these, by PSM; see VirtualPeripheral+Channels.swift.
    var channelServers: [UInt16: ChannelServer] = [:]
    var air = LinkAir()
    /// Whether this is an adapter of the simulator in the peripheral role: it continues to advertise while connected,
    /// to several centrals at once.
    var isAdapter = false
    /// The adapter object, while bluetoothd knows the controller.
    weak var host: Adapter?
    /// What it does on its own, if it was made of a recording.
    var replay: RecordingReplay?
    /// Its advertisements.
    var rotation: [VirtualAdvertisement] = []
    private var turn = 0
    /// Events of this peripheral begin with this name, as in control lines.
    let key: String

    /// - Parameters:
    ///   - address: Such as `F0:00:00:00:00:01`; the path of its BlueZ object is derived from it.
    ///   - advertisement: What it advertises.
    ///   - services: Its attributes.
    ///   - interval: The time between two advertisements; nil: ``SimulatorTiming/advertisingInterval``.
    ///   - addressType: `random` or `public`.
    ///   - key: The name with which its events begin; nil: made of its address.
    public init(
        _ address: String, _ advertisement: VirtualAdvertisement = VirtualAdvertisement(),
        services: [VirtualService] = [], interval: Duration? = nil, addressType: String = "random", key: String? = nil
    ) {
        self.address = address.uppercased()
        self.addressType = addressType
        content = advertisement
        self.interval = interval
        table = GATTTable(services)
        self.key = key ?? address
    }

    var simulator: Simulator? {
        lock.withLock { home }
    }

    func move(to simulator: Simulator?) { lock.withLock { home = simulator } }

    func sync<R>(_ body: () throws -> R) rethrows -> R {
        if let simulator { return try simulator.sync(body) }
        return try lock.withLock(body)
    }

    /// Whether it is advertising and in range now.
    var isOnAir: Bool { isAdvertisingEnabled && isInRange && (links.isEmpty || isAdapter) }

    /// What it advertises next: an adapter's advertisements alternate, and those of a recording are repeated.
    func nextReport() -> AdvertisingReport {
        if !rotation.isEmpty {
            content = rotation[turn % rotation.count]
            turn += 1
        }
        if let next = replay?.nextAdvertisement() {
            content = next.content
            if let rssi = next.rssi { signalStrength = rssi }
        }
        // Peripherals that cannot be connected have no permanent address.
        let hidden = isAdapter && !content.isConnectable
        return AdvertisingReport(
            address: hidden ? "3A" + address.dropFirst(2) : airAddress,
            addressType: hidden || privateAddress != nil ? "random" : addressType,
            rssi: signalStrength, content: content)
    }

    /// The time until the next advertisement; nil: ``SimulatorTiming/advertisingInterval``.
    var nextInterval: Duration? { replay?.advertisingInterval ?? interval }

    var isConnectableNow: Bool { rotation.isEmpty ? content.isConnectable : rotation.contains(where: \.isConnectable) }

    /// An adapter reports nothing itself; the other end reports its events.
    func event(_ text: String) { if !isAdapter { simulator?.tell("\(key) \(text)") } }
}

/// The entry of a passkey on a peripheral.
enum PasskeyEntry {
    case awaited((UInt32) -> Void)
    case made(UInt32)
}

/// How a peripheral pairs.
public enum VirtualPairing: String, Sendable {
    /// Without user interaction.
    case justWorks = "justworks"
    /// It displays a passkey, which must be entered on the other side's agent.
    case display
    /// The passkey that the other side's agent displays is entered on it, with ``VirtualPeripheral/type(passkey:)``.
    case keyboard
    /// Both sides display a number.
    case numeric
    /// It refuses.
    case reject
}
