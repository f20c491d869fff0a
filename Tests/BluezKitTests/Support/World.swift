@testable import BluezKit
import BluezKitSimulator
import BluezDBus
import Foundation
import Testing

/// Where a scenario runs: the simulator, or a real kernel with a real bluetoothd and an independent Bluetooth stack
/// (`Tests/Rig`). Both understand the same control lines (`heart beat 2`, `sink burst 0013 1000 20 250`), so every
/// scenario is written once (D14).
protocol World: Sendable {
    /// Options that lead a manager to this world's BlueZ.
    var managerOptions: [String: Any] { get }
    /// How long this world's BlueZ tries to connect, in seconds.
    var connectTimeout: Double { get }
    /// Does something in the world, and returns what the world answers. Throws what it refuses.
    @discardableResult
    func control(_ line: String) async throws -> String
    /// What peripherals have seen: `sink written 0012 6162`.
    func nextEvent(_ what: String, where matches: @escaping @Sendable (String) -> Bool) async throws -> String
}

/// The world of a single test takes no control lines.
extension World {
    func control(_ line: String) async throws -> String { throw RigWorld.Refused(description: line) }
    func nextEvent(_ what: String, where matches: @escaping @Sendable (String) -> Bool) async throws -> String {
        throw RigWorld.Refused(description: what)
    }
}

/// Those whose links tests make and end.
enum RigPeripheral: String, CaseIterable {
    case heart, sink, coc

    var address: String {
        switch self {
        case .heart: "F0:F1:F2:00:00:01"
        case .sink: "F0:F1:F2:00:00:02"
        case .coc: "F0:F1:F2:00:00:03"
        }
    }
}

/// How long to wait for what must come, in seconds: the rig has bluetoothd's own pace, and this machine other work to
/// do.
let world_deadline: Double = Worlds.isRig ? 90 : 20

enum Worlds {
    static let isRig = ProcessInfo.processInfo.environment["BLUEZKIT_WORLD"] == "rig"

    /// How many times longer than elsewhere a test waits for what must come: more than 1 where programs are emulated.
    static let slowness = ProcessInfo.processInfo.environment["BLUEZKIT_SLOWNESS"].flatMap { Double($0) } ?? 1

    /// How often a test is to kill an app; nil: as often as it has time for (scripts/keeper-kills).
    static let kills = ProcessInfo.processInfo.environment["BLUEZKIT_KILLS"].flatMap { Int($0) }

    /// How much a test of bulk data moves, in bytes. The rig carries 50 to 100 KB/s: `BLUEZKIT_BULK` says more.
    static let bulkBytes =
        ProcessInfo.processInfo.environment["BLUEZKIT_BULK"].flatMap { Int($0) } ?? (isRig ? 300_000 : 2_000_000)

    /// A fresh simulator, or the rig's one world with its peripherals as at the start.
    static func make() async throws -> any World {
        // From the first world on: of each cause the log has one line a minute, which an earlier test may have had.
        _ = LogCapture.shared
        guard isRig else { return try await SimulatedWorld() }
        Log.forgetFloods()  // devices of earlier tests are the same
        await expectNoManagers()
        let world = try RigWorld()
        try await world.awaitDaemon()
        for line in [
            "rig adapters 1", "rig dual off", "rig resume", "rig deaf off", "rig cross off", "heart return",
            "heart advertise on", "heart beat 0", "sink return", "sink advertise on",
        ] {
            _ = try await world.control(line)
        }
        try await world.awaitDaemon()  // an adapter that goes may crash it
        try await world.endLostLinks()
        try await world.awaitDaemon()  // as may one whose link ends
        try await world.endStrandedDiscovery()
        return world
    }
}

extension Worlds {
    /// A manager of an earlier test would take part in this one: its agent, say, refuses to pair what it does not know.
    /// (A simulator has its own bus, and other tests run beside the scenarios.)
    private static func expectNoManagers() async {
        do { try await eventually("no manager of an earlier test is there") { Session.count == 0 } } catch {
            Issue.record(error)
        }
    }
}

extension World {
    /// Waits until a peripheral has this many links.
    func awaitConnections(_ peripheral: String, _ count: Int) async throws {
        try await eventually("\(peripheral) has \(count) links") {
            try await control("\(peripheral) connections") == String(count)
        }
    }

    /// The heart rate sensor comes back into range, after an attempt to connect to it was called off. Linux may lose
    /// track of a link that is made in that moment (Docs/COMPATIBILITY.md), and an app learns of the end before it.
    func heartReturns() async throws {
        if Worlds.isRig { try await control("rig ignores F0:F1:F2:00:00:01") }
        try await control("heart return")
    }
}

extension World {
    /// Ends what an earlier test has left: links outlive the process that made them, and for a moment their manager.
    func endLinks() async throws {
        for peripheral in ["heart", "sink"] where try await control("\(peripheral) connections") != "0" {
            try await control("\(peripheral) disconnect")
            try await awaitConnections(peripheral, 0)
        }
    }

    var busAddress: BusAddress {
        (managerOptions[BluezManagerOptionBusAddressKey] as? String).map { BusAddress($0) } ?? .system
    }

    /// Runs `body` with a sink that pairs by just works, has no bonds, and advertises from a private address. Bond and
    /// address do not outlive it.
    func withPrivateSink(_ body: () async throws -> Void) async throws {
        func forgetEverything() async throws {
            try await control("sink forget")
            try await forget("F0:F1:F2:00:00:02")
        }
        try await control("sink pairing justworks")
        try await forgetEverything()
        try await control("sink private")
        do { try await body() } catch {
            _ = try? await control("sink identity")
            try? await forgetEverything()
            throw error
        }
        try await control("sink identity")
        try await forgetEverything()
    }

    /// Whether BlueZ reports that a device is connected.
    func saysConnected(_ address: String) async throws -> Bool { try await says("Connected", of: address) }

    private func says(_ name: String, of address: String) async throws -> Bool {
        let path = "/org/bluez/hci0/dev_" + address.replacing(":", with: "_")
        return await property(name, "org.bluez.Device1", at: path)?.boolValue == true
    }

    /// The version of bluetoothd; nil where its adapter does not tell it.
    func blueZVersion() async -> BlueZVersion? {
        await property("Modalias", "org.bluez.Adapter1", at: "/org/bluez/hci0")?.stringValue
            .flatMap { BlueZVersion(modalias: $0) }
    }

    private func property(_ name: String, _ interface: String, at path: String) async -> Value? {
        guard let path = ObjectPath(path) else { return nil }
        let answer = try? await Peer.named(busAddress).call(
            "org.bluez", path, "org.freedesktop.DBus.Properties", "Get", [.string(interface), .string(name)])
        return answer?.first
    }

    /// Waits until BlueZ knows the services of a device: up to 5.81 it crashes if a link ends while it discovers them.
    /// That may take longer than the two seconds for which it keeps a link that is to end.
    func letBlueZDiscover(_ peripheral: RigPeripheral) async throws {
        guard Worlds.isRig else { return }
        if let version = await blueZVersion(), version >= BlueZVersion(5, 82) { return }
        try await eventually("BlueZ knows the services of \(peripheral)") {
            try await says("ServicesResolved", of: peripheral.address)
        }
    }

    /// Another program ends a link.
    func endLink(_ address: String, on adapter: String) async throws {
        guard let path = ObjectPath("/org/bluez/\(adapter)/dev_" + address.replacing(":", with: "_")) else { return }
        try await Peer.named(busAddress).call("org.bluez", path, "org.bluez.Device1", "Disconnect", [])
    }

    /// Makes an adapter, as soon as it is there, forget a device and its bond. One that has paired with a private
    /// address keeps the path of that.
    /// - Throws: Anything else that is in the way, such as a bluetoothd that has crashed.
    func forget(_ address: String, on adapter: String = "hci0") async throws {
        guard let path = ObjectPath("/org/bluez/\(adapter)"),
            let device = path.appending("dev_" + address.replacing(":", with: "_"))
        else { return }
        let peer = try await Peer.named(busAddress)
        try await eventually("\(adapter) is there and powered") {
            do {
                try await peer.call("org.bluez", path, "org.bluez.Adapter1", "RemoveDevice", [.path(device)])
                return true
            } catch BusError.remote(name: "org.bluez.Error.DoesNotExist", _) {
                return true
            } catch let error as BusError
                where ["org.freedesktop.DBus.Error.UnknownObject", "org.bluez.Error.NotReady"].contains(error.name)
            {
                return false  // it is not there yet, or not powered
            }
        }
        let objects = try await peer.call("org.bluez", "/", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
        for (other, interfaces) in objects.first?.dictionaryValue ?? [:] where other.hasPrefix(path.rawValue + "/") {
            let properties = interfaces.dictionaryValue?["org.bluez.Device1"]?.dictionaryValue
            guard properties?["Address"]?.stringValue == address, let device = ObjectPath(other) else { continue }
            try await peer.call("org.bluez", path, "org.bluez.Adapter1", "RemoveDevice", [.path(device)])
        }
    }
}

extension World {
    /// Restarts bluetoothd with a change of its main.conf: `cache no`.
    func restartDaemon(with change: String) async throws {
        for line in ["stop", change, "start"] { try await control("bluetoothd \(line)") }
    }
}

/// All scenarios, one after the other: the rig has one world for all of them.
@Suite(.serialized) struct Scenarios {}

/// What an app asks BlueZ for is so at once. In the rig, a question that is not answered within two seconds finds none,
/// and is asked again.
func expectAtOnce(
    _ what: String, sourceLocation: SourceLocation = #_sourceLocation, _ isSo: () async throws -> Bool
) async throws {
    guard Worlds.isRig else {
        // Asked again if BlueZ had no time to answer: on a machine that stands still.
        var (isSoNow, isLate) = (false, true)
        for _ in 0..<5 where isLate && !isSoNow {
            let start = ContinuousClock.now
            isSoNow = try await isSo()
            isLate = start.duration(to: .now) >= BlueZTiming.Deadline.list
        }
        #expect(isSoNow, "\(what)", sourceLocation: sourceLocation)
        return
    }
    try await eventually(what, within: 10) {
        let start = ContinuousClock.now
        return try await isSo() && start.duration(to: .now) < .seconds(2)
    }
}

/// Managers that exist count bluetoothd as hung when a call takes nine seconds in the rig, or one in the simulator.
func noticeHangsSoon(in world: any World) { noticeHangs(in: world, after: .seconds(Worlds.isRig ? 9 : 1)) }

func noticeHangs(in world: any World, after slowCall: Duration) {
    let session = Session.shared(.init(address: world.busAddress, adapter: nil))
    session.queue.sync {
        session.blueZ.timing.daemon.slowCall = slowCall
        session.bus?.slowCall = slowCall
    }
}

/// How long the requests of centrals wait for the app of a manager that exists: then BluezKit or a simulated bluetoothd
/// ends them. In the rig bluetoothd does, after five seconds.
func limitRequests(in world: any World, to limit: Duration) {
    guard let simulator = (world as? SimulatedWorld)?.simulator else { return }
    simulator.timing.applicationTimeout = limit
    let session = Session.shared(.init(address: world.busAddress, adapter: nil))
    session.queue.sync { session.blueZ.timing.server.request = limit }
}

extension BlueZDaemon {
    /// `Device1.Disconnected` tells why a link ended.
    var givesReasons: Bool { version.map { $0 >= BlueZVersion(5, 83) } ?? false }
}
