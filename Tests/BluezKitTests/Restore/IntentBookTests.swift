import Dispatch
import Foundation
import Synchronization
import Testing

@testable import BluezKit
@testable import BluezKitRestore

@Suite struct IntentBookTests {
    private func book(_ directory: TemporaryDirectory) throws -> IntentBook {
        let options: [String: Any] = [BluezManagerOptionStateDirectoryKey: directory.path]
        var timing = BlueZTiming.Preservation()
        timing.saveRetry = .seconds(1)
        return try #require(IntentBook.open(.central, identifier: "app", options: options, timing: timing).book)
    }

    private func record(_ number: UInt8) -> Snapshot.Peripheral {
        Snapshot.Peripheral(
            identifier: UUID(uuid: (0, 0, 0, 0, 0, 0, 0x80, 0, 0x80, 0, 0, 0, 0, 0, 0, number)), name: nil,
            adapter: nil, state: .connecting, isBonded: false, options: ConnectRequest(options: [:]), services: nil)
    }

    @Test("D10 a cancelled removal does not affect work that began after it")
    func powerOffResets() throws {
        let book = try book(TemporaryDirectory())
        book.record { [.scan(is: ScanRequest(services: nil, allowsDuplicates: nil, solicitedServices: nil))] }
        for takeBack in [{ _ = book.cancelPowerOffReset() }, { _ = book.commitPowerOffReset() }] as [() -> Void] {
            let first = book.schedulePowerOffReset()
            takeBack()
            book.record { [.peripheral(is: record(1))] }
            let second = book.schedulePowerOffReset()
            #expect(!book.commitPowerOffReset(first))
            #expect(!book.peripherals.isEmpty)
            #expect(book.commitPowerOffReset(second))
            #expect(book.peripherals.isEmpty)
        }
    }

    @Test("D11 a failed save is retried by one timer, however many changes there are")
    func retries() async throws {
        let directory = try TemporaryDirectory()
        let book = try book(directory)
        // A directory in the place of the file: each attempt makes a file, cannot put it there, and removes it.
        let file = directory.file("app")
        try FileManager.default.createDirectory(atPath: file + "/x", withIntermediateDirectories: true)
        let log = EventLog<String>()
        let watch = inotify_init1(Int32(IN_CLOEXEC))
        try #require(inotify_add_watch(watch, directory.path, UInt32(IN_DELETE | IN_MOVED_TO)) >= 0, "errno \(errno)")
        Thread.detachNewThread {
            var buffer = [UInt8](repeating: 0, count: 4096)
            while case let count = read(watch, &buffer, buffer.count), count > 0 {
                var position = 0
                while position < count {
                    // struct inotify_event: descriptor, mask, cookie, and the length of the name, which follows.
                    func number(at place: Int) -> UInt32 {
                        buffer[position + place..<position + place + 4].reversed().reduce(0) { $0 << 8 | UInt32($1) }
                    }
                    let mask = number(at: 4)
                    if mask & UInt32(IN_ISDIR) == 0 { log.append(mask & UInt32(IN_DELETE) != 0 ? "failed" : "saved") }
                    position += 16 + Int(number(at: 12))
                }
            }
            close(watch)
        }
        for number in UInt8(0)..<100 { book.record { [.peripheral(is: record(number))] } }
        for _ in 0..<100 { try await log.next("failure of the change itself") { $0 == "failed" ? true : nil } }
        try await log.next("failure of the first retry", within: 60) { $0 == "failed" ? true : nil }
        try FileManager.default.removeItem(atPath: file)
        try await log.next("success of the second", within: 60) { $0 == "saved" ? true : nil }
        // A busy machine may have had one more, while changes were still being made.
        #expect(log.all.count <= 100 + 4, "each retry is one attempt, not a hundred")
        book.end()
    }

    @Test("CN-1 a released object removes its own record, not that of another object with the same identifier")
    func owners() throws {
        let book = try book(TemporaryDirectory())
        let (old, new) = (NSObject(), NSObject())
        let record = record(1)
        book.record(record.identifier, of: old) { record }
        book.record(record.identifier, of: new) { record }
        book.forget(record.identifier, of: old)
        #expect(book.peripherals[record.identifier] == record)
        book.forget(record.identifier, of: new)
        #expect(book.peripherals.isEmpty)
    }

    @Test("the first change is saved at once, and those within a second of it together")
    func gathering() async throws {
        let book = try book(TemporaryDirectory())
        let log = EventLog<Int>()
        for number in 0..<500 { book.gather { log.append(number) } }
        try await log.next("the first") { $0 == 0 ? true : nil }
        try await log.next("the last") { $0 == 499 ? true : nil }
        #expect(log.all.count < 50)
    }

    @Test("RS-16 a slow disk does not keep a released manager's identifier in use")
    func slowDisk() throws {
        let directory = try TemporaryDirectory()
        SnapshotStore.background.suspend()
        defer { SnapshotStore.background.resume() }
        for _ in 0..<3 {
            let book = try book(directory)
            book.record { [.peripheral(is: record(1))] }
            #expect(FileManager.default.fileExists(atPath: directory.file("app")))
            book.end()
            #expect(!FileManager.default.fileExists(atPath: directory.file("app")))
        }
    }

    // `end` forgot the channels: the next process published them again, and centrals could open what no one served.
    @Test("R-17 RS-16 a peripheral manager that is released leaves no L2CAP channels, and no file")
    func releasedChannels() throws {
        let directory = try TemporaryDirectory()
        let options: [String: Any] = [BluezManagerOptionStateDirectoryKey: directory.path]
        let book = try #require(IntentBook.open(.peripheral, identifier: "app", options: options).book)
        book.record { [.channels(are: [.init(psm: 0x81, isEncrypted: true)])] }
        #expect(directory.files.count == 1)
        book.end()
        #expect(directory.files.isEmpty)
    }

    private func open(_ identifier: String?, _ options: [String: Any]) -> (book: IntentBook?, preserved: Snapshot?) {
        IntentBook.open(.central, identifier: identifier, options: options)
    }

    private let scan = ScanRequest(services: nil, allowsDuplicates: true, solicitedServices: nil)

    @Test("a manager that neither preserves nor resumes has no book; the option decides about resuming")
    func whoHasABook() throws {
        let directory = try TemporaryDirectory()
        let key = BluezManagerOptionResumeAfterResetKey
        #expect(open(nil, [:]).book == nil)
        #expect(open(nil, [key: false]).book == nil)
        #expect(open(nil, [key: "yes"]).book == nil)
        let inMemory = try #require(open(nil, [key: true]).book)
        #expect(inMemory.resumes && inMemory.path == nil && inMemory.directory == nil)
        inMemory.record { [.scan(is: scan)] }
        #expect(inMemory.scan == scan)
        let options: [String: Any] = [BluezManagerOptionStateDirectoryKey: directory.path]
        #expect(open("one", options).book?.resumes == true)
        let quiet = try #require(open("two", options.merging([key: false]) { $1 }).book)
        #expect(!quiet.resumes && quiet.path == directory.file("two"))
        #expect(directory.files.isEmpty, "there is nothing to preserve")
    }

    @Test("D11 recorded intents are on disk at once, and the next process gets them")
    func preserves() throws {
        let directory = try TemporaryDirectory()
        var book: IntentBook? = try book(directory)
        book?.record { [.scan(is: scan), .peripheral(is: record(1)), .peripheral(is: record(2))] }
        book?.record { [.removal(of: record(1).identifier)] }
        let copy = try TemporaryDirectory(copying: directory)
        let (next, preserved) = open("app", [BluezManagerOptionStateDirectoryKey: copy.path])
        #expect(preserved?.scan == scan && preserved?.peripherals.map(\.identifier) == [record(2).identifier])
        #expect(next?.scan == scan && next?.peripherals == preserved?.peripherals)
        // A released manager's work has ended.
        book?.end()
        #expect(directory.files.isEmpty)
        book = nil
        #expect(open("app", [BluezManagerOptionStateDirectoryKey: directory.path]).preserved == nil)
    }

    @Test("a change that changes nothing is not written")
    func noChange() throws {
        let directory = try TemporaryDirectory()
        let book = try book(directory)
        book.record { [.peripheral(is: record(1))] }
        let content = FileManager.default.contents(atPath: directory.file("app"))
        book.record { [.peripheral(is: record(1)), .scan(is: nil), .removal(of: record(2).identifier)] }
        book.record { [] }
        book.forget(record(2).identifier)
        #expect(FileManager.default.contents(atPath: directory.file("app")) == content && content != nil)
    }

    @Test("a second manager with the same identifier has no preservation, and does not disturb the first")
    func sameIdentifier() throws {
        let directory = try TemporaryDirectory()
        let first = try book(directory)
        first.record { [.peripheral(is: record(1))] }
        let options: [String: Any] = [
            BluezManagerOptionStateDirectoryKey: directory.path, BluezManagerOptionResumeAfterResetKey: true,
        ]
        let (second, preserved) = open("app", options)
        #expect(preserved == nil && second?.path == nil)
        second?.end()
        first.record { [.peripheral(is: record(2))] }
        #expect(first.peripherals.count == 2 && directory.files.count == 1)
    }

    @Test("D11 without free descriptors a good file stays as it is, and a change is saved when there are some")
    func noDescriptors() async throws {
        _ = LogCapture.shared
        let directory = try TemporaryDirectory()
        let file = directory.file("app")
        func content() throws -> Data { try Data(contentsOf: URL(fileURLWithPath: file)) }
        var book: IntentBook? = try book(directory)
        book?.record { [.scan(is: scan)] }
        let before = try content()
        withoutDescriptors { book?.record { [.peripheral(is: record(1))] } }
        #expect(try content() == before && book?.peripherals.count == 1)
        try await LogCapture.shared.expect("state is preserved again, in \(file)")
        let after = try content()
        #expect(after != before)

        let copy = try TemporaryDirectory(copying: directory)
        let options: [String: Any] = [BluezManagerOptionStateDirectoryKey: copy.path]
        let next = withoutDescriptors { open("app", options) }
        #expect(next.preserved == nil && next.book?.path == nil)
        next.book?.record { [.scan(is: scan)] }
        #expect(try Data(contentsOf: URL(fileURLWithPath: copy.file("app"))) == after)
        #expect(open("app", options).preserved?.peripherals.map(\.identifier) == [record(1).identifier])
        book?.end()
        book = nil
    }

    // The log said that state was preserved again, with no directory there, when the manager was released.
    @Test(
        "D11 a deleted directory is created again with the next change, which is logged, and not when the work ends"
    )
    func deletedDirectory() async throws {
        _ = LogCapture.shared
        let directory = try TemporaryDirectory()
        let book = try book(directory)
        book.record { [.scan(is: scan)] }
        try FileManager.default.removeItem(atPath: directory.path)
        book.record { [.peripheral(is: record(1))] }
        try await LogCapture.shared.expect(
            "was deleted while it was in use; both are there again, and state is preserved in \(directory.path)")
        let copy = try TemporaryDirectory(copying: directory)
        let preserved = open("app", [BluezManagerOptionStateDirectoryKey: copy.path]).preserved
        #expect(preserved?.scan == scan && preserved?.peripherals.count == 1)
        try FileManager.default.removeItem(atPath: directory.path)
        book.end()
        #expect(!FileManager.default.fileExists(atPath: directory.path))
    }

    /// Runs `body` while this process can open no file.
    private func withoutDescriptors<Result>(_ body: () -> Result) -> Result {
        withResourceLimit(RLIMIT_NOFILE, rlim_t(STDERR_FILENO + 1), body)
    }

    @Test("a file with wrong content is ignored, and replaced by the next change")
    func wrongContent() throws {
        let directory = try TemporaryDirectory()
        try Data("nonsense".utf8).write(to: URL(fileURLWithPath: directory.file("app")))
        let (book, preserved) = open("app", [BluezManagerOptionStateDirectoryKey: directory.path])
        #expect(preserved == nil && book?.path == directory.file("app"))
        book?.record { [.peripheral(is: record(1))] }
        let snapshot = try Snapshot(
            fileContent: #require(FileManager.default.contents(atPath: directory.file("app"))))
        #expect(snapshot.peripherals.map(\.identifier) == [record(1).identifier])
    }

    @Test("a new object without a record removes its predecessor's record, and so does any release of it")
    func removedRecords() throws {
        let (old, new) = (NSObject(), NSObject())
        let book = try book(TemporaryDirectory())
        let record = record(1)
        book.record(record.identifier, of: old) { record }
        book.record(record.identifier, of: new) { nil }
        #expect(book.peripherals.isEmpty)
        book.forget(record.identifier, of: old)
        #expect(book.peripherals.isEmpty)
        book.record(record.identifier, of: old) { record }
        book.forget(record.identifier)
        #expect(book.peripherals.isEmpty)
    }

    @Test("without a scheduled removal nothing is removed, and the work resumes")
    func nothingScheduled() throws {
        let book = try book(TemporaryDirectory())
        book.record { [.scan(is: scan), .peripheral(is: record(1))] }
        #expect(book.cancelPowerOffReset() && !book.commitPowerOffReset() && !book.commitPowerOffReset(1))
        #expect(book.peripherals.count == 1 && book.scan == scan)
        book.schedulePowerOffReset()
        #expect(book.cancelPowerOffReset() && !book.commitPowerOffReset())
        #expect(book.peripherals.count == 1)
        book.schedulePowerOffReset()
        #expect(book.commitPowerOffReset() && !book.commitPowerOffReset())
        #expect(book.peripherals.isEmpty && book.scan == nil)
    }
}
