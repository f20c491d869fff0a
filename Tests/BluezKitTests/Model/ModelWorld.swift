import BluezKitSimulator
import CoreBluetooth
import BluezDBus
import Foundation

@testable import BluezKit

/// A simulated BlueZ on a bus that it has for itself as long as a script lasts, the apps of the script, and what has
/// gone wrong.
final class ModelWorld: World, @unchecked Sendable {  // holds: used by one task, step by step; `broken` is locked
    static let service = CBUUID(string: "1815")
    /// How long after all is well nothing more may come: longer than anything that is held back.
    private static let quiet = Duration.milliseconds(160)

    let simulator: Simulator
    let connectTimeout: Double
    private let peripherals: [VirtualPeripheral]
    private let identifiers: [UUID]
    private var apps: [Int: ModelApp] = [:]
    private var hosts: [Int: ModelHost] = [:]
    /// Events of the centrals: `central notified UUID HEX`.
    private var visits: [Task<Void, Never>] = []
    private let heard = ProtectedBox<Set<String>>([])
    /// Callbacks, and events of peripherals and centrals.
    private let pulse = Pulse()
    /// Another program on the bus, and the peripherals that it has connected to or disconnected.
    private var guest: Peer?
    private var guestLinks: Set<Int> = []
    private var session: Session?
    private let broken = ProtectedBox<[String]>([])
    private var changed: Set<Int> = []
    private var count: UInt32 = 0
    private let deadline: Duration
    /// A human-readable log; nil if it is not needed.
    private let trace: (@Sendable (String) -> Void)?

    var managerOptions: [String: Any] { [BluezManagerOptionBusAddressKey: simulator.address] }

    /// - Parameter deadline: How long what is due may take.
    init(on bus: PrivateBus, deadline: Duration, trace: (@Sendable (String) -> Void)? = nil) async throws {
        (self.deadline, self.trace) = (deadline, trace)
        var timing = SimulatorTiming.fast
        timing.connectTimeout = .milliseconds(200)
        connectTimeout = 0.2
        // Calm: everything that BlueZ does is compared with what the apps have requested.
        simulator = try await Simulator(timing: timing, options: .calm, address: bus.address)
        peripherals = (0..<Script.peripherals).map(Self.peripheral)
        identifiers = peripherals.compactMap { peripheral in
            peripheral.address.withCString { DeviceIdentity(address: $0, isRandom: true) }?.identifier
        }
        for peripheral in peripherals { simulator.add(peripheral) }
        let session = Session.shared(Session.Key(address: bus.busAddress, adapter: nil))
        session.queue.sync {
            session.blueZ.timing.link.heldLoss = .milliseconds(100)
            session.blueZ.timing.gatt.tableChange = .milliseconds(20)
            session.blueZ.timing.adapter.staleLinks = .milliseconds(60)
            session.blueZ.timing.adapter.grace = .milliseconds(500)
        }
        self.session = session
        simulator.onEvent { [heard, pulse, trace] event in
            if event.contains(" notified ") { heard.withLock { _ = $0.insert(event) } }
            trace?("  air: \(event)")
            pulse.beat()
        }
    }

    private static func peripheral(_ number: Int) -> VirtualPeripheral {
        typealias C = VirtualCharacteristic
        let test = VirtualPeripheral.testUUID
        return VirtualPeripheral(
            "F0:F1:F2:00:02:0\(number)",
            VirtualAdvertisement(localName: "Model \(number)", serviceUUIDs: ["1815"]),
            services: [
                VirtualService(test(0x0002), isPrimary: false, [C(test(0x0020), .read, value: [9])]),
                VirtualService(
                    "1815", includes: [test(0x0002)],
                    [
                        C("2A56", [.read, .notify], value: [1]),
                        C(
                            test(0x0011), [.read, .write], value: [2],
                            descriptors: [VirtualDescriptor("2901", value: [65])]),
                        C(test(0x0012), .writeWithoutResponse),
                        C(test(0x0014), [.read, .indicate], value: [3]),
                    ]),
            ], key: "p\(number)")
    }

    func control(_ line: String) async throws -> String { try await simulator.control(line) }

    private func report(_ violation: String) {
        trace?("BROKEN: \(violation)")
        broken.withLock { $0.append(violation) }
    }

    // MARK: Playing

    /// Carries out a script, then makes all well, and looks.
    /// - Returns: What the model does not allow.
    func play(_ script: Script) async -> [String] {
        for step in script.steps where broken.withLock({ $0.isEmpty }) {
            trace?(step.description)
            await perform(step)
        }
        await calm()
        await rest()
        if isSound { await checkNotifications() }
        if isSound { await checkUpdates() }
        if !isSound { for call in simulator.calls.suffix(60) { trace?("call: \(call.member) of \(call.path)") } }
        await end()
        return broken.withLock { $0 }
    }

    private var isSound: Bool { broken.withLock { $0.isEmpty } }

    private func perform(_ step: Script.Step) async {
        let number = step.numbers.first ?? 0
        if number >= Script.apps, Self.hostVerbs.contains(step.verb) { return await performOnHost(step) }
        switch step.verb {
        case .make where apps[number] == nil: makeApp(number)
        case .keep where apps[number] == nil: makeApp(number, directory: try? TemporaryDirectory())
        case .make, .keep: break
        case .crash:
            guard let app = apps.removeValue(forKey: number) else { return }
            let copy = await app.act { app in
                // As it is on the disk at that moment. A file may be replaced while it is copied.
                defer { app.free() }
                return app.directory.flatMap { directory in
                    (0..<9).lazy.compactMap { _ in try? TemporaryDirectory(copying: directory) }.first
                }
            }
            await app.setBusy(false)
            if app.directory != nil, copy == nil { report("the preserved state cannot be copied") }
            makeApp(number, directory: copy)
        case .free:
            guard let app = apps.removeValue(forKey: number) else { return }
            await app.act { $0.free() }
            await app.setBusy(false)
        case .busy: await apps[number]?.setBusy(true)
        case .on: await apps[number]?.setBusy(false)
        case .hang:
            // Not as a task: operations that wait for the daemon may occupy all threads that tasks have.
            await withCheckedContinuation { continuation in
                simulator.hangDaemon()
                DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(number)) { [simulator] in
                    simulator.continueDaemon()
                    continuation.resume()
                }
            }
        case .guestConnect, .guestEnd, .guestScan, .guestRest:
            await performAsGuest(step.verb, number % peripherals.count)
        case .join: join(simulator.central(1 + number % Script.centrals))
        case .leave: try? simulator.central(1 + number % Script.centrals).disconnect()
        case .pause: await pause(for: .milliseconds(number))
        case .settle: await settle(.milliseconds(300), mustSettle: false)
        case .off: simulator.setPowered(false)
        case .power: simulator.setPowered(true)
        case .kill: simulator.killDaemon()
        case .quit: simulator.stopDaemon()
        case .start: try? await simulator.startDaemon()
        case .unplug: simulator.unplugAdapter()
        case .plug: simulator.plugAdapter()
        case .end, .vanish, .appear, .silent, .loud, .notify, .change, .forget, .flicker:
            perform(step.verb, on: number % peripherals.count)
        default: await apps[number]?.act { $0.perform(step, identifiers: identifiers) }
        }
    }

    private func makeApp(_ number: Int, directory: TemporaryDirectory? = nil) {
        apps[number] = ModelApp(
            self, identifiers: identifiers, name: "app \(number)", directory: directory,
            trace: { [pulse, trace] in
                trace?("    app \(number): \($0)")
                pulse.beat()
            }
        ) { [weak self] in self?.report($0) }
    }

    private static let hostVerbs: Set<Script.Verb> = [
        .make, .free, .busy, .on, .publish, .withdraw, .withdrawAll, .advertise, .hush, .update,
    ]

    private func performOnHost(_ step: Script.Step) async {
        let number = (step.numbers.first ?? 0) - Script.apps
        switch step.verb {
        case .make:
            guard hosts[number] == nil else { return }
            hosts[number] = ModelHost(
                self, number: number, report: { [weak self] in self?.report($0) },
                trace: { [pulse, trace] in
                    trace?("    \($0)")
                    pulse.beat()
                })
        case .free:
            guard let host = hosts.removeValue(forKey: number) else { return }
            await host.act { $0.free() }
            await host.setBusy(false)
        case .busy: await hosts[number]?.setBusy(true)
        case .on: await hosts[number]?.setBusy(false)
        default: await hosts[number]?.act { $0.perform(step) }
        }
    }

    /// It comes, if a host advertises, and subscribes to all that it finds.
    private func join(_ central: VirtualCentral) {
        visits.append(
            Task {
                guard (try? await central.connect(to: "00:B1:5E:00:00:01")) != nil else { return }
                try? central.discover()
                for host in 0..<Script.hosts {
                    for service in 0..<Script.services {
                        try? await central.subscribeOnly(sinkUUID(0x280 + 16 * host + service).line)
                    }
                }
            })
    }

    private static func path(_ peripheral: VirtualPeripheral) -> String {
        "/org/bluez/hci0/dev_" + peripheral.address.replacing(":", with: "_")
    }

    private func performAsGuest(_ verb: Script.Verb, _ number: Int) async {
        if guest == nil { guest = try? await Peer.named(simulator.busAddress) }
        guard let guest else { return }
        let adapter = ("/org/bluez/hci0" as ObjectPath, "org.bluez.Adapter1")
        let device = Self.path(peripherals[number])
        let (path, interface, member) =
            switch verb {
            case .guestConnect: (ObjectPath(device), "org.bluez.Device1", "Connect")
            case .guestEnd: (ObjectPath(device), "org.bluez.Device1", "Disconnect")
            case .guestScan: (adapter.0, adapter.1, "StartDiscovery")
            default: (adapter.0, adapter.1, "StopDiscovery")
            }
        if verb == .guestConnect || verb == .guestEnd { guestLinks.insert(number) }
        guard let path else { return }
        // Whatever BlueZ reports.
        guest.sync { connection in
            let call = MethodCall(destination: "org.bluez", path: path, interface: interface, member: member)
            connection.call(call, deadline: .seconds(20)) { _ in }
        }
    }

    private func perform(_ verb: Script.Verb, on number: Int) {
        let peripheral = peripherals[number]
        switch verb {
        case .end: peripheral.disconnect()
        case .vanish: peripheral.vanish()
        case .appear: peripheral.comeBack()
        case .silent: peripheral.advertise(false)
        case .loud: peripheral.advertise(true)
        case .notify: _ = notify(peripheral)
        case .change:
            if changed.remove(number) != nil {
                peripheral.removeService(VirtualPeripheral.changingService.uuid)
            } else {
                changed.insert(number)
                // Without the characteristic that is never answered: an answer is owed to each call.
                var service = VirtualPeripheral.changingService
                service.characteristics.removeAll { $0.uuid == sinkUUID(0x22).line }
                peripheral.addService(service)
            }
        case .forget:
            for app in apps.values { app.watch.allowRepetition() }
            simulator.forgetDevice(peripheral)
        case .flicker: simulator.flicker(peripheral)
        default: break
        }
    }

    /// Every characteristic notifies the next number.
    private func notify(_ peripheral: VirtualPeripheral) -> UInt32 {
        count += 1
        let value = (0..<4).map { UInt8(truncatingIfNeeded: count >> (24 - 8 * $0)) }
        for uuid in ["2A56", VirtualPeripheral.testUUID(0x0014), VirtualPeripheral.testUUID(0x0021)] {
            peripheral.notify(uuid, value)
        }
        return count
    }

    // MARK: The end

    /// Makes all well: Bluetooth is on, every peripheral there, and no app does anything more.
    private func calm() async {
        trace?("(calm)")
        try? await simulator.startDaemon()
        simulator.plugAdapter()
        simulator.setPowered(true)
        for peripheral in peripherals {
            peripheral.comeBack()
            peripheral.advertise(true)
        }
        for app in apps.values {
            await app.act { $0.rest() }
            await app.setBusy(false)
        }
        for host in hosts.values { await host.setBusy(false) }
        await endVisits()
        // Links that others share end as well, and before all is compared; so do those that they have begun to end.
        for number in guestLinks.sorted() {
            guard let path = ObjectPath(Self.path(peripherals[number])) else { continue }
            _ = try? await guest?.call("org.bluez", path, "org.bluez.Device1", "Disconnect")
        }
        (guest, guestLinks) = (nil, [])
    }

    /// A central whose request is not answered waits as long as its link lasts.
    private func endVisits() async {
        let (deadline, trace) = (deadline, trace)
        let centrals = (0..<Script.centrals).map { simulator.central(1 + $0) }
        let limit = Task {
            guard (try? await Task.sleep(for: deadline)) != nil else { return }
            trace?("(a central waits for an answer: its link ends)")
            for central in centrals { try? central.disconnect() }
        }
        for visit in visits { await visit.value }
        limit.cancel()
        visits = []
    }

    /// Waits until all is well, and stays so. On a busy machine what is under way may show late, but not again and
    /// again.
    private func rest() async {
        var last: String?
        for _ in 0..<4 where isSound {
            await settle(deadline, mustSettle: true)
            await pause(for: Self.quiet)
            last = await complaint()
            if last == nil { return }
        }
        if let last, isSound { report("not for long: \(last)") }
    }

    private func settle(_ limit: Duration, mustSettle: Bool) async {
        var last: String?
        let isSettled = await wait(limit) {
            last = await complaint()
            return last == nil
        }
        if !isSettled, mustSettle, let last { report("never: \(last)") }
    }

    /// Looks after each event whether it is so; and now and then without one, less and less often, as not everything
    /// that BlueZ does is an event.
    /// - Returns: Whether it is so, or a violation was found meanwhile.
    private func wait(_ limit: Duration, until isSo: () async -> Bool) async -> Bool {
        let deadline = ContinuousClock.now + limit
        var interval = Duration.milliseconds(4)
        while true {
            let beats = pulse.beats
            if await isSo() || !isSound { return true }
            guard ContinuousClock.now < deadline else { return false }
            await pulse.wait(since: beats, atMost: interval)
            interval = pulse.beats == beats ? min(interval * 2, .milliseconds(64)) : .milliseconds(4)
        }
    }

    /// Differences from the required final state.
    private func complaint() async -> String? {
        var wanted = BlueZWork()
        for (number, app) in apps.sorted(by: { $0.key < $1.key }) where !app.isBusy {
            let (complaint, connected, notifying, isScanning) = await app.act {
                ($0.complaint, $0.connected, $0.notifying, $0.isScanning)
            }
            if let complaint { return "app \(number): \(complaint)" }
            wanted.links.formUnion(connected.map { peripherals[$0].address })
            wanted.subscriptions.formUnion(notifying.map { "\(peripherals[$0].address) \($1.full)" })
            wanted.isDiscovering = wanted.isDiscovering || isScanning
        }
        for (number, host) in hosts.sorted(by: { $0.key < $1.key }) where !host.isBusy {
            let (complaint, published, isAdvertising, audience) = await host.act { host in
                (host.complaint, host.published.map { host.services[$0].uuid }, host.isAdvertising, host.audience)
            }
            if let complaint { return "host \(number): \(complaint)" }
            wanted.services.formUnion(published.map(\.full))
            wanted.advertisements += isAdvertising ? 1 : 0
            for (uuid, count) in audience { wanted.subscribers[uuid.full, default: 0] += count }
        }
        let work = simulator.work
        return work == wanted ? nil : "BlueZ has \(work); wanted are \(wanted)"
    }

    /// Every notification arrives once at every subscriber.
    private func checkNotifications() async {
        for (index, peripheral) in peripherals.enumerated() {
            let number = notify(peripheral)
            for (name, app) in apps {
                let due = await app.act { $0.notifying.filter { $0.peripheral == index }.map(\.uuid) }
                for uuid in due {
                    let note = "\(index) \(uuid)"
                    guard await wait(deadline, until: { await app.act { $0.notes[note]?[number] != nil } }) else {
                        return report("app \(name): never: a notification of peripheral \(index), \(uuid)")
                    }
                }
            }
        }
    }

    /// Every update of a host arrives at every subscriber.
    private func checkUpdates() async {
        heard.withLock { $0 = [] }
        for (name, host) in hosts.sorted(by: { $0.key < $1.key }) {
            for number in await host.act({ $0.published }) {
                let (audience, uuid) = await host.act { ($0.audience[$0.uuid(number)] ?? 0, $0.uuid(number).line) }
                var sent: [UInt8]?
                let hasArrived = await wait(deadline) {
                    if sent == nil { sent = await host.act { $0.update(number) } }
                    guard let sent else { return false }
                    let ending = " notified \(uuid) \(Data(sent).hex)"
                    return heard.withLock { $0.filter { $0.hasSuffix(ending) }.count } >= audience
                }
                guard hasArrived else {
                    return report("host \(name): never: an update of service \(number) at \(audience) centrals")
                }
            }
        }
    }

    /// Without apps there is no work, and no object of the library is left.
    private func end() async {
        for app in apps.values {
            await app.act { $0.free() }
            await app.setBusy(false)
        }
        for host in hosts.values {
            await host.act { $0.free() }
            await host.setBusy(false)
        }
        for number in 1...Script.centrals { try? simulator.central(number).disconnect() }
        await endVisits()
        (apps, hosts, visits, guest) = ([:], [:], [], nil)
        let last = Weak(session)
        session = nil
        guard await !wait(deadline, until: { last.object == nil && simulator.work == BlueZWork() }) else { return }
        report(
            "CN-15 never: after the last manager BlueZ has \(simulator.work); "
                + "the session is \(last.object == nil ? "gone" : "still there")")
    }
}

extension CBUUID {
    /// All 36 characters, in lower case.
    fileprivate var full: String {
        let text = uuidString.lowercased()
        return text.count == 4 ? "0000\(text)-0000-1000-8000-00805f9b34fb" : text
    }
}
