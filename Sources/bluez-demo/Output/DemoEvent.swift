import Foundation

/// What happens, as programs are told of it by `--json`. Documented in Docs/DEMO.md: names and keys stay.
enum DemoEvent: Equatable {
    case restored(RestoredState)
    case state(String)
    case discovered(Advertisement)
    case connecting(UUID, name: String?)
    case connected(UUID, name: String?)
    case disconnected(UUID, reason: String?)
    case measurement(HeartRateMeasurement)
    case battery(Int)
    case sensorLocation(BodySensorLocation)
    case information(DeviceInformation, String)
    case attribute(AttributeReport)
    case check(DoctorCheck)
    case verdict(isUsable: Bool)
    case scenario(Scenario)
    case simulating(Scenario, address: String)
    case preserved(PreservedReport)
    case discarded(String)
    case error(String)

    var json: JSONValue {
        switch self {
        case .restored(let state): state.json
        case .preserved(let report): report.json
        case .discarded(let identifier): ["event": "discarded", "identifier": .string(identifier)]
        case .state(let state): ["event": "state", "state": .string(state)]
        case .discovered(let advertisement): advertisement.json
        case .connecting(let id, let name): Self.link("connecting", id, "name", name)
        case .connected(let id, let name): Self.link("connected", id, "name", name)
        case .disconnected(let id, let reason): Self.link("disconnected", id, "reason", reason)
        case .measurement(let measurement): Self.json(measurement)
        case .battery(let percent): ["event": "battery", "level": .int(percent)]
        case .sensorLocation(let location): ["event": "sensorLocation", "location": .string(location.name)]
        case .information(let field, let text):
            ["event": "information", "field": .string(field.key), "value": .string(text)]
        case .attribute(let attribute): attribute.json
        case .check(let check): check.json
        case .verdict(let isUsable): ["event": "verdict", "usable": .bool(isUsable)]
        case .scenario(let scenario):
            ["event": "scenario", "name": .string(scenario.name), "summary": .string(scenario.summary)]
        case .simulating(let scenario, let address):
            ["event": "simulating", "scenario": .string(scenario.name), "address": .string(address)]
        case .error(let message): ["event": "error", "message": .string(message)]
        }
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
            "heartRate": .int(measurement.beatsPerMinute),
            "rrIntervals": .array(measurement.rrMilliseconds.map { .double($0) }),
            "energyExpended": .optional(measurement.energyExpended),
            "contact": .optional(contact),
        ]
    }
}
