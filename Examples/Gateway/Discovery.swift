import Foundation

/// What Home Assistant has to know of a sensor: it is shown as an entity of a device, which is the peripheral.
///
/// See https://www.home-assistant.io/integrations/mqtt/#mqtt-discovery and
/// https://www.home-assistant.io/integrations/sensor.mqtt/.
struct Discovery: Encodable {
    struct Availability: Encodable {
        let topic: String
        var valueTemplate: String?
        let payloadAvailable: String
        let payloadNotAvailable: String
    }
    struct Device: Encodable {
        let identifiers: [String]
        let name: String
    }
    struct Origin: Encodable { let name: String }

    let name: String
    let uniqueId: String
    let device: Device
    let origin = Origin(name: "BluezKit gateway")
    let stateTopic: String
    let valueTemplate: String
    let unitOfMeasurement: String?
    let deviceClass: String?
    let stateClass: String?
    let availability: [Availability]
    let availabilityMode = "all"

    /// - Parameters:
    ///   - topic: What the gateway's topics begin with.
    ///   - characteristic: Its UUID.
    init(_ topic: String, _ peripheral: UUID, _ name: String?, _ characteristic: String, _ quantity: Quantity?) {
        self.name = quantity?.name ?? characteristic
        uniqueId = "\(peripheral)-\(characteristic)"
        device = Device(identifiers: ["\(peripheral)"], name: name ?? "\(peripheral)")
        stateTopic = "\(topic)/\(peripheral)/value"
        // A value without a number makes the state unknown. Without a format it has the digits: at most 255 characters.
        valueTemplate =
            quantity == nil ? "{{ value_json.value[:255] }}" : "{{ value_json.number | default(none) }}"
        unitOfMeasurement = quantity?.unit
        deviceClass = quantity?.deviceClass
        stateClass = quantity.map { _ in "measurement" }
        availability = [
            Availability(topic: "\(topic)/status", payloadAvailable: "online", payloadNotAvailable: "offline"),
            Availability(
                topic: "\(topic)/\(peripheral)/state", valueTemplate: "{{ value_json.event }}",
                payloadAvailable: "connected", payloadNotAvailable: "disconnected"),
        ]
    }

    var json: Data {
        get throws {
            let encoder = JSONEncoder()
            encoder.keyEncodingStrategy = .convertToSnakeCase
            encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
            return try encoder.encode(self)
        }
    }
}
