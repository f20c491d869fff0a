import Foundation
import Testing

@testable import BluezKitRestore

@Suite struct SnapshotStoreTests {
    private func store(_ directory: TemporaryDirectory, _ identifier: String = "app") throws -> SnapshotStore {
        try SnapshotStore(StateDirectory(path: directory.path), .central, identifier)
    }

    private func snapshot(_ identifier: String = "app") throws -> Snapshot {
        var snapshot = try SnapshotTests.full()
        snapshot.identifier = identifier
        return snapshot
    }

    private func mode(_ path: String) -> UInt32 {
        var status = stat()
        return stat(path, &status) == 0 ? status.st_mode & 0o777 : 0
    }

    @Test("D11 saved and loaded; directory 0700, file 0600; nothing else is left")
    func saveAndLoad() throws {
        let parent = try TemporaryDirectory()
        let directory = StateDirectory(path: parent.path + "/a/b")
        let store = try SnapshotStore(directory, .central, "app")
        #expect(try store.load() == nil)
        try store.save(snapshot())
        #expect(try store.load() == snapshot())
        #expect(mode(directory.path) == 0o700 && mode(parent.path + "/a") == 0o700)
        #expect(mode(store.path) == 0o600)
        let names = try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
        #expect(names == ["central-app.json", "central-app.lock"])
    }

    @Test("R-18 nothing to preserve: the file is removed")
    func empty() throws {
        let directory = try TemporaryDirectory()
        let store = try store(directory)
        try store.save(snapshot())
        var finished = try snapshot()
        finished.switchOff()
        finished.services = []
        try store.save(finished)
        #expect(directory.files.isEmpty)
        try store.save(finished)
    }

    @Test("R-29 RS-2 a second store for the same identifier is refused, until the first is gone; others are not")
    func lock() throws {
        let directory = try TemporaryDirectory()
        do {
            let first = try store(directory)
            #expect { try store(directory) } throws: { ($0 as? SnapshotStore.Failure)?.isInUse == true }
            _ = try store(directory, "other")
            withExtendedLifetime(first) {}
        }
        _ = try store(directory)
    }

    @Test(
        "R-26 invalid files are set aside and reported, and do not prevent saving",
        arguments: [
            "", "{", "{\"version\": 7}", "null", Brief(String(repeating: "[", count: 5000)), "{\"version\": 1}",
        ] as [Brief])
    func damaged(_ argument: Brief) throws {
        let content = argument.text
        let directory = try TemporaryDirectory()
        let store = try store(directory)
        try content.write(toFile: store.path, atomically: false, encoding: .utf8)
        #expect { try store.load() } throws: { "\($0)".contains(store.path + ".damaged") }
        #expect(try String(contentsOfFile: store.path + ".damaged", encoding: .utf8) == content)
        #expect(try store.load() == nil)
        try store.save(snapshot())
        #expect(try store.load() != nil)
    }

    // It stayed where it was, and was replaced by the next save.
    @Test("R-26 RS-10 an invalid file is set aside also where a directory has the name that it would get")
    func asideIsTaken() throws {
        let directory = try TemporaryDirectory()
        let store = try store(directory)
        try FileManager.default.createDirectory(
            atPath: store.path + ".damaged", withIntermediateDirectories: false)
        try "{\"version\": 99}".write(toFile: store.path, atomically: false, encoding: .utf8)
        #expect { try store.load() } throws: { "\($0)".contains(store.path + ".damaged-2") }
        try store.save(snapshot())
        #expect(try String(contentsOfFile: store.path + ".damaged-2", encoding: .utf8) == "{\"version\": 99}")
    }

    @Test("R-26 a truncated file, a huge one, a directory, a pipe, a symbolic link, another identifier's file")
    func notAFile() throws {
        let directory = try TemporaryDirectory()
        let store = try store(directory)
        let file = store.path
        let whole = try snapshot().fileContent()
        try whole.prefix(whole.count / 2).write(to: URL(fileURLWithPath: file))
        #expect(throws: SnapshotStore.Failure.self) { try store.load() }

        #expect(FileManager.default.createFile(atPath: file, contents: nil))
        truncate(file, 1 << 40)
        #expect { try store.load() } throws: { "\($0)".contains("bytes") }

        try FileManager.default.createDirectory(atPath: file, withIntermediateDirectories: false)
        #expect { try store.load() } throws: { "\($0)".contains("not a regular file") }
        // A directory cannot take the place of the file that was set aside before.
        #expect(FileManager.default.fileExists(atPath: file + ".damaged-2"))
        #expect(mkfifo(file, 0o600) == 0)
        #expect { try store.load() } throws: { "\($0)".contains("not a regular file") }
        symlink("/etc/passwd", file)
        #expect(throws: SnapshotStore.Failure.self) { try store.load() }

        try snapshot("someone else").fileContent().write(to: URL(fileURLWithPath: file))
        #expect { try store.load() } throws: { "\($0)".contains("someone else") }
    }

    @Test("a directory that cannot be created or written to: an error that names it")
    func noDirectory() throws {
        let directory = try TemporaryDirectory()
        try "".write(toFile: directory.path + "/file", atomically: false, encoding: .utf8)
        #expect { try SnapshotStore(StateDirectory(path: directory.path + "/file/x"), .central, "app") } throws: {
            "\($0)".contains(directory.path + "/file/x")
        }
        #expect(throws: SnapshotStore.Failure.self) {
            try SnapshotStore(StateDirectory(path: "/proc/nowhere"), .central, "app")
        }
    }

    // In a container whose root is read-only the log said "cannot create //.local: No such file or directory": the
    // reason was that of a look at whether it is there. Now it is that of the attempt.
    @Test(
        "of several levels that are missing, the error names the one that cannot be created, and why",
        .enabled(if: access("/sys/kernel", F_OK) == 0))
    func noParent() throws {
        #expect { try SnapshotStore.makeDirectory("/sys/kernel/bluezkit/a/b") } throws: {
            let text = "\($0)"
            return text.hasPrefix("cannot create /sys/kernel/bluezkit: ") && !text.contains("No such file")
        }
        let directory = try TemporaryDirectory()
        for _ in 1...2 { try SnapshotStore.makeDirectory(directory.path + "/a//b/c/") }
        #expect(access(directory.path + "/a/b/c", W_OK) == 0)
    }

    @Test("a full disk: the old file is unchanged, and no temporary file is left")
    func fullDisk() throws {
        let directory = try TemporaryDirectory()
        let store = try store(directory)
        try store.save(snapshot())
        let before = try Data(contentsOf: URL(fileURLWithPath: store.path))
        // The kernel's own limit on the size of files does what a full disk does: the write fails in the middle.
        signal(SIGXFSZ, SIG_IGN)
        withResourceLimit(RLIMIT_FSIZE, 100) {
            #expect(throws: SnapshotStore.Failure.self) { try store.save(snapshot()) }
        }
        #expect(try Data(contentsOf: URL(fileURLWithPath: store.path)) == before)
        #expect(!FileManager.default.fileExists(atPath: store.path + ".new"))
    }

    // MARK: Changes

    private func pending(_ number: Int, name: String? = nil) -> Snapshot.Peripheral {
        let bytes = (UInt8(number >> 8 & 0xFF), UInt8(number & 0xFF))
        return Snapshot.Peripheral(
            identifier: UUID(uuid: (0, 0, 0, 0, 0, 0, 0x80, 0, 0x80, 0, 0, 0, 0, 0, bytes.0, bytes.1)), name: name,
            adapter: "hci0", state: .connecting, isBonded: false, options: ConnectRequest(options: [:]), services: nil)
    }

    private func save(_ change: Snapshot.Change, _ snapshot: inout Snapshot, _ store: SnapshotStore) throws {
        let isNew = snapshot.apply(change)
        #expect(isNew)
        try store.save(snapshot, [change])
    }

    private func bytes(_ path: String) throws -> Int { try Data(contentsOf: URL(fileURLWithPath: path)).count }

    private func inode(_ path: String) -> UInt {
        var status = stat()
        return stat(path, &status) == 0 ? UInt(status.st_ino) : 0
    }

    /// Runs `body` while the disk answers nothing.
    private func whileDiskHangs(_ body: () throws -> Void) rethrows {
        SnapshotStore.background.suspend()
        defer { SnapshotStore.background.resume() }
        try body()
    }

    @Test("D11 RS-3 each kind of change is a line appended to the file, and is read back")
    func changes() throws {
        let directory = try TemporaryDirectory()
        let store = try store(directory)
        var snapshot = try snapshot()
        try store.save(snapshot)
        let known = try #require(snapshot.peripherals.first { $0.services != nil })
        var service = try #require(known.services?.first)
        var characteristic = try #require(service.characteristics?.first)
        characteristic.isNotifying = false
        let inner = Snapshot.Change.characteristic(is: characteristic, in: service.element, of: known.identifier)
        service.layout = "other"
        service.characteristics = []
        var unknown = service
        unknown.element = try #require(PathElement("service0fff"))
        let isKnown = snapshot.apply(.service(is: unknown, of: known.identifier))
        #expect(!isKnown)
        for change in [
            .writer(app: "/opt/app", boot: "b008"), .bluetooth(is: nil), .bluetooth(is: "life"), .scan(is: nil),
            inner, .service(is: service, of: known.identifier), .peripheral(is: pending(1)),
            .peripheral(is: pending(2)), .peripheral(is: pending(1, name: "new")), .removal(of: known.identifier),
            .services(are: []), .advertisement(is: nil), .off, .peripheral(is: pending(3)),
        ] as [Snapshot.Change] where snapshot.apply(change) {
            try store.save(snapshot, [change])
            guard !snapshot.isEmpty else { continue }
            #expect(try store.load() == snapshot, "after \(change)")
        }
        #expect(snapshot.peripherals.map(\.identifier) == [pending(3).identifier])
        let isNews = snapshot.apply(.peripheral(is: pending(3)))
        #expect(!isNews, "it says the same")
    }

    @Test("a change costs the same however many peripherals there are, and a thousand are read in linear time")
    func costOfChanges() throws {
        let directory = try TemporaryDirectory()
        let store = try store(directory)
        var snapshot = try snapshot()
        try store.save(snapshot)
        try whileDiskHangs {
            var sizes: [Int] = []
            for number in 0..<1000 {
                let before = try bytes(store.path)
                try save(.peripheral(is: pending(number)), &snapshot, store)
                sizes.append(try bytes(store.path) - before)
            }
            #expect(sizes[999] == sizes[9] && sizes[9] < 500)
        }
        #expect(try store.load() == snapshot)
        func seconds(_ count: Int) throws -> Double {
            var large = snapshot
            large.peripherals = PeripheralTable((0..<count).map { pending($0) })
            let changes = (0..<count).map { Snapshot.Change.peripheral(is: pending($0, name: "again")) }
            let content = try large.fileContent() + Snapshot.lines(changes, saved: large.saved)
            var best = Double.infinity
            for _ in 0..<3 {
                var read: Snapshot?
                best = min(best, try threadTime { read = try Snapshot(fileContent: content) })
                #expect(read?.peripherals.count == count)
            }
            return best
        }
        #expect(try seconds(4000) < 30 * seconds(400), "ten times as many; a hundred times would be quadratic")
    }

    @Test("a file with many changes is rewritten; the old one stays until the new one is on disk")
    func rewriting() throws {
        let directory = try TemporaryDirectory()
        let store = try store(directory)
        var snapshot = try snapshot()
        try store.save(snapshot)
        var (old, most) = (UInt(0), 0)
        try whileDiskHangs {
            old = inode(store.path)
            // Twice as much as needed: the second half arrives while the file is being rewritten.
            while most < 2 * SnapshotStore.leastRewriting {
                try save(.peripheral(is: pending(1, name: "\(most)")), &snapshot, store)
                most = try bytes(store.path)
            }
            #expect(inode(store.path) == old)
            #expect(try Snapshot(fileContent: Data(contentsOf: URL(fileURLWithPath: store.path))) == snapshot)
        }
        SnapshotStore.background.sync {}
        #expect(inode(store.path) != old)
        #expect(try bytes(store.path) < most * 3 / 4)
        let names = try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
        #expect(names == ["central-app.json", "central-app.lock"])
        // It continues from there, in this process and in the next.
        try save(.peripheral(is: pending(2)), &snapshot, store)
        #expect(try store.load() == snapshot)
        store.close()
        let next = try self.store(directory)
        #expect(try next.load() == snapshot)
        try save(.peripheral(is: pending(3)), &snapshot, next)
        #expect(try next.load() == snapshot)
    }

    /// A disk that notes what is asked of it, and may fail.
    private final class RecordingDisk: Sendable {
        private let state = ProtectedBox<(calls: [String], fails: Bool)>(([], false))

        var calls: SnapshotStore.Disk {
            var disk = SnapshotStore.Disk()
            disk.flush = { [state] descriptor, path in
                // What is flushed is what is at that path at this moment.
                var (open, there) = (stat(), stat())
                let isSame = fstat(descriptor, &open) == 0 && stat(path, &there) == 0 && open.st_ino == there.st_ino
                return state.withLock { state in
                    state.calls.append("flush \(isSame ? Self.name(path) : "something else")")
                    return state.fails ? -1 : 0
                }
            }
            disk.rename = { [state] old, new in
                state.withLock { $0.calls.append("rename \(Self.name(old)) \(Self.name(new))") }
                return rename(old, new)
            }
            return disk
        }

        /// Since the last time.
        func take() -> [String] {
            for _ in 0..<2 { SnapshotStore.background.sync {} }  // the end of a rewrite has the file flushed
            return state.withLock { state in
                defer { state.calls = [] }
                return state.calls
            }
        }

        func fail(_ fails: Bool) { state.withLock { $0.fails = fails } }

        private static func name(_ path: String) -> String {
            let name = path.split(separator: "/").last ?? ""
            return name.hasPrefix("central-app") ? String(name.dropFirst(11)) : "directory"
        }
    }

    // The new file was put in the place of the old one before its content was on disk: file systems that do not flush
    // it then (XFS, F2FS, Btrfs) had neither of the two after a power cut.
    @Test("RS-3 a file is replaced only when the new one is on disk, and then the directory is flushed")
    func orderOnDisk() throws {
        let directory = try TemporaryDirectory()
        let disk = RecordingDisk()
        let store = try SnapshotStore(StateDirectory(path: directory.path), .central, "app", disk: disk.calls)
        let flushed = ["flush .json", "flush directory"]
        let replaced = ["flush .json.new", "rename .json.new .json"] + flushed
        var snapshot = try snapshot()
        try store.save(snapshot)
        #expect(disk.take() == ["rename .json.new .json"] + flushed, "there was nothing to lose")
        try save(.peripheral(is: pending(1)), &snapshot, store)
        #expect(disk.take() == flushed)
        try store.save(snapshot)
        #expect(disk.take() == replaced)
        // A rewrite in the background.
        try whileDiskHangs {
            while try bytes(store.path) < 2 * SnapshotStore.leastRewriting {
                try save(.peripheral(is: pending(1, name: UUID().uuidString)), &snapshot, store)
            }
        }
        #expect(disk.take().filter { $0.contains(".new") } == replaced.filter { $0.contains(".new") })
        #expect(try store.load() == snapshot)
        // A new file that does not get to the disk does not replace the old one.
        disk.fail(true)
        let old = snapshot
        snapshot.peripherals = [pending(2)]
        #expect(throws: SnapshotStore.Failure.self) { try store.save(snapshot) }
        #expect(disk.take() == ["flush .json.new"])
        #expect(try store.load() == old)
        try store.remove()
        disk.fail(false)
        #expect(disk.take() == ["flush directory"])
    }

    @Test("removed, replaced or released during a rewrite: later content is not overwritten")
    func abandonedRewriting() throws {
        for ending in ["removed", "replaced", "given up"] {
            let directory = try TemporaryDirectory()
            let store = try store(directory)
            var (snapshot, length) = (try snapshot(), 0)
            try store.save(snapshot)
            var next: SnapshotStore?
            try whileDiskHangs {
                while length < 2 * SnapshotStore.leastRewriting {
                    try save(.peripheral(is: pending(1, name: "\(length)")), &snapshot, store)
                    length = try bytes(store.path)
                }
                switch ending {
                case "removed":
                    try store.remove()
                    snapshot.peripherals = [pending(2)]
                    try store.save(snapshot, [])
                case "replaced":
                    snapshot.peripherals = [pending(2)]
                    try store.save(snapshot)
                default:
                    // A slow disk does not keep the lock either.
                    store.close()
                    next = try self.store(directory)
                    snapshot.peripherals = [pending(2)]
                    try next?.save(snapshot)
                }
            }
            SnapshotStore.background.sync {}
            #expect(try (next ?? store).load() == snapshot, "\(ending)")
        }
    }

    @Test("RS-3 an interrupted write: everything before it is read, and writing continues")
    func tornEnd() throws {
        let directory = try TemporaryDirectory()
        var (snapshot, states): (Snapshot, [Snapshot]) = (try snapshot(), [])
        var content = try snapshot.fileContent()
        var ends = [content.count]
        states.append(snapshot)
        for number in 1...3 {
            _ = snapshot.apply(.peripheral(is: pending(number)))
            content += try Snapshot.lines([.peripheral(is: pending(number))], saved: snapshot.saved)
            states.append(snapshot)
            ends.append(content.count)
        }
        for length in ends[0]...content.count {
            let whole = ends.lastIndex { $0 <= length } ?? 0
            #expect(try Snapshot(fileContent: content.prefix(length)) == states[whole], "\(length) bytes")
            // The file system had the length already, and not the content.
            let zeros = content.prefix(length) + Data(count: content.count - length)
            #expect(try Snapshot(fileContent: zeros) == states[whole], "\(length) bytes, then zeros")
        }
        let store = try store(directory)
        try content.dropLast(20).write(to: URL(fileURLWithPath: store.path))
        var loaded = try #require(try store.load())
        #expect(loaded == states[2])
        try save(.peripheral(is: pending(4)), &loaded, store)
        #expect(try store.load() == loaded)
    }

    @Test("the file was changed or removed by another program: it is written as a whole")
    func foreignHands() throws {
        let directory = try TemporaryDirectory()
        let store = try store(directory)
        var snapshot = try snapshot()
        try store.save(snapshot)
        try "{".write(toFile: store.path, atomically: true, encoding: .utf8)
        try save(.peripheral(is: pending(1)), &snapshot, store)
        #expect(try store.load() == snapshot)
        unlink(store.path)
        try save(.peripheral(is: pending(2)), &snapshot, store)
        #expect(try store.load() == snapshot)
    }

    // The directory was made when the store was opened, and never again; its lock, in a deleted file, kept no process
    // out any more.
    @Test(
        "R-29 state deleted under a store is written again with the next change, and other stores are kept out again",
        arguments: ["central-app.json", "central-app.lock", ".", ".."])
    func deleted(_ name: String) throws {
        let parent = try TemporaryDirectory()
        let directory = StateDirectory(path: parent.path + "/a/b")
        let store = try SnapshotStore(directory, .central, "app")
        var snapshot = try snapshot()
        try store.save(snapshot)
        let path = [".": directory.path, "..": parent.path + "/a"][name] ?? "\(directory.path)/\(name)"
        try FileManager.default.removeItem(atPath: path)
        let change = Snapshot.Change.peripheral(is: pending(9))
        let isNew = snapshot.apply(change)
        #expect(isNew)
        #expect(try store.save(snapshot, [change]) == (name != "central-app.json"))
        #expect(try store.load() == snapshot)
        #expect { try SnapshotStore(directory, .central, "app") } throws: {
            ($0 as? SnapshotStore.Failure)?.isInUse == true
        }
        #expect(try !store.save(snapshot))
        #expect(mode(directory.path) == 0o700 && mode(store.path) == 0o600)
    }

    @Test("R-29 a store whose place another one has taken writes and removes nothing until that is gone")
    func takenOver() throws {
        let directory = try TemporaryDirectory()
        let first = try store(directory)
        let mine = try snapshot()
        try first.save(mine)
        try FileManager.default.removeItem(atPath: directory.path)
        var empty = mine
        empty.switchOff()
        empty.services = []
        try first.save(empty)
        #expect(!FileManager.default.fileExists(atPath: directory.path), "there is nothing to preserve")
        var theirs = mine
        theirs.scan = nil
        do {
            let second = try store(directory)
            try second.save(theirs)
            #expect { try first.save(mine) } throws: { ($0 as? SnapshotStore.Failure)?.isInUse == true }
            try first.save(empty)
            #expect(try second.load() == theirs)
        }
        #expect(try first.save(mine))
        #expect(try first.load() == mine)
        first.close()
        #expect(try store(directory).load() == mine)
    }

    @Test("R-29 a rewrite that ends after the directory was deleted does not write into that of another store")
    func deletedDuringRewrite() throws {
        let directory = try TemporaryDirectory()
        let first = try store(directory)
        var snapshot = try snapshot()
        try first.save(snapshot)
        try whileDiskHangs {
            var number = 0
            while try bytes(first.path) < 3 * SnapshotStore.leastRewriting {
                number += 1
                try save(.peripheral(is: pending(number, name: String(repeating: "x", count: 200))), &snapshot, first)
            }
            try FileManager.default.removeItem(atPath: directory.path)
            try store(directory).save(try self.snapshot())
        }
        SnapshotStore.background.sync {}
        #expect(try store(directory).load() == self.snapshot())
    }

    @Test("a file that is too large to be read is not written: an error says so, and the old file stays")
    func tooMuch() throws {
        let directory = try TemporaryDirectory()
        let store = try store(directory)
        let old = try snapshot()
        try store.save(old)
        let huge = Snapshot.Change.peripheral(
            is: pending(1, name: String(repeating: "x", count: Snapshot.maximumBytes)))
        var snapshot = old
        #expect { try save(huge, &snapshot, store) } throws: {
            "\($0)".contains("too much to preserve") && "\($0)".contains("\(Snapshot.maximumBytes)")
        }
        #expect(try store.load() == old)
        // As soon as it is less, all of it is there.
        try save(.peripheral(is: pending(1)), &snapshot, store)
        #expect(try store.load() == snapshot)
    }

    @Test("a directory that others can write to, or of another user, is not trusted")
    func foreignDirectory() throws {
        let directory = try TemporaryDirectory()
        for mode: mode_t in [0o777, 0o770, 0o1777] {
            chmod(directory.path, mode)
            #expect { try store(directory) } throws: { "\($0)".contains("only this user") }
        }
        chmod(directory.path, 0o755)
        _ = try store(directory)
        guard geteuid() == 0 else { return }
        chown(directory.path, 65534, 65534)
        #expect { try store(directory) } throws: { "\($0)".contains("it belongs to user 65534") }
    }

    @Test("a file that others can write to, or of another user, is set aside")
    func foreignFile() throws {
        let directory = try TemporaryDirectory()
        let store = try store(directory)
        try store.save(snapshot())
        chmod(store.path, 0o666)
        #expect { try store.load() } throws: { "\($0)".contains("others can write") && "\($0)".contains(".damaged") }
        #expect(try store.load() == nil)
    }

    @Test("a file that is temporarily unreadable is not set aside, because it may be valid")
    func unreadable() throws {
        let directory = try TemporaryDirectory()
        let store = try store(directory)
        try store.save(snapshot())
        // The obstacle here is a path that is not a directory; a lack of descriptors or memory, or a disk error, has
        // the same effect.
        let moved = directory.path + ".moved"
        #expect(rename(directory.path, moved) == 0)
        try "".write(toFile: directory.path, atomically: false, encoding: .utf8)
        #expect { try store.load() } throws: { ($0 as? SnapshotStore.Failure)?.isBadContent == false }
        unlink(directory.path)
        #expect(rename(moved, directory.path) == 0)
        #expect(try store.load() == snapshot())
    }

    @Test("file names: any identifier has a unique one inside the directory")
    func names() {
        let directory = StateDirectory(path: "/d")
        #expect(directory.file(.central, "heart-rate") == "/d/central-heart-rate.json")
        #expect(directory.file(.peripheral, "../x/❤") == "/d/peripheral-..%2Fx%2F%E2%9D%A4.json")
        let long = String(repeating: "x", count: 1000)
        #expect(directory.file(.central, long).count < 250)
        #expect(directory.file(.central, long) != directory.file(.central, long + "y"))
        let names = ["a/b", "a%2Fb", "a b", "A/b", ""].map { directory.file(.central, $0) }
        #expect(Set(names).count == names.count)
    }

    @Test("the state directory: the app's choice, BLUEZKIT_STATE_DIR, systemd's, the user's")
    func directories() {
        let all = [
            "BLUEZKIT_STATE_DIR": "/b", "STATE_DIRECTORY": "/var/lib/app:/x", "XDG_STATE_HOME": "/s", "HOME": "/home/u",
        ]
        func path(_ choice: String?, without names: [String] = [], _ extra: [String: String] = [:]) -> String? {
            let environment = all.filter { !names.contains($0.key) }.merging(extra) { $1 }
            return StateDirectory(choice: choice, environment: { environment[$0] }, app: "/usr/bin/demo")?.path
        }
        #expect(path("/mine") == "/mine")
        #expect(path("") == "/b")
        #expect(path(nil) == "/b")
        #expect(path(nil, without: ["BLUEZKIT_STATE_DIR"]) == "/var/lib/app/bluezkit")
        let user = ["BLUEZKIT_STATE_DIR", "STATE_DIRECTORY"]
        #expect(path(nil, without: user) == "/s/demo/bluezkit")
        #expect(path(nil, without: user, ["XDG_STATE_HOME": "relative"]) == "/home/u/.local/state/demo/bluezkit")
        #expect(path(nil, without: user + ["XDG_STATE_HOME", "HOME"]) == nil)
    }

    // A relative directory was used as it was: a keeper, whose working directory is another, took the file for free and
    // missing, the leases did not name it, and an app that changed its directory had a second file.
    @Test("a relative state directory is in the working directory, whatever that is later, and for other processes")
    func relativeDirectory() {
        let here = FileManager.default.currentDirectoryPath
        func path(_ choice: String?, _ environment: [String: String] = [:]) -> String? {
            StateDirectory(choice: choice, environment: { environment[$0] }, app: "/usr/bin/demo")?.path
        }
        #expect(path("state") == here + "/state")
        #expect(path(nil, ["BLUEZKIT_STATE_DIR": "./state"]) == here + "/./state")
        #expect(path(nil, ["STATE_DIRECTORY": "app"]) == here + "/app/bluezkit")
        #expect(path(nil, ["HOME": "home"]) == here + "/home/.local/state/demo/bluezkit")
    }
}
