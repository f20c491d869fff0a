import BluezKit
import BluezKitSimulator
import Foundation

/// A central that connects to the simulated adapter as soon as it advertises, and subscribes to a characteristic. If
/// that is one of a card, it receives the card, and disconnects.
enum SimulatedSubscriber {
    /// Starts, and continues until the process ends.
    static func run(in simulator: Simulator, characteristic: String) {
        let central = simulator.central()
        let values = central.values(of: characteristic)
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
            guard characteristic == TransferProtocol.toCentral.uuidString else { return }
            let receiver = TransferReceiver(limit: Card.sizeLimit, asks: true) { Card($0) }
            try? await SimulatedCard.exchange(receiver, isPeripheral: false, values) {
                try await central.write($0, to: TransferProtocol.toPeripheral.uuidString)
            }
            try? central.disconnect()
        }
    }
}
