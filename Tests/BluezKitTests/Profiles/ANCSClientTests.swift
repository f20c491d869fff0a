import BluezKit
import BluezKitProfiles
import BluezKitSimulator
import Foundation
import Testing

/// An iPhone with notifications. It answers in parts of 20 bytes.
// holds: the peripheral is set once, before it is added to a simulator
private final class VirtualPhone: @unchecked Sendable {
    static let apps = ["com.apple.MobileSMS": "Messages", "com.example.empty": ""]
    private(set) var peripheral: VirtualPeripheral!  // set in init
    let performed = EventLog<[UInt8]>()

    init() {
        let uuids = [ANCSEvent.uuid, ANCS.controlPoint, ANCS.dataSource].map(\.uuidString)
        peripheral = VirtualPeripheral(
            "F0:00:00:00:0A:01", VirtualAdvertisement(localName: "Phone"),
            services: [
                VirtualService(
                    ANCS.uuid.uuidString,
                    [
                        VirtualCharacteristic(uuids[0], .notify),
                        VirtualCharacteristic(uuids[1], .write, write: { [unowned self] in try command($0) }),
                        VirtualCharacteristic(uuids[2], .notify),
                    ])
            ])
    }

    private func command(_ bytes: [UInt8]) throws {
        var answer: [UInt8]
        func add(_ attribute: UInt8, _ text: String) {
            answer += [attribute, UInt8(text.utf8.count), 0] + Array(text.utf8)
        }
        switch bytes[0] {
        case 0:
            let number = bytes[1]
            guard number < 100 else { throw ATTFailure(0xA2) }  // the notification is gone
            answer = Array(bytes.prefix(5))
            let app = number == 2 ? "com.example.empty" : "com.apple.MobileSMS"
            for (index, text) in [
                app, "Title \(number)", "", "Hello from \(number)", "12", "20260101T120000", "Open", "Clear",
            ]
            .enumerated() { add(UInt8(index), text) }
        case 1:
            answer = Array(bytes.dropLast())
            add(0, Self.apps[String(decoding: bytes.dropFirst().dropLast(2), as: UTF8.self)] ?? "")
        default:
            performed.append(bytes)
            return
        }
        let parts = stride(from: 0, to: answer.count, by: 20).map { Array(answer[$0..<min($0 + 20, answer.count)]) }
        // After the response to the write.
        DispatchQueue.global().asyncAfter(deadline: .now() + 0.02) { [peripheral] in
            for part in parts { _ = peripheral?.notify(ANCS.dataSource.uuidString, part) }
        }
    }

    func post(_ number: UInt32, _ kind: ANCSEvent.Kind = .added) {
        let event = ANCSEvent { ($0.kind, $0.notification, $0.category) = (kind, number, .social) }
        _ = peripheral.notify(ANCSEvent.uuid.uuidString, [UInt8](event.data))
    }
}

/// The app. Used on the manager's queue only.
// holds: the log is safe, the client is touched on that queue
private final class Accessory: @unchecked Sendable {
    let log = EventLog<String>()
    private var client: ANCSClient?

    func start(_ peripheral: CBPeripheral) {
        client = ANCSClient(peripheral) { [log] event in
            switch event {
            case .ready: log.append("ready")
            case .notification(let notification):
                let texts = notification.texts
                log.append(
                    "\(notification.event.notification): \(texts[.title] ?? "-"), \(texts[.message] ?? "-"), \(notification.appName ?? "no app")"
                )
            case .removed(let number): log.append("removed \(number)")
            case .failed(let error): log.append("failed: \(error)")
            }
        }
        client?.start()
    }

    func perform(_ action: ANCSCommand.Action, of number: UInt32) { client?.perform(action, of: number) }

    func expect(_ line: String) async throws { try await log.next(line) { $0 == line ? true : nil } }
}

@Suite("Notifications of a virtual iPhone")
struct ANCSClientTests {
    @Test("notifications arrive whole, one after the other, and their actions are performed")
    func notifications() async throws {
        let world = try await SimulatedWorld()
        let phone = VirtualPhone()
        world.simulator.add(phone.peripheral)
        let central = Central(world)
        try await central.powerOn()
        let peripheral = try await central.find("Phone")
        try await central.connect(peripheral)
        let accessory = Accessory()
        await central.perform { accessory.start(peripheral) }
        try await accessory.expect("ready")
        // Several at once; one of them is gone before its attributes are read.
        for number in [1, 2, 100, 3] as [UInt32] { phone.post(number) }
        try await accessory.expect("1: Title 1, Hello from 1, Messages")
        try await accessory.expect("2: Title 2, Hello from 2, no app")
        try await accessory.expect("3: Title 3, Hello from 3, Messages")
        phone.post(3, .removed)
        try await accessory.expect("removed 3")
        await central.perform { accessory.perform(.negative, of: 2) }
        let performed = try await phone.performed.next("an action") { $0 }
        #expect(performed == [2, 2, 0, 0, 0, 1])
        // Bytes that were not asked for are ignored, and an absurd event is an error.
        _ = phone.peripheral.notify(ANCS.dataSource.uuidString, [9, 9, 9])
        _ = phone.peripheral.notify(ANCSEvent.uuid.uuidString, [7, 0, 0, 0, 0, 0, 0, 0])
        try await accessory.expect("failed: the event ID has the reserved value 7")
        phone.post(4)
        try await accessory.expect("4: Title 4, Hello from 4, Messages")
    }

    @Test("a device without the service is reported")
    func unavailable() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let peripheral = try await central.find("Rig Heart")
        try await central.connect(peripheral)
        let accessory = Accessory()
        await central.perform { accessory.start(peripheral) }
        try await accessory.expect("failed: the device has no Apple Notification Center Service")
    }
}
