import BluezKit

/// What the findings mean for a program that uses Bluetooth, and what to do. Pure.
struct DoctorReport: Equatable {
    private(set) var checks: [DoctorCheck] = []

    /// Whether programs can use Bluetooth.
    var isUsable: Bool { !checks.contains { $0.verdict == .problem } }

    /// The oldest BlueZ that BluezKit is tested with.
    static let testedVersion = BlueZVersion(5, 66)

    init(_ found: Surroundings) {
        checkBluetooth(found)
        checkKeeper(found)
    }

    private mutating func checkBluetooth(_ found: Surroundings) {
        guard checkBus(found) else { return }
        // The rfkill switch precedes the adapters because it is the reason why they are off.
        if checkDaemon(found) {
            checkVersion(found)
            checkKernel(found)
            let isBlocked = checkRFKill(found)
            checkAdapters(found, isBlocked: isBlocked)
        } else {
            _ = checkRFKill(found)
        }
        checkSockets(found)
    }

    mutating func add(
        _ name: String, _ verdict: DoctorCheck.Verdict, _ finding: String, _ remedy: String? = nil
    ) {
        checks.append(DoctorCheck(name: name, verdict: verdict, finding: finding, remedy: remedy))
    }

    private mutating func checkBus(_ found: Surroundings) -> Bool {
        switch found.busFailure {
        case nil:
            add("bus", .ok, "the system bus answers (\(found.busAddress))")
            return true
        case .unreachable(let message)?:
            add("bus", .problem, "the system bus cannot be reached (\(message))", Self.busRemedy(found))
        case .refused(let message, let user)?:
            add("bus", .problem, "the system bus refuses this program (\(message))", Self.remedy(message, user))
        }
        return false
    }

    private static func busRemedy(_ found: Surroundings) -> String {
        if found.isBusChosenByEnvironment {
            return "start that bus, or unset DBUS_SYSTEM_BUS_ADDRESS, which is \(found.busAddress)"
        }
        if found.isContainer { return sharedBus }
        return found.hasSystemd ? "sudo systemctl start dbus" : "sudo service dbus start; in a container: " + sharedBus
    }

    private static let sharedBus = "start the container with -v /run/dbus:/run/dbus"

    /// Of a refusal. It says nothing of its reason, unless that is AppArmor's.
    private static func remedy(_ message: String, _ user: Surroundings.User) -> String {
        if message.contains("AppArmor") {
            return "start the container with --security-opt apparmor=unconfined, or with a profile that has the rule "
                + "`dbus,`"
        }
        if user.here != user.outside {
            return "this user, \(user.here), is \(user.outside) for the bus: start the container with "
                + "--userns=keep-id, or without a user namespace"
        }
        return "the bus takes only users whom it knows: `getent passwd \(user.here)` has to find this one where "
            + "the bus is"
    }

    private mutating func checkDaemon(_ found: Surroundings) -> Bool {
        switch found.daemon {
        case .running?:
            add("daemon", .ok, "bluetoothd runs and this user may talk to it")
            return true
        case .denied?:
            add(
                "daemon", .problem, "the policy of the bus does not let this user talk to bluetoothd",
                found.isContainer
                    ? "start the container with --group-add, and the number of the host's group: getent group bluetooth"
                    : "sudo usermod -aG bluetooth $USER, then log in again")
        case .silent(let message)?:
            add(
                "daemon", .problem, "bluetoothd does not answer (\(message))",
                found.hasSystemd ? "sudo systemctl restart bluetooth" : "sudo service bluetooth restart")
        case .notRunning?, nil:
            if found.isDaemonInstalled {
                add(
                    "daemon", .problem, "bluetoothd is not running",
                    found.hasSystemd ? "sudo systemctl enable --now bluetooth" : "sudo service bluetooth start")
            } else if found.isContainer {
                add(
                    "daemon", .problem, "bluetoothd is not running", "start bluetoothd on the host of this container")
            } else {
                add(
                    "daemon", .problem, "BlueZ is not installed",
                    "sudo apt install bluez (or what your distribution calls it), then sudo systemctl start bluetooth")
            }
        }
        return false
    }

    private mutating func checkVersion(_ found: Surroundings) {
        let mode = found.runsExperimental ? ", with experimental interfaces" : ""
        guard let version = found.daemonVersion else {
            return add("version", .ok, "the version of bluetoothd is not known\(mode)")
        }
        if version < Self.testedVersion {
            add(
                "version", .warning, "bluetoothd is version \(version)\(mode)",
                "BluezKit is tested with \(Self.testedVersion) and later; update BlueZ if something does not work")
        } else {
            add("version", .ok, "bluetoothd is version \(version)\(mode)")
        }
        for fault in KnownFault.all(of: version) {
            add("fault", .warning, "BlueZ \(version): \(fault.what)", fault.cure)
        }
    }

    private mutating func checkKernel(_ found: Surroundings) {
        guard let kernel = found.kernel else { return }
        add("kernel", .ok, "Linux is version \(kernel)")
        for fault in KnownFault.all(of: kernel) {
            add("fault", .warning, "Linux \(kernel): \(fault.what)", fault.cure)
        }
    }

    private mutating func checkRFKill(_ found: Surroundings) -> Bool {
        guard let switches = found.rfkill else { return false }
        if let hard = switches.first(where: \.isHardBlocked) {
            add(
                "rfkill", .problem, "Bluetooth (\(hard.name)) is switched off by a switch or key of this computer",
                "turn that switch on, or leave airplane mode")
            return true
        }
        if let soft = switches.first(where: \.isSoftBlocked) {
            add("rfkill", .problem, "Bluetooth (\(soft.name)) is blocked by rfkill", "rfkill unblock bluetooth")
            return true
        }
        add("rfkill", .ok, "rfkill blocks no Bluetooth")
        return false
    }

    private mutating func checkAdapters(_ found: Surroundings, isBlocked: Bool) {
        let adapters = found.adapters ?? []
        guard !adapters.isEmpty else {
            return add(
                "adapter", .problem, "there is no Bluetooth adapter",
                "plug one in (`lsusb` and `dmesg` show whether Linux sees it), or try --simulated")
        }
        // If none was chosen, one that works is enough.
        let relevant = adapters.filter { found.chosenAdapter?.allows($0.name, address: $0.address) ?? true }
        guard !relevant.isEmpty else { return addMissing(found, adapters) }
        let isOneFine = relevant.contains { $0.isPowered && $0.hasLE }
        for adapter in relevant { check(adapter, isBlocked: isBlocked, isOneFine: isOneFine) }
    }

    private mutating func addMissing(_ found: Surroundings, _ adapters: [Surroundings.Adapter]) {
        let chosen = found.chosenAdapter?.text ?? ""
        add(
            "adapter", .problem,
            "there is no adapter \(chosen)" + (found.isChosenByEnvironment ? ", which BLUEZKIT_ADAPTER asks for" : ""),
            "choose one of these: " + adapters.map(\.label).joined(separator: ", "))
    }

    private mutating func check(_ adapter: Surroundings.Adapter, isBlocked: Bool, isOneFine: Bool) {
        let bad: DoctorCheck.Verdict = isOneFine ? .warning : .problem
        let label = adapter.label
        guard adapter.hasLE else {
            return add(
                "adapter", bad, "\(label) has no Bluetooth Low Energy",
                "use an adapter with Bluetooth 4.0 or later; ControllerMode in /etc/bluetooth/main.conf must not be bredr"
            )
        }
        guard adapter.isPowered else {
            let blocked = isBlocked || adapter.powerState == "off-blocked"
            return add(
                "adapter", bad, "\(label) is switched off",
                blocked ? "rfkill unblock bluetooth, then bluetoothctl power on" : "bluetoothctl power on")
        }
        let experimental =
            adapter.experimentalFeatures > 0 ? ", \(adapter.experimentalFeatures) experimental features" : ""
        add("adapter", .ok, "\(label) is on and has Bluetooth Low Energy\(experimental)")
        if !adapter.hasPeripheralRole {
            add(
                "peripheral", .warning, "\(adapter.name) cannot advertise",
                "use another adapter if a program is to be a peripheral; scanning and connecting work")
        }
    }

    private mutating func checkSockets(_ found: Surroundings) {
        switch found.sockets {
        case .available?: add("sockets", .ok, "Bluetooth sockets can be opened (for L2CAP channels)")
        case .refused(let message)?:
            add(
                "sockets", .warning, "Bluetooth sockets cannot be opened (\(message))",
                found.isContainer
                    ? "only L2CAP channels need them; Linux has them in the host's network alone: --network host"
                    : "only L2CAP channels need them; sudo modprobe bluetooth")
        case nil: break
        }
    }
}

extension Surroundings.Adapter {
    var label: String { name + (address.map { " (\($0))" } ?? "") }
    /// Only controllers with LE have a GATT manager.
    var hasLE: Bool { hasGattManager || roles?.contains { $0 == "central" || $0 == "central-peripheral" } ?? false }
    var hasPeripheralRole: Bool {
        hasGattManager && hasAdvertisingManager
            && (roles?.contains { $0 == "peripheral" || $0 == "central-peripheral" } ?? true)
    }
}
