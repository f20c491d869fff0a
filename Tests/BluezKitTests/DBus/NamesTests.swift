import BluezDBus
import BluezKitSimulator
import CBluezDBus
import Foundation
import Testing

@Suite("BluezDBus: names and paths")
struct NamesTests {
    @Test(
        "an invalid object path gives nil",
        arguments: [
            "", "a", "//", "/a/", "/a//b", "/ä", "/a-b", "/a b", "/a\0", "/a\0b", "/a\n", "/a.b", "/:",
        ])
    func badPaths(_ text: String) { #expect(ObjectPath(text) == nil) }

    @Test("paths have a parent, a last element, and contain paths below them")
    func pathAlgebra() throws {
        let path: ObjectPath = "/org/bluez/hci0"
        #expect(path.parent == "/org/bluez" && path.lastElement == "hci0")
        #expect(ObjectPath("/a").parent == "/" && ObjectPath("/").parent == nil && ObjectPath("/").lastElement == "")
        #expect(path.isWithin("/org/bluez") && path.isWithin(path) && path.isWithin("/"))
        #expect(!path.isWithin("/org/blue") && !path.isWithin("/org/bluez/hci"))
        #expect(!ObjectPath("/org/bluez/hci01").isWithin(path))
        #expect(path.appending("dev_1") == "/org/bluez/hci0/dev_1" && ObjectPath("/").appending("a") == "/a")
        for bad in ["", "a/", "a b", "ä", "a\0", "../x"] { #expect(path.appending(bad) == nil, "\(bad)") }
        #expect(path.appending("a/b") == "/org/bluez/hci0/a/b")
    }

    /// The length that we give what has arrived, and libdbus's verdict.
    private func judge(_ kind: String, _ text: UnsafePointer<CChar>) -> (length: Int, isValid: Bool) {
        switch kind {
        case "path": (cdbus_path_length(text), dbus_validate_path(text, nil) != 0)
        case "interface": (cdbus_interface_length(text), dbus_validate_interface(text, nil) != 0)
        case "error name": (cdbus_interface_length(text), dbus_validate_error_name(text, nil) != 0)
        case "member": (cdbus_member_length(text), dbus_validate_member(text, nil) != 0)
        case "bus name": (cdbus_bus_name_length(text), dbus_validate_bus_name(text, nil) != 0)
        default:
            (cdbus_is_signature(text, strlen(text)) ? strlen(text) : 0, dbus_signature_validate(text, nil) != 0)
        }
    }

    /// A text on which the two differ, or whose length is wrong.
    private func disagreement(_ kind: String, _ text: [UInt8]) -> String? {
        (text + [0]).map(CChar.init(bitPattern:)).withUnsafeBufferPointer { bytes in
            guard let start = bytes.baseAddress else { return nil }
            let (length, isValid) = judge(kind, start)
            return length == (isValid ? text.count : 0) ? nil : String(cString: start)
        }
    }

    private func texts(of alphabet: [UInt8], length: Int) -> some Sequence<[UInt8]> {
        let count = (0..<length).reduce(1) { count, _ in count * alphabet.count }
        return (0..<count).lazy.map { number in
            var rest = number
            return (0..<length).map { _ in
                defer { rest /= alphabet.count }
                return alphabet[rest % alphabet.count]
            }
        }
    }

    @Test(
        "received paths and names are judged as libdbus judges them: every short one",
        arguments: ["path", "interface", "error name", "member", "bus name"])
    func shortNames(_ kind: String) {
        let alphabet = Array("aZ0_-./: \u{E4}".utf8)
        for length in 1...4 + thorough(10) / 10 {
            #expect(texts(of: alphabet, length: length).lazy.compactMap { disagreement(kind, $0) }.first == nil)
        }
    }

    @Test("received signatures are judged as libdbus judges them: every short one")
    func shortSignatures() {
        let alphabet = Array("yshvare({)}1".utf8)
        for length in 1...4 + thorough(10) / 10 {
            #expect(texts(of: alphabet, length: length).lazy.compactMap { disagreement("signature", $0) }.first == nil)
        }
        for character in UInt8(1)...255 {
            for around in [("", ""), ("a", ""), ("a{", "s}"), ("a{s", "}"), ("(", ")")] {
                let text = Array(around.0.utf8) + [character] + Array(around.1.utf8)
                #expect(disagreement("signature", text) == nil)
            }
        }
    }

    @Test("received names and signatures are judged as libdbus judges them: nested or long ones, around the limits")
    func limits() {
        for count in 1...70 {
            for (before, after) in [("a", ""), ("(", ")"), ("a{s", "}"), ("a(", ")"), ("(a", ")"), ("(a{s", "})")] {
                for inner in ["y", "", "as", "a{sv}", "()"] {
                    let text =
                        String(repeating: before, count: count) + inner + String(repeating: after, count: count)
                    #expect(disagreement("signature", Array(text.utf8)) == nil)
                }
            }
        }
        for count in 250...260 {
            for (kind, text) in [
                ("signature", ""), ("path", "/"), ("interface", "a."), ("error name", "a."), ("member", ""),
                ("bus name", "a."), ("bus name", ":"),
            ] { #expect(disagreement(kind, Array((text + String(repeating: "s", count: count)).utf8)) == nil) }
        }
    }

    @Test("a name or signature that contains a zero byte is invalid")
    func zeros() {
        #expect(cdbus_is_signature("s", 1) && !cdbus_is_signature("s", 2) && cdbus_is_signature("", 0))
        #expect(cdbus_path_length("/a") == 2 && cdbus_member_length("") == 0)
    }

    /// Destination, interface, member.
    static let forbidden: [[String]] = [
        ["", "a.b", "C"], ["nodot", "a.b", "C"], ["a..b", "a.b", "C"], ["a.b\0c", "a.b", "C"], ["a.ä", "a.b", "C"],
        [String(repeating: "a", count: 200) + "." + String(repeating: "b", count: 100), "a.b", "C"],
        ["a.b", "", "C"], ["a.b", "nodot", "C"], ["a.b", "a.1b", "C"], ["a.b", "a.b\0", "C"], ["a.b", "a.b", ""],
        ["a.b", "a.b", "C.D"], ["a.b", "a.b", "1C"], ["a.b", "a.b", "C\0D"], ["a.b", "a.b", "Ü"],
        ["a.b", "a.b", "C D"],
    ]

    @Test(
        "a call or a signal with a bad name is a thrown error, never an abort, nor sent to another program",
        arguments: forbidden)
    func badNames(_ names: [String]) async throws {
        let bus = try PrivateBus(policy: .open)
        let peer = try await Peer.named(bus.busAddress)
        do {
            try await peer.call(names[0], "/a", names[1], names[2])
            Issue.record("sent")
        } catch let error as BusError {
            guard case .invalid = error else {
                Issue.record("\(names): \(error)")
                return
            }
        }
        #expect(throws: BusError.self) { try peer.emit("/a", names[1], names[2], to: names[0], []) }
        try await peer.settle()
    }

    @Test("names on the bus: unique, requested, taken, released")
    func names() async throws {
        let bus = try PrivateBus(policy: .open)
        let (first, second) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        #expect(first.name.hasPrefix(":") && first.name != second.name)
        func request(_ peer: Peer, _ name: String) async -> Result<Void, BusError> {
            await withCheckedContinuation { continuation in
                peer.sync { $0.requestName(name) { continuation.resume(returning: $0) } }
            }
        }
        #expect((try? await request(first, "test.Name").get()) != nil)
        await #expect(throws: BusError.remote(name: "org.freedesktop.DBus.Error.Failed", message: "test.Name is taken"))
        {
            try await request(second, "test.Name").get()
        }
        await #expect(throws: BusError.self) { try await request(second, "no name").get() }
        _ = await withCheckedContinuation { continuation in
            first.sync { $0.releaseName("test.Name") { continuation.resume(returning: (try? $0.get()) != nil) } }
        }
        #expect((try? await request(second, "test.Name").get()) != nil)
    }

    @Test("a watched name reports its present owner, then each change, and identifies the owner's messages")
    func watchesName() async throws {
        let bus = try PrivateBus(policy: .open)
        let watcher = try await Peer.named(bus.busAddress)
        let owners = EventLog<String?>()
        watcher.sync { $0.watchName("test.Name") { owners.append($0) } }
        func nextOwner() async throws -> String? { try await owners.next("owner") { [$0] }[0] }
        #expect(try await nextOwner() == nil)
        var first: Peer? = try await Peer.named(bus.busAddress)
        let name = first?.name
        first?.sync { $0.requestName("test.Name") { _ in } }
        #expect(try await nextOwner() == name && watcher.sync { $0.owner(of: "test.Name") } == name)
        first?.sync { $0.close() }
        first = nil
        #expect(try await nextOwner() == nil)
        let second = try await Peer.named(bus.busAddress)
        second.sync { $0.requestName("test.Name") { _ in } }
        #expect(try await nextOwner() == second.name)
        watcher.sync { $0.unwatchName("test.Name") }
        #expect(watcher.sync { $0.owner(of: "test.Name") } == nil && watcher.sync { $0.matchRuleCount } == 0)
    }

    // A bus that did not answer in time counted as one that had said that there is no owner. An owner that stays is
    // signalled by nothing: bluetoothd was not there for good, and its signals were forgeries. Now the bus is asked
    // until it answers.
    @Test("a bus that does not tell the owner of a watched name in time is asked again")
    func unansweredOwner() async throws {
        let bus = try PrivateBus(policy: .open)
        let (watcher, owner) = (try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress))
        owner.sync { $0.requestName("test.Name") { _ in } }
        try await owner.settle()
        let process = try await owner.bus("GetConnectionUnixProcessID", .string("org.freedesktop.DBus"))
        let daemon = process.first?.intValue ?? 0
        try #require(daemon > 1 && daemon != Int(getpid()))
        let owners = EventLog<String?>()
        kill(pid_t(daemon), SIGSTOP)
        defer { kill(pid_t(daemon), SIGCONT) }
        watcher.sync { $0.watchName("test.Name", deadline: .milliseconds(500)) { owners.append($0) } }
        try await eventually("it is overdue") { watcher.sync { $0.overdueCalls } > 0 }
        kill(pid_t(daemon), SIGCONT)
        #expect(try await owners.next("owner") { [$0] }[0] == owner.name)
        #expect(watcher.sync { $0.owner(of: "test.Name") } == owner.name)
    }

    @Test("a NameOwnerChanged that another client sends changes nothing")
    func forgedOwner() async throws {
        let bus = try PrivateBus(policy: .open)
        let (watcher, owner, forger) = (
            try await Peer.named(bus.busAddress), try await Peer.named(bus.busAddress),
            try await Peer.named(bus.busAddress)
        )
        let owners = EventLog<String?>()
        owner.sync { $0.requestName("test.Name") { _ in } }
        try await owner.settle()
        watcher.sync { $0.watchName("test.Name") { owners.append($0) } }
        #expect(try await owners.next("owner") { [$0] }[0] == owner.name)
        try forger.emit(
            "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameOwnerChanged", to: watcher.name,
            [.string("test.Name"), .string(owner.name), .string(forger.name)])
        try await watcher.signals.next("the forgery") {
            $0.member == "NameOwnerChanged" && $0.sender == forger.name ? $0 : nil
        }
        #expect(watcher.sync { $0.owner(of: "test.Name") } == owner.name && owners.all.count == 1)
    }
}
