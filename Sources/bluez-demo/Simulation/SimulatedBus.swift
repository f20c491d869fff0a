import BluezDBus
import BluezKitSimulator
import Dispatch
import Foundation

/// The simulator in this process: devices on a private bus. Ends with this object, or with the process.
final class SimulatedBus: @unchecked Sendable {  // holds: never changes, and the simulator may be used from any thread
    /// The address of the bus, as libdbus accepts it.
    let address: String
    private let simulator: Simulator
    private let strengths: any DispatchSourceTimer
    private let recorded: [VirtualPeripheral]

    /// Starts the simulator; `completion` runs on the main queue.
    static func start(_ scenario: Scenario, completion: @escaping (Result<SimulatedBus, any Error>) -> Void) {
        let confined = Confined(run: completion)
        Task {
            let result: Result<SimulatedBus, any Error>
            do {
                result = .success(SimulatedBus(try await simulator(), scenario))
            } catch {
                result = .failure(error)
            }
            DispatchQueue.main.async { confined.run(result) }
        }
    }

    // holds: it runs once, on the main queue
    private struct Confined: @unchecked Sendable {
        let run: (Result<SimulatedBus, any Error>) -> Void
    }

    private static func simulator() async throws -> Simulator {
        var options = SimulatorOptions()
        options.duplicateFilter = .none  // so that a scan sees strengths change
        options.rememberedCalls = 0
        return try await Simulator(timing: .real, options: options)
    }

    private init(_ simulator: Simulator, _ scenario: Scenario) {
        self.simulator = simulator
        // The bus appends its GUID, which is not needed.
        address = String(simulator.address.prefix { $0 != "," })
        let devices = Self.devices(of: scenario)
        for device in devices { simulator.add(device) }
        if case .recordings = scenario { recorded = devices } else { recorded = [] }
        // Recordings have values and strengths of their own, and maybe the address of a device that is made here.
        let made = recorded.isEmpty ? devices : []
        made.first { $0.address == Self.heartAddress }?.notifyRepeatedly(
            "2A37", every: .milliseconds(scenario == .counter ? 100 : 900),
            value: scenario == .counter ? SimulatedHeart.numbered : SimulatedHeart.measurement)
        if case .crowd(let size) = scenario, size > SimulatedNeighbour.all.count {
            simulator.setCrowd(size - SimulatedNeighbour.all.count)
        }
        if scenario == .examples { SimulatedExamples.run(devices) }
        if [.twoAdapters, .examples].contains(scenario) { simulator.addAdapter(address: "00:B1:5E:00:00:02") }
        if case .phone = scenario { SimulatedPhone.run(in: simulator) }
        if case .subscriber(let uuid) = scenario { SimulatedSubscriber.run(in: simulator, characteristic: uuid) }
        strengths = DispatchSource.makeTimerSource()
        strengths.schedule(deadline: .now(), repeating: 0.5)
        strengths.setEventHandler {
            for (index, device) in made.enumerated() {
                let middle = -45 - 6 * (index % 8)
                device.rssi = Int16(min(max(Int(device.rssi) + .random(in: -3...3), middle - 8), middle + 8))
            }
        }
        strengths.activate()
    }

    deinit { strengths.cancel() }

    /// Sends the next notification of a recording: of the first device that has one for a central.
    func replayNext() -> Bool { recorded.contains { $0.replayNext() } }

    /// Calls `body` on the main queue for each request that a recording does not have: what happened, of which device.
    func onDeviation(_ body: @escaping @Sendable (_ device: String, _ text: String) -> Void) {
        simulator.onEvent { event in
            let words = event.split(separator: " ", maxSplits: 2)
            guard words.count == 3, words[1] == "deviates" else { return }
            DispatchQueue.main.async { body(String(words[0]), String(words[2])) }
        }
    }

    /// Two recordings of one device are two devices: the second one has another address.
    private static func replayed(_ recordings: [Recording], _ pace: ReplayPace) -> [VirtualPeripheral] {
        var taken: Set<String> = []
        return recordings.enumerated().map { index, recording in
            var address = recording.address
            if address == nil || !taken.insert(address ?? "").inserted {
                address =
                    "F0:5E:00:00:\([UInt8(truncatingIfNeeded: index >> 8)].hex):\([UInt8(truncatingIfNeeded: index)].hex)"
            }
            return VirtualPeripheral(recording: recording, address: address, pace: pace)
        }
    }

    private static let heartAddress = VirtualPeripheral.heartRateSensor().address

    private static func devices(of scenario: Scenario) -> [VirtualPeripheral] {
        switch scenario {
        case .heartRate, .counter: [SimulatedHeart.peripheral(heartAddress)]
        case .kitchenSink: [.sampleDevice()]
        case .card: [SimulatedCard.peripheral()]
        case .examples: [SimulatedHeart.peripheral(heartAddress)] + SimulatedExamples.devices
        case .phone, .twoAdapters, .subscriber: []
        case .recordings(let recordings, let pace): replayed(recordings, pace)
        case .crowd(let size):
            [SimulatedHeart.peripheral(heartAddress), .sampleDevice()]
                + SimulatedNeighbour.all.prefix(size).enumerated().map { $1.peripheral(number: $0) }
        }
    }
}
