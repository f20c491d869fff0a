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

    @Test("R-18 nothing to preserve: the file goes")
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
        "R-26 files that cannot be used are set aside, reported, and do not stand in the way",
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
        #expect { try store.load() } throws: { "\($0)".contains("no file") }
        // A directory cannot take the place of the file that was set aside before.
        try FileManager.default.removeItem(atPath: file)
        #expect(mkfifo(file, 0o600) == 0)
        #expect { try store.load() } throws: { "\($0)".contains("no file") }
        symlink("/etc/passwd", file)
        #expect(throws: SnapshotStore.Failure.self) { try store.load() }

        try snapshot("someone else").fileContent().write(to: URL(fileURLWithPath: file))
        #expect { try store.load() } throws: { "\($0)".contains("someone else") }
    }

    @Test("a directory that cannot be made, or written to: an error that names it")
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

    @Test("a disk that is full: the old file stays as it was, and nothing is left lying")
    func fullDisk() throws {
        let directory = try TemporaryDirectory()
        let store = try store(directory)
        try store.save(snapshot())
        let before = try Data(contentsOf: URL(fileURLWithPath: store.path))
        // The kernel's own limit on the size of files does what a full disk does: the write fails in the middle.
        signal(SIGXFSZ, SIG_IGN)
        var old = rlimit()
        getrlimit(__rlimit_resource_t(UInt32(RLIMIT_FSIZE.rawValue)), &old)
        var limit = rlimit(rlim_cur: 100, rlim_max: old.rlim_max)
        setrlimit(__rlimit_resource_t(UInt32(RLIMIT_FSIZE.rawValue)), &limit)
        defer { setrlimit(__rlimit_resource_t(UInt32(RLIMIT_FSIZE.rawValue)), &old) }
        #expect(throws: SnapshotStore.Failure.self) { try store.save(snapshot()) }
        #expect(try Data(contentsOf: URL(fileURLWithPath: store.path)) == before)
        #expect(!FileManager.default.fileExists(atPath: store.path + ".new"))
    }

    @Test("file names: any identifier has one, of its own, inside the directory")
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

    @Test("where state is kept: the app's choice, BLUEZKIT_STATE_DIR, systemd's, the user's")
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
}
