package import BluezDBus
import Dispatch
import Foundation

/// BlueZ without Bluetooth hardware: an `org.bluez` on a bus that imitates bluetoothd (5.66, unless
/// ``SimulatorOptions/version`` is another), with simulated adapters and simulated peripherals in range.
///
/// ```swift
/// let simulator = try await Simulator()
/// simulator.add(.heartRateSensor())
/// // Any BlueZ client on simulator.address now finds a heart rate sensor.
/// ```
/// All methods may be called from any thread. Closures that are passed to it run on its own queue, and may call it.
public final class Simulator: @unchecked Sendable {  // holds: all state is touched inside `sync`
    /// The address of its bus, for `BluezManagerOptionBusAddressKey` or, for other programs, `DBUS_SYSTEM_BUS_ADDRESS`.
    public var address: String { busAddress.rawValue }
    package let busAddress: BusAddress
    let queue = DispatchQueue(label: "bluezkit.simulator")
    private let bus: PrivateBus?
    // holds: a key never changes; later versions of Dispatch declare it so
    private struct QueueKey: @unchecked Sendable {
        let key = DispatchSpecificKey<ObjectIdentifier>()
    }
    private static let mark = QueueKey()

    /// Its time. See ``SimulatorClock/advance(by:)``.
    public let clock: SimulatorClock
    var timingState: SimulatorTiming
    var optionsState: SimulatorOptions

    // The daemon; nil while it is not running.
    var connection: Connection?
    var server: ObjectServer?
    /// Counts the runs of the daemon: its timers end with it.
    var generation = 0
    var adapters: [Adapter] = []
    let root = RootObject()
    var watchedClients: Set<String> = []
    var agents: [Agent] = []

    // The environment, which outlives the daemon.
    var controllers: [Controller] = []
    var peripherals: [String: VirtualPeripheral] = [:]
    var named: [String: VirtualPeripheral] = [:]
    /// Peripherals by the private address from which they now advertise.
    var privateAddresses: [String: VirtualPeripheral] = [:]
    /// What bluetoothd would store in /var/lib/bluetooth: by adapter address, then by device address.
    var stored: [String: [String: StoredDevice]] = [:]
    var beacons: BeaconSwarm?
    var traffic: Traffic?
    var centrals: [String: VirtualCentral] = [:]
    var listeners: [AirListener] = []
    var reportCount = 0

    /// Whether the computer is asleep.
    var isSuspended = false

    let channelSockets = ChannelSockets()

    // For tests.
    var recorded: [RecordedCall] = []
    var faults: [SimulatorFault] = []
    var failures = Failures()
    /// By the names of devices in control lines.
    var channelControls: [String: ChannelControl] = [:]
    var waiters: [Waiter] = []
    var eventHandlers: [@Sendable (String) -> Void] = []

    /// Starts a simulated bluetoothd with one powered adapter, `hci0`.
    /// - Parameters:
    ///   - timing: How long BlueZ takes. Nil: ``SimulatorTiming/fast`` in real time, ``SimulatorTiming/real`` with
    ///     another clock.
    ///   - options: What it is like.
    ///   - address: The bus to use. Nil: a private bus, which ends with the simulator.
    ///   - adapterAddresses: One for each adapter.
    ///   - clock: Its time. Only a private bus may have one that is not real, and managers that are made after this.
    public init(
        timing: SimulatorTiming? = nil, options: SimulatorOptions = SimulatorOptions(), address: String? = nil,
        adapterAddresses: [String] = ["00:B1:5E:00:00:01"], clock: SimulatorClock = .real
    ) async throws {
        if let address {
            (bus, busAddress) = (nil, BusAddress(address))
        } else {
            let bus = try PrivateBus()
            (self.bus, busAddress) = (bus, bus.busAddress)
        }
        (self.clock, optionsState) = (clock, options)
        timingState = timing ?? (clock.time == nil ? .fast : .real)
        queue.setSpecific(key: Self.mark.key, value: ObjectIdentifier(self))
        if let time = clock.time {
            queue.virtualTime = time
            time.govern(busAddress)
        }
        root.simulator = self
        for (index, address) in adapterAddresses.enumerated() {
            let controller = Controller(index: index, address: address)
            controllers.append(controller)
            putOnAir(controller)
        }
        try await startDaemon()
        sync { updateTraffic(from: nil) }
    }

    private func updateTraffic(from old: SimulatorBustle?) {
        guard old != optionsState.bustle else { return }
        traffic?.end()
        traffic = optionsState.bustle.map { Traffic($0, of: self) }
        traffic?.start()
    }

    deinit {
        let (queue, connection, server, adapters, beacons, traffic, channelSockets) = (
            queue, connection, server, adapters, beacons, traffic, channelSockets
        )
        let end = {
            beacons?.stop()
            traffic?.stop()
            for adapter in adapters { adapter.closeSockets() }
            channelSockets.closeAll()
            server?.close()  // a flush that waits on the queue must find nothing: objects refer to the simulator
            connection?.close()
            // Calls that this has failed have not been informed yet; the objects they refer to are released after them.
            queue.later { withExtendedLifetime(adapters) {} }
        }
        if isOnQueue {
            end()
        } else {
            queue.sync(execute: end)
        }
    }

    private var isOnQueue: Bool { DispatchQueue.getSpecific(key: Self.mark.key) == ObjectIdentifier(self) }

    /// Runs `body` on the simulator's queue; directly if already on it.
    func sync<R>(_ body: () throws -> R) rethrows -> R {
        if isOnQueue { return try body() }
        return try queue.sync(execute: body)
    }

    /// Runs `body`, a turn of the queue, and keeps the simulator until its end. Without this, a turn that is at work
    /// while the app releases the simulator would free it: adapters hold it only for as long as they read a property,
    /// and that reference would be the last one.
    func duringTurn(_ body: (Simulator) -> Void) { withExtendedLifetime(self) { body(self) } }

    /// The timers. A change applies to what starts after it.
    public var timing: SimulatorTiming {
        get { sync { timingState } }
        set { sync { timingState = newValue } }
    }

    /// The options. A change applies at once.
    public var options: SimulatorOptions {
        get { sync { optionsState } }
        set {
            sync {
                let old = optionsState.bustle
                optionsState = newValue
                updateTraffic(from: old)
            }
        }
    }

    /// A controller is heard by others when it advertises.
    func putOnAir(_ controller: Controller) {
        controller.presence.move(to: self)
        sync { peripherals[controller.address] = controller.presence }
    }

    /// How long an unheard device is kept: with background activity, as long as BlueZ keeps it.
    var temporaryTimeout: Duration {
        let timing = timingState
        return optionsState.bustle == nil
            ? timing.temporaryTimeout : min(timing.temporaryTimeout, .seconds(30) * timing.scale)
    }

    // MARK: Peripherals

    /// Adds a peripheral to those in range.
    @discardableResult
    public func add(_ peripheral: VirtualPeripheral) -> VirtualPeripheral {
        peripheral.move(to: self)
        sync {
            peripherals[peripheral.address] = peripheral
            if let address = peripheral.privateAddress { privateAddresses[address] = peripheral }
            named[peripheral.key] = peripheral
            airChanged(peripheral)
        }
        return peripheral
    }

    /// Removes a peripheral; its links are lost at once.
    public func remove(_ peripheral: VirtualPeripheral) {
        sync {
            peripheral.isInRange = false
            for link in peripheral.links { link.end(reason: 0x08) }
            peripherals[peripheral.address] = nil
            if let address = peripheral.privateAddress { privateAddresses[address] = nil }
            named[peripheral.key] = nil
            airChanged(peripheral)
        }
        peripheral.move(to: nil)
    }

    /// The peripheral that a link to this device would reach now. The controller resolves the private addresses of
    /// bonded peripherals only.
    func peripheral(behind device: Device) -> VirtualPeripheral? {
        if device.isBonded { return peripherals[device.identityAddress] }
        if let peripheral = privateAddresses[device.address] { return peripheral }
        return peripherals[device.address].flatMap { $0.privateAddress == nil ? $0 : nil }
    }

    /// The peripheral with this identity address.
    public func peripheral(_ address: String) -> VirtualPeripheral? { sync { peripherals[address.uppercased()] } }

    // MARK: Time

    /// Runs `body` later, if the daemon is still running then.
    @discardableResult
    func after(_ delay: Duration, _ body: @escaping () -> Void) -> Alarm {
        let life = generation
        return afterAlways(delay) { [weak self] in
            if self?.generation == life { body() }
        }
    }

    /// Runs `body` later, if the simulator still exists then.
    /// - Parameter isRoutine: Nothing follows from it, unless it sends a message.
    @discardableResult
    func afterAlways(_ delay: Duration, isRoutine: Bool = false, _ body: @escaping () -> Void) -> Alarm {
        let alarm = Alarm()
        let run = { [weak self] in
            guard let self, !alarm.isCancelled else { return }
            duringTurn { _ in body() }
        }
        if delay <= .zero { queue.later(run) } else { queue.later(delay, isRoutine: isRoutine, run) }
        return alarm
    }
}

/// A scheduled action that can be cancelled.
final class Alarm {
    private(set) var isCancelled = false
    func cancel() { isCancelled = true }
}

/// A controller as the kernel sees it.
final class Controller {
    let index: Int
    let address: String
    var isPlugged = true
    /// What the kernel keeps when bluetoothd crashes.
    var isPowered = false
    var deafness = SimulatorDeafness.off
    /// The PSMs that were published for encrypted links only.
    var encryptedPSMs: Set<UInt16> = []
    /// The controller in the peripheral role, as other devices hear it.
    let presence: VirtualPeripheral

    init(index: Int, address: String) {
        (self.index, self.address) = (index, address.uppercased())
        presence = VirtualPeripheral(address, addressType: "public")
        presence.isAdapter = true
        presence.isAdvertisingEnabled = false
    }
}

/// What bluetoothd stores about a device.
struct StoredDevice {
    var addressType: String
    var name: String?
    var alias: String?
    var appearance: UInt16?
    var uuids: [String]
    var isTrusted: Bool
    var isBonded: Bool
}
