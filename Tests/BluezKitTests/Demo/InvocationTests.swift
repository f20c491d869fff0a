import BluezKit
import Foundation
import Testing

@testable import bluez_demo

@Suite struct InvocationTests {
    private static let identifier = "426C7A4B-0100-8000-8000-F0F1F2000001"

    private func parse(_ line: String) throws -> Invocation {
        try Invocation(line.split(separator: " ").map(String.init))
    }

    private func complaint(_ line: String) -> String? {
        do {
            _ = try parse(line)
            return nil
        } catch {
            return (error as? UsageError)?.message
        }
    }

    @Test("options of a command are read, in both spellings")
    func readsOptions() throws {
        guard case .heartRate(let options, let common) = try parse("heart-rate --count 5 --json --adapter=hci1") else {
            Issue.record("not heart-rate")
            return
        }
        #expect(options.count == 5 && options.device == nil && options.timeout == nil)
        #expect(common.isJSON && common.adapter == "hci1" && !common.isSimulated)
    }

    @Test("services may be repeated, short and long")
    func readsServices() throws {
        let long = "BB1E0001-5D3B-4C6F-9A5E-000000000000"
        guard case .scan(let options, _) = try parse("scan --service 180d --service \(long) --duration 1.5") else {
            Issue.record("not scan")
            return
        }
        #expect(options.services == [CBUUID(string: "180D"), CBUUID(string: long)])
        #expect(options.duration == 1.5)
    }

    @Test("options of every command may precede it")
    func readsLeadingOptions() throws {
        #expect(try parse("--simulated --json scan") == parse("scan --json --simulated"))
        #expect(try parse("--adapter hci3 doctor") == parse("doctor --adapter hci3"))
        #expect(
            complaint("--simulated doctor")
                == "doctor has no option --simulated; run it on the bus of `bluez-demo simulate`")
        #expect(try parse("--adapter 00:1a:7d:da:71:13 doctor") == parse("doctor --adapter 00:1a:7d:da:71:13"))
    }

    @Test("help and version are found in any position")
    func findsHelp() throws {
        #expect(try parse("--help") == .help(command: nil))
        #expect(try parse("-h") == .help(command: nil))
        #expect(try parse("help scan") == .help(command: "scan"))
        #expect(try parse("--help scan") == .help(command: "scan"))
        #expect(try parse("help help") == .help(command: nil) && parse("help --help") == .help(command: nil))
        #expect(try parse("scan --duration 3 -h") == .help(command: "scan"))
        #expect(try parse("inspect --help") == .help(command: "inspect"))
        #expect(try parse("--help --json") == .help(command: nil))
        #expect(try parse("--version") == .version)
    }

    @Test("inspect needs exactly one identifier")
    func inspectsOneDevice() throws {
        guard case .inspect(let options, _) = try parse("inspect \(Self.identifier)") else {
            Issue.record("not inspect")
            return
        }
        #expect(options.device.identifier == UUID(uuidString: Self.identifier) && options.timeout == 30)
        #expect(complaint("inspect") == "inspect which device? `bluez-demo scan` shows identifiers")
        #expect(complaint("inspect \(Self.identifier) \(Self.identifier)") == "inspect takes one device")
        #expect(
            complaint("inspect -- --json")
                == "'--json' is neither an identifier nor a Bluetooth address; `bluez-demo scan` shows them")
    }

    @Test("a device may be named by its address, of either type")
    func namesDevices() throws {
        guard case .heartRate(let options, _) = try parse("heart-rate --device f0:f1:f2:00:00:01") else {
            Issue.record("not heart-rate")
            return
        }
        #expect(
            options.device?.identifiers.map(\.uuidString) == [
                "426C7A4B-0000-8000-8000-F0F1F2000001", "426C7A4B-0100-8000-8000-F0F1F2000001",
            ])
        #expect(options.device?.identifier == nil)
        #expect(options.device?.identifiers.map(\.bluetoothAddress) == ["F0:F1:F2:00:00:01", "F0:F1:F2:00:00:01"])
        for bad in ["F0:F1:F2:00:00", "F0:F1:F2:00:00:01:02", "F0:F1:F2:00:00:0G", "F0:F1:F2:00:00:-0", ":::::"] {
            #expect(complaint("inspect \(bad)")?.contains("neither an identifier nor a Bluetooth address") == true)
        }
    }

    @Test("without arguments there is the list of commands; help for what does not exist is a mistake")
    func listsCommands() throws {
        #expect(try parse("") == .nothing)
        #expect(complaint("help nosuch") == "there is no command 'nosuch'")
        #expect(complaint("--help scna") == "there is no command 'scna'; did you mean scan?")
    }

    @Test("only the crowd scenario takes a size")
    func readsScenarios() throws {
        func scenario(_ line: String) throws -> Scenario? {
            guard case .simulate(let options, _) = try parse(line) else { return nil }
            return options.scenario
        }
        #expect(try scenario("simulate") == .heartRate)
        #expect(try scenario("simulate kitchen-sink") == .kitchenSink)
        #expect(try scenario("simulate crowd 300") == .crowd(300))
        #expect(try scenario("simulate counter") == .counter)
        #expect(complaint("simulate crowd 0") == "crowd needs a number from 1 to 10000, not '0'")
        #expect(complaint("simulate crowd 1 2") == "simulate does not take '2'")
        #expect(complaint("simulate heart-rate 3") == "simulate does not take '3'")
        #expect(complaint("simulate zoo") == "there is no scenario 'zoo'; --list shows them")
    }

    @Test("commands of two words are read, with options on either side")
    func readsTwoWords() throws {
        guard
            case .cardReceive(let options, let common) = try parse("--json card receive --min-rssi -75 --output x.vcf")
        else {
            Issue.record("not card receive")
            return
        }
        #expect(options.minimumRSSI == -75 && options.output == "x.vcf" && common.isJSON)
        #expect(options.maximumSize == 1_000_000 && options.timeout == nil)
        guard case .cardShare(let share, _) = try parse("card share me.vcf --count 2") else {
            Issue.record("not card share")
            return
        }
        #expect(share.file == "me.vcf" && share.count == 2)
        guard case .virtualHeartRate(let heart, _) = try parse("peripheral heart-rate --rate 150 --duration 9") else {
            Issue.record("not peripheral heart-rate")
            return
        }
        #expect(heart.rate == 150 && heart.duration == 9 && heart.name == "BluezKit Heart")
        #expect(try parse("help card share") == .help(command: "card share"))
        #expect(try parse("--help card receive") == .help(command: "card receive"))
        #expect(try parse("peripheral heart-rate -h") == .help(command: "peripheral heart-rate"))
        #expect(try parse("card --help") == .help(command: "card"))
        #expect(try parse("help transfer") == .help(command: "transfer"))
    }

    @Test("the restore identifier is optional; state shows or deletes preserved state")
    func readsRestoration() throws {
        func restore(_ line: String) throws -> String? {
            guard case .heartRate(let options, _) = try parse(line) else { return nil }
            return options.restore
        }
        #expect(try restore("heart-rate") == nil)
        #expect(try restore("heart-rate --restore") == "heart-rate")
        #expect(try restore("heart-rate --restore --json") == "heart-rate")
        #expect(try restore("heart-rate --restore mine --json") == "mine")
        #expect(try restore("heart-rate --restore=mine") == "mine")
        guard case .state(let options, let common) = try parse("state --discard mine --directory /x --json") else {
            Issue.record("not state")
            return
        }
        #expect(options.discard == "mine" && options.directory == "/x" && common.isJSON)
    }

    @Test("a trace is shown in whole, or what is about a device, a manager or a time")
    func readsTrace() throws {
        guard case .trace(let all, _) = try parse("trace a.trace"),
            case .trace(let some, let common) = try parse(
                "trace --device F0:F1:F2:00:00:01 --manager 2 --from 0 --to 1.5 a.trace --json")
        else {
            Issue.record("not trace")
            return
        }
        #expect(all.file == "a.trace" && all.device == nil && all.manager == nil && all.from == nil && all.to == nil)
        #expect(some.file == "a.trace" && some.device == DeviceName("F0:F1:F2:00:00:01") && some.manager == 2)
        #expect(some.from == 0 && some.to == 1.5 && common.isJSON)
    }

    @Test("with a keeper there is a restore identifier; it starts this program, or a unit")
    func readsKeeper() throws {
        func options(_ line: String) throws -> HeartRateOptions? {
            guard case .heartRate(let options, _) = try parse("heart-rate " + line) else { return nil }
            return options
        }
        #expect(try options("--restore")?.keeper == nil)
        let plain = try options("--keeper --log beats.json")
        #expect(plain?.keeper != nil && plain?.restore == "heart-rate" && plain?.log == "beats.json")
        let unit = try options("--keeper-unit heart.service --restore mine")
        #expect(unit?.keeper == .unit("heart.service") && unit?.restore == "mine" && unit?.log == nil)
        #expect(try options("--keeper --keeper-unit heart.service")?.keeper == .unit("heart.service"))
    }

    /// Not in the attribute: Swift 6.0 crashes of the interpolations there.
    private static let mistakes: [(String, String)] = [
        ("--json", "which command?"),
        ("heartrate", "there is no command 'heartrate'; did you mean heart-rate?"),
        ("scna", "there is no command 'scna'; did you mean scan?"),
        ("transfer sned a", "transfer what? There is transfer send and transfer receive"),
        ("hart-rate --count 3", "there is no command 'hart-rate'; did you mean heart-rate?"),
        ("trasnfer send a", "there is no command 'trasnfer'; did you mean transfer send?"),
        ("x", "there is no command 'x'"),
        ("scan --duraton 3", "scan has no option --duraton; did you mean --duration?"),
        ("scan --duration 0", "--duration needs a number of seconds above 0 and up to 1000000000, not '0'"),
        (
            "scan --duration 2e9", "--duration needs a number of seconds above 0 and up to 1000000000, not '2e9'"
        ),
        ("--adapter", "--adapter needs a value: --adapter ADAPTER"),
        ("simulate --list crowd 3", "simulate --list does not take 'crowd'"),
        (
            "transfer send a\u{FFFD}",
            "'a\u{FFFD}' is not UTF-8; only names in UTF-8 can be used"
        ),
        ("simulate crowd 99999999", "crowd needs a number from 1 to 10000, not '99999999'"),
        (
            "transfer send a --simulated",
            "transfer send has no option --simulated; run it on the bus of `bluez-demo simulate`"
        ),
        ("heart", "there is no command 'heart'; did you mean heart-rate?"),
        ("fly", "there is no command 'fly'"),
        ("--count 3 scan", "there is no option --count before a command"),
        ("scan --dur 3", "scan has no option --dur; did you mean --duration?"),
        ("scan --duration", "--duration needs a value: --duration SECONDS"),
        ("scan --duration --json", "--duration needs a value: --duration SECONDS"),
        ("scan --duration=", "--duration needs a value: --duration SECONDS"),
        ("scan --duration soon", "--duration needs a number of seconds above 0 and up to 1000000000, not 'soon'"),
        ("scan --duration -1", "--duration needs a number of seconds above 0 and up to 1000000000, not '-1'"),
        ("scan --duration inf", "--duration needs a number of seconds above 0 and up to 1000000000, not 'inf'"),
        ("scan --duration nan", "--duration needs a number of seconds above 0 and up to 1000000000, not 'nan'"),
        ("scan --duration 1 --duration 2", "--duration is given twice"),
        ("scan --json=yes", "--json takes no value"),
        ("scan here", "scan does not take 'here'"),
        ("scan --service 18", "'18' is not a service UUID such as 180D"),
        ("scan --service heart", "'heart' is not a service UUID such as 180D"),
        ("scan --service 180g", "'180g' is not a service UUID such as 180D"),
        ("scan --service ١٢٣٤", "'١٢٣٤' is not a service UUID such as 180D"),
        (
            "scan --adapter usb0",
            "--adapter needs a name like hci0 or an address like 00:1A:7D:DA:71:13, not 'usb0'"
        ),
        ("scan --adapter hci", "--adapter needs a name like hci0 or an address like 00:1A:7D:DA:71:13, not 'hci'"),
        ("heart-rate --count 0", "--count needs a number from 1 to \(Int.max), not '0'"),
        (
            "heart-rate --count 99999999999999999999",
            "--count needs a number from 1 to \(Int.max), not '99999999999999999999'"
        ),
        (
            "heart-rate --restore --simulated",
            "--restore needs devices that outlive this program, and those of --simulated do not: "
                + "run `bluez-demo simulate` in another terminal"
        ),
        (
            "heart-rate --simulated --keeper",
            "--keeper needs devices that outlive this program, and those of --simulated do not: "
                + "run `bluez-demo simulate` in another terminal"
        ),
        (
            "heart-rate --keeper-unit heart",
            "--keeper-unit needs the name of a unit such as heart-rate.service, not 'heart'"
        ),
        ("heart-rate --keeper=heart.service", "--keeper takes no value"),
        ("state mine", "state does not take 'mine'"),
        ("state --simulated", "state has no option --simulated; it needs no Bluetooth"),
        ("simulate --simulated", "simulate has no option --simulated; it needs no Bluetooth"),
        ("trace", "show which trace? A program writes one with BLUEZKIT_TRACE=FILE"),
        ("trace a b", "trace takes one file"),
        ("trace a --simulated", "trace has no option --simulated; it needs no Bluetooth"),
        ("trace a --manager 0", "--manager needs a number from 1 to \(Int.max), not '0'"),
        ("trace a --from -1", "--from needs a number of seconds from 0 to 1000000000, not '-1'"),
        ("trace a --from 2 --to 1", "--from 2.0 is after --to 1.0"),
        (
            "trace a --device Heart",
            "'Heart' is neither an identifier nor a Bluetooth address; `bluez-demo scan` shows them"
        ),
        ("card", "card what? There is card share and card receive"),
        ("card shar", "card what? There is card share and card receive"),
        ("peripheral", "peripheral what? There is peripheral heart-rate"),
        ("card share", "share which file?"),
        ("card share a b", "card share takes one file"),
        ("card receive a", "card receive does not take 'a'"),
        ("card receive --min-rssi 21", "--min-rssi needs a number from -127 to 20, not '21'"),
        ("card receive --max-size 0", "--max-size needs a number from 1 to \(Int.max), not '0'"),
        ("transfer", "transfer what? There is transfer send and transfer receive"),
        ("transfer send", "send which file?"),
        ("transfer receive", "receive into which file?"),
        ("transfer send a b", "transfer send takes one file"),
        (
            "transfer send a --via air",
            "--via needs one of write, write-without-response, notify, l2cap, not 'air'"
        ),
        ("transfer receive a --max-size 0", "--max-size needs a number from 1 to \(Int.max), not '0'"),
        (
            "transfer receive a --restore",
            "--restore is for the end that connects; this one is the peripheral, and continues without it"
        ),
        ("notifications now", "notifications does not take 'now'"),
        ("notifications --perform both", "--perform needs positive or negative, not 'both'"),
        ("ladder --peer --simulated", "--simulated needs no peer"),
        (
            "ladder --simulated --seconds 2",
            "--seconds is for the end that measures; --peer serves, and --simulated calculates"
        ),
        (
            "ladder --peer --seconds 2",
            "--seconds is for the end that measures; --peer serves, and --simulated calculates"
        ),
        ("peripheral heart-rate --rate 29", "--rate needs a number from 30 to 220, not '29'"),
        ("peripheral heart-rate --name 123456789012345678901", "--name has room for 20 bytes, not 21"),
        (
            "heart-rate --device Polar",
            "'Polar' is neither an identifier nor a Bluetooth address; `bluez-demo scan` shows them"
        ),
    ]

    @Test("a mistake on the command line is named in one sentence", arguments: mistakes)
    func namesMistakes(_ line: String, _ message: String) {
        #expect(complaint(line) == message)
    }

    @Test("an end of a transfer says what the other end has to run, with its way")
    func namesOtherEnd() throws {
        func otherEnd(_ line: String) throws -> String? {
            guard case .transfer(let options, _) = try parse("transfer " + line) else { return nil }
            return options.otherEnd
        }
        #expect(try otherEnd("send a") == "bluez-demo transfer receive FILE")
        #expect(try otherEnd("send a --via l2cap") == "bluez-demo transfer receive FILE --via l2cap")
        #expect(try otherEnd("receive a --via notify") == "bluez-demo transfer send FILE --via notify")
        #expect(try otherEnd("receive a --via write") == "bluez-demo transfer send FILE --via write")
    }

    // An empty name of a file was the current folder, and one of a scenario had no name in its error.
    @Test("an empty operand is refused", arguments: [["card", "share"], ["transfer", "receive"], ["simulate"]])
    func emptyOperand(_ words: [String]) {
        let mistake = UsageError(
            message: "an operand of \(words.joined(separator: " ")) is empty", command: words.joined(separator: " "))
        #expect(throws: mistake) { try Invocation(words + [""]) }
    }

    // It was rounded down to whole seconds.
    @Test("the duration of a virtual sensor may have a fraction")
    func fractionalDuration() throws {
        guard case .virtualHeartRate(let heart, _) = try parse("peripheral heart-rate --duration 1.5") else {
            Issue.record("not peripheral heart-rate")
            return
        }
        #expect(heart.duration == 1.5)
    }

    @Test(
        "the help names every command and every option, in lines that fit the terminal", arguments: [40, 60, 80, 100])
    func helpIsComplete(width: Int) {
        let help = HelpText(width: width)
        func words(_ text: String) -> String { text.split { $0.isWhitespace }.joined(separator: " ") }
        let general = words(help.general)
        for spec in CommandSpec.all {
            #expect(general.contains(spec.name) && general.contains(spec.summary))
            let text = words(help.of(spec))
            for option in spec.options { #expect(text.contains(option.name) && text.contains(option.help)) }
            #expect(text.hasSuffix(words(spec.notes)))
        }
        #expect(general.contains("--version"))
        for scenario in Scenario.all { #expect(help.of(.simulate).contains(scenario.name)) }
        for line in ([help.general] + CommandSpec.all.map(help.of)).flatMap({ $0.split(separator: "\n") }) {
            #expect(line.count <= width)
        }
    }
}
