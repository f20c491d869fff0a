import BluezKitSimulator
import Foundation
import Testing

/// The gateway with a broker of the test's own, which is a real Mosquitto.
@Suite(.serialized) struct GatewayTests {
    /// A sensor of the Automation IO Service, with something that can be written.
    static func sensor(_ number: Int, write: (@Sendable ([UInt8]) throws -> Void)? = nil) -> VirtualPeripheral {
        VirtualPeripheral(
            "F0:00:00:00:06:\(String(format: "%02X", number))",
            VirtualAdvertisement(localName: "Sensor \(number)", serviceUUIDs: ["1815"]),
            services: [
                VirtualService(
                    "1815",
                    [VirtualCharacteristic("2A56", .notify), VirtualCharacteristic("2A58", .write, write: write)])
            ])
    }

    static func gateway(
        _ broker: Mosquitto, _ simulator: Simulator, _ options: [String] = [], _ uuids: [String] = ["1815", "2A56"]
    ) throws -> Example { try Example("gateway", uuids + ["--broker", broker.socket] + options, simulator) }

    struct Line: Decodable {
        let event: String
        var peripheral: UUID?
        var name: String?
        var value: String?
        var number: Double?
        var unit: String?
        var problem: String?

        init(_ text: String) throws { self = try JSONDecoder().decode(Line.self, from: Data(text.utf8)) }
    }

    @Test(
        "bad options: one sentence that says what is wrong",
        arguments: [
            (["--topic", "a"], "--topic needs --broker"), (["--bogus"], "there is no option --bogus; see --help"),
            (["--broker"], "--broker needs a URL or a path"),
            (["--broker", "/b", "--queue", "0"], "--queue needs a number above 0"),
            (["--broker", "/b", "--queue", "1000001"], "--queue can be 1000000 at most"),
            (
                ["--broker", "http://a"],
                "--broker needs mqtt://HOST or mqtts://HOST, with :PORT if need be, or the path of a socket"
            ),
            (["--broker", "a:70000"], "a port is a number from 1 to 65535"),
            (
                ["--broker", "mqtt://me:secret@a"],
                "other users of this computer can read what --broker contains: use --user and --password-file"
            ),
            (
                ["--broker", "/b", "--topic", "a/+"],
                "--topic needs up to 128 bytes without + and #, that do not begin with $ or /, or end with /"
            ),
            (
                ["--broker", "/b", "--write", "x"],
                "x is no UUID: it has 4, 8 or 32 hexadecimal digits, the last form with hyphens"
            ),
            (["--broker", "/b", "--password-file", "/p"], "--password-file needs --user"),
            (
                ["--broker", "/b", "--user", "u", "--password-file", "/nowhere/p"],
                "/nowhere/p of --password-file cannot be read: No such file or directory"
            ),
            (
                ["--broker", "/b", "--user", "u", "--password-file", "/dev/null"],
                "/dev/null, the password file, has no first line"
            ),
            (["--broker", "/b", "--ca", "/nowhere/c"], "/nowhere/c of --ca cannot be read: No such file or directory"),
            (["--broker", "/b", "--cert", "c"], "--cert and --key need each other"),
        ])
    func badOptions(options: [String], problem: String) async throws {
        let example = try Example("gateway", ["1815", "2A56"] + options, nil)
        #expect(await example.status() == 1)
        #expect(try await example.nextProblem() == "gateway: \(problem)")
    }

    @Test("states, values and discovery are retained; SIGTERM publishes offline, and ends with 0")
    func retained() async throws {
        let simulator = try await Simulator()
        let thermometer = simulator.add(
            VirtualPeripheral(
                "F0:00:00:00:06:01", VirtualAdvertisement(localName: "Hall \"1\"", serviceUUIDs: ["181A"]),
                services: [VirtualService("181A", [VirtualCharacteristic("2A6E", .notify)])]))
        let broker = try Mosquitto()
        try await broker.start()
        let live = try await Subscriber(broker)
        try broker.open()
        let options = ["--topic", "home/bt", "--discovery", "homeassistant"]
        let gateway = try Self.gateway(broker, simulator, options, ["181A", "2A6E"])
        #expect(try await live.next("home/bt/status") == "online")
        try await until { thermometer.isSubscribed(to: "2A6E") }
        for value: [UInt8] in [[0x66, 0x08], [0x00, 0x80], [1]] { thermometer.notify("2A6E", value) }
        let topic = try await live.lines.next { $0.contains("/value ") }.split(separator: " ")[1].dropLast(
            "/value".count)
        let peripheral = String(topic.dropFirst("home/bt/".count))
        #expect(UUID(uuidString: peripheral) != nil)
        let unknown = try Line(try await live.next("\(topic)/value"))  // the sensor says that it does not know
        #expect(unknown.value == "0080" && unknown.number == nil && unknown.unit == nil)
        #expect(try Line(try await live.next("\(topic)/value")).value == "01")
        thermometer.notify("2A6E", [0x66, 0x08])
        _ = try await live.next("\(topic)/value")

        let late = try await Subscriber(broker)
        try await late.lines.expect(["R home/bt/status online", "\(topic)/state ", "\(topic)/value ", "/config "])
        let config = try await late.next("homeassistant/sensor/\(peripheral)/2A6E/config")
        #expect(
            try JSONSerialization.jsonObject(with: Data(config.utf8)) as? NSDictionary == [
                "availability": [
                    ["payload_available": "online", "payload_not_available": "offline", "topic": "home/bt/status"],
                    [
                        "payload_available": "connected", "payload_not_available": "disconnected",
                        "topic": "\(topic)/state", "value_template": "{{ value_json.event }}",
                    ],
                ], "availability_mode": "all", "device": ["identifiers": [peripheral], "name": "Hall \"1\""],
                "device_class": "temperature", "name": "Temperature", "origin": ["name": "BluezKit gateway"],
                "state_class": "measurement", "state_topic": "\(topic)/value", "unique_id": "\(peripheral)-2A6E",
                "unit_of_measurement": "°C", "value_template": "{{ value_json.number | default(none) }}",
            ] as NSDictionary)
        let value = try Line(try await Subscriber(broker).next("\(topic)/value"))
        #expect(value.event == "value" && value.value == "6608" && value.number == 21.5 && value.unit == "°C")
        #expect(value.peripheral?.uuidString == peripheral && value.name == "Hall \"1\"")
        thermometer.vanish()
        #expect(try Line(try await live.next("\(topic)/state")).event == "disconnected")
        thermometer.comeBack()
        #expect(try Line(try await live.next("\(topic)/state")).event == "connected")

        gateway.stop()
        #expect(try await live.next("home/bt/status") == "offline")
        #expect(await gateway.status() == 0)
        try await gateway.expectProblems(["4 messages were published, 0 were dropped"])
        // Not its last will.
        _ = try await broker.log.next { $0.contains("Client home/bt disconnected.") }
    }

    @Test("killed, its last will is published; started again, it takes its name back")
    func lastWill() async throws {
        let simulator = try await Simulator()
        let broker = try Mosquitto()
        try await broker.start()
        let subscriber = try await Subscriber(broker)
        try broker.open()
        let first = try Self.gateway(broker, simulator)
        #expect(try await subscriber.next("gateway/status") == "online")
        first.stop(SIGKILL)
        #expect(try await subscriber.next("gateway/status") == "offline")
        let second = try Self.gateway(broker, simulator)
        #expect(try await subscriber.next("gateway/status") == "online")
        // A third one with the same name is a mistake, of which Mosquitto 2.0.11 only ends the connection.
        let third = try Self.gateway(broker, simulator)
        try await second.expectProblems(["give each gateway a --topic of its own"])
        second.stop()
        _ = await second.status()
        third.stop(SIGINT)
        #expect(await third.status() == 0)
        #expect(try await Subscriber(broker).next("gateway/status") == "offline")
    }

    @Test("commands write a characteristic; whatever else is sent is answered, and does no harm")
    func commands() async throws {
        let simulator = try await Simulator()
        let written = Lines()
        simulator.add(
            Self.sensor(1) { bytes in
                if bytes == [0xEE] { throw ATTFailure(0x80) }
                written.add(bytes.map { String(format: "%02x", $0) }.joined())
            })
        let broker = try Mosquitto()
        try await broker.start()
        let subscriber = try await Subscriber(broker)
        subscriber.publish("gateway/\(UUID())/set", "00", retain: true)
        try broker.open()
        let gateway = try Self.gateway(broker, simulator, ["--write", "2A58"])
        #expect(
            try Line(try await subscriber.lines.next { $0.contains("/set/result ") }.json).problem
                == "a retained message is not carried out")
        let connected = try await Subscriber(broker).lines.next { $0.contains("/state ") }
        let peripheral = try #require(try Line(connected.json).peripheral)
        for (payload, value) in [("01ff", "01ff"), ("AB", "ab"), ("\"on\\n\"", "6f6e0a"), ("\"é\"", "c3a9")] {
            subscriber.publish("gateway/\(peripheral)/set", payload)
            let line = try Line(try await subscriber.next("gateway/\(peripheral)/set/result"))
            #expect(line.event == "written" && line.value == value && line.peripheral == peripheral)
            #expect(try await written.next() == value)
        }
        let digits = "the message is neither an even number of hexadecimal digits nor a text in quotes"
        for (payload, problem) in [
            ("", "the message is empty"), ("0", digits), ("0x", digits), ("12 34", digits), ("１２", digits),
            ("\"on", "the message is no text in double quotes, as JSON has it"),
            (String(repeating: "00", count: 513), "a value has 512 bytes at most, not 513"),
            (String(repeating: "0", count: 5000), "the message is too long"),
        ] {
            subscriber.publish("gateway/\(peripheral)/set", payload)
            let line = try Line(try await subscriber.next("gateway/\(peripheral)/set/result"))
            #expect(line.event == "problem" && line.problem == problem)
        }
        // A packet that is longer than the client permits is never sent to it.
        subscriber.publish("gateway/\(peripheral)/set", String(repeating: "0", count: 1_000_000))
        subscriber.publish("gateway/\(peripheral)/set", "ee")
        let refused = try Line(try await subscriber.next("gateway/\(peripheral)/set/result"))
        #expect(refused.event == "problem" && refused.value == "ee" && refused.problem != nil)
        for unknown in ["\(UUID())", "lamp", "%00", String(repeating: "x", count: 64)] {
            subscriber.publish("gateway/\(unknown)/set", "00")
            #expect(
                try Line(try await subscriber.next("gateway/\(unknown)/set/result")).problem
                    == "no such peripheral is connected and can be written")
        }
        // They are carried out in their order.
        for number in 0..<10 { subscriber.publish("gateway/\(peripheral)/set", "0\(number)") }
        for number in 0..<10 { #expect(try await written.next() == "0\(number)") }
        gateway.stop()
        #expect(await gateway.status() == 0)
    }
}

extension String {
    /// The payload of a line of a ``Subscriber``.
    var json: String { String(split(separator: " ", maxSplits: 2).last ?? "") }
}
