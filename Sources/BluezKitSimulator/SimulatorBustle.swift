import BluezDBus
import Dispatch

/// Background activity as in a real environment. Set it in ``SimulatorOptions/bustle``.
///
/// bluetoothd handles calls with a delay: each call waits for its main loop, in order of arrival, and calls that
/// involve the kernel or the radio take longer, so that the answer to a later call about another device overtakes them.
/// Signals and answers keep the order in which bluetoothd sends them. Devices that are not heard are forgotten after 30
/// s of simulated time (``SimulatorTiming/scale``). Phones are in range and change their addresses. Other programs
/// connect to the bus, scan, connect to the phones, and exit. The strength of a signal varies.
///
/// None of this breaks a rule of D-Bus or BlueZ: an app that fails here would also fail in reality.
public struct SimulatorBustle: Sendable, Equatable {
    /// The same seed makes the same choices, provided that the app's calls arrive in the same order.
    public var seed: UInt64
    /// How long calls wait for bluetoothd's main loop, at most.
    public var latency = Duration.milliseconds(3)
    /// The additional delay, at most, of calls that involve the kernel or the radio.
    public var operationDelay = Duration.milliseconds(6)
    /// The number of phones in range.
    public var phones = 8
    /// How long each phone keeps its address.
    public var addressLifetime = Duration.milliseconds(500)
    /// The number of other programs that use bluetoothd.
    public var clients = 2
    /// How many dB the strength of a signal varies around the peripheral's, at most. BlueZ does not report one again
    /// whose strength has stayed the same, and without that a scan that begins while another program scans may never
    /// hear of it.
    public var fading: Int16 = 3

    /// Typical background activity.
    public init(seed: UInt64) { self.seed = seed }
}

/// The running background activity of a ``SimulatorBustle``. Confined to the simulator's queue.
final class Traffic {
    private unowned(unsafe) let simulator: Simulator  // holds: stopped by the simulator's deinit; see Adapter
    private let bustle: SimulatorBustle
    private var random: SeededGenerator
    /// Of its own: how many advertisements are heard depends on time, and the other choices do not.
    private var noise: SeededGenerator
    /// Waiting calls in order, by what they wait for.
    private var lanes: [String: [IncomingCall]] = [:]
    private var phones: [VirtualPeripheral] = []
    private var clients: [OtherClient] = []
    private var turn: Alarm?

    init(_ bustle: SimulatorBustle, of simulator: Simulator) {
        (self.bustle, self.simulator) = (bustle, simulator)
        random = SeededGenerator(seed: bustle.seed)
        noise = SeededGenerator(seed: bustle.seed)
    }

    /// What the controller measures of a signal.
    func measured(_ rssi: Int16) -> Int16 {
        let fading = Int(min(max(bustle.fading, 0), 100))
        return Int16(clamping: min(max(Int(rssi) + .random(in: -fading...fading, using: &noise), -127), 20))
    }

    func start() {
        for _ in 0..<bustle.phones { arrive() }
        clients = (0..<bustle.clients).map { _ in OtherClient(simulator.busAddress, queue: simulator.queue) }
        next()
    }

    func stop() {
        turn?.cancel()
        lanes = [:]
        for client in clients { client.leave() }
        clients = []
    }

    /// The phones are removed as well.
    func end() {
        stop()
        for phone in phones { simulator.remove(phone) }
        phones = []
    }

    /// bluetoothd has crashed, so the waiting calls are lost.
    func daemonGone() { lanes = [:] }

    // MARK: Calls

    func receive(_ call: IncomingCall) {
        hold(call, in: "", bustle.latency) { traffic, call in
            guard let device = Self.operation(call) else { return traffic.deal(with: call) }
            traffic.hold(call, in: device, traffic.bustle.operationDelay) { $0.deal(with: $1) }
        }
    }

    private func deal(with call: IncomingCall) {
        // Faults and recordings apply to the app's calls only.
        if clients.contains(where: { $0.made(call) }) {
            simulator.server?.dispatch(call)
        } else {
            simulator.handle(call)
        }
    }

    /// Calls in one lane stay in order. Half of them are not delayed.
    private func hold(
        _ call: IncomingCall, in lane: String, _ longest: Duration, then: @escaping (Traffic, IncomingCall) -> Void
    ) {
        if lanes[lane]?.append(call) != nil { return }
        let delay = longest * max(0, random.fraction() * 2 - 1)
        guard delay > .zero else { return then(self, call) }
        lanes[lane] = [call]
        simulator.after(delay) { [weak self] in
            guard let self, let calls = lanes.removeValue(forKey: lane) else { return }
            for call in calls { then(self, call) }
        }
    }

    private static let operations: Set<String> = [
        "Connect", "Disconnect", "Pair", "ReadValue", "WriteValue", "StartNotify", "StopNotify", "AcquireWrite",
        "AcquireNotify", "StartDiscovery", "StopDiscovery", "SetDiscoveryFilter", "RemoveDevice", "RegisterApplication",
        "UnregisterApplication", "RegisterAdvertisement", "UnregisterAdvertisement", "Set",
    ]

    /// The adapter or device of a call, if it involves the kernel or the radio.
    private static func operation(_ call: IncomingCall) -> String? {
        guard let member = call.member, operations.contains(member) else { return nil }
        var path = call.path
        // bluetoothd begins what a program asks for in the order of its calls: a `Connect` does not overtake it.
        if member == "RemoveDevice", let values = try? call.values(), case .path(let device)? = values.first {
            path = device
        }
        // /org/bluez/hci0/dev_F0_F1_F2_00_00_01 and not the objects below it: a link handles one request at a time.
        return path.map { $0.rawValue.split(separator: "/").prefix(4).joined(separator: "/") }
    }

    // MARK: Neighbours

    /// In each step one phone changes its address, and one program does something.
    private func next() {
        let pause = bustle.addressLifetime / max(1, bustle.phones)
        turn = simulator.afterAlways(max(pause, .milliseconds(1)) * (0.5 + random.fraction())) { [weak self] in
            self?.turnOver()
        }
    }

    private func turnOver() {
        if !phones.isEmpty {
            simulator.remove(phones.removeFirst())
            arrive()
        }
        clients.randomElement(using: &random)?.act(near: phones, &random)
        next()
    }

    /// A phone with a new address. It advertises what phones do: nothing that a scan for a service matches.
    private func arrive() {
        let bytes = (0..<5).map { _ in UInt8.random(in: 0 ... .max, using: &random) }
        let phone = VirtualPeripheral(
            (["7A"] + bytes.map { Hex.byte($0).uppercased() }).joined(separator: ":"),
            VirtualAdvertisement(manufacturerData: [0x004C: [0x10] + bytes]),
            services: [VirtualService("180A", [VirtualCharacteristic("2A29", .read, value: Array("Phone".utf8))])],
            interval: simulator.timingState.scanCycle)
        phones.append(phone)
        simulator.add(phone)
    }
}

/// Another program on the bus. It ignores answers.
private final class OtherClient {
    private let address: BusAddress
    private let queue: DispatchQueue
    private var connection: Connection?
    /// Names of connections that have closed: their calls may still be waiting.
    private var formerNames: Set<String> = []

    init(_ address: BusAddress, queue: DispatchQueue) { (self.address, self.queue) = (address, queue) }

    func made(_ call: IncomingCall) -> Bool {
        guard let sender = call.sender else { return false }
        return sender == connection?.uniqueName || formerNames.contains(sender)
    }

    func leave() {
        if let name = connection?.uniqueName { formerNames.insert(name) }
        connection?.close()
        connection = nil
    }

    func act(near phones: [VirtualPeripheral], _ random: inout SeededGenerator) {
        guard let connection else { return self.connection = try? Connection(address: address, queue: queue) }
        func call(_ member: String, of path: String, _ interface: String, _ arguments: [Value] = []) {
            guard let path = ObjectPath(path) else { return }
            let call = MethodCall(destination: "org.bluez", path: path, interface: interface, member: member) {
                (writer) throws(BusError) in for argument in arguments { try writer.write(argument) }
            }
            connection.call(call, deadline: .seconds(30)) { _ in }
        }
        let adapter = ("/org/bluez/hci0", "org.bluez.Adapter1")
        let phone = phones.randomElement(using: &random).map {
            "/org/bluez/hci0/dev_" + $0.address.replacing(":", with: "_")
        }
        switch UInt8.random(in: 0..<10, using: &random) {
        case 0, 1: call("StartDiscovery", of: adapter.0, adapter.1)
        case 2, 3: call("StopDiscovery", of: adapter.0, adapter.1)
        case 4:
            let filter: [(String, Value)] = [("Transport", .string("le")), ("DuplicateData", .bool(true))]
            call("SetDiscoveryFilter", of: adapter.0, adapter.1, [.properties(filter)])
        case 5: call("GetManagedObjects", of: "/", "org.freedesktop.DBus.ObjectManager")
        case 6, 7: if let phone { call("Connect", of: phone, "org.bluez.Device1") }
        case 8: if let phone { call("Disconnect", of: phone, "org.bluez.Device1") }
        default: leave()
        }
    }
}
