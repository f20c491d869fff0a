import BluezDBus
import CoreBluetooth
import Foundation

// An ordinary CoreBluetooth app that follows commands on its standard input, one per line, and reports every callback,
// one line each, on its standard output. Tests kill it and start it again.
//
//     restoration-probe [--restore ID] [--bus ADDRESS] [--state-dir DIR] [--claim SECONDS] [--resume yes|no]
//                       [--second ID] [--let-go] [--scan-early] [--background] [--follow SERVICE,CHARACTERISTIC]
//                       [--pair] [--keeper SOCKET [--started FILE | --relaunch unit:NAME | --relaunch bus:NAME]
//                       [--border-version N] [--kept-events N]]
//     restoration-probe --publish ID [--bus ADDRESS] [--state-dir DIR] [--revised] [--keeper SOCKET …]
//
// `--async` makes it an app with CoreBluetoothAsync (AsyncProbe.swift), which has
// none of the following but `--let-go`, `--pair`, `--publish` and `--revised`.
// `--let-go` does not keep restored peripherals, `--scan-early` scans inside `willRestoreState`, `--background` creates
// the manager on another thread, `--second` creates another manager with that identifier, `--follow` scans, connects,
// discovers and subscribes automatically unless something was restored. `--pair` allows just works. `--publish` makes
// it a peripheral (PublishingProbe.swift), `--revised` a later version of that, which wants encryption. `--keeper` is
// where a keeper listens that the manager is to have, `--started` a file that gets an x each time that the keeper
// starts the app, `--relaunch` the unit of the app, or its name on the session bus, which it then takes,
// `--border-version` that of the library, and of a keeper that this starts (in a debug build), `--kept-events` how many
// events a keeper may have for it.

setvbuf(stdout, nil, _IONBF, 0)

/// One write for one line, so that a killed process has written a whole event or none.
func tell(_ words: Any...) {
    let line = words.map { "\($0)" }.joined(separator: " ") + "\n"
    _ = line.withCString { write(STDOUT_FILENO, $0, strlen($0)) }
}

struct Arguments {
    private let words = Array(CommandLine.arguments.dropFirst())
    func has(_ name: String) -> Bool { words.contains(name) }
    subscript(name: String) -> String? {
        guard let index = words.firstIndex(of: name), index + 1 < words.count else { return nil }
        return words[index + 1]
    }
    /// `--relaunch WAY:NAME`
    func relaunch(_ way: String) -> String? {
        self["--relaunch"].flatMap { $0.hasPrefix(way + ":") ? String($0.dropFirst(way.count + 1)) : nil }
    }
}

/// Those of a central without an identifier.
func probeOptions(_ arguments: Arguments) -> [String: Any] {
    var options: [String: Any] = [:]
    options[BluezManagerOptionBusAddressKey] = arguments["--bus"]
    options[BluezManagerOptionStateDirectoryKey] = arguments["--state-dir"]
    options[BluezManagerOptionClaimPeriodKey] = arguments["--claim"].flatMap(Double.init)
    options[BluezManagerOptionResumeAfterResetKey] = arguments["--resume"].map { $0 == "yes" }
    if let socket = arguments["--keeper"] {
        setenv("BLUEZKIT_KEEPER_SOCKET", socket, 1)
        if let version = arguments["--border-version"] { setenv("BLUEZKIT_BORDER_VERSION", version, 1) }
        options[BluezManagerOptionKeptEventsKey] = arguments["--kept-events"].flatMap { Int($0) }
        options[BluezManagerOptionKeeperKey] =
            arguments["--started"].map { .command(["/bin/sh", "-c", "printf x >> \($0)"]) }
            ?? arguments.relaunch("unit").map(BluezRelaunch.unit) ?? arguments.relaunch("bus").map(
                BluezRelaunch.busName)
            ?? .never
    }
    return options
}

var sessionBus: Connection?

/// The process has this name on the session bus, until it ends.
func takeName(_ name: String) {
    do throws(BusError) {
        let bus = try Connection(address: .session, queue: .main)
        bus.requestName(name) { result in
            if case .failure(let error) = result { tell("log", "no name: \(error.message)") }
        }
        sessionBus = bus
    } catch { tell("log", "no session bus: \(error.message)") }
}

final class Probe: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate {
    let arguments = Arguments()
    var manager: CBCentralManager?
    var second: CBCentralManager?
    var kept: [UUID: CBPeripheral] = [:]
    var hasReturned = false
    var wasRestored = false
    var followed: [CBUUID] { (arguments["--follow"] ?? "").split(separator: ",").map { CBUUID(string: String($0)) } }

    func start() {
        if arguments.has("--background") {
            Thread.detachNewThread { [self] in makeManager() }
        } else {
            makeManager()
        }
    }

    private nonisolated func makeManager() {
        let new = CBCentralManager(delegate: self, queue: nil, options: options(arguments["--restore"]))
        if arguments.has("--pair") { new.pairing = .justWorks }
        manager = new
        hasReturned = true
        if let other = arguments["--second"] {
            second = CBCentralManager(delegate: nil, queue: nil, options: options(other))
        }
    }

    private func options(_ identifier: String?) -> [String: Any] {
        var options = probeOptions(arguments)
        options[CBCentralManagerOptionRestoreIdentifierKey] = identifier
        return options
    }

    // MARK: Commands

    func perform(_ line: String) {
        tell("begin", line)
        let words = line.split(separator: " ").map(String.init)
        let id = words.count > 1 ? UUID(uuidString: words[1]) : nil
        let peripheral = id.flatMap { kept[$0] }
        switch words[0] {
        case "scan":
            let services = words.dropFirst().filter { $0 != "dup" && $0 != "all" }.map { CBUUID(string: $0) }
            manager?.scanForPeripherals(
                withServices: services.isEmpty ? nil : services,
                options: words.contains("dup") ? [CBCentralManagerScanOptionAllowDuplicatesKey: true] : nil)
        case "stopscan": manager?.stopScan()
        case "connect":
            guard let id, let found = peripheral ?? manager?.retrievePeripherals(withIdentifiers: [id]).first else {
                break
            }
            kept[id] = found
            found.delegate = self
            manager?.connect(
                found,
                options: words.contains("reconnect") ? [CBConnectPeripheralOptionEnableAutoReconnect: true] : nil)
        case "cancel": peripheral.map { manager?.cancelPeripheralConnection($0) }
        case "release": id.map { kept[$0] = nil }
        case "releasemanager": (manager, kept) = (nil, [:])
        case "discover": peripheral?.discoverServices(words.dropFirst(2).map { CBUUID(string: $0) })
        case "characteristics":
            service(peripheral, words).map { peripheral?.discoverCharacteristics(nil, for: $0) }
        case "descriptors": characteristic(peripheral, words).map { peripheral?.discoverDescriptors(for: $0) }
        case "subscribe", "unsubscribe":
            characteristic(peripheral, words).map { peripheral?.setNotifyValue(words[0] == "subscribe", for: $0) }
        case "read": characteristic(peripheral, words).map { peripheral?.readValue(for: $0) }
        case "tell": tell("now", summary())
        case "room": tell("room", peripheral?.maximumWriteValueLength(for: .withoutResponse) ?? 0)
        case "log":
            tell("report", (manager?.restoration?.description ?? "-").replacingOccurrences(of: "\n", with: " | "))
        case "identifiers":
            tell("identifiers", BluezPreservedState.identifiers(.central, options: options(nil)).joined(separator: ","))
        case "discard":
            tell("discarded", BluezPreservedState.discard(words[1], .central, options: options(nil)))
        case "cost": cost(of: Int(words[1]) ?? 0)
        case "quit": exit(0)
        default: tell("unknown", line)
        }
        tell("end", line)
    }

    /// Prints the duration, in microseconds, of a call that changes what the app has requested.
    private func cost(of calls: Int) {
        let start = ContinuousClock.now
        for index in 0..<calls {
            if index % 2 == 0 { manager?.scanForPeripherals(withServices: nil) } else { manager?.stopScan() }
        }
        tell("cost", (ContinuousClock.now - start) / .microseconds(1) / Double(calls))
    }

    private func service(_ peripheral: CBPeripheral?, _ words: [String]) -> CBService? {
        peripheral?.services?.first { $0.uuid == CBUUID(string: words[2]) }
    }

    private func characteristic(_ peripheral: CBPeripheral?, _ words: [String]) -> CBCharacteristic? {
        peripheral?.services?.lazy.compactMap { $0.characteristics?.first { $0.uuid == CBUUID(string: words[2]) } }
            .first
    }

    /// `scanning=true ID:connected:180D[2A37*+2A38,2A39]`: `*` notifying, `/` descriptors known.
    private func summary() -> String {
        let peripherals = kept.values.sorted { $0.identifier.uuidString < $1.identifier.uuidString }.map(text)
        return "scanning=\(manager?.isScanning == true) " + peripherals.joined(separator: " ")
    }

    private func text(_ peripheral: CBPeripheral) -> String {
        let services = peripheral.services.map { services in services.map(text).joined(separator: ";") } ?? "-"
        return "\(peripheral.identifier):\(peripheral.state):\(services)"
    }

    private func text(_ service: CBService) -> String {
        let characteristics = service.characteristics.map { list in
            list.map { "\($0.uuid.uuidString)\($0.isNotifying ? "*" : "")\($0.descriptors == nil ? "" : "/")" }
                .joined(separator: ",")
        }
        return service.uuid.uuidString + "[\(characteristics ?? "-")]"
    }

    private func code(_ error: (any Error)?) -> String { error.map { "\(($0 as NSError).code)" } ?? "none" }

    // MARK: Callbacks

    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
        wasRestored = true
        let peripherals = dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] ?? []
        let services = dict[CBCentralManagerRestoredStateScanServicesKey] as? [CBUUID]
        let options = dict[CBCentralManagerRestoredStateScanOptionsKey] as? [String: Any]
        if arguments.has("--scan-early") { central.scanForPeripherals(withServices: nil) }
        tell(
            "restored main=\(Thread.isMainThread) returned=\(hasReturned) state=\(central.state)",
            "scanning=\(central.isScanning) services=\(services?.map(\.uuidString).joined(separator: ",") ?? "-")",
            "dup=\(options?[CBCentralManagerScanOptionAllowDuplicatesKey] as? Bool ?? false)",
            peripherals.map(text).joined(separator: " "))
        guard !arguments.has("--let-go") else { return }
        for peripheral in peripherals {
            kept[peripheral.identifier] = peripheral
            peripheral.delegate = self
        }
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        tell("state", central.state, summary())
        if central.state == .poweredOn, !wasRestored, let service = followed.first {
            central.scanForPeripherals(withServices: [service])
        }
    }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        tell("discovered", peripheral.identifier, peripheral.name ?? "-")
        guard !followed.isEmpty, kept.isEmpty else { return }
        kept[peripheral.identifier] = peripheral
        peripheral.delegate = self
        central.stopScan()
        central.connect(peripheral)
    }

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        tell("connected", peripheral.identifier, "same=\(kept[peripheral.identifier] === peripheral)", text(peripheral))
        if let service = followed.first { peripheral.discoverServices([service]) }
    }

    func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?) {
        tell("failed", peripheral.identifier, code(error))
    }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        tell(
            "disconnected", peripheral.identifier, "reconnecting=\(isReconnecting) error=\(code(error))",
            text(peripheral))
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        tell("services", text(peripheral), code(error))
        for service in peripheral.services ?? [] where !followed.isEmpty {
            peripheral.discoverCharacteristics([followed[1]], for: service)
        }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        tell("characteristics", text(peripheral), code(error))
        for characteristic in service.characteristics ?? [] where followed.contains(characteristic.uuid) {
            peripheral.setNotifyValue(true, for: characteristic)
        }
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
    ) { tell("descriptors", text(peripheral), code(error)) }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
    ) { tell("notifying", characteristic.uuid.uuidString, characteristic.isNotifying, code(error)) }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        let bytes = (characteristic.value ?? Data()).map { String(format: "%02x", $0) }.joined()
        tell("value", characteristic.uuid.uuidString, bytes, code(error))
    }

    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        tell("modified", invalidatedServices.map(\.uuid.uuidString).joined(separator: ","))
    }
}

BluezKitLog.handler = { level, text in tell("log", level, text) }
Arguments().relaunch("bus").map(takeName)
let isPublishing = Arguments().has("--publish"), isAsync = Arguments().has("--async")
let (asyncCommands, asyncInput) = AsyncStream.makeStream(of: String.self)
let probe = Probe()
let publishingProbe = PublishingProbe()
if isAsync {
    MainActor.assumeIsolated {
        if isPublishing { AsyncPublishingProbe().run(asyncCommands) } else { AsyncProbe().run(asyncCommands) }
    }
} else if isPublishing {
    publishingProbe.start()
} else {
    probe.start()
}
Thread.detachNewThread {
    // Not with `readLine`, which holds a lock that `exit` waits for, from glibc 2.41 on.
    var commands: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 4096)
    while case let count = read(STDIN_FILENO, &buffer, buffer.count), count > 0 || count < 0 && errno == EINTR {
        commands += buffer[..<max(0, count)]
        while let end = commands.firstIndex(of: 0x0A) {
            let line = String(decoding: commands[..<end], as: UTF8.self)
            commands.removeSubrange(...end)
            guard !isAsync else {
                asyncInput.yield(line)
                continue
            }
            DispatchQueue.main.async {
                MainActor.assumeIsolated { isPublishing ? publishingProbe.perform(line) : probe.perform(line) }
                // Now nothing that it released is held here any more.
                if line.hasSuffix(" exit") { exit(0) }
            }
        }
    }
    // The parent process has exited.
    exit(0)
}
RunLoop.main.run()
