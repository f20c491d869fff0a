import CoreBluetooth
import CoreBluetoothAsync
import Foundation

/// The same app as a central, with CoreBluetoothAsync: it follows the same commands, and reports what the sequences and
/// the ends of its operations tell in the words of the callbacks.
@MainActor final class AsyncProbe {
    private let arguments = Arguments()
    private var manager: CentralManager?
    private var kept: [UUID: CoreBluetoothAsync.Peripheral] = [:]
    private var scan: Task<Void, Never>?
    private var scans = 0
    private var following: Task<Void, Never>?
    /// By characteristic.
    private var values: [CoreBluetoothAsync.Characteristic: Task<Void, Never>] = [:]

    func run(_ commands: AsyncStream<String>) {
        var options = probeOptions(arguments)
        options[CBCentralManagerOptionRestoreIdentifierKey] = arguments["--restore"]
        let manager = CentralManager(options: options)
        if arguments.has("--pair") { manager.pairing = .justWorks }
        self.manager = manager
        let (events, states, restored) = (manager.events, manager.states, manager.restoredState)
        following = Task {
            for await state in restored { await restore(state) }
            var first: CBManagerState?
            for await state in states where state != .unknown {
                first = state
                await report(.didUpdateState(state))
                break
            }
            for await event in events {
                // That may have come before the app listened.
                if case .didUpdateState(first) = event { continue }
                first = nil
                await report(event)
            }
        }
        Task { for await line in commands { await perform(line) } }
    }

    // MARK: Commands

    private func perform(_ line: String) async {
        tell("begin", line)
        let words = line.split(separator: " ").map(String.init)
        let id = words.count > 1 ? UUID(uuidString: words[1]) : nil
        switch words[0] {
        case "scan":
            startScan(words)
            // It has begun when something that follows it is answered.
            _ = await manager?.retrievePeripherals(withIdentifiers: [])
        case "stopscan": await stopScan()
        case "connect": if let id { await connect(id, reconnects: words.contains("reconnect")) }
        case "cancel":
            guard let peripheral = id.flatMap({ kept[$0] }), peripheral.state != .disconnected else { break }
            Task { [manager] in try? await manager?.cancelPeripheralConnection(peripheral) }
            while peripheral.state == .connected || peripheral.state == .connecting { await Task.yield() }
        case "release": if let id { kept[id] = nil }
        case "releasemanager":
            await stopScan()
            (manager, kept) = (nil, [:])
            await following?.value  // it has ended with it
        case "tell": tell("now", await summary())
        case "identifiers":
            tell(
                "identifiers",
                BluezPreservedState.identifiers(.central, options: probeOptions(arguments)).joined(separator: ","))
        case "discard":
            tell("discarded", BluezPreservedState.discard(words[1], .central, options: probeOptions(arguments)))
        case "quit": exit(0)
        default:
            guard let peripheral = id.flatMap({ kept[$0] }) else { break }
            Task { await use(peripheral, words) }
        }
        tell("end", line)
        // What has ended lets go of the peripherals that it had.
        if words.last == "exit" {
            for _ in 0..<10 { await Task.yield() }
            exit(0)
        }
    }

    private func startScan(_ words: [String]) {
        let services = words.dropFirst().filter { $0 != "dup" && $0 != "all" }.map { CBUUID(string: $0) }
        guard let manager else { return }
        follow(manager.scanForPeripherals(withServices: services, allowDuplicates: words.contains("dup")))
    }

    private func follow(_ sequence: EventSequence<ScanData, any Error>) {
        scans += 1
        let (number, old) = (scans, scan)
        scan = Task {
            do {
                for try await found in sequence {
                    tell("discovered", found.peripheral.identifier, found.peripheral.name ?? "-")
                }
            } catch {}
            if number == scans { scan = nil }
        }
        old?.cancel()
    }

    private func stopScan() async {
        scan?.cancel()
        await scan?.value
    }

    /// Returns as soon as the attempt is under way.
    private func connect(_ id: UUID, reconnects: Bool) async {
        var found = kept[id]
        if found == nil { found = await manager?.retrievePeripherals(withIdentifiers: [id]).first }
        guard let manager, let peripheral = found else { return }
        kept[id] = peripheral
        var hasEnded = false
        Task {
            // `events` tells how it ended.
            try? await manager.connect(
                peripheral, options: reconnects ? [CBConnectPeripheralOptionEnableAutoReconnect: true] : nil)
            hasEnded = true
        }
        while peripheral.state == .disconnected, !hasEnded { await Task.yield() }
    }

    /// What needs a link.
    private func use(_ peripheral: CoreBluetoothAsync.Peripheral, _ words: [String]) async {
        var failure: (any Error)?
        func attempt(_ body: () async throws -> Void) async {
            do { try await body() } catch { failure = error }
        }
        switch words[0] {
        case "discover":
            await attempt { try await peripheral.discoverServices(words.dropFirst(2).map { CBUUID(string: $0) }) }
            tell("services", await text(peripheral), code(failure))
        case "characteristics":
            guard let service = await peripheral.services?.first(where: { $0.uuid == CBUUID(string: words[2]) }) else {
                return
            }
            await attempt { try await peripheral.discoverCharacteristics(for: service) }
            tell("characteristics", await text(peripheral), code(failure))
        case "descriptors":
            guard let characteristic = await characteristic(peripheral, words) else { return }
            await attempt { try await peripheral.discoverDescriptors(for: characteristic) }
            tell("descriptors", await text(peripheral), code(failure))
        case "subscribe", "unsubscribe":
            guard let characteristic = await characteristic(peripheral, words) else { return }
            let isOn = words[0] == "subscribe"
            if isOn { followValues(of: characteristic, peripheral) } else { values[characteristic]?.cancel() }
            await attempt { try await peripheral.setNotifyValue(isOn, for: characteristic) }
            tell(
                "notifying", characteristic.uuid.uuidString, await peripheral.isNotifying(characteristic), code(failure)
            )
        case "read":
            guard let characteristic = await characteristic(peripheral, words) else { return }
            await attempt { tellValue(try await peripheral.readValue(for: characteristic), characteristic) }
            if failure != nil { tell("value", characteristic.uuid.uuidString, "", code(failure)) }
        default: tell("unknown", words.joined(separator: " "))
        }
    }

    private func characteristic(
        _ peripheral: CoreBluetoothAsync.Peripheral, _ words: [String]
    ) async -> CoreBluetoothAsync.Characteristic? {
        for service in await peripheral.services ?? [] {
            let found = await peripheral.characteristics(of: service)?.first { $0.uuid == CBUUID(string: words[2]) }
            if let found { return found }
        }
        return nil
    }

    private func followValues(
        of characteristic: CoreBluetoothAsync.Characteristic, _ peripheral: CoreBluetoothAsync.Peripheral
    ) {
        let sequence = peripheral.values(for: characteristic)
        values[characteristic] = Task {
            do { for try await data in sequence { tellValue(data, characteristic) } } catch {}
        }
    }

    private func tellValue(_ data: Data, _ characteristic: CoreBluetoothAsync.Characteristic) {
        tell("value", characteristic.uuid.uuidString, data.map { String(format: "%02x", $0) }.joined(), "none")
    }

    // MARK: Output, as of Probe

    private func summary() async -> String {
        var texts: [String] = []
        for peripheral in kept.values.sorted(by: { $0.identifier.uuidString < $1.identifier.uuidString }) {
            texts.append(await text(peripheral))
        }
        return "scanning=\(scan != nil) " + texts.joined(separator: " ")
    }

    private func text(_ peripheral: CoreBluetoothAsync.Peripheral) async -> String {
        var services: [String]?
        for service in await peripheral.services ?? [] {
            var characteristics: [String]?
            for characteristic in await peripheral.characteristics(of: service) ?? [] {
                let signs =
                    (await peripheral.isNotifying(characteristic) ? "*" : "")
                    + (await peripheral.descriptors(of: characteristic) == nil ? "" : "/")
                characteristics = (characteristics ?? []) + [characteristic.uuid.uuidString + signs]
            }
            let list = characteristics?.joined(separator: ",") ?? "-"
            services = (services ?? []) + ["\(service.uuid.uuidString)[\(list)]"]
        }
        return "\(peripheral.identifier):\(peripheral.state):\(services?.joined(separator: ";") ?? "-")"
    }

    private func code(_ error: (any Error)?) -> String { error.map { "\(($0 as NSError).code)" } ?? "none" }

    // MARK: What happens

    private func restore(_ state: RestoredCentralState) async {
        let isKept = !arguments.has("--let-go")
        // Before what they change is looked at.
        let changes = isKept ? state.peripherals.map(\.serviceChanges) : []
        var texts: [String] = []
        for peripheral in state.peripherals { texts.append(await text(peripheral)) }
        let services = state.scanServiceUUIDs?.map(\.uuidString).joined(separator: ",") ?? "-"
        if let sequence = state.scan { follow(sequence) }
        for peripheral in state.peripherals where isKept { kept[peripheral.identifier] = peripheral }
        tell(
            "restored scanning=\(state.scan != nil) services=\(services) dup=\(state.scanAllowsDuplicates)",
            texts.joined(separator: " "))
        for peripheral in state.peripherals where isKept {
            for service in await peripheral.services ?? [] {
                for characteristic in await peripheral.characteristics(of: service) ?? [] {
                    guard await peripheral.isNotifying(characteristic) else { continue }
                    followValues(of: characteristic, peripheral)
                }
            }
        }
        for sequence in changes {
            Task {
                for await services in sequence {
                    tell("modified", services.map(\.uuid.uuidString).joined(separator: ","))
                }
            }
        }
    }

    private func report(_ event: CentralManagerEvent) async {
        switch event {
        case .didUpdateState(let state):
            // Its scan has ended with it.
            if state != .poweredOn, state != .unknown { await scan?.value }
            tell("state", state, await summary())
        case .didConnectPeripheral(let peripheral):
            let isSame = kept[peripheral.identifier] === peripheral
            tell("connected", peripheral.identifier, "same=\(isSame)", await text(peripheral))
        case .didFailToConnect(let peripheral, let error): tell("failed", peripheral.identifier, code(error))
        case .didDisconnectPeripheral(let peripheral, let isReconnecting, let error):
            tell(
                "disconnected", peripheral.identifier, "reconnecting=\(isReconnecting) error=\(code(error))",
                await text(peripheral))
        }
    }
}
