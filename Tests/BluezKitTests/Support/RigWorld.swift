import BluezKit
import BluezDBus
import Foundation
import Synchronization
import Testing

/// The machine of `Tests/Rig`, from inside it: the system bus, and the control socket of its peripherals.
final class RigWorld: World, @unchecked Sendable {  // holds: all its parts are safe; the options are constant
    struct Refused: Error, CustomStringConvertible { let description: String }

    var managerOptions: [String: Any] { [:] }
    let connectTimeout = 42.0
    private let commands: ControlSocket
    private let events = EventLog<String>()

    init() throws {
        guard let path = ProcessInfo.processInfo.environment["RIG_CONTROL"] else {
            throw Refused(description: "BLUEZKIT_WORLD=rig is for runs inside Tests/Rig/run")
        }
        commands = try ControlSocket(path: path, patience: Int(10 * world_deadline))
        let watcher = try ControlSocket(path: path)
        watcher.send("watch")
        Thread.detachNewThread { [weak self] in
            while let line = watcher.readLine() {
                if line.hasPrefix("event ") { self?.events.append(String(line.dropFirst(6))) }
            }
        }
    }

    @discardableResult
    func control(_ line: String) async throws -> String {
        // The guest's own commands are in addition to those of the peripherals.
        if line.hasPrefix("bluetoothd ") {
            let directory = ProcessInfo.processInfo.environment["RIG_DIR", default: "."]
            return try await perform(directory + "/" + line)
        }
        if line.hasPrefix("rig power ") { return try await setPowered(line.hasSuffix(" on")) }
        let answer = await withCheckedContinuation { continuation in
            DispatchQueue.global().async { [commands] in continuation.resume(returning: commands.ask(line)) }
        }
        guard let answer, answer.hasPrefix("ok") else {
            throw Refused(description: "\(line): \(answer ?? "no answer")")
        }
        return String(answer.dropFirst(2).drop { $0 == " " })
    }

    /// All versions of bluetoothd have bugs that crash it, and the rig starts it again. A test that has failed may have
    /// left it stopped. This waits until it is ready.
    /// - Returns: Whether it has crashed since the last time.
    @discardableResult
    func awaitDaemon() async throws -> Bool {
        func text(_ file: String) -> String { (try? String(contentsOfFile: "/run/rig/\(file)", encoding: .utf8)) ?? "" }
        let crashes = text("crashes").count { $0 == "\n" }
        let hasCrashed = Self.crashes.exchange(crashes, ordering: .relaxed) != crashes
        let pid = pid_t(text("bluetoothd.pid").trimmingCharacters(in: .whitespacesAndNewlines))
        if hasCrashed || pid.map({ kill($0, 0) == 0 }) != true { try await control("bluetoothd start") }
        return hasCrashed
    }

    private static let crashes = Atomic(0)

    /// What an earlier test's apps have connected ends with them. Linux, or bluetoothd, may lose track of a link that
    /// is made as its attempt is called off (Docs/COMPATIBILITY.md): its peripheral cannot be reached from then on, by
    /// any test, nor be forgotten.
    /// So do the links that virtual centrals have made: where the controller has no extended advertising, Linux resumes
    /// the advertisement of their time, whatever is advertised when they end.
    func endLostLinks() async throws {
        for name in ["central", "central2", "phone"] where try await control("\(name) connections") != "0" {
            _ = try? await control("\(name) disconnect")  // it may have ended
            try await awaitConnections(name, 0)
        }
        for peripheral in RigPeripheral.allCases {
            let name = peripheral.rawValue
            do {
                try await eventually("the link has ended", within: 0.5) {
                    try await control("\(name) connections") == "0"
                }
            } catch is DeadlineExceeded {
                print("rig: a link to \(name) is left")
                _ = try? await control("\(name) disconnect")  // it may have ended
                try await awaitConnections(name, 0)
            }
            // It may crash of that, and then has. It may also have lost track of the link, and never say so.
            do {
                try await eventually("bluetoothd has noticed the end of the link", within: 5) {
                    try await !saysConnected(peripheral.address)
                }
            } catch is DeadlineExceeded {
                print("rig: bluetoothd takes \(name) for connected")
            }
        }
    }

    /// bluetoothd may keep the discovery of a program that has ended as another one began (Docs/COMPATIBILITY.md): each
    /// connect takes ten seconds then. It ends with Bluetooth.
    func endStrandedDiscovery() async throws {
        do {
            try await eventually("no discovery runs", within: 3) {
                // The adapter may be about to come back.
                let answer = try? await Peer.named(busAddress).call(
                    "org.bluez", "/org/bluez/hci0", "org.freedesktop.DBus.Properties", "Get",
                    [.string("org.bluez.Adapter1"), .string("Discovering")])
                return answer?.first?.boolValue == false
            }
        } catch is DeadlineExceeded {
            print("rig: a discovery is left")
            for isOn in [false, true] { _ = try await setPowered(isOn) }
        }
    }

    private func setPowered(_ on: Bool) async throws -> String {
        let adapter: ObjectPath = "/org/bluez/hci0"
        try await Peer.named(busAddress).call(
            "org.bluez", adapter, "org.freedesktop.DBus.Properties", "Set",
            [.string("org.bluez.Adapter1"), .string("Powered"), .variant(.bool(on))])
        return ""
    }

    private func perform(_ line: String) async throws -> String {
        let status = try await run(line.split(separator: " ").map(String.init))
        guard status == 0 else { throw Refused(description: "\(line): \(status)") }
        return ""
    }

    func nextEvent(_ what: String, where matches: @escaping @Sendable (String) -> Bool) async throws -> String {
        try await events.next(what) { matches($0) ? $0 : nil }
    }
}

/// Lines to and from a unix socket. Blocking.
final class ControlSocket: @unchecked Sendable {  // holds: `ask` is under `lock`; a watcher is read by one thread
    private let descriptor: Int32
    private let lock = NSLock()
    private var buffer: [UInt8] = []

    /// - Parameter patience: How long to wait for a line, in seconds; 0: without a limit.
    init(path: String, patience: Int = 0) throws {
        descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let size = socklen_t(MemoryLayout<sockaddr_un>.size)
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(descriptor, $0, size) }
        }
        guard result == 0 else { throw RigWorld.Refused(description: "cannot connect to \(path)") }
        var patience = timeval(tv_sec: patience, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit { close(descriptor) }

    func send(_ line: String) {
        let bytes = [UInt8]((line + "\n").utf8)
        _ = bytes.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
    }

    func ask(_ line: String) -> String? {
        lock.withLock {
            send(line)
            return readLine()
        }
    }

    func readLine() -> String? {
        while true {
            if let end = buffer.firstIndex(of: 10) {
                defer { buffer.removeSubrange(...end) }
                return String(decoding: buffer[..<end], as: UTF8.self)
            }
            var piece = [UInt8](repeating: 0, count: 4096)
            let count = read(descriptor, &piece, piece.count)
            guard count > 0 else {
                // An answer that comes too late is not one to the next question.
                shutdown(descriptor, Int32(SHUT_RDWR))
                return nil
            }
            buffer += piece[..<count]
        }
    }
}
