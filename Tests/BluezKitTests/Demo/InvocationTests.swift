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

    @Test("options of every command may come before it")
    func readsLeadingOptions() throws {
        #expect(try parse("--simulated --json scan") == parse("scan --json --simulated"))
        #expect(try parse("--adapter hci3 doctor") == parse("doctor --adapter hci3"))
        #expect(complaint("--simulated doctor") == "doctor has no option --simulated")
    }

    @Test("help and version are found wherever they stand")
    func findsHelp() throws {
        #expect(try parse("--help") == .help(command: nil))
        #expect(try parse("-h") == .help(command: nil))
        #expect(try parse("help scan") == .help(command: "scan"))
        #expect(try parse("--help scan") == .help(command: "scan"))
        #expect(try parse("scan --duration 3 -h") == .help(command: "scan"))
        #expect(try parse("inspect --help") == .help(command: "inspect"))
        #expect(try parse("--version") == .version)
    }

    @Test("inspect needs exactly one identifier")
    func inspectsOneDevice() throws {
        guard case .inspect(let options, _) = try parse("inspect \(Self.identifier)") else {
            Issue.record("not inspect")
            return
        }
        #expect(options.device == UUID(uuidString: Self.identifier) && options.timeout == 30)
        #expect(complaint("inspect") == "inspect which device? `bluez-demo scan` shows identifiers")
        #expect(complaint("inspect \(Self.identifier) \(Self.identifier)") == "inspect takes one identifier")
        #expect(complaint("inspect -- --json") == "'--json' is not an identifier; `bluez-demo scan` shows them")
    }

    @Test("a scenario may have a size if it is a crowd")
    func readsScenarios() throws {
        func scenario(_ line: String) throws -> Scenario? {
            guard case .simulate(let options, _) = try parse(line) else { return nil }
            return options.scenario
        }
        #expect(try scenario("simulate") == .heartRate)
        #expect(try scenario("simulate kitchen-sink") == .kitchenSink)
        #expect(try scenario("simulate crowd 300") == .crowd(300))
        #expect(complaint("simulate crowd 0") == "crowd needs a number from 1 up, not '0'")
        #expect(complaint("simulate crowd 1 2") == "simulate does not take '2'")
        #expect(complaint("simulate heart-rate 3") == "simulate does not take '3'")
        #expect(complaint("simulate zoo") == "there is no scenario 'zoo'; --list shows them")
    }

    @Test(
        "a mistake is named in one sentence",
        arguments: [
            ("", "which command?"),
            ("heart", "there is no command 'heart'; did you mean heart-rate?"),
            ("fly", "there is no command 'fly'"),
            ("--count 3 scan", "there is no option --count before a command"),
            ("scan --dur 3", "scan has no option --dur; did you mean --duration?"),
            ("scan --duration", "--duration needs a value: --duration SECONDS"),
            ("scan --duration --json", "--duration needs a value: --duration SECONDS"),
            ("scan --duration=", "--duration needs a value: --duration SECONDS"),
            ("scan --duration soon", "--duration needs a number of seconds, not 'soon'"),
            ("scan --duration -1", "--duration needs a number of seconds, not '-1'"),
            ("scan --duration inf", "--duration needs a number of seconds, not 'inf'"),
            ("scan --duration nan", "--duration needs a number of seconds, not 'nan'"),
            ("scan --duration 1 --duration 2", "--duration is given twice"),
            ("scan --json=yes", "--json takes no value"),
            ("scan here", "scan does not take 'here'"),
            ("scan --service 18", "'18' is not a service UUID such as 180D"),
            ("scan --service heart", "'heart' is not a service UUID such as 180D"),
            ("scan --service 180g", "'180g' is not a service UUID such as 180D"),
            ("scan --service ١٢٣٤", "'١٢٣٤' is not a service UUID such as 180D"),
            ("scan --adapter usb0", "--adapter needs a name like hci0, not 'usb0'"),
            ("scan --adapter hci", "--adapter needs a name like hci0, not 'hci'"),
            ("heart-rate --count 0", "--count needs a number from 1 up, not '0'"),
            ("heart-rate --count 99999999999999999999", "--count needs a number from 1 up, not '99999999999999999999'"),
            ("heart-rate --device Polar", "'Polar' is not an identifier; `bluez-demo scan` shows them"),
        ])
    func namesMistakes(_ line: String, _ message: String) {
        #expect(complaint(line) == message)
    }

    @Test("the help names every command and every option")
    func helpIsComplete() {
        for spec in CommandSpec.all {
            #expect(HelpText.general.contains(spec.name) && HelpText.general.contains(spec.summary))
            for option in spec.options { #expect(HelpText.of(spec).contains(option.name)) }
        }
        for scenario in Scenario.all { #expect(HelpText.of(.simulate).contains(scenario.name)) }
    }
}
