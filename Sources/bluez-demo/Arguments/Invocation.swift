import BluezKit
import BluezKitProfiles
import Foundation

/// The validated command line.
enum Invocation: Equatable {
    /// No arguments at all.
    case nothing
    /// About one command, several that begin with the same word, or all.
    case help(command: String?)
    /// What a package installs beside the program.
    case manual, completions(Completions)
    case version
    case scan(ScanOptions, CommonOptions)
    case heartRate(HeartRateOptions, CommonOptions)
    case inspect(InspectOptions, CommonOptions)
    case record(RecordOptions, CommonOptions)
    case state(StateOptions, CommonOptions)
    case doctor(CommonOptions)
    case simulate(SimulateOptions, CommonOptions)
    case virtualHeartRate(VirtualHeartRateOptions, CommonOptions)
    case cardShare(CardShareOptions, CommonOptions)
    case cardReceive(CardReceiveOptions, CommonOptions)
    case transfer(TransferOptions, CommonOptions)
    case notifications(NotificationsOptions, CommonOptions)
    case ladder(LadderOptions, CommonOptions)
    case trace(TraceOptions, CommonOptions)

    /// - Parameter arguments: Without the name of the program.
    init(_ arguments: [String]) throws(UsageError) {
        guard !arguments.isEmpty else {
            self = .nothing
            return
        }
        // Options of every command may also precede its name.
        var leading: [String] = []
        var rest = arguments[...]
        while let first = rest.first, first.hasPrefix("-") {
            rest.removeFirst()
            switch first {
            case "--help", "-h":
                self = try Self.help(&rest)
                return
            case "--version":
                self = .version
                return
            case "--json", "--simulated": leading.append(first)
            case "--adapter":
                leading.append(first)
                guard let value = rest.popFirst() else {
                    throw UsageError(message: "--adapter needs a value: --adapter ADAPTER")
                }
                leading.append(value)
            case _ where first.hasPrefix("--adapter="): leading.append(first)
            default: throw UsageError(message: "there is no option \(first) before a command")
            }
        }
        guard let name = rest.first else { throw UsageError(message: "which command?") }
        if name == "help" {
            rest.removeFirst()
            self = try Self.help(&rest)
            return
        }
        if rest.count == 2, let option = rest.last, ["--help", "-h"].contains(option), Self.isFamily(name) {
            self = .help(command: name)
            return
        }
        let spec = try Self.takeKnownSpec(&rest)
        let parsed = try ParsedArguments(leading + rest, of: spec)
        if parsed.has(CommandSpec.help) {
            self = .help(command: spec.name)
            return
        }
        let common = try CommonOptions(parsed)
        switch spec.name {
        case "scan": self = .scan(try ScanOptions(parsed), common)
        case "heart-rate": self = .heartRate(try HeartRateOptions(parsed), common)
        case "inspect": self = .inspect(try InspectOptions(parsed), common)
        case "record": self = .record(try RecordOptions(parsed), common)
        case "state": self = .state(StateOptions(parsed), common)
        case "doctor": self = .doctor(common)
        case "peripheral heart-rate": self = .virtualHeartRate(try VirtualHeartRateOptions(parsed), common)
        case "card share": self = .cardShare(try CardShareOptions(parsed), common)
        case "card receive": self = .cardReceive(try CardReceiveOptions(parsed), common)
        case "transfer send": self = .transfer(try TransferOptions(parsed, isSending: true), common)
        case "transfer receive": self = .transfer(try TransferOptions(parsed, isSending: false), common)
        case "notifications": self = .notifications(try NotificationsOptions(parsed), common)
        case "ladder": self = .ladder(try LadderOptions(parsed), common)
        case "trace": self = .trace(try TraceOptions(parsed), common)
        default: self = .simulate(try SimulateOptions(parsed), common)
        }
    }

    /// About the command that follows, or about all.
    private static func help(_ arguments: inout ArraySlice<String>) throws(UsageError) -> Invocation {
        if arguments.first == "--manual" { return .manual }
        if arguments.first == "--completions" {
            guard let shell = arguments.dropFirst().first.flatMap(Completions.init(rawValue:)) else {
                throw UsageError(message: "--completions needs a shell: bash, zsh or fish")
            }
            return .completions(shell)
        }
        guard let next = arguments.first, !next.hasPrefix("-"), next != "help" else { return .help(command: nil) }
        if isFamily(next), arguments.count == 1 { return .help(command: next) }
        return .help(command: try takeKnownSpec(&arguments).name)
    }

    /// `card` and its like begin several commands.
    private static func isFamily(_ word: String) -> Bool { CommandSpec.all.contains { $0.name.hasPrefix(word + " ") } }

    private static func takeKnownSpec(_ arguments: inout ArraySlice<String>) throws(UsageError) -> CommandSpec {
        if let spec = takeSpec(&arguments) { return spec }
        let name = arguments.first ?? ""
        let family = CommandSpec.all.filter { $0.name.hasPrefix(name + " ") }.map(\.name)
        guard family.isEmpty else {
            throw UsageError(message: "\(name) what? There is " + family.joined(separator: " and "))
        }
        // Perhaps both words of a command are there, and one is not right.
        let candidates = CommandSpec.all.map(\.name)
        let written = [name, arguments.prefix(2).joined(separator: " ")]
        let meant = written.compactMap { Spelling.nearest(to: $0, of: candidates) }.first
        throw UsageError(message: "there is no command '\(name)'" + (meant.map { "; did you mean \($0)?" } ?? ""))
    }

    /// The command at the start of the arguments, in one word or two.
    private static func takeSpec(_ arguments: inout ArraySlice<String>) -> CommandSpec? {
        for count in [1, 2] {
            let name = arguments.prefix(count).joined(separator: " ")
            guard let spec = CommandSpec.all.first(where: { $0.name == name }) else { continue }
            arguments.removeFirst(count)
            return spec
        }
        return nil
    }
}

/// Options that most commands share.
struct CommonOptions: Equatable {
    var isJSON = false
    var isSimulated = false
    var adapter: String?

    init() {}

    init(_ parsed: ParsedArguments) throws(UsageError) {
        isJSON = parsed.has(CommandSpec.json)
        isSimulated = parsed.has(CommandSpec.simulated)
        adapter = parsed.first("--adapter")
        if let adapter, !AdapterChoice(adapter).isPossible {
            throw parsed.error(
                "--adapter needs a name like hci0 or an address like 00:1A:7D:DA:71:13, not '\(adapter)'"
            )
        }
    }
}

struct ScanOptions: Equatable {
    var duration: Double?
    var services: [CBUUID] = []

    init(_ parsed: ParsedArguments) throws(UsageError) {
        duration = try parsed.seconds("--duration")
        for text in parsed.all("--service") {
            // CBUUID traps on an invalid UUID, as Apple's does.
            let isShort = (text.count == 4 || text.count == 8) && text.utf8.allSatisfy { isHexDigit($0) }
            guard isShort || (text.utf8.count == 36 && UUID(uuidString: text) != nil) else {
                throw parsed.error("'\(text)' is not a service UUID such as 180D")
            }
            services.append(CBUUID(string: text))
        }
    }
}

struct HeartRateOptions: Equatable {
    var count: Int?
    var device: DeviceName?
    var timeout: Double?
    /// The restore identifier.
    var restore: String?
    /// How a keeper starts this program; nil: there is none.
    var keeper: BluezRelaunch?
    /// The file that every event is appended to.
    var log: String?

    init(_ parsed: ParsedArguments) throws(UsageError) {
        count = try parsed.count("--count")
        timeout = try parsed.seconds("--timeout")
        if let text = parsed.first("--device") { device = try parsed.device(text) }
        log = parsed.first("--log")
        let unit = parsed.first("--keeper-unit")
        if let unit, !unit.contains(".") {
            throw parsed.error("--keeper-unit needs the name of a unit such as heart-rate.service, not '\(unit)'")
        }
        if unit != nil || parsed.has(CommandSpec.keeper) { keeper = unit.map { .unit($0) } ?? .thisProgram }
        restore = parsed.first("--restore") ?? (keeper == nil ? nil : "heart-rate")
        if restore != nil, parsed.has(CommandSpec.simulated) {
            throw parsed.error(
                "\(keeper == nil ? "--restore" : "--keeper") needs devices that outlive this program, and those of --simulated do not: "
                    + "run `bluez-demo simulate` in another terminal")
        }
    }
}

struct StateOptions: Equatable {
    var discard: String?
    var directory: String?

    init(_ parsed: ParsedArguments) {
        (discard, directory) = (parsed.first("--discard"), parsed.first("--directory"))
    }
}

struct InspectOptions: Equatable {
    var device: DeviceName
    var timeout: Double

    init(_ parsed: ParsedArguments) throws(UsageError) {
        guard let text = parsed.operands.first else {
            throw parsed.error("inspect which device? `bluez-demo scan` shows identifiers")
        }
        guard parsed.operands.count == 1 else { throw parsed.error("inspect takes one device") }
        device = try parsed.device(text)
        timeout = try parsed.seconds("--timeout") ?? 30
    }
}

struct VirtualHeartRateOptions: Equatable {
    var name: String
    /// In beats per minute.
    var rate: Int
    /// In seconds; nil: no limit.
    var duration: Double?

    init(_ parsed: ParsedArguments) throws(UsageError) {
        name = parsed.first("--name") ?? "BluezKit Heart"
        // The part of 31 bytes that the flags and two services leave.
        guard name.utf8.count <= 20 else { throw parsed.error("--name has room for 20 bytes, not \(name.utf8.count)") }
        rate = try parsed.integer("--rate", in: 30...220) ?? 72
        duration = try parsed.seconds("--duration")
    }
}

struct CardShareOptions: Equatable {
    var file: String
    var count: Int?

    var transfer: TransferOptions {
        TransferOptions(isSending: true, isCard: true, file: file, way: .notify, maximumSize: Card.sizeLimit)
    }

    init(_ parsed: ParsedArguments) throws(UsageError) {
        guard let file = parsed.operands.first else { throw parsed.error("share which file?") }
        guard parsed.operands.count == 1 else { throw parsed.error("card share takes one file") }
        self.file = file
        count = try parsed.count("--count")
    }
}

struct CardReceiveOptions: Equatable {
    /// About an arm's length. Apple's later version of the sample uses -50 dBm; antennas of laptops are worse.
    static let nearRSSI = -60

    /// Nil: the card is shown.
    var output: String?
    /// In dBm.
    var minimumRSSI: Int
    /// In bytes.
    var maximumSize: Int
    /// In seconds.
    var timeout: Double?

    var transfer: TransferOptions {
        TransferOptions(
            isSending: false, isCard: true, file: output ?? "", way: .notify, maximumSize: maximumSize, timeout: timeout
        )
    }

    init(_ parsed: ParsedArguments) throws(UsageError) {
        output = parsed.first("--output")
        minimumRSSI = try parsed.integer("--min-rssi", in: -127...20) ?? Self.nearRSSI
        maximumSize = try parsed.count("--max-size") ?? Card.sizeLimit
        timeout = try parsed.seconds("--timeout")
    }
}

struct TransferOptions: Equatable {
    /// In bytes: a gigabyte, which takes hours.
    static let usualLimit = 1_000_000_000

    var isSending: Bool
    /// Of `card`, which has a service of its own, and keeps no part.
    var isCard = false
    var file: String
    var way: TransferWay
    /// In bytes.
    var maximumSize: Int
    /// In seconds.
    var timeout: Double?
    /// The restore identifier.
    var restore: String?

    /// Whether this end is the central: data from the central to the peripheral are written, the others notified.
    var isCentral: Bool { isSending != (way == .notify) }

    /// What the peripheral advertises.
    var service: CBUUID {
        isCard ? TransferProtocol.card : way == .notify ? TransferProtocol.sender : TransferProtocol.receiver
    }

    /// What the other end has to run.
    var otherEnd: String {
        if isCard { return "bluez-demo card " + (isSending ? "receive" : "share FILE") }
        return "bluez-demo transfer \(isSending ? "receive" : "send") FILE"
            + (way == .writeWithoutResponse ? "" : " --via \(way.rawValue)")
    }
    /// What to look at if the other end is not found. Ends of which both connect, or both wait, hear nothing of each
    /// other.
    var remedy: String { "is `\(otherEnd)` running there\(isCard ? "" : ", with the same --via"), and near?" }
}

extension TransferOptions {
    init(_ parsed: ParsedArguments, isSending: Bool) throws(UsageError) {
        self.isSending = isSending
        guard let file = parsed.operands.first else {
            throw parsed.error(isSending ? "send which file?" : "receive into which file?")
        }
        guard parsed.operands.count == 1 else {
            throw parsed.error("transfer \(isSending ? "send" : "receive") takes one file")
        }
        self.file = file
        let text = parsed.first("--via") ?? TransferWay.writeWithoutResponse.rawValue
        guard let way = TransferWay(rawValue: text) else {
            let all = TransferWay.allCases.map(\.rawValue).joined(separator: ", ")
            throw parsed.error("--via needs one of \(all), not '\(text)'")
        }
        self.way = way
        maximumSize = try parsed.count("--max-size") ?? Self.usualLimit
        timeout = try parsed.seconds("--timeout")
        restore = parsed.first("--restore")
        if restore != nil, !isCentral {
            throw parsed.error(
                "--restore is for the end that connects; this one is the peripheral, and continues without it")
        }
    }
}

struct NotificationsOptions: Equatable {
    /// The identifier of an app; nil: all.
    var app: String?
    var action: ANCSCommand.Action?
    var count: Int?
    /// In seconds.
    var timeout: Double?

    init(_ parsed: ParsedArguments) throws(UsageError) {
        app = parsed.first("--app")
        switch parsed.first("--perform") {
        case nil: break
        case "positive": action = .positive
        case "negative": action = .negative
        case let text?: throw parsed.error("--perform needs positive or negative, not '\(text)'")
        }
        count = try parsed.count("--count")
        timeout = try parsed.seconds("--timeout")
    }
}

private func isHexDigit(_ byte: UInt8) -> Bool { Character(Unicode.Scalar(byte)).isHexDigit }
