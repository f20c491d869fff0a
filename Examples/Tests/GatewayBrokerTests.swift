import BluezKitSimulator
import Foundation
import Testing

/// What the gateway does while there is no broker, and with one that refuses it.
@Suite(.serialized) struct GatewayBrokerTests {
    /// Numbers of the values that a subscriber has received; each is one byte.
    private static func numbers(_ lines: Lines, until last: Int) async throws -> [Int] {
        var numbers: [Int] = []
        repeat {
            let line = try await lines.next { $0.contains("/value ") && !$0.hasPrefix("R") }
            numbers.append(Int(try GatewayTests.Line(line.json).value ?? "", radix: 16) ?? -1)
        } while numbers.last != last
        return numbers
    }

    @Test("while the broker is away, the queue keeps the last values; what was dropped is counted exactly")
    func away() async throws {
        let simulator = try await Simulator()
        let sensor = simulator.add(GatewayTests.sensor(1))
        let broker = try Mosquitto()
        try await broker.start()
        let before = try await Subscriber(broker)
        try broker.open()
        let gateway = try GatewayTests.gateway(broker, simulator, ["--queue", "50", "--discovery", "ha"])
        try await until { sensor.isSubscribed(to: "2A56") }
        func send(_ numbers: Range<Int>) { for number in numbers { sensor.notify("2A56", [UInt8(number)]) } }
        send(0..<10)
        var received = try await Self.numbers(before.lines, until: 9)
        try await broker.crash()
        try await before.ended()
        try await gateway.expectProblems(["it is tried again, and up to 50 messages wait"])
        send(10..<130)
        try await gateway.expectProblems(["50 messages wait: the oldest ones are dropped from now on"])
        try await broker.start()
        let after = try await Subscriber(broker)
        try broker.open()
        try await gateway.expectProblems(["the broker is back; 50 messages have waited"])
        send(130..<140)
        received += try await Self.numbers(after.lines, until: 139)
        let missing = Set(0..<140).subtracting(received)
        let dropped = missing.count
        #expect(missing.min() == 10 && dropped <= 70)
        // Everything that it had retained is there again, though the broker has lost it.
        let late = try await Subscriber(broker)
        try await late.lines.expect([
            "R gateway/status online", "/state {\"event\":\"connected\"", "R ha/sensor/", "\"value\":\"8b\"",
            " gateway/dropped \(dropped)",
        ])
        gateway.stop()
        #expect(await gateway.status() == 0)
        try await gateway.expectProblems(["\(140 - dropped) messages were published, \(dropped) were dropped"])
    }

    @Test("a broker that hangs is no different: libmosquitto has few messages, and the queue its bound")
    func hangs() async throws {
        let simulator = try await Simulator()
        let sensor = simulator.add(GatewayTests.sensor(1))
        let broker = try Mosquitto()
        try await broker.start()
        let subscriber = try await Subscriber(broker)
        try broker.open()
        let gateway = try GatewayTests.gateway(broker, simulator, ["--queue", "50"])
        try await until { sensor.isSubscribed(to: "2A56") }
        sensor.notify("2A56", [0])
        var received = try await Self.numbers(subscriber.lines, until: 0)
        broker.signal(SIGSTOP)
        for number in 1..<200 { sensor.notify("2A56", [UInt8(number)]) }
        try await gateway.expectProblems(["50 messages wait: the oldest ones are dropped from now on"])
        broker.signal(SIGCONT)
        sensor.notify("2A56", [200])
        received += try await Self.numbers(subscriber.lines, until: 200)
        let missing = Set(0...200).subtracting(received)
        #expect(received.count == Set(received).count)
        // Those on their way, 20 at most, are not dropped.
        #expect(try #require(missing.min()) <= 21)
        try await Subscriber(broker).lines.expect([" gateway/dropped \(missing.count)"])
        gateway.stop()
        #expect(await gateway.status() == 0)
        try await gateway.expectProblems([
            "\(201 - missing.count) messages were published, \(missing.count) were dropped"
        ])
    }

    @Test("what waits is published before the end: after N values, and without a broker until it is asked to end")
    func end() async throws {
        let simulator = try await Simulator()
        let sensor = simulator.add(GatewayTests.sensor(1))
        let broker = try Mosquitto()
        try await broker.start()
        let subscriber = try await Subscriber(broker)
        try broker.open()
        let counting = try GatewayTests.gateway(broker, simulator, ["--count", "3"])
        try await until { sensor.isSubscribed(to: "2A56") }
        for number: UInt8 in 0..<5 { sensor.notify("2A56", [number]) }
        #expect(try await Self.numbers(subscriber.lines, until: 2) == [0, 1, 2])
        #expect(try await subscriber.next("gateway/status") == "offline")
        #expect(await counting.status() == 0)
        try await until { !sensor.isSubscribed(to: "2A56") }
        try await broker.crash()
        let waiting = try GatewayTests.gateway(broker, simulator)
        try await waiting.expectProblems(["no broker listens at \(broker.socket) (No such file or directory)"])
        try await until { sensor.isSubscribed(to: "2A56") }
        waiting.stop()
        #expect(await waiting.status() == 0)
        try await waiting.expectProblems(["0 messages were published, 0 were dropped"])
    }

    @Test("what is wrong with the broker or its address is one sentence that says what to do")
    func addresses() async throws {
        let simulator = try await Simulator()
        func problem(_ url: String) async throws -> String {
            let gateway = try Example("gateway", ["1815", "2A56", "--broker", url], simulator)
            let problem = try await gateway.nextProblem()
            gateway.stop()
            #expect(await gateway.status() == 0)
            return String(problem.dropFirst("gateway: ".count))
        }
        let more = "; it is tried again, and up to 10000 messages wait"
        let port = try FreePort()
        #expect(
            try await problem("mqtt://127.0.0.1:\(port.number)")
                == "no broker listens at 127.0.0.1:\(port.number) (Connection refused): "
                + "start it, or check --broker\(more)"
        )
        withExtendedLifetime(port) {}
        let unknown = try await problem("no-such..host")
        #expect(
            unknown.hasPrefix("there is no host no-such..host (")
                && unknown.hasSuffix("): check --broker and the network\(more)"))
    }

    @Test("a wrong password, and none")
    func password() async throws {
        let simulator = try await Simulator()
        let directory = try TemporaryDirectory()
        let (users, secret) = (directory.path + "/users", directory.path + "/secret")
        try run(Mosquitto.program("bin/mosquitto_passwd"), ["-b", "-c", users, "me", "right"])
        let broker = try Mosquitto(["password_file \(users)"])
        try await broker.start()
        let url = ["1815", "2A56", "--broker", "mqtt://127.0.0.1:\(broker.port)"]
        func gateway(_ password: String?) throws -> Example {
            guard let password else { return try Example("gateway", url, simulator) }
            try password.write(toFile: secret, atomically: true, encoding: .utf8)
            return try Example("gateway", url + ["--user", "me", "--password-file", secret], simulator)
        }
        let place = "gateway: the broker at 127.0.0.1:\(broker.port)"
        let right = try gateway("right\nand more\n")
        #expect(try await right.nextProblem() == "gateway: connected to the broker at 127.0.0.1:\(broker.port)")
        right.stop()
        #expect(await right.status() == 0)
        let wrong = try gateway("wrong\n")
        #expect(
            try await wrong.nextProblem()
                == "\(place) refuses the user me: a wrong name or password; check --user and --password-file")
        #expect(await wrong.status() == 1)
        let none = try gateway(nil)
        #expect(
            try await none.nextProblem() == "\(place) demands a user and a password: give --user and --password-file")
        #expect(await none.status() == 1)
    }

    @Test("TLS: the broker's authority, its name, the client's certificate, and brokers without TLS")
    func encryption() async throws {
        let simulator = try await Simulator()
        let directory = try TemporaryDirectory()
        func path(_ file: String) -> String { "\(directory.path)/\(file)" }
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        func openssl(_ arguments: [String]) throws { try run("/usr/bin/openssl", arguments) }
        for name in ["ca", "other"] {
            try openssl(
                ["req", "-x509"] + key + ["-keyout", path(name + ".key"), "-out", path(name), "-subj", "/CN=\(name)"])
        }
        for name in ["localhost", "client"] {
            try openssl(
                ["req"] + key + ["-keyout", path(name + ".key"), "-out", path(name + ".csr"), "-subj", "/CN=\(name)"])
            try openssl([
                "x509", "-req", "-in", path(name + ".csr"), "-CA", path("ca"), "-CAkey", path("ca.key"),
                "-CAcreateserial", "-out", path(name),
            ])
        }
        let tls = ["certfile \(path("localhost"))", "keyfile \(path("localhost.key"))", "allow_anonymous true"]
        let open = try Mosquitto(tls)
        let strict = try Mosquitto(tls + ["cafile \(path("ca"))", "require_certificate true"])
        let plain = try Mosquitto()
        for broker in [open, strict, plain] { try await broker.start() }
        let ca = ["--ca", path("ca")]
        let (other, own) = (["--ca", path("other")], ca + ["--cert", path("client"), "--key", path("client.key")])
        func url(_ broker: Mosquitto, _ scheme: String = "mqtts", _ host: String = "localhost") -> String {
            "\(scheme)://\(host):\(broker.port)"
        }
        func connected(_ broker: Mosquitto) -> String { "connected to the broker at localhost:\(broker.port)" }
        let authority = "the certificate of the broker at localhost:\(open.port) has expired, or its authority is not"
        let cases: [(url: String, options: [String], environment: [String: String], problem: String)] = [
            (url(open), ca, [:], connected(open)), (url(open, "mqtt"), ca, [:], connected(open)),
            (url(open), [], ["SSL_CERT_FILE": path("ca")], connected(open)), (url(strict), own, [:], connected(strict)),
            (url(open), other, [:], "\(authority) the one in \(path("other")): give that with --ca"),
            (url(open), [], [:], "\(authority) one that this system trusts: give that with --ca"),
            (
                url(open, "mqtts", "127.0.0.1"), ca, [:],
                "the certificate of the broker at 127.0.0.1:\(open.port) is for another name: "
                    + "use the name that is in it in --broker"
            ),
            (
                url(strict), ca, [:],
                "the broker at localhost:\(strict.port) does not accept the certificate of this client, "
                    + "or demands one: check --cert and --key"
            ),
            (
                url(plain), ca, [:],
                "the broker at localhost:\(plain.port) does not speak TLS at this port: use mqtt://"
            ),
            (
                url(open, "mqtt"), [], [:],
                "localhost:\(open.port) ends the connection at once: it may demand TLS (mqtts://), or be no broker"
            ),
            (
                url(open), ["--ca", path("ca.key")], [:],
                "TLS cannot be used, because a file is not as it should be: Error: Unable to load CA certificates"
            ),
        ]
        let gateways = try cases.enumerated().map {
            try Example(
                "gateway", ["1815", "2A56", "--topic", "\($0)", "--broker", $1.url] + $1.options, simulator,
                environment: $1.environment)
        }
        for (gateway, expected) in zip(gateways, cases) {
            let problem = try await gateway.nextProblem()
            // What ends a connection can come before TLS's alert is read, and a broker without TLS only ends it: both
            // causes are named then.
            let mayBeCutOff = [url(strict), url(plain)].contains(expected.url) && expected.options == ca
            let isCutOff = problem.contains(
                " ends the connection without saying why: it may not accept the certificate")
            #expect(problem.hasPrefix("gateway: \(expected.problem)") || mayBeCutOff && isCutOff, "\(problem)")
        }
        for gateway in gateways { gateway.stop() }
        for gateway in gateways { _ = await gateway.status() }
    }

    /// Runs a program to its end.
    private func run(_ program: String, _ arguments: [String]) throws {
        let (process, output) = (Process(), Pipe())
        process.executableURL = URL(fileURLWithPath: program)
        process.arguments = arguments
        (process.standardOutput, process.standardError) = (output, output)
        try process.run()
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        guard process.terminationStatus == 0 else { throw Missing(description: "\(program): \(text)") }
    }
}
