import BluezDBus
import BluezKit
import BluezKitSimulator
import Foundation
import Testing

@testable import bluez_demo

@Suite struct DoctorReportTests {
    /// A machine on which all is well.
    private var healthy: Surroundings {
        var found = Surroundings()
        found.busAddress = "unix:path=/run/dbus/system_bus_socket"
        found.daemon = .running
        found.daemonVersion = BlueZVersion(5, 86)
        found.adapters = [adapter("hci0")]
        found.sockets = .available
        return found
    }

    private func adapter(_ name: String) -> Surroundings.Adapter {
        var adapter = Surroundings.Adapter(name: name)
        adapter.isPowered = true
        adapter.roles = ["central", "peripheral"]
        (adapter.hasGattManager, adapter.hasAdvertisingManager) = (true, true)
        return adapter
    }

    private func report(_ change: (inout Surroundings) -> Void) -> DoctorReport {
        var found = healthy
        change(&found)
        return DoctorReport(found)
    }

    private func remedy(_ change: (inout Surroundings) -> Void) -> String? {
        report(change).checks.first { $0.verdict == .problem }?.remedy
    }

    @Test("on a healthy machine all checks are ok")
    func findsNothing() {
        let report = report { _ in }
        #expect(report.isUsable && report.checks.allSatisfy { $0.verdict == .ok && $0.remedy == nil })
        #expect(report.checks.map(\.name) == ["bus", "daemon", "version", "rfkill", "adapter", "sockets"])
    }

    @Test("each problem comes with its remedy")
    func knowsRemedies() {
        let missing = Surroundings.BusFailure.unreachable(message: "no such file")
        #expect(remedy { $0.busFailure = missing } == "sudo systemctl start dbus")
        #expect(
            remedy { ($0.busFailure, $0.hasSystemd) = (missing, false) }
                == "sudo service dbus start; in a container: start the container with -v /run/dbus:/run/dbus")
        #expect(
            remedy { ($0.daemon, $0.hasSystemd) = (.notRunning(message: ""), false) } == "sudo service bluetooth start")
        #expect(
            remedy { ($0.busFailure, $0.isContainer, $0.isBusChosenByEnvironment) = (missing, true, true) }
                == "start that bus, or unset DBUS_SYSTEM_BUS_ADDRESS, which is unix:path=/run/dbus/system_bus_socket")
        #expect(
            remedy { ($0.busFailure, $0.isContainer) = (missing, true) }
                == "start the container with -v /run/dbus:/run/dbus")
        #expect(remedy { $0.daemon = .notRunning(message: "") } == "sudo systemctl enable --now bluetooth")
        #expect(
            remedy { ($0.daemon, $0.isDaemonInstalled) = (.notRunning(message: ""), false) }?
                .hasPrefix("sudo apt install bluez") == true)
        #expect(
            remedy { $0.daemon = .denied(message: "") } == "sudo usermod -aG bluetooth $USER, then log in again")
        #expect(
            remedy { ($0.daemon, $0.isContainer) = (.denied(message: ""), true) }?.contains("--group-add") == true)
        #expect(remedy { $0.daemon = .silent(message: "") } == "sudo systemctl restart bluetooth")
        #expect(remedy { $0.adapters = [] }?.hasPrefix("plug one in") == true)
        #expect(remedy { $0.chosenAdapter = AdapterChoice("hci7") } == "choose one of these: hci0")
        #expect(remedy { $0.adapters?[0].isPowered = false } == "bluetoothctl power on")
        #expect(
            remedy { $0.rfkill = [.init(name: "hci0", isSoftBlocked: true, isHardBlocked: false)] }
                == "rfkill unblock bluetooth")
        #expect(
            remedy { $0.rfkill = [.init(name: "hci0", isSoftBlocked: true, isHardBlocked: true)] }?
                .hasPrefix("turn that switch on") == true)
        let classic = remedy {
            $0.adapters?[0].roles = []
            $0.adapters?[0].hasGattManager = false
        }
        #expect(classic?.hasPrefix("use an adapter with Bluetooth 4.0") == true)
    }

    // In a container the doctor said of a bus that refused its user to start that bus, and that rfkill blocks nothing
    // where it could not see that.
    @Test("in a container, a bus that refuses a user, AppArmor and a missing /sys are told apart")
    func knowsContainers() {
        func remedy(_ message: String, _ here: UInt32, _ outside: UInt32) -> String? {
            self.remedy { $0.busFailure = .refused(message: message, user: .init(here: here, outside: outside)) }
        }
        #expect(remedy("closed", 0, 1000)?.contains("--userns=keep-id") == true)
        #expect(remedy("closed", 1000, 1000)?.contains("getent passwd 1000") == true)
        #expect(remedy("An AppArmor policy prevents this sender", 0, 1000)?.contains("apparmor=unconfined") == true)
        let blind = report { $0.rfkill = nil }
        #expect(blind.isUsable && !blind.checks.contains { $0.name == "rfkill" })
    }

    @Test("the number of a user outside of the user namespace is read from its map, whatever is in that")
    func readsUserMap() {
        let rootless = "         0       1000          1\n         1     100000      65536\n"
        let users: [(UInt32, UInt32?)] = [(0, 1000), (1, 100000), (65536, 165535), (65537, nil)]
        for (here, outside) in users { #expect(Surroundings.outside(here, in: rootless) == outside) }
        #expect(Surroundings.outside(7, in: "         0          0 4294967295\n") == 7)
        for map in ["", "\n\n", "0 1", "a b c", "0 4294967295 9", "-1 2 3", "0 5 99999999999"] {
            #expect(Surroundings.outside(7, in: map) == nil, "\(map)")
        }
    }

    @Test("a blocked adapter is unblocked before it is switched on")
    func unblocksFirst() {
        let report = report {
            $0.adapters?[0].isPowered = false
            $0.adapters?[0].powerState = "off-blocked"
        }
        #expect(report.checks.first { $0.name == "adapter" }?.remedy?.hasPrefix("rfkill unblock") == true)
    }

    @Test("one adapter that works is enough, unless another one was asked for")
    func oneAdapterIsEnough() {
        var found = healthy
        var second = adapter("hci1")
        second.isPowered = false
        found.adapters?.append(second)
        #expect(DoctorReport(found).isUsable)
        #expect(DoctorReport(found).checks.contains { $0.verdict == .warning })
        found.chosenAdapter = AdapterChoice("hci1")
        #expect(!DoctorReport(found).isUsable)
    }

    // The doctor called Bluetooth usable where no program of the same shell could use it, because BLUEZKIT_ADAPTER
    // named an adapter that is not there.
    @Test(
        "an adapter is chosen by its address as well; a missing one is a problem, also if the environment asks for it")
    func chosenAdapter() {
        var found = healthy
        found.adapters?.append(adapter("hci1"))
        found.adapters?[0].isPowered = false
        found.adapters?[1].address = "00:B1:5E:00:00:02"
        found.chosenAdapter = AdapterChoice("00:b1:5e:00:00:02")
        #expect(DoctorReport(found).checks.filter { $0.name == "adapter" }.map(\.verdict) == [.ok])
        found.chosenAdapter = AdapterChoice("00:B1:5E:00:00:03")
        found.isChosenByEnvironment = true
        let check = DoctorReport(found).checks.first { $0.name == "adapter" }
        #expect(check?.verdict == .problem)
        #expect(check?.finding == "there is no adapter 00:B1:5E:00:00:03, which BLUEZKIT_ADAPTER asks for")
        #expect(check?.remedy == "choose one of these: hci0, hci1 (00:B1:5E:00:00:02)")
    }

    @Test("a problem that affects only some programs is a warning")
    func warns() {
        let old = report { $0.daemonVersion = BlueZVersion(5, 50) }
        #expect(old.isUsable && old.checks.contains { $0.name == "version" && $0.verdict == .warning })
        let sockets = report { $0.sockets = .refused(message: "no") }
        #expect(sockets.isUsable && sockets.checks.contains { $0.name == "sockets" && $0.verdict == .warning })
        let central = report { $0.adapters?[0].hasAdvertisingManager = false }
        #expect(central.isUsable && central.checks.contains { $0.name == "peripheral" && $0.verdict == .warning })
    }

    @Test("a keeper that cannot be used is a warning with its remedy, since few programs need one")
    func examinesKeeper() throws {
        func check(_ change: (inout Surroundings.KeeperFindings) -> Void) throws -> [DoctorCheck] {
            var keeper = Surroundings.KeeperFindings(socket: "/run/user/7/bluezkit/keeper", program: "/x/keeper")
            change(&keeper)
            let report = report { $0.keeper = keeper }
            let checks = report.checks.filter { $0.name == "keeper" }
            #expect(report.isUsable && !checks.isEmpty)
            for check in checks { #expect((check.verdict == .ok) == (check.remedy == nil), "\(check)") }
            return checks
        }
        #expect(try check { _ in }.map(\.finding) == ["bluezkit-keeper is started when an app needs it (/x/keeper)"])
        #expect(
            try check { $0.process = .running(managers: 1) }.map(\.finding) == [
                "bluezkit-keeper runs, for 1 manager"
            ])
        #expect(try check { $0.socket = nil }.first?.finding.hasPrefix("XDG_RUNTIME_DIR is not set") == true)
        #expect(try check { $0.program = nil }.first?.finding == "bluezkit-keeper is not installed")
        let other = try check { $0.process = .unusable(message: "it has version 1") }
        #expect(other.first?.finding == "the bluezkit-keeper that runs cannot be used (it has version 1)")
        #expect(other.first?.remedy?.hasPrefix("kill $(cat /run/user/7/bluezkit/keeper.lock)") == true)
        let shared = try check { $0.sharedDirectory = "/tmp" }
        #expect(shared.map(\.verdict) == [.ok, .warning])
        #expect(shared.last?.finding == "other users can write to /tmp, so that no keeper listens there")
    }

    @Test("a keeper's directory that others can write to is found, also before it is made")
    func keeperDirectory() throws {
        let directory = try TemporaryDirectory()
        #expect(Surroundings.sharedDirectory(of: directory.path + "/keeper") == nil)
        #expect(Surroundings.sharedDirectory(of: directory.path + "/bluezkit/keeper") == nil)
        chmod(directory.path, 0o777)
        #expect(Surroundings.sharedDirectory(of: directory.path + "/bluezkit/keeper") != nil)
    }

    @Test("known faults of the versions of BlueZ and Linux come with their cure, as in Docs/COMPATIBILITY.md")
    func knowsFaults() throws {
        let root = URL(fileURLWithPath: #filePath).appending(path: "../../../..").standardized
        let document = try String(contentsOf: root.appending(path: "Docs/COMPATIBILITY.md"), encoding: .utf8)
        let rows = document.split(separator: "\n")
        func faults(_ change: (inout Surroundings) -> Void) -> [DoctorCheck] {
            let report = report(change)
            #expect(report.isUsable)
            let faults = report.checks.filter { $0.name == "fault" }
            for fault in faults {
                let what = fault.finding.drop { $0 != ":" }.dropFirst(2)
                let isDocumented = rows.contains {
                    $0.contains("| \(what) |") && $0.contains("| \(fault.remedy ?? "") |")
                }
                #expect(isDocumented, "\(fault)")
            }
            return faults
        }
        let counts = [50, 66, 81, 82, 83, 86, 87, 88].map { minor in
            faults { $0.daemonVersion = BlueZVersion(5, minor) }.count
        }
        #expect(counts == [3, 3, 3, 2, 0, 0, 2, 0])
        for (minor, fixed) in [(1, 93), (6, 33), (8, 12)] {
            #expect(faults { $0.kernel = LinuxVersion(6, minor, fixed - 1) }.count == 1)
            #expect(faults { $0.kernel = LinuxVersion(6, minor, fixed) }.isEmpty)
        }
        let crash = faults { $0.daemonVersion = BlueZVersion(5, 87) }
        #expect(
            crash.contains { $0.finding.contains("scan with services") && $0.remedy?.contains("82af2beaf") == true })
        let kernel = faults { $0.kernel = LinuxVersion(6, 1, 192) }
        #expect(kernel.contains { $0.finding.hasPrefix("Linux 6.1.192") && $0.remedy?.contains("6.1.176") == true })
        #expect(faults { $0.kernel = LinuxVersion(6, 12) }.isEmpty)
    }

    @Test("the adapters are read from GetManagedObjects, whatever else is in it")
    func readsAdapters() {
        func entry(_ path: ObjectPath, _ interfaces: [(String, Value)]) -> Value.Entry {
            .init(
                .path(path),
                .dictionary(key: "s", value: "a{sv}", interfaces.map { .init(.string($0.0), $0.1) }))
        }
        let properties = Value.properties([
            ("Powered", .bool(true)), ("Address", .string("00:B1:5E:00:00:01")), ("Roles", .strings(["central"])),
            ("Modalias", .string("usb:v1D6Bp0246d0542")),
        ])
        let objects = Value.dictionary(
            key: "o", value: "a{sa{sv}}",
            [
                entry("/org/bluez", [("org.bluez.AgentManager1", .properties([:]))]),
                entry("/org/bluez/hci10", [("org.bluez.Adapter1", .properties([("Powered", .int32(1))]))]),
                entry(
                    "/org/bluez/hci2",
                    [("org.bluez.Adapter1", properties), ("org.bluez.GattManager1", .properties([:]))]),
            ])
        let adapters = Surroundings.adapters(objects)
        #expect(adapters.map(\.name) == ["hci2", "hci10"])
        #expect(adapters[0].isPowered && adapters[0].roles == ["central"] && adapters[0].hasGattManager)
        #expect(adapters[0].daemonVersion == BlueZVersion(5, 66) && adapters[1].daemonVersion == nil)
        #expect(!adapters[1].isPowered && !adapters[1].hasLE)
        #expect(Surroundings.adapters(.bool(true)).isEmpty)
    }

    // `doctor` asked the program for its version by running it, as root often: whatever process owned BlueZ's name
    // chose what was run. Now the command line is only read.
    @Test("the daemon's command line is read, and the program that it names is not run")
    func commandLine() throws {
        let directory = try TemporaryDirectory()
        let (program, mark) = (directory.path + "/bluetoothd", directory.path + "/was-run")
        try "#!/bin/sh\n: > '\(mark)'\n".write(toFile: program, atomically: true, encoding: .utf8)
        chmod(program, 0o755)
        // It goes by that name, says when it runs, and waits for the end of its input.
        var ends: [Int32] = [-1, -1]
        try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
        let process = try spawnChild(
            [program, "-c", "echo; read line; true", "x", "--experimental"], program: "/bin/sh", input: ends[0],
            output: ends[0])
        close(ends[0])
        var byte: UInt8 = 0
        #expect(read(ends[1], &byte, 1) == 1)
        var found = Surroundings()
        found.lookAtDaemon(process: UInt32(process))
        close(ends[1])
        waitpid(process, nil, 0)
        #expect(found.runsExperimental == true)
        #expect(access(mark, F_OK) != 0, "it was run")
    }

    @Test("rfkill switches of Bluetooth are read, others are not")
    func readsRFKill() throws {
        let directory = NSTemporaryDirectory() + "/rfkill-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: directory) }
        for (name, type, soft) in [
            ("rfkill0", "wlan", "1"), ("rfkill1", "bluetooth", "1"), ("rfkill2", "bluetooth", "0"),
        ] {
            try FileManager.default.createDirectory(
                atPath: "\(directory)/\(name)", withIntermediateDirectories: true)
            for (file, text) in [("type", type), ("soft", soft), ("hard", "0"), ("name", "hci-\(name)")] {
                try (text + "\n").write(toFile: "\(directory)/\(name)/\(file)", atomically: true, encoding: .utf8)
            }
        }
        #expect(
            Surroundings.rfkill(in: directory) == [
                .init(name: "hci-rfkill1", isSoftBlocked: true, isHardBlocked: false),
                .init(name: "hci-rfkill2", isSoftBlocked: false, isHardBlocked: false),
            ])
        #expect(Surroundings.rfkill(in: directory + "/none").isEmpty)
    }
}
