import BluezKit
import BluezKitSimulator
import Foundation

/// A central that connects to the simulated adapter as soon as it advertises, and subscribes to a characteristic. When
/// it has received a card, it disconnects.
enum SimulatedSubscriber {
    /// Starts, and continues until the process ends.
    static func run(in simulator: Simulator, characteristic: String) {
        let central = simulator.central()
        // What it received: `central notified UUID HEX`.
        let (events, continuation) = AsyncStream.makeStream(of: String.self)
        simulator.onEvent { continuation.yield($0) }
        Task {
            while true {
                do {
                    try await central.connect(to: "00:B1:5E:00:00:01")
                    try await central.subscribe(characteristic)
                    break
                } catch {
                    // It does not advertise yet, or its services are not complete.
                    try? central.disconnect()
                    try? await Task.sleep(for: .milliseconds(200))
                }
            }
            guard characteristic == CardProtocol.characteristic.uuidString else { return }
            let end = [CardProtocol.Kind.end.rawValue].hex
            for await event in events where event.contains(" notified ") {
                if event.split(separator: " ").last?.hasPrefix(end) == true { break }
            }
            try? central.disconnect()
        }
    }
}
