import BluezDBus
import Foundation
import Testing

@testable import BluezKit

@Suite struct LinkLeaseTests {
    private let heart = Scenarios.RestorationScenarios.heart
    private let life = "0123 :1.4 hci0"

    /// A directory of leases.
    private func files(_ directory: TemporaryDirectory) throws -> Set<String> {
        try Set(FileManager.default.contentsOfDirectory(atPath: directory.path))
    }

    private func share(_ name: String, _ directory: String?) throws -> LinkLease? {
        try LinkLease.share(name, in: directory, for: #require(UUID(uuidString: heart)))
    }

    private func make(_ name: String, _ directory: TemporaryDirectory) throws -> LinkLease {
        try LinkLease.make(name, in: directory.path, for: #require(UUID(uuidString: heart)))
    }

    @Test("XDG_RUNTIME_DIR that is empty or relative is ignored, as its specification says")
    func runtimeDirectory() {
        let fallback = "/tmp/bluezkit-\(geteuid())"
        #expect(sharedDirectory(runtimeDirectory: "/run/user/7") == "/run/user/7/bluezkit")
        for path in [nil, "", "run/user/7", "."] { #expect(sharedDirectory(runtimeDirectory: path) == fallback) }
    }

    #if compiler(>=6.2)  // exit tests
    // A set-user-ID program took the directory of the user who had started it for its own, and wrote its leases there.
    @Test(
        "a program with the rights of another user keeps its leases in that user's directory",
        .enabled(if: getuid() == 0))
    func effectiveUser() async {
        await #expect(processExitsWith: .success) {
            precondition(seteuid(65_534) == 0)
            let path = "/tmp/bluezkit-65534"
            precondition(sharedDirectory(runtimeDirectory: nil) == path)
            unsetenv("XDG_RUNTIME_DIR")
            precondition(LinkLease.directory == path)
            rmdir(path)
        }
    }
    #endif

    // A program that root ran in a user's session made the directory there, as root's: until the logout no program of
    // the user had leases, or a keeper.
    @Test("no directory for leases is made in one of another user", .enabled(if: geteuid() == 0))
    func foreignDirectory() throws {
        let parent = try TemporaryDirectory()
        let path = parent.path + "/bluezkit"
        chown(parent.path, 65_534, 65_534)
        #expect(!LinkLease.makeDirectory(path))
        #expect(access(path, F_OK) != 0)
        // Like /tmp.
        chmod(parent.path, 0o1777)
        #expect(LinkLease.makeDirectory(path))
        rmdir(path)
        chown(parent.path, 0, 0)
        chmod(parent.path, 0o700)
        #expect(LinkLease.makeDirectory(path) && LinkLease.makeDirectory(path))
        // One that is there already is used wherever it is, as the volume of a container.
        chown(parent.path, 65_534, 65_534)
        #expect(LinkLease.makeDirectory(path))
    }

    @Test("DL-7 the only user of a link ends it, and its file stays until it has ended, without blocking")
    func ending() throws {
        let directory = try TemporaryDirectory()
        let name = "\(life) dev_F0_F1_F2_00_00_01"
        let first = try make(name, directory)
        let second = try #require(try share(name, directory.path))
        #expect(!first.beginEnding())
        #expect(second.beginEnding())
        #expect(try files(directory) == [name])
        #expect(throws: LinkLease.IsEnding.self) { try share(name, directory.path) }
        #expect(throws: LinkLease.IsEnding.self) { try make(name, directory) }
        #expect(LinkLease.inherit(name, in: directory.path) == nil)
        second.end()
        #expect(try files(directory).isEmpty)
        #expect(try share(name, directory.path) == nil)
    }

    @Test("a link that this process made is its own even without a lease file")
    func withoutFile() throws {
        for directory in [nil, "/proc/nowhere"] as [String?] {
            let lease = try LinkLease.make("\(life) dev_1", in: directory, for: UUID())
            #expect(lease.beginEnding())
            #expect(try share("\(life) dev_1", directory) == nil)
        }
    }

    @Test(
        "files show orphaned links and who may claim them; files of earlier runs of bluetoothd are removed"
    )
    func abandoned() throws {
        let directory = try TemporaryDirectory()
        let others = ["0123 :1.4 hci1 dev_1", "4567 :1.4 hci0 dev_1"]
        let held = "0123 :1.3 hci0 dev_2"
        for name in others + ["\(life) dev_1", "0123 :1.3 hci0 dev_1", "0123 :1.4 hci0 77 dev_1"] {
            let lease = try make(name, directory)
            lease.claim(in: "/state/one")
            lease.claim(in: "/state/two")
            lease.claim(in: "/state/one")
        }
        let holder = try make(held, directory)
        let old = directory.path + "/8901 :1.4 hci0 dev_1"
        #expect(FileManager.default.createFile(atPath: old, contents: nil))
        try FileManager.default.setAttributes(
            [.modificationDate: Date(timeIntervalSinceNow: -90_000)], ofItemAtPath: old)
        let found = LinkLease.all(of: life, in: directory.path)
        #expect(found.map(\.name) == ["\(life) dev_1"] && found.map(\.element) == ["dev_1"])
        #expect(found.map(\.identity.identifier.uuidString) == [heart])
        #expect(found.map(\.states) == [["/state/one", "/state/two"]])
        #expect(try files(directory) == Set(others + ["\(life) dev_1", held]))
        holder.end()
        // Old ones go whatever bus and adapter they are of; a name that is none of ours may be anything.
        let remains = ["0123 :1.4 hci1 dev_9", "89 dev_1", "0123"]
        for name in remains {
            #expect(FileManager.default.createFile(atPath: "\(directory.path)/\(name)", contents: nil))
            try FileManager.default.setAttributes(
                [.modificationDate: Date(timeIntervalSinceNow: -90_000)], ofItemAtPath: "\(directory.path)/\(name)")
        }
        #expect(LinkLease.all(of: life, in: directory.path).count == 1)
        #expect(try files(directory) == Set(others + ["\(life) dev_1"]))
    }

    @Test("a locked file stays, even if nothing has been written to it yet")
    func unwritten() throws {
        let directory = try TemporaryDirectory()
        let path = "\(directory.path)/\(life) dev_1"
        #expect(FileManager.default.createFile(atPath: path, contents: nil))
        let holder = open(path, O_RDWR | O_CLOEXEC)
        defer { close(holder) }
        #expect(flock(holder, LOCK_SH) == 0)
        #expect(LinkLease.all(of: life, in: directory.path).isEmpty)
        #expect(FileManager.default.fileExists(atPath: path))
    }

    @Test("a file whose creator exited before writing to it is removed")
    func abandonedUnwritten() throws {
        let directory = try TemporaryDirectory()
        #expect(FileManager.default.createFile(atPath: "\(directory.path)/\(life) dev_1", contents: nil))
        #expect(LinkLease.all(of: life, in: directory.path).isEmpty)
        #expect(try files(directory).isEmpty)
    }

    @Test(
        "RS-6 DL-7 a file that was shared before its creator wrote to it shows the link when both processes have exited"
    )
    func sharedUnwritten() throws {
        let directory = try TemporaryDirectory()
        let name = "\(life) dev_1"
        #expect(FileManager.default.createFile(atPath: "\(directory.path)/\(name)", contents: nil))
        var sharer = try share(name, directory.path)
        sharer?.claim(in: "/state/one")
        sharer = nil  // exited as well
        let found = LinkLease.all(of: life, in: directory.path)
        #expect(found.map(\.identity.identifier.uuidString) == [heart])
        #expect(found.map(\.states) == [["/state/one"]])
        #expect(try files(directory) == [name])
    }

    @Test("a link that a program has left, by its end or its release, can be taken over by one other only")
    func inheritance() throws {
        let directory = try TemporaryDirectory()
        let name = "\(life) dev_1"
        #expect(!LinkLease.exists(name, in: directory.path) && !LinkLease.exists(name, in: nil))
        #expect(LinkLease.inherit(name, in: directory.path) == nil)
        var leases = try (0..<3).map { _ in try make(name, directory) }
        #expect(LinkLease.exists(name, in: directory.path))
        while !leases.isEmpty {
            #expect(LinkLease.inherit(name, in: directory.path) == nil)
            leases.removeLast()
        }
        let next = try #require(LinkLease.inherit(name, in: directory.path))
        #expect(LinkLease.inherit(name, in: directory.path) == nil)
        next.end()
        #expect(!LinkLease.exists(name, in: directory.path))
    }

    @Test("the end of one part in a shared link leaves the file to the others")
    func sharedEnd() throws {
        let directory = try TemporaryDirectory()
        let name = "\(life) dev_1"
        let (first, second) = (try make(name, directory), try make(name, directory))
        first.end()
        #expect(try files(directory) == [name])
        second.end()
        #expect(try files(directory).isEmpty)
        second.end()
        first.end()
        // Those have ended: what comes after them is another link.
        let third = try make(name, directory)
        first.end()
        #expect(try files(directory) == [name])
        third.end()
    }

    @Test("a symbolic link or a directory in the place of a lease file is not used")
    func foreignFiles() throws {
        let directory = try TemporaryDirectory()
        let target = try TemporaryDirectory()
        let (link, folder) = ("\(life) dev_1", "\(life) dev_2")
        let file = target.path + "/file"
        #expect(FileManager.default.createFile(atPath: file, contents: nil))
        try FileManager.default.createSymbolicLink(
            atPath: "\(directory.path)/\(link)", withDestinationPath: file)
        try FileManager.default.createDirectory(
            atPath: "\(directory.path)/\(folder)", withIntermediateDirectories: false)
        for name in [link, folder] {
            #expect(try share(name, directory.path) == nil)
            let unshared = try make(name, directory)
            unshared.claim(in: "/state/one")
            #expect(unshared.beginEnding())
            unshared.end()
        }
        #expect(LinkLease.all(of: life, in: directory.path).isEmpty)
        #expect(FileManager.default.contents(atPath: file) == Data())
    }
}
