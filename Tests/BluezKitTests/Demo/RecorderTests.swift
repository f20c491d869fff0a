import BluezDBus
import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import bluez_demo

/// The recorder of the demo, in this process, against devices of the simulator.
@Suite struct RecorderTests {
    /// What `bluez-demo record` does, on a queue of its own.
    private final class App: NSObject, CBCentralManagerDelegate, @unchecked Sendable {
        // holds: everything but the log is used on `queue`
        let queue = DispatchQueue(label: "test.recorder")
        let ended = EventLog<(Recording, String?)>()
        private var manager: CBCentralManager?
        private var recorder: Recorder?

        /// - Parameters:
        ///   - onNews: Runs with all that happens.
        ///   - isListening: Runs when everything is subscribed to.
        init(
            _ simulator: Simulator, _ device: String, readsValues: Bool = true, hearing: Double = 0.2,
            listening: Double = 0.5, timeout: Double = world_deadline,
            onNews: @escaping (Recorder.News) -> Void = { _ in },
            isListening: @escaping () -> Void = {}
        ) {
            super.init()
            queue.virtualTime = .on(simulator.busAddress)
            queue.sync {
                recorder = Recorder(
                    .init(hearing: hearing, listening: listening, readsValues: readsValues, timeout: timeout),
                    DeviceName(device)?.identifiers ?? [], queue: queue,
                    onNews: { news in
                        onNews(news)
                        if case .listening = news { isListening() }
                    },
                    onEnd: { [weak self] ending in
                        guard let self, let recorder else { return }
                        if case .failed(let reason) = ending {
                            ended.append((recorder.recording, reason))
                        } else {
                            ended.append((recorder.recording, nil))
                        }
                    })
                manager = CBCentralManager(
                    delegate: self, queue: queue, options: [BluezManagerOptionBusAddressKey: simulator.address])
            }
        }

        /// The recording, when it has this many notifications.
        func recording(notifications count: Int) async throws -> Recording {
            let recording = { [self] in queue.sync { recorder?.recording ?? Recording() } }
            try await eventually("\(count) notifications") { recording().notifications.count >= count }
            let found = recording()
            queue.sync { (manager, recorder) = (nil, nil) }
            return found
        }

        /// The recording, and why it is not complete.
        func result() async throws -> (recording: Recording, reason: String?) {
            let result = try await ended.next("the end of the recording", within: 2 * world_deadline) { $0 }
            queue.sync { (manager, recorder) = (nil, nil) }
            return result
        }

        func centralManagerDidUpdateState(_ central: CBCentralManager) {
            if central.state == .poweredOn { recorder?.start(central) }
        }
        func centralManager(
            _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
            rssi RSSI: NSNumber
        ) { recorder?.discovered(peripheral, advertisementData, rssi: RSSI) }
        func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
            recorder?.connected(peripheral)
        }
        func centralManager(
            _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
        ) { recorder?.failed(error) }
        func centralManager(
            _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
            isReconnecting: Bool, error: (any Error)?
        ) { recorder?.disconnected(error) }
    }

    private static func heart() -> VirtualPeripheral {
        VirtualPeripheral(
            "F0:F1:F2:00:00:31",
            VirtualAdvertisement(localName: "Pulse", serviceUUIDs: ["180D"], manufacturerData: [0x6B: [1, 2, 3]]),
            services: [
                VirtualService(
                    "180D",
                    [
                        VirtualCharacteristic("2A37", .notify),
                        VirtualCharacteristic("2A38", .read, value: [1]),
                        VirtualCharacteristic(
                            "2A39", [.read, .write], read: { throw ATTFailure(0x80) },
                            descriptors: [VirtualDescriptor("2901", value: Array("Reset".utf8))]),
                    ]),
                VirtualService("1812", [VirtualCharacteristic("2A4D", .read, value: [1, 2])]),
                // All devices have it.
                VirtualService("1800", [VirtualCharacteristic("2A00", .read, value: Array("Pulse".utf8))]),
            ])
    }

    /// What an app prints that reads everything and subscribes: values, and the first three notifications.
    /// - Parameter isSubscribed: Runs when it is subscribed.
    private func printed(
        _ device: VirtualPeripheral, in simulator: Simulator, isSubscribed: () -> Void = {}
    ) async throws -> [String] {
        let central = simulator.central()
        let values = central.values(of: "2A37")
        let (mtu, services) = try await central.connect(to: device.address)
        var lines = ["mtu \(mtu)", "services \(Set(services).sorted())"]
        for uuid in ["2A38", "2A39", "2A4D"] {
            do { lines.append("\(uuid) \(try await central.read(uuid))") } catch { lines.append("\(uuid) \(error)") }
        }
        lines.append("2901 \(try await central.read("2A39", descriptor: "2901"))")
        try await central.subscribe("2A37")
        isSubscribed()
        lines += try await within {
            var seen: [String] = []
            for await value in values {
                seen.append("2A37 \(value)")
                if seen.count == 3 { break }
            }
            return seen
        }
        try central.disconnect()
        return lines
    }

    @Test("a device that was recorded and is replayed elsewhere looks the same to an app")
    func roundTrip() async throws {
        let simulator = try await Simulator()
        let device = simulator.add(Self.heart())
        let beat: @Sendable () -> Void = {
            device.notifyRepeatedly("2A37", every: .milliseconds(20), count: 10) { [0, 60 + UInt8($0)] }
        }
        // It listens for as long as they take.
        let app = App(simulator, device.address, listening: 5 * world_deadline, isListening: beat)
        let recording = try Recording(fileContent: await app.recording(notifications: 10).fileContent())
        #expect(recording.address == device.address && recording.addressType == "random")
        #expect(recording.name == "Pulse" && recording.mtu == 517)
        #expect(recording.advertisements.first?.content.manufacturerData[0x6B] == [1, 2, 3])
        #expect(recording.services.map(\.uuid).map { $0.dropFirst(4).prefix(4) } == ["180d", "1812"])
        #expect(recording.notifications.map(\.value).prefix(3) == [[0, 60], [0, 61], [0, 62]])
        #expect(recording.notifications.allSatisfy { $0.characteristic == "180D/2A37" })

        let other = try await Simulator()
        let replayed = other.add(VirtualPeripheral(recording: recording))
        let original = try await printed(device, in: simulator, isSubscribed: beat)
        #expect(try await printed(replayed, in: other) == original)
        #expect(replayed.deviations == [])
    }

    @Test("without --values nothing is read; a device that is not there is reported")
    func table() async throws {
        let simulator = try await Simulator()
        simulator.add(Self.heart())
        let (recording, reason) = try await App(
            simulator, "F0:F1:F2:00:00:31", readsValues: false, listening: 0.05
        ).result()
        #expect(reason == nil)
        let all = recording.services.flatMap(\.characteristics)
        #expect(all.count == 4 && all.allSatisfy { $0.value == nil && $0.error == nil })
        #expect(simulator.calls("ReadValue").isEmpty)
    }

    // It ended with "the device is not heard", although it was, when it paused for as long as --timeout.
    @Test("a device that pauses for longer than the time limit after it was heard is recorded")
    func pauses() async throws {
        // Its times are a clock's: a machine that stands still for as long is no device that does.
        let clock = SimulatorClock()
        let simulator = try await Simulator(timing: .fast, clock: clock)
        let device = simulator.add(Self.heart())
        let app = App(
            simulator, device.address, hearing: 3, listening: 0.05, timeout: 2,
            onNews: { news in
                switch news {
                case .found: device.advertise(false)
                case .connecting: device.advertise(true)
                default: break
                }
            })
        let (recording, reason) = try await clock.run { try await app.result() }
        #expect(reason == nil)
        #expect(!recording.advertisements.isEmpty && !recording.services.isEmpty)
    }

    @Test("a value that ends the link costs a link, and the rest is recorded")
    func refusesToPair() async throws {
        let simulator = try await Simulator()
        let device = Self.heart()
        device.setPairing(.reject)
        device.addService(
            VirtualService(
                "1815",
                [
                    VirtualCharacteristic("2A56", .read, value: [1], security: .encrypted),
                    VirtualCharacteristic("2A57", .read, value: [2]), VirtualCharacteristic("2A58", .notify),
                ]))
        simulator.add(device)
        let (recording, reason) = try await App(simulator, device.address, listening: 0.05).result()
        #expect(reason == nil)
        let guarded = try #require(recording.services.first { $0.uuid.hasPrefix("00001815") }).characteristics
        #expect(guarded.map(\.value) == [nil, [2], nil])
    }
}

/// `record` and `simulate` as arguments.
@Suite struct RecordOptionsTests {
    private func parse(_ line: String) throws(UsageError) -> Invocation {
        try Invocation(line.split(separator: " ").map(String.init))
    }

    private func complaint(_ line: String) -> String? {
        do throws(UsageError) { _ = try parse(line) } catch { return error.message }
        return nil
    }

    @Test("record takes a device or files")
    func record() throws {
        guard case .record(let live, _) = try parse("record F0:F1:F2:00:00:01 -o a.json --values --seconds 3") else {
            Issue.record("not read")
            return
        }
        #expect(live.output == "a.json" && live.readsValues && live.seconds == 3 && live.sources.isEmpty)
        guard case .record(let files, _) = try parse("record --from a --from b --output c --anonymize") else {
            Issue.record("not read")
            return
        }
        #expect(files.sources == ["a", "b"] && files.device == nil && files.isAnonymous)
        #expect(complaint("record -o a") == "record which device? `bluez-demo scan` shows identifiers")
        #expect(complaint("record --from a") == "record into which file? --output FILE")
        #expect(
            complaint("record --from a -o b --values")
                == "--values is for a device in range, and --from reads files")
    }

    @Test("simulate takes recordings by their names, and a pace")
    func simulate() throws {
        func options(_ line: String) throws -> SimulateOptions? {
            guard case .simulate(let options, _) = try parse(line) else { return nil }
            return options
        }
        #expect(try options("simulate a.json ./b")?.recordings == ["a.json", "./b"])
        #expect(try options("simulate a.json --pace 10")?.pace == .faster(10))
        #expect(try options("simulate a.json --step")?.pace == .stepwise)
        #expect(complaint("simulate --pace 2") == "--pace and --step are for recordings: bluez-demo simulate FILE")
        #expect(complaint("simulate a.json --pace 0")?.hasPrefix("--pace needs a number from 0.001") == true)
    }
}
