// bluezkit-bench: an app as BluezKit's users write them, which measures itself.
//
// Usage: bluezkit-bench start | notify COUNT [sockets] [LOOP] | scan [duplicates] | write COUNT SIZE [LOOP]
//        | channel-send BYTES [LOOP] | channel-receive BYTES [LOOP]
// Callbacks come on a queue of its own, with `main` on the main queue: of any thread (`dispatchMain()`), with `runloop` or
// `glib` run by such a main loop on the main thread. With `context` they come in a GMainContext. The bus is that of DBUS_SYSTEM_BUS_ADDRESS.
// Prints one line of JSON; what each field means says Benchmarks/README.md.
import BluezKit
import BluezKitGLib
import CBluezGLib
import Foundation

enum Mode {
    case start, notify(count: Int), scan(duplicates: Bool), write(count: Int, size: Int)
    case channel(sends: Bool, bytes: Int)
}

final class App: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, StreamDelegate {
    private let mode: Mode
    private var manager: CBCentralManager?

    // notify
    private var sensor: CBPeripheral?
    private var received = 0
    private var before = Measurement()
    private var first = Measurement()

    // write
    private var target: CBCharacteristic?
    private var value = Data()
    private var sent = 0
    private var last = Measurement()

    // channel
    private var channel: CBL2CAPChannel?
    private var moved = 0
    private let chunk = UnsafeMutablePointer<UInt8>.allocate(capacity: 65_536)
    private let queue: DispatchQueue

    // scan
    private var peripherals: [CBPeripheral] = []
    private var reports = 0
    private var marks: [(at: Measurement, reports: Int)] = []

    init(mode: Mode, queue: DispatchQueue?) {
        (self.mode, self.queue) = (mode, queue ?? .main)
        chunk.initialize(repeating: 0x5A, count: 65_536)
    }

    func start(bySocket: Bool) {
        let options = [BluezManagerOptionNotificationSocketsKey: bySocket]
        if arguments.contains("context") {
            manager = CBCentralManager(delegate: self, context: nil, options: options)
        } else {
            manager = CBCentralManager(delegate: self, queue: queue, options: options)
        }
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {
        let powered = Measurement()
        guard central.state == .poweredOn else { fail("the state is \(central.state)") }
        switch mode {
        case .start:
            report(["powered_ns": powered.timeNs, "cpu_us": powered.cpuUs, "rss_kib": Measurement.rssKiB])
        case .notify, .write, .channel:
            guard let identifier = UUID(uuidString: "426C7A4B-0100-8000-8000-F0F1F2000001"),
                let sensor = central.retrievePeripherals(withIdentifiers: [identifier]).first
            else { fail("the sensor cannot be retrieved") }
            self.sensor = sensor
            sensor.delegate = self
            central.connect(sensor, options: nil)
        case .scan(let duplicates):
            let options = [CBCentralManagerScanOptionAllowDuplicatesKey: NSNumber(value: duplicates)]
            central.scanForPeripherals(withServices: nil, options: options)
        }
    }

    // MARK: notify

    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        if case .channel(let sends, _) = mode { return peripheral.openL2CAPChannel(sends ? 128 : 129) }
        peripheral.discoverServices([CBUUID(string: "180D")])
    }

    // MARK: channel

    func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
        guard let channel else { fail("no channel: \(String(describing: error))") }
        self.channel = channel
        (before, first) = (Measurement(), Measurement())
        for stream in [channel.inputStream as Stream, channel.outputStream as Stream] { stream.delegate = self }
        channel.schedule(on: queue)
        channel.inputStream.open()
        channel.outputStream.open()
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        guard let channel, case .channel(let sends, let bytes) = mode else { return }
        if sends, event == .hasSpaceAvailable {
            while moved < bytes, channel.outputStream.hasSpaceAvailable {
                count(channel.outputStream.write(chunk, maxLength: min(bytes - moved, 65_536)))
            }
        } else if !sends, event == .hasBytesAvailable {
            while moved < bytes, channel.inputStream.hasBytesAvailable {
                count(channel.inputStream.read(chunk, maxLength: min(bytes - moved, 65_536)))
            }
        }
        guard moved == bytes else { return }
        let last = Measurement()
        report([
            "events": bytes >> 20, "cpu_us": last.cpuUs - before.cpuUs,
            "seconds": Double(last.timeNs - first.timeNs) / 1e9, "rss_kib": Measurement.rssKiB,
        ])
    }

    private func count(_ bytes: Int) {
        guard bytes > 0 else { fail("the channel is closed") }
        moved += bytes
    }

    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        guard let service = peripheral.services?.first else { fail("no service \(String(describing: error))") }
        peripheral.discoverCharacteristics(
            [CBUUID(string: "2A37"), CBUUID(string: "2A39"), CBUUID(string: "2A38")], for: service)
    }

    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        guard let all = service.characteristics, all.count == 3 else { fail("not found \(String(describing: error))") }
        guard case .write(_, let size) = mode else { return peripheral.setNotifyValue(true, for: all[0]) }
        (target, value) = (all[2], Data(repeating: 0, count: size))
        (before, first) = (Measurement(), Measurement())
        write(to: peripheral)
    }

    // MARK: write

    private func write(to peripheral: CBPeripheral) {
        guard case .write(let count, _) = mode, let target else { return }
        while sent < count, peripheral.canSendWriteWithoutResponse {
            for byte in 0..<4 { value[byte] = UInt8(truncatingIfNeeded: sent >> (8 * byte)) }
            peripheral.writeValue(value, for: target, type: .withoutResponse)
            sent += 1
        }
        guard sent == count, let all = target.service?.characteristics else { return }
        last = Measurement()
        // Answered when all that was written is there: says how many.
        peripheral.readValue(for: all[1])
    }

    func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) { write(to: peripheral) }

    private func checkWritten(_ value: Data?) -> Never {
        let arrived = (value ?? Data()).prefix(4).reversed().reduce(0) { $0 << 8 | Int($1) }
        guard arrived == sent else { fail("\(arrived) of \(sent) writes have arrived in order") }
        report([
            "events": sent, "cpu_us": last.cpuUs - before.cpuUs,
            "seconds": Double(last.timeNs - first.timeNs) / 1e9, "rss_kib": Measurement.rssKiB,
        ])
    }

    // MARK: notify

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) {
        guard characteristic.isNotifying else { fail("not subscribed \(String(describing: error))") }
        before = Measurement()
    }

    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        if case .write = mode { checkWritten(characteristic.value) }
        guard case .notify(let count) = mode, let value = characteristic.value, value.count >= 4 else {
            fail("a value of too few bytes")
        }
        let number = value.prefix(4).reversed().reduce(0) { $0 << 8 | Int($1) }
        guard number == received else { fail("value \(number) came when \(received) was due") }
        if received == 0 { first = Measurement() }
        received += 1
        guard received == count else { return }
        let last = Measurement()
        report([
            "events": count, "cpu_us": last.cpuUs - before.cpuUs,
            "seconds": Double(last.timeNs - first.timeNs) / 1e9, "rss_kib": Measurement.rssKiB,
        ])
    }

    // MARK: scan

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        reports += 1
        // As apps do: keep what is new. The generator's devices are all new before its second mark.
        if marks.count < 2 { peripherals.append(peripheral) }
        guard peripheral.name == "mark \(marks.count)" else { return }
        marks.append((Measurement(), reports))
        guard marks.count == 3 else { return }
        report([
            "new": marks[1].reports - marks[0].reports - 1,
            "new_cpu_us": marks[1].at.cpuUs - marks[0].at.cpuUs,
            "updates": marks[2].reports - marks[1].reports - 1,
            "updates_cpu_us": marks[2].at.cpuUs - marks[1].at.cpuUs, "rss_kib": Measurement.rssKiB,
        ])
    }

    // MARK: Trouble

    func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {
        fail("cannot connect \(String(describing: error))")
    }

    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        fail("disconnected \(String(describing: error))")
    }
}

/// What this process has used up to now.
struct Measurement {
    let timeNs: Int
    /// User and system.
    let cpuUs: Int

    init() {
        var now = timespec()
        clock_gettime(CLOCK_MONOTONIC, &now)
        timeNs = now.tv_sec * 1_000_000_000 + now.tv_nsec
        var usage = rusage()
        getrusage(RUSAGE_SELF.rawValue, &usage)
        cpuUs =
            (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1_000_000
            + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec
    }

    static var rssKiB: Int {
        let text = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8)) ?? ""
        return (text.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0) * 4
    }
}

func report(_ fields: KeyValuePairs<String, any CustomStringConvertible>) -> Never {
    print("{" + fields.map { "\"\($0.key)\": \($0.value)" }.joined(separator: ", ") + "}")
    exit(0)
}

func fail(_ what: String) -> Never {
    FileHandle.standardError.write(Data("bluezkit-bench: \(what)\n".utf8))
    exit(1)
}

func parseMode(_ arguments: [String]) -> Mode? {
    switch arguments.first {
    case "start": .start
    case "notify": arguments.dropFirst().first.flatMap { Int($0) }.map { .notify(count: $0) }
    case "scan": .scan(duplicates: arguments.contains("duplicates"))
    case "channel-send": arguments.dropFirst().first.flatMap { Int($0) }.map { .channel(sends: true, bytes: $0) }
    case "channel-receive": arguments.dropFirst().first.flatMap { Int($0) }.map { .channel(sends: false, bytes: $0) }
    case "write": parseWrite(arguments.dropFirst().prefix(2).compactMap { Int($0) })
    default: nil
    }
}

func parseWrite(_ numbers: [Int]) -> Mode? {
    numbers.count == 2 ? .write(count: numbers[0], size: numbers[1]) : nil
}

let arguments = Array(CommandLine.arguments.dropFirst())
guard let mode = parseMode(arguments) else {
    fail(
        "usage: bluezkit-bench start | notify COUNT [sockets] [LOOP] | scan [duplicates] | write COUNT SIZE [LOOP] | "
            + "channel-send BYTES [LOOP] | channel-receive BYTES [LOOP], where LOOP is main, main runloop, main glib or "
            + "context")
}
let app = App(mode: mode, queue: arguments.contains("main") ? nil : DispatchQueue(label: "bluezkit-bench"))
app.start(bySocket: arguments.contains("sockets"))
if arguments.contains("runloop") { RunLoop.main.run() }
if arguments.contains("glib") || arguments.contains("context") {
    if arguments.contains("glib") { try GLibMainLoop.attach() }
    g_main_loop_run(g_main_loop_new(nil, 0))
}
dispatchMain()
