import BluezKitRestore
import Foundation

extension ConnectRequest {
    /// - Parameter options: Apple's are kept, as far as they are numbers that JSON can represent.
    init(_ options: [String: Any]?) {
        let known = [
            CBConnectPeripheralOptionNotifyOnConnectionKey, CBConnectPeripheralOptionNotifyOnDisconnectionKey,
            CBConnectPeripheralOptionNotifyOnNotificationKey, CBConnectPeripheralOptionStartDelayKey,
            CBConnectPeripheralOptionEnableTransportBridgingKey, CBConnectPeripheralOptionRequiresANCS,
            CBConnectPeripheralOptionEnableAutoReconnect,
        ]
        var numbers = (options ?? [:]).filter { known.contains($0.key) }
            .compactMapValues { ($0 as? NSNumber)?.doubleValue }
        // Clamp an infinite delay.
        if let delay = numbers[CBConnectPeripheralOptionStartDelayKey] {
            numbers[CBConnectPeripheralOptionStartDelayKey] = min(delay, 1e6)
        }
        self.init(options: numbers.filter(\.value.isFinite))
    }

    /// Whether the connection is made again after each loss.
    var reconnects: Bool { (options[CBConnectPeripheralOptionEnableAutoReconnect] ?? 0) != 0 }

    /// Before the first attempt.
    var startDelay: Duration { .seconds(max(options[CBConnectPeripheralOptionStartDelayKey] ?? 0, 0)) }
}
