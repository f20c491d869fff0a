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
    private let handlers = ProtectedBox<[String: @Sendable (ANCSClient) -> Void]>([:])

    init(_ central: Central) { self.central = central }

    /// Reads the notifications of a connected phone.
    /// - Parameter isTwice: Whether it is started again before anything can have come of that.
    func start(_ phone: CBPeripheral, twice isTwice: Bool = false) async {
        await central.perform { [self] in
            client = ANCSClient(phone, queue: central.queue) { [log, handlers, weak self] event in
                let line = Self.line(event)
                log.append(line)
                if let client = self?.client { handlers.withLock { $0[line] }?(client) }
            }
            client?.start()
            if isTwice { client?.start() }
        }
    }

    func startAgain() async { await central.perform { [self] in client?.start() } }

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

    /// Calls `body` with the client in the event with this line.
    func on(_ line: String, _ body: @escaping @Sendable (ANCSClient) -> Void) {
        handlers.withLock { $0[line] = body }
    }

    func perform(_ action: ANCSCommand.Action, of number: UInt32) async {
        await central.perform { [self] in client?.perform(action, of: number) }
    }

    /// As if the phone's services had changed.
    func servicesChanged(_ services: [CBService]) async {
        await central.perform { [self] in client.map { $0.peripheral($0.peripheral, didModifyServices: services) } }
    }

    func expect(_ line: String) async throws { try await log.next(line) { $0 == line ? true : nil } }
}

@Suite("Notifications of a device that is no iPhone")
struct ANCSClientTests {
    @Test("a device without Apple's notification service is reported")
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

@Suite("Notifications of a phone whose other services change")
struct ANCSClientServiceTests {
    @Test("IV-1 a change of other services loses no notification")
    func otherServices() async throws {
        let accessory = try await Accessory()
        let world = accessory.world
        try await world.control("phone find pair")
        let phone = try await accessory.nextPhone()
        try await accessory.central.connect(phone)
        let reader = NotificationReader(accessory.central)
        await reader.start(phone)
        try await reader.expect("ready")
        try await world.control("phone answers off")
        for number in 1...2 { try await world.control("phone post \(number) 4 0 com.apple.MobileSMS Ada||Hello") }
        _ = try await world.nextEvent("a question") { $0.hasPrefix("phone command 0001000000") }
        await reader.servicesChanged([])
        try await world.control("phone answers on")
        let texts = (0..<8).map { "0\($0)0000" }.joined()
        try await world.control("phone data 0001000000" + texts)
        try await reader.expect("added, 2, new, Messages, Ada, , Hello")
        #expect(reader.log.all == ["ready", "added, 1, new, no app, , , ", "added, 2, new, Messages, Ada, , Hello"])
        try await accessory.end(phone)
    }
}

@Suite("Notifications of a phone whose app starts twice, and stops in its handler")
struct ANCSClientHandlerTests {
    // Commands that were decided on before the handler called `stop()` were still written.
    @Test("start() called twice makes the client ready once, and after stop() the phone gets no further request")
    func stops() async throws {
        let accessory = try await Accessory()
        let world = accessory.world
        for number in 1...2 { try await world.control("phone post \(number) 4 0 com.apple.MobileSMS Ada||Hello") }
        try await world.control("phone find pair")
        let phone = try await accessory.nextPhone()
        try await accessory.central.connect(phone)
        let reader = NotificationReader(accessory.central)
        let first = "added, 1, earlier, Messages, Ada, , Hello"
        reader.on(first) { $0.stop() }
        await reader.start(phone, twice: true)
        try await reader.expect(first)
        // What was not written is not waited for.
        await reader.startAgain()
        try await reader.expect("ready")
        try await world.control("phone post 3 4 0 com.apple.MobileSMS Ada||Again")
        let next = try await world.nextEvent("the next question") {
            $0.hasPrefix("phone command 0002") || $0.hasPrefix("phone command 0003")
        }
        #expect(next.hasPrefix("phone command 0003"))
        let last = "added, 3, new, Messages, Ada, , Again"
        try await reader.expect(last)
        #expect(reader.log.all == ["ready", first, "ready", last])
        for number in 1...3 { try await world.control("phone remove \(number)") }
        try await accessory.end(phone)
    }
}
