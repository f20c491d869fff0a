import BluezKitSimulator
import CSQLite
import Foundation
import Testing

/// Each example, run as its own process against a simulated BlueZ.
@Suite(.serialized) struct ExamplesTests {
    static let names = [
        "scanner", "beacon-watch", "thermometer-log", "uart-terminal", "thermostat", "gateway", "restoration",
    ]
    /// Those that end without Bluetooth.
    static let impatient = names.filter { $0 != "restoration" }

    @Test("each example has a help text", arguments: names)
    func help(name: String) async throws {
        let example = try Example(name, ["--help"], nil)
        #expect(try await example.nextLine().hasPrefix("usage: \(name)"))
        #expect(await example.status() == 0)
    }

    @Test(
        "bad arguments and files: one sentence that says what is wrong",
        arguments: [
            ("scanner", ["--seconds", "soon"], "scanner: --seconds needs a number above 0"),
            ("scanner", ["--fast"], "scanner: there is no option --fast; see --help"),
            ("scanner", ["/nowhere/at.csv"], "scanner: /nowhere/at.csv cannot be written: No such file or directory"),
            (
                "beacon-watch", ["--count", "0"],
                "beacon-watch: only --count with a number above 0 is possible; see --help"
            ),
            ("thermometer-log", [], "thermometer-log: it takes one file; see --help"),
            ("thermometer-log", ["--count"], "thermometer-log: --count needs a number above 0"),
            (
                "thermometer-log", ["/nowhere/at.db"],
                "thermometer-log: the database cannot be used: unable to open database file"
            ),
            ("uart-terminal", ["a", "b"], "uart-terminal: it takes one name; see --help"),
            ("thermostat", ["--name"], "thermostat: --name needs a name"),
            ("thermostat", ["--seconds", "nan"], "thermostat: --seconds needs a number above 0"),
            (
                "thermostat", ["--name", String(repeating: "x", count: 30)],
                "thermostat: --name has room for 29 bytes, not 30"
            ),
            ("restoration", ["--bogus"], "restoration: it takes no arguments; see --help"),
            ("gateway", ["180D"], "gateway: it takes two UUIDs; see --help"),
            (
                "gateway", ["180D", "heart"],
                "gateway: heart is no UUID: it has 4, 8 or 32 hexadecimal digits, the last form with hyphens"
            ),
        ])
    func badInput(name: String, arguments: [String], problem: String) async throws {
        let example = try Example(name, arguments, nil)
        #expect(await example.status() == 1)
        #expect(try await example.nextProblem() == problem)
    }

    // `FileHandle.write(_:)` ends the program where it cannot write.
    @Test("a problem that cannot be written does not crash an example", arguments: names)
    func fullOutput(name: String) async throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/bin/sh")
        process.arguments = ["-c", "exec \"$0\" --bogus x y 2>/dev/full", Example.path(name)]
        try process.run()
        try await until { !process.isRunning }
        #expect(process.terminationReason == .exit && process.terminationStatus == 1)
    }

    @Test("an example says in one sentence that a machine has no Bluetooth", arguments: impatient)
    func powerOff(name: String) async throws {
        let simulator = try await Simulator()
        simulator.setPowered(false)
        let directory = try TemporaryDirectory()
        let arguments = ["thermometer-log": [directory.path + "/log.db"], "gateway": ["180D", "2A37"]][name] ?? []
        let example = try Example(name, arguments, simulator)
        #expect(try await example.nextProblem() == "\(name): Bluetooth is switched off")
        #expect(await example.status() == 1)
    }

    @Test("scanner: a line for each device; names from the air are quoted, and without control characters")
    func scanner() async throws {
        let simulator = try await Simulator()
        for (number, name) in ["Lamp", "a, \"b\"", "=1+1", "\u{1B}[2Jclear"].enumerated() {
            simulator.add(
                VirtualPeripheral(
                    "F0:00:00:00:00:0\(number + 1)",
                    VirtualAdvertisement(localName: name, serviceUUIDs: ["180D"], manufacturerData: [0x59: [1, 2]])))
        }
        let directory = try TemporaryDirectory()
        let example = try Example("scanner", ["--seconds", "2", directory.path + "/found.csv"], simulator)
        #expect(await example.status() == 0)
        let lines = try String(contentsOfFile: directory.path + "/found.csv", encoding: .utf8).split(separator: "\n")
        #expect(lines.first == "time,identifier,name,rssi,services,manufacturer")
        for name in [",Lamp,-", ",\"a, \"\"b\"\"\",-", ",'=1+1,-", ",[2Jclear,-"] {
            #expect(lines.contains { $0.contains(name) && $0.hasSuffix(",180D,59000102") }, "\(lines)")
        }
        let terminal = try Example("scanner", ["--all"], simulator)
        for _ in 0..<6 { _ = try await terminal.nextLine() }
        terminal.stop()
    }

    @Test("beacon-watch: iBeacon and Eddystone, as far as they have sensors; damaged ones are reported and do no harm")
    func beacons() async throws {
        let simulator = try await Simulator()
        let uuid = UUID()
        let bytes = withUnsafeBytes(of: uuid.uuid) { Array($0) }
        let rest: [UInt8] = bytes + [1, 2, 0, 7, 0xC5]
        let apple: [[UInt8]] = [[2, 21] + rest, [2, 21, 1, 2, 3], [2, 20] + rest]
        let eddystone: [[UInt8]] = [
            [0x00, 0xE7] + Array(1...16), [0x10, 0xEE, 3] + Array("swift".utf8) + [1],
            [0x20, 0, 0x0B, 0xB8, 0x15, 0x80, 0, 0, 0, 5, 0, 0, 0, 100],
            [0x20, 0, 0, 0, 0x80, 0, 0, 0, 0, 6, 0, 0, 0, 200], [0x30, 1, 2], [0x10], [0x10, 0, 9],
        ]
        for (number, data) in apple.enumerated() {
            simulator.add(
                VirtualPeripheral("F0:00:00:00:01:0\(number)", VirtualAdvertisement(manufacturerData: [0x4C: data])))
        }
        for (number, data) in eddystone.enumerated() {
            simulator.add(
                VirtualPeripheral(
                    "F0:00:00:00:02:0\(number)",
                    VirtualAdvertisement(serviceUUIDs: ["FEAA"], serviceData: ["FEAA": data])))
        }
        let example = try Example("beacon-watch", ["--count", "120"], simulator)
        try await example.expectLines([
            "iBeacon \(uuid) 258 7 power -59", "Eddystone UID 0102030405060708090a 0b0c0d0e0f10 power -25",
            "Eddystone URL https://swift.org/ power -18", "Eddystone TLM 3000 mV 21.5 °C 5 packets 10.0 s",
            "Eddystone TLM 6 packets 20.0 s",
        ])
        try await example.expectProblems([
            "an iBeacon has 7 bytes, not 25", "an iBeacon says that 20 bytes follow, not 21",
            "an Eddystone frame of type 48 with 3 bytes is unknown or too short",
            "an Eddystone frame has only 1 bytes", "an Eddystone URL begins with an unknown scheme",
        ])
        #expect(await example.status() == 0)
    }

    // It counted a damaged frame as a line that it had printed, and ended.
    @Test("beacon-watch: a damaged frame is not one of the lines that --count counts")
    func countsBeacons() async throws {
        let simulator = try await Simulator()
        func add(_ address: String, _ data: [UInt8]) {
            simulator.add(
                VirtualPeripheral(
                    address, VirtualAdvertisement(serviceUUIDs: ["FEAA"], serviceData: ["FEAA": data])))
        }
        add("F0:00:00:00:02:01", [0x10])
        let example = try Example("beacon-watch", ["--count", "1"], simulator)
        _ = try await example.problem { $0.contains("an Eddystone frame has only 1 bytes") }
        add("F0:00:00:00:02:02", [0x10, 0xEE, 3] + Array("swift".utf8) + [1])
        #expect(try await example.nextLine().contains("Eddystone URL https://swift.org/ power -18"))
        #expect(await example.status() == 0)
    }

    // It said so when the time was over.
    @Test("scanner: with --seconds it ends as soon as Bluetooth goes off, and says so")
    func scannerEndsEarly() async throws {
        let simulator = try await Simulator()
        simulator.add(.heartRateSensor())
        let example = try Example("scanner", ["--seconds", "600"], simulator)
        for _ in 0..<2 { _ = try await example.nextLine() }
        simulator.setPowered(false)
        #expect(try await example.nextProblem().hasPrefix("scanner: "))
        #expect(await example.status() == 1)
    }

    @Test("thermometer-log: measurements reach the database, across a lost connection; damaged ones do not")
    func thermometer() async throws {
        let simulator = try await Simulator()
        let sensor = simulator.add(
            VirtualPeripheral(
                "F0:00:00:00:03:01", VirtualAdvertisement(localName: "Thermometer", serviceUUIDs: ["1809"]),
                services: [VirtualService("1809", [VirtualCharacteristic("2A1C", .indicate)])]))
        let directory = try TemporaryDirectory()
        let file = directory.path + "/log.db"
        let example = try Example("thermometer-log", ["--count", "3", file], simulator)
        // 36.6 °C, then 98.6 °F, both with an exponent of -1.
        try await until { sensor.notify("2A1C", [0, 0x6E, 1, 0, 0xFF]) }
        for damaged: [UInt8] in [[], [0, 1, 2], [0, 0xFF, 0xFF, 0x7F, 0], [0, 1, 0, 0, 0x7F]] {
            sensor.notify("2A1C", damaged)
        }
        try await example.expectProblems([
            "has 0 bytes, not 5", "has 3 bytes, not 5", "no measurement", "is no temperature",
        ])
        sensor.vanish()
        sensor.comeBack()
        try await until { sensor.notify("2A1C", [1, 0xDA, 3, 0, 0xFF]) }
        sensor.notify("2A1C", [0, 0x64, 0, 0, 0xFF])
        #expect(await example.status() == 0)
        #expect(try rows(file) == [36.6, 37, 10])
        let second = try Example("thermometer-log", [directory.path], simulator)
        #expect(
            try await second.nextProblem()
                == "thermometer-log: the database cannot be used: unable to open database file")
    }

    private func rows(_ file: String) throws -> [Double] {
        var connection: OpaquePointer?
        var statement: OpaquePointer?
        defer {
            sqlite3_finalize(statement)
            sqlite3_close(connection)
        }
        #expect(sqlite3_open(file, &connection) == SQLITE_OK)
        #expect(sqlite3_prepare_v2(connection, "SELECT celsius FROM measurements", -1, &statement, nil) == SQLITE_OK)
        var values: [Double] = []
        while sqlite3_step(statement) == SQLITE_ROW {
            values.append((sqlite3_column_double(statement, 0) * 10).rounded() / 10)
        }
        return values
    }

    @Test("uart-terminal: lines go out whole, whatever their length; what comes in is shown without control characters")
    func uart() async throws {
        let simulator = try await Simulator()
        let device = VirtualPeripheral(
            "F0:00:00:00:04:01",
            VirtualAdvertisement(localName: "Modem", serviceUUIDs: ["6e400001-b5a3-f393-e0a9-e50e24dcca9e"]))
        let answer: @Sendable ([UInt8]) -> Void = { [unowned device] bytes in
            for byte in bytes {
                device.notify("6e400003-b5a3-f393-e0a9-e50e24dcca9e", [byte == 0x7E ? 0x1B : byte])
            }
        }
        device.addService(
            VirtualService(
                "6e400001-b5a3-f393-e0a9-e50e24dcca9e",
                [
                    VirtualCharacteristic(
                        "6e400002-b5a3-f393-e0a9-e50e24dcca9e", [.write, .writeWithoutResponse], write: answer),
                    VirtualCharacteristic("6e400003-b5a3-f393-e0a9-e50e24dcca9e", .notify),
                ]))
        simulator.add(device)
        let example = try Example("uart-terminal", ["Modem"], simulator)
        example.type("hello ~[2J\n")
        #expect(try await example.nextLine() == "hello \u{FFFD}[2J")
        // A character that two values share.
        example.type("23 °C \u{1F600}, \u{FF}\n")
        #expect(try await example.nextLine() == "23 °C \u{1F600}, \u{FF}")
        let long = String(repeating: "0123456789", count: 100)
        example.type(long + "\n")
        #expect(try await example.nextLine() == long)
        example.endInput()
        #expect(await example.status() == 0)
    }

    @Test("thermostat: a central reads, sets a target, is refused a bad one, and is notified")
    func thermostat() async throws {
        let simulator = try await Simulator()
        let events = Lines()
        simulator.onEvent { events.add($0) }
        let example = try Example("thermostat", ["--name", "Hall", "--seconds", "60"], simulator)
        let central = simulator.central()
        let (temperature, target) = ("7a0e0002-5c1b-4e0a-9d6f-000000000000", "7a0e0003-5c1b-4e0a-9d6f-000000000000")
        try await until {
            (try? await central.connect(to: "00:B1:5E:00:00:01").services.contains { $0.hasPrefix("7a0e0001") }) == true
        }
        #expect(try await central.read(target) == [0xD0, 0x07])
        try await central.subscribe(temperature)
        for (bad, code) in [([1], 0x0D), ([0, 0], 0x80), ([0xFF, 0x7F], 0x80)] as [([UInt8], UInt8)] {
            await #expect(throws: ATTFailure(code)) { try await central.write(bad, to: target) }
        }
        try await central.write([0x98, 0x08], to: target)
        #expect(try await example.nextLine() == "The target is 22.0 °C now.")
        _ = try await events.next { $0.contains("notified \(temperature) 9808") }
        #expect(try await central.read(temperature) == [0x98, 0x08])
        example.stop()
    }

    @Test("gateway: JSON lines of all sensors; one that is lost and comes back; one without the characteristic")
    func gateway() async throws {
        let simulator = try await Simulator()
        let sensors = (1...3).map { number in
            simulator.add(
                VirtualPeripheral(
                    "F0:00:00:00:05:0\(number)",
                    VirtualAdvertisement(localName: "Sensor \(number)", serviceUUIDs: ["1815"]),
                    services: [VirtualService("1815", number == 3 ? [] : [VirtualCharacteristic("2A56", .notify)])]))
        }
        let example = try Example("gateway", ["1815", "2A56"], simulator)
        struct Line: Decodable {
            let time: String
            let event: String
            let peripheral: UUID
            let name: String?
            let value: String?
        }
        func next(_ event: String, _ name: String) async throws -> Line {
            while true {
                let line = try JSONDecoder().decode(Line.self, from: Data(try await example.nextLine().utf8))
                if line.event == event, line.name == name { return line }
            }
        }
        _ = try await next("problem", "Sensor 3")
        try await until { sensors[0].notify("2A56", [0xAB, 1]) }
        #expect(try await next("value", "Sensor 1").value == "ab01")
        sensors[1].vanish()
        sensors[1].comeBack()
        try await until { sensors[1].notify("2A56", [2]) }
        #expect(try await next("value", "Sensor 2").value == "02")
        example.stop()
    }

    @Test("restoration: killed and started again it is connected and subscribed, without a scan")
    func restoration() async throws {
        let simulator = try await Simulator()
        let heart = simulator.add(.heartRateSensor())
        heart.notifyRepeatedly("2A37", every: .milliseconds(50)) { [0, UInt8(60 + $0 % 60)] }
        let directory = try TemporaryDirectory()
        let first = try Example("restoration", [], simulator, state: directory.path)
        #expect(try await first.nextLine() == "Looking for a sensor.")
        #expect(try await first.nextLine().hasSuffix(" bpm"))
        first.stop(SIGKILL)
        _ = await first.status()
        heart.advertise(false)
        let second = try Example("restoration", [], simulator, state: directory.path)
        #expect(try await second.nextLine() == "Restored.")
        #expect(try await second.nextLine().hasSuffix(" bpm"))
        second.stop()
    }
}
