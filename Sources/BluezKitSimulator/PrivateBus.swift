package import BluezDBus
import Foundation
import Glibc

/// A private D-Bus daemon with the limits of a system bus. It ends with this process, however that ends. Needs the
/// program `dbus-daemon`; with `BLUEZKIT_TEST_BUS=dbus-broker` in the environment it uses `dbus-broker` instead, the
/// default of other distributions.
public final class PrivateBus: Sendable {
    /// The address on which it listens. For other programs, set `DBUS_SYSTEM_BUS_ADDRESS` to it.
    public var address: String { busAddress.rawValue }
    package let busAddress: BusAddress

    private let shell: pid_t
    private let lifeline: Int32
    private let directory: String

    /// Why a bus could not be started.
    public enum StartError: Error, CustomStringConvertible {
        /// The program `dbus-daemon` was not found.
        case notInstalled
        /// It did not start; with its output.
        case failed(String)

        /// The reason in words.
        public var description: String {
            switch self {
            case .notInstalled: "dbus-daemon is not installed; it is in the package `dbus` (apt install dbus)"
            case .failed(let text): "dbus-daemon did not start: \(text)"
            }
        }
    }

    /// Starts a daemon and returns when it is listening.
    public init(policy: Policy = .system) throws(StartError) {
        guard let program = Self.program() else { throw .notInstalled }
        let folder = URL(fileURLWithPath: NSTemporaryDirectory()).path  // without a slash at its end
        // With the longest name of a socket in it.
        guard
            folder.utf8.count + "/bluezkit-bus-XXXXXX/journal".utf8.count
                < MemoryLayout.size(ofValue: sockaddr_un().sun_path)
        else {
            throw .failed("the path of the temporary directory is too long for a socket; set TMPDIR to a shorter one")
        }
        var template = Array((folder + "/bluezkit-bus-XXXXXX").utf8CString)
        guard mkdtemp(&template) != nil else { throw .failed("no temporary directory: \(Self.errnoText)") }
        directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        do {
            try Self.configuration(directory, policy).write(
                toFile: directory + "/bus.conf", atomically: false, encoding: .utf8)
            try FileManager.default.createDirectory(
                atPath: directory + "/services", withIntermediateDirectories: false)
            // dbus-broker's launcher needs a bus on which it finds nothing.
            try """
            <busconfig><listen>unix:path=\(directory)/helper</listen><auth>EXTERNAL</auth>
            \(Self.openPolicy)</busconfig>
            """.write(toFile: directory + "/helper.conf", atomically: false, encoding: .utf8)
            // As on a machine where bluetoothd cannot be started: calls in its absence get a Spawn error.
            try "[D-BUS Service]\nName=org.bluez\nExec=/bin/false\n".write(
                toFile: directory + "/services/org.bluez.service", atomically: false, encoding: .utf8)
        } catch {
            throw .failed("cannot write to \(directory): \(error)")
        }
        (shell, lifeline, busAddress) = try Self.start(program, directory)
    }

    deinit {
        close(lifeline)  // ends the shell's `read`; it stops the daemon and removes the directory
        waitpid(shell, nil, 0)
        removeSharedFiles()
    }

    /// What programs note of links on this bus (`LinkLease`) is of no use any more, and others look through it.
    private func removeSharedFiles() {
        // unix:path=…,guid=…; dbus-broker's launcher does not say it.
        guard let guid = address.split(separator: ",").first(where: { $0.hasPrefix("guid=") })?.dropFirst(5)
        else { return }
        let directory = sharedDirectory()
        for name in (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        where name.hasPrefix(guid + " ") { unlink("\(directory)/\(name)") }
    }

    private static var errnoText: String { String(cString: strerror(errno)) }

    private static func program() -> String? {
        let search = (environment("PATH") ?? "") + ":/usr/bin:/bin:/usr/sbin"
        return search.split(separator: ":").map { "\($0)/dbus-daemon" }.first { access($0, X_OK) == 0 }
    }

    /// What programs may do on a bus.
    public enum Policy: Sendable {
        /// As on the system bus of a machine with BlueZ. The user of this process has the rights of root.
        case system
        /// Any name may be owned, and any message sent.
        case open
    }

    private static func configuration(_ directory: String, _ policy: Policy) -> String {
        // No limits here: those of a system bus are the daemon's defaults.
        """
        <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
         "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
        <busconfig>
        <type>system</type>
        <listen>unix:path=\(directory)/bus</listen>
        <auth>EXTERNAL</auth>
        <servicedir>\(directory)/services</servicedir>
        \(policy == .system ? systemPolicy : openPolicy)
        </busconfig>
        """
    }

    private static let openPolicy = """
        <policy context="default">
        <allow send_destination="*" eavesdrop="true"/>
        <allow eavesdrop="true"/>
        <allow own="*"/>
        </policy>
        """

    /// The rules of dbus-daemon's `system.conf`, followed by BlueZ's `bluetooth.conf`: BlueZ may call only those
    /// interfaces of a program that the latter names.
    private static var systemPolicy: String {
        let bus = "send_destination=\"org.freedesktop.DBus\""
        let busInterfaces = ["", ".Introspectable", ".Properties"].map {
            "<allow \(bus) send_interface=\"org.freedesktop.DBus\($0)\"/>"
        }
        let called = [
            "org.bluez.AdvertisementMonitor1", "org.bluez.Agent1", "org.bluez.MediaEndpoint1",
            "org.bluez.MediaPlayer1", "org.bluez.Profile1", "org.bluez.GattCharacteristic1",
            "org.bluez.GattDescriptor1", "org.bluez.LEAdvertisement1", "org.freedesktop.DBus.ObjectManager",
            "org.freedesktop.DBus.Properties", "org.mpris.MediaPlayer2.Player",
        ].map { "<allow send_interface=\"\($0)\"/>" }
        return """
            <policy context="default">
            <allow user="*"/>
            <deny own="*"/>
            <deny send_type="method_call"/>
            <allow send_type="signal"/>
            <allow send_requested_reply="true" send_type="method_return"/>
            <allow send_requested_reply="true" send_type="error"/>
            <allow receive_type="method_call"/>
            <allow receive_type="method_return"/>
            <allow receive_type="error"/>
            <allow receive_type="signal"/>
            \(busInterfaces.joined(separator: "\n"))
            <deny \(bus) send_interface="org.freedesktop.DBus" send_member="UpdateActivationEnvironment"/>
            <allow send_destination="org.bluez"/>
            </policy>
            <policy user="\(getuid())">
            <allow \(bus) send_interface="org.freedesktop.DBus.Monitoring"/>
            <allow \(bus) send_interface="org.freedesktop.DBus.Debug.Stats"/>
            <allow own="org.bluez"/>
            <allow send_destination="org.bluez"/>
            \(called.joined(separator: "\n"))
            </policy>
            """
    }

    /// The configuration for dbus-daemon, and for dbus-broker, whose launcher expects what systemd provides: the
    /// socket, a log, and a bus through which services are started. The last two are replaced where they do not exist.
    private static let daemonScript = """
        "$1" --nofork --nopidfile --nosyslog --config-file="$2/bus.conf" --print-address=1 2>"$2/log" &
        daemon=$!
        exec >/dev/null
        read line
        kill $daemon; wait $daemon
        rm -rf "$2"
        """
    private static let brokerScript = """
        "$1" --nofork --nopidfile --nosyslog --config-file="$2/helper.conf" 2>"$2/log" 3<&- &
        helper=$!
        until [ -S "$2/helper" ]; do kill -0 $helper || exit 1; sleep 0.01; done
        launch='export LISTEN_PID=$$; exec dbus-broker-launch --scope user --config-file="$0/bus.conf"'
        export LISTEN_FDS=1 DBUS_SESSION_BUS_ADDRESS="unix:path=$2/helper"
        if [ -S /run/systemd/journal/socket ]; then apart=; else
            apart='unshare -m'
            launch="mkdir -p /run/systemd; mount -t tmpfs none /run/systemd; mkdir /run/systemd/journal
                ln -s '$2/journal' /run/systemd/journal/socket; $launch"
        fi
        cat <&4 >/dev/null 3<&- &
        reader=$!
        $apart sh -c "$launch" "$2" >"$2/log" 2>&1 4<&- &
        daemon=$!
        exec 3<&- 4<&-
        echo "unix:path=$2/bus"
        exec >/dev/null
        read line
        kill $daemon $helper; wait $daemon $helper; kill $reader
        rm -rf "$2"
        """

    private static var isBroker: Bool { environment("BLUEZKIT_TEST_BUS") == "dbus-broker" }

    /// A socket at `path`, listening if possible.
    private static func socket(_ type: __socket_type, at path: String) throws(StartError) -> Int32 {
        let descriptor = Glibc.socket(AF_UNIX, Int32(type.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
        let size = socklen_t(MemoryLayout<sockaddr_un>.size)
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, size) }
        }
        guard result == 0, type != SOCK_STREAM || listen(descriptor, 128) == 0 else { throw .failed(errnoText) }
        return descriptor
    }

    /// Runs the daemon under a shell that waits for its standard input to end. The other end is held only by this
    /// process, so the kernel closes it whatever happens to us. (PR_SET_PDEATHSIG would watch the thread that started
    /// the child, and threads of a dispatch queue are short-lived.)
    private static func start(
        _ program: String, _ directory: String
    ) throws(StartError) -> (pid_t, Int32, BusAddress) {
        guard let life = socketPair() else { throw .failed(errnoText) }
        defer { close(life.0) }
        guard let output = socketPair() else {
            close(life.1)
            throw .failed(errnoText)
        }
        defer { close(output.0) }
        let words = ["/bin/sh", "-c", isBroker ? brokerScript : daemonScript, "bluezkit-bus", program, directory]
        var sockets: [Int32] = []
        defer { sockets.forEach { close($0) } }
        let pid: pid_t
        do {
            if isBroker {
                // The log is read, and not kept: the broker waits while there is no room for a line.
                sockets.append(try socket(SOCK_STREAM, at: directory + "/bus"))
                sockets.append(try socket(SOCK_DGRAM, at: directory + "/journal"))
            }
            // A group of its own: Ctrl-C in a terminal ends the program, and that ends the bus.
            pid = try spawnChild(words, input: life.0, output: output.1, hasOwnGroup: true) { actions in
                for (number, socket) in sockets.enumerated() {
                    posix_spawn_file_actions_adddup2(&actions, socket, 3 + Int32(number))
                }
            }
        } catch {
            close(life.1)
            close(output.1)
            throw error as? StartError ?? .failed("\(error)")
        }
        close(output.1)
        guard let line = readLine(output.0) else {
            close(life.1)
            let log = (try? String(contentsOfFile: directory + "/log", encoding: .utf8)) ?? ""
            waitpid(pid, nil, 0)
            throw .failed(log.isEmpty ? "it printed no address within 20 s" : log)
        }
        return (pid, life.1, BusAddress(line))
    }

    /// The first line of the input, or nil at its end or after 20 s.
    private static func readLine(_ descriptor: Int32) -> String? {
        var bytes: [UInt8] = []
        while true {
            var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            guard poll(&entry, 1, 20_000) > 0 else { return nil }
            var byte: UInt8 = 0
            guard read(descriptor, &byte, 1) == 1 else { return nil }
            if byte == UInt8(ascii: "\n") { return String(decoding: bytes, as: UTF8.self) }
            bytes.append(byte)
        }
    }
}
