import BluezKit
import BluezKitProfiles
import Foundation
import Testing

/// The app's end of a phone. Used on the manager's queue only.
// holds: the log is safe, the client is touched on that queue
final class NotificationReader: @unchecked Sendable {
    let log = EventLog<String>()
    private let central: Central
    private var client: ANCSClient?

    init(_ central: Central) { self.central = central }

    /// Reads the notifications of a connected phone.
    func start(_ phone: CBPeripheral) async {
        await central.perform { [self] in
            client = ANCSClient(phone, queue: central.queue) { [log] in log.append(Self.line($0)) }
            client?.start()
        }
    }

    private static func line(_ event: ANCSClient.Event) -> String {
        switch event {
        case .ready: return "ready"
        case .notification(let notification):
            let texts = [.title, .subtitle, .message].map { notification.texts[$0] ?? "-" }
            let event = notification.event
            let words = [
                "\(event.kind)", "\(event.notification)", event.flags.contains(.preExisting) ? "earlier" : "new",
                notification.appName ?? "no app",
            ]
            return (words + texts).joined(separator: ", ")
        case .removed(let number): return "removed \(number)"
        case .performed(let action, let number, let error):
            return "\(action) \(number): \(error.map { "\($0)" } ?? "done")"
        case .failed(let error): return "failed: \(error)"
        }
    }

    func perform(_ action: ANCSCommand.Action, of number: UInt32) async {
        await central.perform { [self] in client?.perform(action, of: number) }
    }

    func expect(_ line: String) async throws { try await log.next(line) { $0 == line ? true : nil } }
}

@Suite("Notifications of a device that is no iPhone")
struct ANCSClientTests {
    @Test("a device without the service is reported")
    func unavailable() async throws {
        let central = Central(try await SimulatedWorld())
        try await central.powerOn()
        let peripheral = try await central.find("Rig Heart")
        try await central.connect(peripheral)
        let reader = NotificationReader(central)
        await reader.start(peripheral)
        try await reader.expect("failed: the device has no Apple Notification Center Service")
    }
}
