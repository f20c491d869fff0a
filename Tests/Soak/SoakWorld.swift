import BluezKitSimulator
import BluezDBus
import Dispatch
import Foundation

/// The environment of a gateway: addresses that are used once, eight sensors whose links are lost and made again, and a
/// bluetoothd that is restarted four times a day. Each hour both apps must report a new device at once; at the end both
/// must use as much as at the beginning.
final class SoakWorld {
    typealias Broken = AppProcess.Broken

    private static let addressesPerDay = 100_000
    private static let hoursPerRestart = 6
    /// The number of devices present at a time, if each stays for half a minute.
    private static let crowd = 40
    private let seed: UInt64
    private var random: SeededGenerator
    private let sensors = (1...8).map { VirtualPeripheral.rigSensor($0) }
    private var addresses = 0
    private var apps: [AppProcess] = []

    init(seed: UInt64) {
        self.seed = seed
        random = SeededGenerator(seed: seed)
    }

    /// What there is at the end of an hour.
    private struct Mark {
        var status: [AppProcess.Status]
        var footprint: [AppProcess.Footprint]
        var matchRules: Int
    }

    func live(days: Double) async throws {
        let hours = max(6, Int((days * 24).rounded()))
        say("soak: \(hours) hours, \(Self.addressesPerDay) addresses a day, seed \(seed)")
        var timing = SimulatorTiming.fast
        timing.temporaryTimeout = .milliseconds(50)
        let simulator = try await Simulator(timing: timing)
        for sensor in sensors { simulator.add(sensor) }
        let observer = try BusObserver(simulator.busAddress)
        apps = try [1...4, 5...8].map { numbers in
            try AppProcess(address: simulator.address, names: numbers.map { "Rig Sensor \($0)" })
        }
        try settle(simulator, hour: 0)
        var marks: [Mark] = []
        let start = ContinuousClock.now
        for hour in 1...hours {
            try await self.hour(hour, simulator)
            try settle(simulator, hour: hour)
            marks.append(
                Mark(
                    status: try apps.map { try $0.status() }, footprint: apps.map { $0.footprint() },
                    matchRules: try await observer.matchRules()))
            simulator.forgetCalls()
            if hour % 6 == 0 || hour == hours {
                let seconds = (ContinuousClock.now - start).components.seconds
                let footprint = marks[hour - 1].footprint[0]
                say("soak: hour \(hour) of \(hours), \(addresses) addresses, \(seconds) s; app 1: \(footprint)")
            }
        }
        try compare(marks)
    }

    /// What an hour brings, in a moment.
    private func hour(_ hour: Int, _ simulator: Simulator) async throws {
        let before = try apps.map { try $0.status().discoveries }
        var left = Self.addressesPerDay / 24
        // While both apps connect, no one scans.
        var count = 0
        while left > 0 {
            for _ in 0..<min(Self.crowd, left) {
                if passBy(simulator) { count += 1 }
                left -= 1
            }
            for sensor in sensors { sensor.notify("2A56", [UInt8(truncatingIfNeeded: left)]) }
            if random.next() % 20 == 0 { weather(sensors[Int(random.next() % 8)]) }
            await pauseUntilForgotten()
        }
        // A device that is heard at the moment discovery stops is announced without its signal strength, and not
        // reported.
        for (app, before) in zip(apps, before) {
            try wait("reports of the \(count) devices of hour \(hour)", app) {
                $0.discoveries = before + count * 99 / 100
            }
        }
        if hour % Self.hoursPerRestart == 0 { try await simulator.restartDaemon(crash: random.next() % 2 == 0) }
    }

    /// How fast time passes: bluetoothd forgets those that have passed.
    private func pauseUntilForgotten() async { try? await Task.sleep(for: .milliseconds(20)) }

    /// A device with an address of its own advertises once.
    /// - Returns: Whether it is heard.
    private func passBy(_ simulator: Simulator) -> Bool {
        let device = newDevice(name: nil, interval: .seconds(3600))
        simulator.add(device)
        defer { simulator.remove(device) }
        return device.advertiseOnce()
    }

    private func newDevice(name: String?, interval: Duration) -> VirtualPeripheral {
        addresses += 1
        let digits = String(addresses, radix: 16, uppercase: true)
        let text = Array("4" + String(repeating: "0", count: 11 - digits.count) + digits)
        let address = stride(from: 0, to: 12, by: 2).map { String(text[$0...$0 + 1]) }.joined(separator: ":")
        let number = UInt8(truncatingIfNeeded: addresses)
        return VirtualPeripheral(
            address, VirtualAdvertisement(localName: name, manufacturerData: [0xFFFF: [number]]), interval: interval)
    }

    private func weather(_ sensor: VirtualPeripheral) {
        if random.next() % 2 == 0 {
            sensor.disconnect()
        } else {
            sensor.vanish()
            sensor.comeBack()
            sensor.disconnect()
        }
    }

    /// Waits until all links are up again, and a new device has been reported by both.
    private func settle(_ simulator: Simulator, hour: Int) throws {
        for app in apps { try wait("the links of hour \(hour)", app) { $0.notifying = sensors.count / apps.count } }
        let probe = newDevice(name: "probe \(hour)", interval: .milliseconds(5))
        simulator.add(probe)
        defer { simulator.remove(probe) }
        for app in apps { try wait("a report of a new device in hour \(hour)", app) { $0.probe = "probe \(hour)" } }
    }

    private func wait(_ what: String, _ app: AppProcess, _ goal: (inout SoakGoal) -> Void) throws {
        var wanted = SoakGoal()
        goal(&wanted)
        let found = try app.status(wanted)
        guard found.discoveries >= wanted.discoveries, found.notifying >= wanted.notifying,
            wanted.probe == "-" || wanted.probe == found.probe
        else { throw Broken(description: "\(what): not within 30 s; the app: \(found)") }
    }

    // MARK: The end

    /// Compares the last third with the second, when all has warmed up. Ratios, since machines differ.
    private func compare(_ marks: [Mark]) throws {
        let third = marks.count / 3
        var complaints: [String] = []
        func check(_ what: String, _ early: Double, _ late: Double, most: Double) {
            say(String(format: "soak: %@: %.1f, at the end %.1f", what, early, late))
            if late > most { complaints.append(String(format: "%@: %.1f has become %.1f", what, early, late)) }
        }
        for app in 0..<2 {
            func cost(_ from: Int, _ to: Int) -> Double {
                let (a, b) = (marks[from], marks[to])
                let seconds = b.footprint[app].cpuSeconds - a.footprint[app].cpuSeconds
                return seconds * 1e6 / Double(max(1, b.status[app].events - a.status[app].events))
            }
            let (first, last) = (third - 1, marks.count - 1)
            let name = "app \(app + 1): "
            let middle = marks.count - third - 1
            let (early, late) = (cost(first, middle), cost(middle, last))
            check(name + "CPU per event (µs)", early, late, most: early * 1.5)
            func most(_ value: (AppProcess.Footprint) -> Int, _ range: Range<Int>) -> Double {
                Double(marks[range].map { value($0.footprint[app]) }.max() ?? 0)
            }
            func pair(_ value: (AppProcess.Footprint) -> Int) -> (Double, Double) {
                (most(value, first..<middle + 1), most(value, middle + 1..<marks.count))
            }
            let memory = pair(\.residentKiB)
            check(name + "memory (KiB)", memory.0, memory.1, most: memory.0 * 1.1 + 2048)
            let descriptors = pair(\.descriptors)
            check(name + "descriptors", descriptors.0, descriptors.1, most: descriptors.0 + 2)
            // The pool of a dispatch queue breathes.
            let threads = pair(\.threads)
            check(name + "threads", threads.0, threads.1, most: threads.0 + 8)
            let rules = marks.map { Double($0.matchRules) }
            check("match rules on the bus", rules[first], rules[last], most: rules[first])
        }
        guard complaints.isEmpty else { throw Broken(description: complaints.joined(separator: "; ")) }
        say("soak: all as in the beginning")
    }
}

/// Asks the bus itself.
private final class BusObserver: @unchecked Sendable {  // holds: the connection is touched on `queue` only
    private let queue = DispatchQueue(label: "soak.observer")
    private let connection: Connection

    init(_ address: BusAddress) throws {
        let queue = queue
        connection = try queue.sync { try Connection(address: address, queue: queue) }
    }

    /// How many rules all connections have.
    func matchRules() async throws -> Int {
        let question = MethodCall(
            destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus.Debug.Stats", member: "GetAllMatchRules")
        // holds: consumed once, on the queue
        nonisolated(unsafe) let call = question
        return try await withCheckedThrowingContinuation { continuation in
            queue.async { [connection] in
                connection.call(call, deadline: .seconds(20)) { result in
                    continuation.resume(
                        with: result.flatMap { reply in
                            Result { () throws(BusError) in
                                let lists = try reply.values().first?.dictionaryValue ?? [:]
                                return lists.values.map { $0.stringsValue?.count ?? 0 }.reduce(0, +)
                            }
                        })
                }
            }
        }
    }
}
