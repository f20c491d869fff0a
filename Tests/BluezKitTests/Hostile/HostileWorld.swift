import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation
import Testing

/// Everything below here trusts nothing that comes from the bus.
@Suite("Hostile") struct Hostile {}

/// A simulator, and a central that is subscribed to a peripheral which no other test has.
final class HostileWorld: World {
    let simulator: Simulator
    let victim: VirtualPeripheral
    /// `/org/bluez/hci0/dev_…`.
    let device: String
    private let times: ShortTimes

    static let service = CBUUID(string: "1815")
    static let notifying = CBUUID(string: "2A56")
    static let writable = CBUUID(string: "2A57")
    static let doomedService = CBUUID(string: "181A")

    /// - Parameter address: The bus; nil: one of its own.
    init(address: String? = nil, timing change: (inout SimulatorTiming) -> Void = { _ in }) async throws {
        _ = LogCapture.shared
        var timing = SimulatorTiming.fast
        timing.temporaryTimeout = .seconds(60)  // the machine may be busy
        timing.attTimeout = .seconds(60)
        change(&timing)
        simulator = try await Simulator(timing: timing, options: .busy, address: address)
        times = ShortTimes(on: simulator.busAddress)
        let number = (0..<5).map { _ in UInt8.random(in: 0...255) }
        let hex = ["F0"] + number.map { ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }
        device = "/org/bluez/hci0/dev_" + hex.joined(separator: "_")
        victim = VirtualPeripheral(
            hex.joined(separator: ":"), VirtualAdvertisement(localName: "Victim", serviceUUIDs: ["1815"]),
            services: [
                VirtualService(
                    "1815",
                    [
                        VirtualCharacteristic("2A56", [.read, .notify], value: [0]),
                        VirtualCharacteristic("2A57", [.read, .write, .writeWithoutResponse], value: [0]),
                    ]),
                VirtualService("181A", [VirtualCharacteristic("2A6E", [.read, .notify], value: [1])]),
            ])
        simulator.add(victim)
    }

    var managerOptions: [String: Any] { [BluezManagerOptionBusAddressKey: simulator.address] }
    var connectTimeout: Double { 1 }

    /// By which an app retrieves the victim.
    var identifier: UUID {
        UUID(uuidString: "426C7A4B-0100-8000-8000-" + victim.address.filter { $0 != ":" }) ?? UUID()
    }

    /// The path of the notifying characteristic.
    var subscribedPath: String { simulator.calls("StartNotify").last?.path ?? "/" }

    /// The central's name on the bus.
    var centralName: String { simulator.calls("Get").first?.sender ?? "" }

    /// Sends a signal as bluetoothd.
    func emit(_ signal: Signal) throws {
        try simulator.emit(
            path: signal.path, interface: signal.interface, member: signal.member, arguments: signal.arguments)
    }
}

/// A signal, true or not.
struct Signal: CustomStringConvertible {
    var path: String
    var interface: String
    var member: String
    var arguments: [Value]

    var description: String { "\(member) of \(path): \(String(describing: arguments).prefix(300))" }

    static func properties(_ path: String, _ interface: String, _ arguments: [Value]) -> Signal {
        Signal(
            path: path, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged",
            arguments: [.string("org.bluez." + interface)] + arguments)
    }

    static func changed(_ path: String, _ interface: String, _ properties: [(String, Value)]) -> Signal {
        .properties(path, interface, [.properties(properties), .strings([])])
    }

    static func added(_ arguments: [Value]) -> Signal {
        Signal(
            path: "/", interface: "org.freedesktop.DBus.ObjectManager", member: "InterfacesAdded",
            arguments: arguments)
    }

    static func added(_ path: String, _ interface: String, _ properties: [(String, Value)]) -> Signal {
        .added([
            .path(ObjectPath(path) ?? "/"),
            .dictionary(
                key: "s", value: "a{sv}", [.init(.string("org.bluez." + interface), .properties(properties))]),
        ])
    }

    static func removed(_ arguments: [Value]) -> Signal {
        Signal(
            path: "/", interface: "org.freedesktop.DBus.ObjectManager", member: "InterfacesRemoved",
            arguments: arguments)
    }
}

/// A central that is connected and subscribed, and the check that it still is.
struct Subscriber {
    let world: HostileWorld
    let central: Central
    let peripheral: CBPeripheral
    let characteristic: CBCharacteristic
    private let counter = Counter()

    private final class Counter { var value: UInt8 = 0 }

    init(_ world: HostileWorld, options: [String: Any] = [:]) async throws {
        self.world = world
        central = Central(world, options: options)
        try await central.powerOn()
        peripheral = try await central.find("Victim", services: [HostileWorld.service])
        try await central.connect(peripheral)
        characteristic = try await central.characteristic(
            HostileWorld.notifying, of: HostileWorld.service, on: peripheral)
        #expect(try await central.setNotify(true, characteristic) == nil)
    }

    /// A real notification arrives, and no value before it.
    func goesOn(_ after: String = "") async throws {
        counter.value &+= 1
        let value = Data([0xAA, counter.value])
        #expect(world.victim.notify("2A56", Array(value)), "\(after)")
        let came = try await central.next("a real notification after \(after)") {
            if case .value(characteristic, let value, nil) = $0 { value } else { nil }
        }
        #expect(came == value, "\(after)")
        #expect(peripheral.state == .connected, "\(after)")
    }
}
