import Dispatch
import Foundation
import Synchronization
import Testing

@testable import BluezKit
@testable import BluezKitRestore

@Suite struct IntentBookTests {
    private func book(_ directory: TemporaryDirectory) throws -> IntentBook {
        let options: [String: Any] = [BluezManagerOptionStateDirectoryKey: directory.path]
        return try #require(IntentBook.open(.central, identifier: "app", options: options).book)
    }

    private func record(_ number: UInt8) -> Snapshot.Peripheral {
        Snapshot.Peripheral(
            identifier: UUID(uuid: (0, 0, 0, 0, 0, 0, 0x80, 0, 0x80, 0, 0, 0, 0, 0, 0, number)), name: nil,
            adapter: nil, state: .connecting, isBonded: false, options: [:], services: nil)
    }

    @Test("D10 a cancelled removal does not affect work that began after it")
    func powerOffResets() throws {
        let book = try book(TemporaryDirectory())
        book.note { [.scan(is: ScanRequest(services: nil, allowsDuplicates: nil, solicitedServices: nil))] }
        for takeBack in [{ _ = book.cancelPowerOffReset() }, { _ = book.commitPowerOffReset() }] as [() -> Void] {
            let first = book.schedulePowerOffReset()
            takeBack()
            book.note { [.peripheral(is: record(1))] }
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
        for number in UInt8(0)..<100 { book.note { [.peripheral(is: record(number))] } }
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
        book.note(record.identifier, of: old) { record }
        book.note(record.identifier, of: new) { record }
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
            book.note { [.peripheral(is: record(1))] }
            #expect(FileManager.default.fileExists(atPath: directory.file("app")))
            book.end()
            #expect(!FileManager.default.fileExists(atPath: directory.file("app")))
        }
    }
}
