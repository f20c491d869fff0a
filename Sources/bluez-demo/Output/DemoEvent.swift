import BluezKitProfiles
import Foundation

/// Events, as reported to programs by `--json`. Documented in Docs/DEMO.md: names and keys do not change.
enum DemoEvent: Equatable {
    case started(process: Int32)
    case restored(RestoredState)
    case handedOver(missed: Int, dropped: Int, repeatsFirst: Bool)
    case state(String)
    case discovered(Advertisement)
    case connecting(UUID, name: String?)
    case connected(UUID, name: String?)
    case disconnected(UUID, reason: String?)
    case measurement(HeartRateMeasurement)
    case battery(Int)
    case sensorLocation(BodySensorLocation)
    case information(DeviceInformationText, String)
    case attribute(AttributeReport)
    case check(DoctorCheck)
    case verdict(isUsable: Bool)
    case scenario(Scenario)
    case simulating(Scenario, address: String)
    case preserved(PreservedReport)
    case keeps(KeeperReport)
    case discarded(String)
    case advertising(name: String?, services: [String])
    case subscribed(UUID, String)
    case unsubscribed(UUID, String)
    case energyReset
    case sharing(String, size: Int)
    case progress(UUID, bytes: Int, size: Int)
    case sent(UUID, size: Int, seconds: Double)
    case gaveUp(UUID, bytes: Int, size: Int)
    case refused(UUID, reason: String)
    case received(UUID, Data, path: String?, seconds: Double)
    case transferring(TransferOptions, TransferOffer, offset: Int)
    case transferred(TransferOptions, TransferOffer, seconds: Double)
    case rung(LadderRow)
    case ready(UUID)
    case notification(UUID, NotificationReport)
    case removed(UUID, UInt32)
    case performed(UUID, ANCSCommand.Action, UInt32, error: String?)
    case recorded(RecordingSummary)
    case captured(RecordingSummary)
    case deviation(device: String, String)
    case traced(TraceReport)
    case traceSummary(TraceSummary)
    case error(String)

    var json: JSONValue {
        switch self {
        case .started(let process): ["event": "started", "process": .int(Int(process))]
        case .restored(let state): state.json
        case .handedOver(let missed, let dropped, let repeatsFirst):
            [
                "event": "handedOver", "missed": .int(missed), "dropped": .int(dropped),
                "repeatsFirst": .bool(repeatsFirst),
            ]
        case .preserved(let report): report.json
        case .keeps(let report): report.json
        case .discarded(let identifier): ["event": "discarded", "identifier": .string(identifier)]
        case .state(let state): ["event": "state", "state": .string(state)]
        case .discovered(let advertisement): advertisement.json
        case .connecting(let id, let name): Self.link("connecting", id, "name", name)
        case .connected(let id, let name): Self.link("connected", id, "name", name)
        case .disconnected(let id, let reason): Self.link("disconnected", id, "reason", reason)
        case .measurement(let measurement): Self.json(measurement)
        case .battery(let percent): ["event": "battery", "level": .int(percent)]
        case .sensorLocation(let location): ["event": "sensorLocation", "location": .string(location.description)]
        case .information(let field, let text):
            ["event": "information", "field": .string(field.key), "value": .string(text)]
        case .attribute(let attribute): attribute.json
        case .check(let check): check.json
        case .verdict(let isUsable): ["event": "verdict", "usable": .bool(isUsable)]
        case .scenario(let scenario):
            ["event": "scenario", "name": .string(scenario.name), "summary": .string(scenario.summary)]
        case .simulating(let scenario, let address):
            ["event": "simulating", "scenario": .string(scenario.name), "address": .string(address)]
        case .advertising(let name, let services):
            ["event": "advertising", "name": .optional(name), "services": .strings(services)]
        case .subscribed(let id, let uuid): Self.link("subscribed", id, "characteristic", uuid)
        case .unsubscribed(let id, let uuid): Self.link("unsubscribed", id, "characteristic", uuid)
        case .energyReset: ["event": "energyReset"]
        case .sharing(let path, let size): ["event": "sharing", "path": .string(path), "size": .int(size)]
        case .progress(let id, let bytes, let size): Self.transfer("progress", id, bytes, size)
        case .gaveUp(let id, let bytes, let size): Self.transfer("gaveUp", id, bytes, size)
        case .refused(let id, let reason): Self.link("refused", id, "reason", reason)
        case .sent(let id, let size, let seconds):
            [
                "event": "sent", "identifier": .string(id.uuidString), "size": .int(size),
                "seconds": .double(Self.rounded(seconds)),
            ]
        case .received(let id, let card, let path, let seconds):
            [
                "event": "received", "identifier": .string(id.uuidString), "size": .int(card.count),
                "seconds": .double(Self.rounded(seconds)), "path": .optional(path),
                // What is written to a file is not repeated here.
                "data": .optional(path == nil ? card.hex : nil),
            ]
        case .transferring(let options, let offer, let offset):
            Self.transfer("transferring", options, offer, [.init(key: "offset", value: .int(offset))])
        case .transferred(let options, let offer, let seconds):
            Self.transfer(
                "transferred", options, offer, [.init(key: "seconds", value: .double(Self.rounded(seconds)))])
        case .ready(let id): ["event": "ready", "identifier": .string(id.uuidString)]
        case .notification(let id, let report): report.json(of: id)
        case .removed(let id, let uid):
            ["event": "removed", "identifier": .string(id.uuidString), "uid": .number(uid)]
        case .performed(let id, let action, let uid, let error):
            [
                "event": "performed", "identifier": .string(id.uuidString), "uid": .number(uid),
                "action": .string("\(action)"), "error": .optional(error),
            ]
        case .rung(let row): row.json
        case .recorded(let summary): summary.json
        case .captured(let summary): summary.capturedJSON
        case .deviation(let device, let text):
            ["event": "deviation", "device": .string(device), "request": .string(text)]
        case .traced(let report): report.json
        case .traceSummary(let summary): summary.json
        case .error(let message): ["event": "error", "message": .string(message)]
        }
    }

    private static func transfer(
        _ event: String, _ options: TransferOptions, _ offer: TransferOffer, _ more: [JSONValue.Member]
    ) -> JSONValue {
        .object(
            [
                .init(key: "event", value: .string(event)),
                .init(key: "direction", value: .string(options.isSending ? "send" : "receive")),
                .init(key: "via", value: .string(options.way.rawValue)),
                .init(key: "path", value: .string(options.file)), .init(key: "name", value: .string(offer.name)),
                .init(key: "size", value: .int(offer.size)), .init(key: "sha256", value: .string(offer.digest.hex)),
            ] + more)
    }

    private static func rounded(_ seconds: Double) -> Double { (seconds * 1000).rounded() / 1000 }

    private static func transfer(_ event: String, _ identifier: UUID, _ bytes: Int, _ size: Int) -> JSONValue {
        [
            "event": .string(event), "identifier": .string(identifier.uuidString), "bytes": .int(bytes),
            "size": .int(size),
        ]
    }

    private static func link(_ event: String, _ identifier: UUID, _ key: String, _ text: String?) -> JSONValue {
        .object([
            .init(key: "event", value: .string(event)),
            .init(key: "identifier", value: .string(identifier.uuidString)),
            .init(key: key, value: .optional(text)),
        ])
    }

    private static func json(_ measurement: HeartRateMeasurement) -> JSONValue {
        let contact: Bool? =
            switch measurement.contact {
            case .notSupported: nil
            case .notDetected: false
            case .detected: true
            }
        return [
            "event": "measurement",
            "heartRate": .int(Int(measurement.beatsPerMinute)),
            "rrIntervals": .array(measurement.rrMilliseconds.map { .double($0) }),
            "energyExpended": .optional(measurement.energyExpended.map(Int.init)),
            "contact": .optional(contact),
        ]
    }
}
