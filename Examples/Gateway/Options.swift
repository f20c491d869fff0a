import CoreBluetooth
import Foundation

let usage = """
    usage: gateway SERVICE CHARACTERISTIC [OPTION...]

    Connects to every peripheral that advertises SERVICE, subscribes to CHARACTERISTIC, and prints one JSON object for
    each value, and for each connection that is made or lost. Both are UUIDs, such as 180D and 2A37. It connects again
    when a peripheral comes back.

      --count N             stop after N values
      --help                print this text

    With a broker, the objects are published by MQTT 5, and not printed:

      --broker URL          mqtt://HOST or, with TLS, mqtts://HOST, both with :PORT if it is not 1883 or 8883; or the
                            path of a Unix socket
      --topic TOPIC         what all topics begin with, and the name of this client; default: gateway
      --queue N             how many values wait while the broker is away, at most; then the oldest ones are dropped,
                            and counted; default: 10000
      --discovery PREFIX    announce the sensors to Home Assistant, which expects that under homeassistant
      --write UUID          a message to TOPIC/PERIPHERAL/set writes this characteristic of SERVICE: 01ff, or "text"
      --user NAME           who this is to the broker
      --password-file FILE  the user's password is the first line
      --ca FILE             with TLS: the authority that has signed the broker's certificate (PEM), instead of those
                            that the system trusts
      --cert FILE           the certificate of this client (PEM), which also needs --ca
      --key FILE            the key of that certificate (PEM)

    Then SIGTERM and SIGINT end the program in good order: what waits is published, and the status offline.
    """

/// Writes a line for people, such as a journal has.
func say(_ text: String) {
    try? FileHandle.standardError.write(contentsOf: Data("gateway: \(text)\n".utf8))
}

func fail(_ problem: String) -> Never {
    say(problem)
    exit(1)
}

struct Options {
    var service = Data()
    var characteristic = Data()
    /// The characteristic that commands write.
    var writable: Data?
    var count = Int.max
    var broker: BrokerOptions?
    var topic = "gateway"
    var queue = 10_000
    var discovery: String?

    /// How many peripherals to follow.
    var peripherals: Int { broker == nil ? .max : 1000 }

    /// What is published beside the digits of a value, if the format is known.
    var quantity: Quantity? { broker == nil ? nil : Quantity(of: CBUUID(data: characteristic)) }

    /// Ends the program if they are wrong.
    init(_ arguments: [String]) {
        var uuids: [String] = []
        var given: [String: String] = [:]
        var rest = arguments[...]
        while let argument = rest.popFirst() {
            guard argument.hasPrefix("-") else {
                uuids.append(argument)
                continue
            }
            guard let what = Self.values[argument] else { fail("there is no option \(argument); see --help") }
            guard let value = rest.popFirst(), !value.isEmpty else { fail("\(argument) needs \(what)") }
            given[argument] = value
        }
        guard uuids.count == 2 else { fail("it takes two UUIDs; see --help") }
        (service, characteristic) = (uuid(uuids[0]).data, uuid(uuids[1]).data)
        if let text = given["--count"] { count = Self.number(text, "--count", Int.max) }
        guard let url = given["--broker"] else {
            if let other = given.keys.filter({ $0 != "--count" }).min() { fail("\(other) needs --broker") }
            return
        }
        broker = BrokerOptions(url, given)
        if let text = given["--topic"] { topic = Self.topic(text, "--topic") }
        if let text = given["--discovery"] { discovery = Self.topic(text, "--discovery") }
        if let text = given["--queue"] { queue = Self.number(text, "--queue", 1_000_000) }
        if let text = given["--write"] { writable = uuid(text).data }
    }

    /// What the options take.
    private static let values = [
        "--count": "a number above 0", "--broker": "a URL or a path", "--topic": "a topic",
        "--queue": "a number above 0", "--discovery": "a topic", "--write": "a UUID", "--user": "a name",
        "--password-file": "a file", "--ca": "a file", "--cert": "a file", "--key": "a file",
    ]

    private static func number(_ text: String, _ option: String, _ limit: Int) -> Int {
        guard let number = Int(text), number > 0 else { fail("\(option) needs a number above 0") }
        guard number <= limit else { fail("\(option) can be \(limit) at most") }
        return number
    }

    /// One that a message can be published to, and to which something can be appended.
    private static func topic(_ text: String, _ option: String) -> String {
        guard text.utf8.count <= 128, !text.hasPrefix("$"), !text.hasPrefix("/"), !text.hasSuffix("/"),
            text.unicodeScalars.allSatisfy({ $0.value >= 0x20 && $0 != "+" && $0 != "#" && $0.value != 0x7F })
        else {
            fail("\(option) needs up to 128 bytes without + and #, that do not begin with $ or /, or end with /")
        }
        return text
    }
}

/// Where the broker is, and how to convince it.
struct BrokerOptions {
    /// A host, or the path of a socket.
    let host: String
    /// 0 for a socket.
    let port: Int32
    let usesTLS: Bool
    var user: String?
    var password: String?
    var authority: String?
    var certificate: String?
    var key: String?

    init(_ url: String, _ given: [String: String]) {
        (authority, certificate, key) = (given["--ca"], given["--cert"], given["--key"])
        guard (certificate == nil) == (key == nil) else { fail("--cert and --key need each other") }
        guard certificate == nil || authority != nil else { fail("--cert needs --ca") }
        for (option, file) in given where ["--ca", "--cert", "--key"].contains(option) {
            _ = Self.read(file, option)
        }
        user = given["--user"]
        if let file = given["--password-file"] {
            guard user != nil else { fail("--password-file needs --user") }
            let line = String(decoding: Self.read(file, "--password-file"), as: UTF8.self).prefix { !$0.isNewline }
            guard !line.isEmpty else { fail("\(file), the password file, has no first line") }
            password = String(line)
        }
        if url.hasPrefix("/") {
            guard url.utf8.count < 108 else { fail("the path of a Unix socket has at most 107 bytes") }
            (host, port, usesTLS) = (url, 0, authority != nil)
            return
        }
        // The URL is not repeated: it may contain a password.
        guard let parts = URLComponents(string: url.contains("://") ? url : "mqtt://\(url)"),
            let scheme = parts.scheme, ["mqtt", "mqtts"].contains(scheme), let name = parts.host, !name.isEmpty,
            ["", "/"].contains(parts.path), parts.query == nil
        else { fail("--broker needs mqtt://HOST or mqtts://HOST, with :PORT if need be, or the path of a socket") }
        guard parts.user == nil, parts.password == nil else {
            fail("other users of this computer can read what --broker contains: use --user and --password-file")
        }
        guard let number = Int32(exactly: parts.port ?? 1883), (1...65_535).contains(number) else {
            fail("a port is a number from 1 to 65535")
        }
        usesTLS = scheme == "mqtts" || authority != nil
        // Without the brackets of an IPv6 address.
        host = name.trimmingCharacters(in: CharacterSet(charactersIn: "[]"))
        port = parts.port == nil && usesTLS ? 8883 : number
    }

    /// For people.
    var place: String { port == 0 ? host : host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }

    private static func read(_ file: String, _ option: String) -> Data {
        // It may be a pipe as well.
        guard let handle = FileHandle(forReadingAtPath: file) else {
            fail("\(file) of \(option) cannot be read: \(String(cString: strerror(errno)))")
        }
        do {
            return try handle.readToEnd() ?? Data()
        } catch { fail("\(file) of \(option) cannot be read: \(error.localizedDescription)") }
    }
}

/// CoreBluetooth ends a program that makes a UUID of anything else.
func uuid(_ text: String) -> CBUUID {
    let isShort = [4, 8].contains(text.count) && text.allSatisfy(\.isHexDigit)
    guard text.allSatisfy(\.isASCII), isShort || UUID(uuidString: text) != nil else {
        fail("\(text) is no UUID: it has 4, 8 or 32 hexadecimal digits, the last form with hyphens")
    }
    return CBUUID(string: text)
}
