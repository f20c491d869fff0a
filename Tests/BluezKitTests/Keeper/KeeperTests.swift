import BluezKitRestore
import CBluezL2CAP
import Foundation
import Testing

@testable import BluezKit

/// The parts of the keeper, one by one.
@Suite struct KeeperTests {
    private static let heart = DeviceIdentity(address: 0xF0F1_F200_0001, isRandom: false)
    private static let sink = DeviceIdentity(address: 0xF0F1_F200_0002, isRandom: true)

    private func value(_ bytes: Int) -> CentralEvent {
        .value(Data(repeating: 7, count: bytes), AttributeID(rawValue: 3), Self.sink, ConnectionID(request: 4, link: 5))
    }

    private func entry(_ log: inout BluezKit.EventLog, _ kind: BluezKit.EventLog.Kind, _ bytes: Int = 1) throws {
        let number = log.newNumber()
        log.append(.init(number: number, kind: kind, frame: try .event(number, value(bytes)), startsApp: nil))
        log.shorten()
    }

    // MARK: Other users

    @Test("a keeper and its apps use no directory that others can write to, or replace")
    func refusesSharedDirectory() throws {
        let temporary = try TemporaryDirectory()
        let (parent, directory) = (temporary.path + "/run", temporary.path + "/run/bluezkit")
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        func isUsed(_ path: String) throws -> Bool { try Keeper.checkDirectory(of: path + "/keeper") }
        for (mode, isSafe) in [(0o700, true), (0o755, true), (0o777, false), (0o1777, false), (0o720, false)] {
            chmod(directory, mode_t(mode))
            if isSafe {
                #expect(try isUsed(directory))
            } else {
                #expect(throws: Keeper.Failure.self) { try isUsed(directory) }
            }
        }
        chmod(directory, 0o700)
        // In one like /tmp others can make files, and replace none.
        for (mode, isSafe) in [(0o1777, true), (0o777, false), (0o700, true)] {
            chmod(parent, mode_t(mode))
            if isSafe {
                #expect(try isUsed(directory))
            } else {
                #expect(throws: Keeper.Failure.self) { try isUsed(directory) }
            }
        }
        // None is made there either.
        chmod(parent, 0o777)
        #expect(throws: Keeper.Failure.self) { try Keeper.makeDirectory(of: parent + "/new/keeper") }
        #expect(access(parent + "/new", F_OK) != 0)
        chmod(parent, 0o700)
        symlink(directory, temporary.path + "/link")
        #expect(throws: Keeper.Failure.self) { try isUsed(temporary.path + "/link") }
        #expect(try !isUsed(temporary.path + "/nowhere"))
    }

    @Test("a symbolic link in the place of the keeper's lock or journal is not followed")
    func followsNoLink() throws {
        let directory = try TemporaryDirectory()
        let (socket, precious) = (directory.path + "/keeper", directory.path + "/precious")
        try Data("precious".utf8).write(to: URL(fileURLWithPath: precious))
        for end in [".lock", ".managers.new"] { symlink(precious, socket + end) }
        #expect(throws: POSIXError.self) { try Keeper.claim(socket) }
        KeeperJournal(socket: socket).write([])
        #expect(FileManager.default.contents(atPath: precious) == Data("precious".utf8))
        #expect(FileManager.default.contents(atPath: socket + ".managers") == Data("[]".utf8))
    }

    @Test("a keeper's journal has whatever an app may ask for, and what a newer keeper has written is left out")
    func journal() throws {
        let directory = try TemporaryDirectory()
        let journal = KeeperJournal(socket: directory.path + "/keeper")
        var hello = KeeperHello(
            role: .central, statePath: directory.path + "/central-app.json", app: "app", address: "unix:path=/bus",
            adapter: nil, relaunch: .never)
        hello.central = .init(
            claims: .init(directory: StateDirectory(path: directory.path), seconds: .infinity))
        journal.write([hello])
        #expect(journal.read().map(\.name) == [hello.name] && journal.read().first?.central == hello.central)
        let path = directory.path + "/keeper.managers"
        let text = try #require(FileManager.default.contents(atPath: path).map { String(decoding: $0, as: UTF8.self) })
        try Data("[{\"role\":\"mesh\"},\(text.dropFirst())".utf8).write(to: URL(fileURLWithPath: path))
        chmod(path, 0o600)
        #expect(journal.read().map(\.name) == [hello.name])
    }

    @Test("whether a process has a manager's file is seen without locking it")
    func seesUse() throws {
        let directory = try TemporaryDirectory()
        let store = try SnapshotStore(StateDirectory(path: directory.path), .central, "app")
        #expect(SnapshotStore.isInUse(store.path))
        store.close()
        #expect(!SnapshotStore.isInUse(store.path) && !SnapshotStore.isInUse(directory.path + "/central-no.json"))
    }

    // Files of different file systems may have the same number: a lease in the session's directory was taken for the
    // lock of a state file, and the keeper ended what it did for that app.
    @Test("a lock of a file with the same number, on another file system, is not one of the manager's file")
    func seesOtherLocks() throws {
        let directory = try TemporaryDirectory()
        let store = try SnapshotStore(StateDirectory(path: directory.path), .central, "app")
        var status = stat()
        try #require(stat(directory.path + "/central-app.lock", &status) == 0)
        func locks(_ process: Int32) -> String {
            "1: POSIX  ADVISORY  WRITE 1 00:2d:7 0 EOF\n"
                + "2: FLOCK  ADVISORY  WRITE \(process) 00:2d:\(status.st_ino) 0 EOF\n"
        }
        #expect(SnapshotStore.isInUse(store.path, locks: locks(getpid())))
        store.close()
        #expect(!SnapshotStore.isInUse(store.path, locks: locks(getpid())), "this process does not have it open")
        #expect(!SnapshotStore.isInUse(store.path, locks: locks(.max)), "there is no such process")
        // One that cannot be looked at may have it.
        if geteuid() != 0 { #expect(SnapshotStore.isInUse(store.path, locks: locks(1))) }
    }

    // MARK: Claims

    // A peripheral manager was never beside another one: what an app's new version did not make any more was published
    // by the keeper forever.
    @Test("R-15 RS-6 the managers that an app has left are of either role, and of one directory")
    func areBeside() throws {
        func hello(_ role: Snapshot.Role, _ statePath: String, app: String = "app") -> KeeperHello {
            var hello = KeeperHello(
                role: role, statePath: statePath, app: app, address: "unix:path=/bus", adapter: nil, relaunch: .never)
            if role == .central {
                hello.central = .init(
                    claims: hello.directory.map { .init(directory: $0, seconds: 30) })
            } else {
                hello.peripheral = .init()
            }
            return hello
        }
        let all = [hello(.central, "/d/central-a.json"), hello(.peripheral, "/d/peripheral-a.json")]
        for one in all { #expect(all.map { $0.isBeside(one) } == all.map { $0.name != one.name }) }
        #expect(!hello(.peripheral, "/e/peripheral-a.json").isBeside(all[0]))
        #expect(!hello(.peripheral, "/d/peripheral-b.json", app: "other").isBeside(all[0]))
        #expect(hello(.peripheral, "/peripheral-a.json").directory == nil)
    }

    // MARK: Frames

    @Test("frames arrive as they were sent, however the bytes are cut")
    func frames() throws {
        let sent = [try Frame.event(1, value(5)), try Frame.event(2, value(0)), .version(as: .greeting)]
        let bytes = sent.map(\.bytes).reduce(Data(), +)
        for size in [1, 2, 7, bytes.count] {
            var reader = FrameReader()
            var received: [Frame] = []
            for start in stride(from: 0, to: bytes.count, by: size) {
                Array(bytes[start..<min(start + size, bytes.count)]).withUnsafeBytes { reader.add($0, []) }
                while let frame = try reader.next() { received.append(frame) }
            }
            #expect(received.map(\.bytes) == sent.map(\.bytes))
        }
    }

    @Test("a value is the same on the other side")
    func passesValue() throws {
        let (number, event) = try Frame.event(1 << 40, value(244)).event(CentralEvent.self)
        guard case .value(let bytes, let attribute, let identity, let connectionID) = event else {
            Issue.record("\(event)")
            return
        }
        #expect(number == 1 << 40 && bytes == Data(repeating: 7, count: 244) && attribute.rawValue == 3)
        #expect(identity == Self.sink && connectionID == ConnectionID(request: 4, link: 5))
    }

    @Test("writes, updates and what has become of them are the same on the other side, and have no JSON")
    func passesWrites() throws {
        let id = ConnectionID(request: 4, link: 5)
        let write = CentralRequest.perform(.writeWithoutResponse([1, 2, 3], AttributeID(rawValue: 9)), Self.sink, id)
        let local = LocalAttributeID(call: 1 << 33, index: 7)
        let updates: [PublishRequest] = [
            .update(local, [4], centrals: nil), .update(local, [], centrals: []),
            .update(local, [5, 6], centrals: [UUID()]),
        ]
        let progress = CommandProgress(writes: 3, bytes: 60, dropped: 1, isSocketFull: true)
        func passed<Request: Codable & Sendable>(_ request: Request) throws -> String {
            let frame = try Frame.request(RequestMessage(request: request))
            #expect(frame.kind == .write || frame.kind == .update)
            return "\(try frame.request(Request.self).request)"
        }
        #expect(try passed(write) == "\(write)")
        for update in updates { #expect(try passed(update) == "\(update)") }
        func passed<Event: Codable & Sendable>(event: Event) throws -> String {
            let frame = try Frame.event(6, event)
            #expect(frame.kind == .written || frame.kind == .sent)
            return "\(try frame.event(Event.self))"
        }
        let written = CentralEvent.peripheral(Self.heart, .written(progress, id))
        #expect(try passed(event: written) == "\((number: UInt64(6), event: written))")
        #expect(
            try passed(event: PublishEvent.sent(local)) == "\((number: UInt64(6), event: PublishEvent.sent(local)))")
        // For Bluetooth as it was when the app asked: that is rare, and JSON has it.
        #expect(try Frame.request(RequestMessage(request: write, generation: 1)).kind == .request)
    }

    @Test("what is no frame, or too long, is refused", arguments: [[0, 0, 0, 0, 99, 0], [255, 255, 255, 255, 1, 0]])
    func malformed(_ bytes: [UInt8]) {
        var reader = FrameReader()
        bytes.withUnsafeBytes { reader.add($0, []) }
        #expect(throws: FrameReader.Failure.self) { try reader.next() }
    }

    @Test("a frame that says it has descriptors, and has none, is refused; short events too")
    func lacking() throws {
        var reader = FrameReader()
        Frame(kind: .welcome, body: Data(), descriptors: [1]).bytes.withUnsafeBytes { reader.add($0, []) }
        #expect(throws: FrameReader.Failure.self) { try reader.next() }
        for (kind, length) in [(Frame.Kind.value, 27), (.event, 7), (.value, 0)] {
            #expect(throws: (any Error).self) {
                try Frame(kind: kind, body: Data(count: length)).event(CentralEvent.self)
            }
        }
        for (kind, length) in [(Frame.Kind.write, 19), (.update, 15), (.update, 0), (.request, 4)] {
            #expect(throws: (any Error).self) {
                try Frame(kind: kind, body: Data(count: length)).request(PublishRequest.self)
            }
        }
    }

    @Test("a descriptor goes with its frame")
    func passesDescriptor() throws {
        let (one, other) = try #require(KeeperSocket.pair())
        let page = try #require(DeliveryPage())
        page.delivered = 12
        #expect(one.sendAll(Frame(kind: .welcome, body: Data([1]), descriptors: [page.descriptor])))
        var reader = FrameReader()
        #expect(other.receive(into: &reader, waits: true) == .bytes(Frame.headSize + 1))
        let frame = try #require(try reader.next())
        let same = try #require(frame.descriptors.first.flatMap { DeliveryPage(descriptor: $0) })
        #expect(same.delivered == 12)
        same.begun = 13
        #expect(page.begun == 13)
        one.shutDown()
        #expect(other.receive(into: &reader, waits: true) == .ended)
    }

    @Test("what is sent together arrives in order, each descriptor with its frame, also where there is no room")
    func batches() async throws {
        let (app, other) = try #require(KeeperSocket.pair())
        let queue = DispatchQueue(label: "test.keeper")
        let connection = KeeperConnection(other, on: queue)
        let batches = 200
        let refills = ProtectedBox(0)
        let page = try #require(DeliveryPage())
        queue.sync {
            connection.start()
            // More than the socket takes: the rest goes when there is room.
            connection.onRoom = { refills.withLock { $0 += 1 } }
            for number in 0..<UInt64(batches) {
                guard var last = try? Frame.event(number << 8 | 0xFF, value(5)), number % 50 == 0 else {
                    connection.send((0..<20).compactMap { try? Frame.event(number << 8 | $0, value(500)) })
                    continue
                }
                last.descriptors = [page.descriptor]
                connection.send([last, last])
            }
        }
        let received = try await Task.detached {
            var (reader, frames) = (FrameReader(), [Frame]())
            defer { reader.end() }
            while frames.count < (batches - 4) * 20 + 8, case .bytes = app.receive(into: &reader, waits: true) {
                while let frame = try reader.next() { frames.append(frame) }
            }
            return frames
        }.value
        let numbers = try received.map { try $0.event(CentralEvent.self).number }
        #expect(numbers == numbers.sorted() && received.count == (batches - 4) * 20 + 8)
        #expect(zip(numbers, received).allSatisfy { ($0 & 0xFF == 0xFF) == ($1.descriptors.count == 1) })
        for frame in received { frame.closeDescriptors() }
        try await eventually("there is room again") { refills.withLock { $0 } > 0 }
        queue.sync {
            #expect(connection.hasRoom)
            connection.end()
        }
    }

    @Test("memory that an app could shorten is not shared")
    func shortPage() throws {
        var ends: [Int32] = [0, 0]
        try #require(pipe(&ends) == 0)
        close(ends[1])
        #expect(DeliveryPage(descriptor: ends[0]) == nil)
        #expect(DeliveryPage(descriptor: -1) == nil)
        let page = try #require(DeliveryPage())
        #expect(ftruncate(page.descriptor, 0) != 0, "it is sealed")
    }

    @Test("what an app says of its time limit is bounded", arguments: [-1e300, 1e300, .infinity, .nan, 30])
    func claims(seconds: Double) throws {
        var configuration = CentralManagerCore.Configuration()
        configuration.claims = .init(directory: StateDirectory(path: "/"), seconds: seconds)
        let (bytes, _) = try BorderFormat.encode(configuration)
        let period = try #require(try BorderFormat.decode(CentralManagerCore.Configuration.self, from: bytes).claims)
            .period
        #expect(period >= .zero && period <= .seconds(1_000_000))
    }

    @Test("a full log of many thousand events is kept in order, however it fills and empties")
    func turnsOver() throws {
        var log = BluezKit.EventLog(limits: .init(events: 500))
        try entry(&log, .other)
        for _ in 0..<3000 { try entry(&log, .value) }
        #expect(log.entries.count == 500 && log.entries.first?.number == 1 && log.entries.last?.number == 3001)
        #expect(log.entries.dropFirst().map(\.number) == Array(2503...3001))
        for delivered in stride(from: UInt64(2510), through: 3001, by: 7) {
            log.trim(upTo: delivered)
            #expect(log.entries.first.map { $0.number == delivered + 1 } ?? (delivered == 3001))
            #expect(log.batch(after: 0, bytes: 1).first?.number == log.entries.first?.number)
        }
        #expect(log.size == log.entries.map(\.size).reduce(0, +))
    }

    // MARK: The log

    @Test("events that were delivered are gone; the others stay in order")
    func trims() throws {
        var log = BluezKit.EventLog()
        for _ in 0..<5 { try entry(&log, .other) }
        log.trim(upTo: 2)
        #expect(log.entries.map(\.number) == [3, 4, 5])
        #expect(log.batch(after: 3, bytes: 1).map(\.number) == [4] && log.batch(after: 5, bytes: 1).isEmpty)
        log.trim(upTo: 9)
        #expect(log.entries.isEmpty && log.size == 0)
    }

    @Test("a full log drops the oldest values, counts them, and never drops a connect", arguments: [false, true])
    func bounds(bySize: Bool) throws {
        var log = BluezKit.EventLog(limits: bySize ? .init(bytes: 400) : .init(events: 6))
        try entry(&log, .other)
        for _ in 0..<20 { try entry(&log, .value, 20) }
        try entry(&log, .other)
        #expect(log.entries.count <= 8 && log.size <= 400)
        #expect(log.entries.first?.number == 1 && log.entries.last?.number == 22)
        let dropped = 22 - log.entries.count
        #expect(log.dropped(after: 0) == dropped)
        #expect(log.dropped(after: 20) <= 1 && log.dropped(after: 22) == 0)
        #expect(!log.isOverfull)
        while !log.isOverfull, log.entries.count < 100 { try entry(&log, .other) }
        #expect(log.isOverfull && log.entries.count < (bySize ? 60 : 26))
    }

    @Test("an app dies: what only that process could use is gone, and of a peripheral's reports the last one stays")
    func appDies() throws {
        var log = BluezKit.EventLog()
        for kind: BluezKit.EventLog.Kind in [
            .discovery(Self.heart), .passing, .value, .discovery(Self.sink), .discovery(Self.heart), .other,
        ] { try entry(&log, kind) }
        log.appDied()
        #expect(log.entries.map(\.number) == [3, 4, 5, 6])
        log.forgetDiscovery(of: Self.heart)
        #expect(log.entries.map(\.number) == [3, 4, 6])
        #expect(log.size == log.entries.map(\.size).reduce(0, +))
    }

    @Test("R-20 a subscription that ends while there is no app leaves nothing, unless the app may have heard of it")
    func forgetsPairs() throws {
        var log = BluezKit.EventLog()
        for kind: BluezKit.EventLog.Kind in [.begin("a"), .end("a"), .begin("a"), .begin("b")] { try entry(&log, kind) }
        let cancelled = [("a", UInt64(1)), ("a", 1), ("c", 0)].map { log.forgetBegin($0, after: $1) }
        #expect(cancelled == [true, false, false], "the app may have heard of the first")
        #expect(log.entries.map(\.number) == [1, 2, 4])
        #expect(log.size == log.entries.map(\.size).reduce(0, +))
    }

    @Test("RQ-7 requests that cannot be answered any more are gone, and make room before values do")
    func requests() throws {
        var log = BluezKit.EventLog(limits: .init(events: 4))
        for kind: BluezKit.EventLog.Kind in [.value, .request(1), .other, .request(2), .value] { try entry(&log, kind) }
        #expect(log.entries.map(\.number) == [1, 3, 4, 5])
        log.forgetRequests(but: [1])
        #expect(log.entries.map(\.number) == [1, 3, 5])
        log.removeAll()
        #expect(log.entries.isEmpty && log.size == 0)
    }

    // App and keeper were killed together, as where memory runs out, and the app had its file a moment longer: the next
    // keeper took it for one that runs, and forgot it.
    @Test("D10 RS-17 a keeper continues for an app that was still dying when the keeper began")
    func dyingApp() async throws {
        let directory = try TemporaryDirectory()
        let store = try SnapshotStore(StateDirectory(path: directory.path), .central, "app")
        var snapshot = Snapshot(role: .central, identifier: "app", app: "app", boot: "", saved: Date())
        snapshot.scan = ScanRequest(services: nil, allowsDuplicates: nil, solicitedServices: nil)
        try store.save(snapshot)
        var hello = KeeperHello(
            role: .central, statePath: store.path, app: "app", address: "unix:path=/nowhere", adapter: nil,
            relaunch: .never)
        hello.central = .init()
        let journal = KeeperJournal(socket: directory.path + "/keeper")
        journal.write([hello])
        let host = KeeperHost(journal: journal)
        host.resume()
        #expect(host.count == 0, "it seems to run")
        store.close()
        try await eventually("the keeper continues") { host.count == 1 }
        #expect(journal.read().map(\.name) == [hello.name])
        let (app, keeper) = try #require(KeeperSocket.pair())
        host.take(keeper)
        #expect(app.sendAll(Frame(kind: .discard, body: Data(store.path.utf8))))
        try await eventually("it has ended that") { host.count == 0 }
    }

    // MARK: Starting the app

    // An app that was slow to ask for its keeper, or could not, was started again each minute, up to eight times, and
    // all of its processes scanned and connected.
    @Test("RS-5 an app is not started again while the process runs that was started for it")
    func startsNoSecond() async throws {
        let app = BluezRelaunch.command(["/bin/sleep", "1000"])
        func start(after last: AppProcess?) throws -> AppProcess {
            try #require(Launcher.start(app, after: last) { Issue.record("\($0)") })
        }
        let first = try start(after: nil)
        #expect(first.isKnownToRun)
        #expect(try start(after: first) === first)
        kill(first.number, SIGKILL)
        try await eventually("it has ended") { !first.isKnownToRun }
        let second = try start(after: first)
        #expect(second !== first && second.number != first.number)
        kill(second.number, SIGKILL)
        for process in [first, second] { waitpid(process.number, nil, 0) }
    }

    @Test("RS-5 an app is started once for all that happens until it is there")
    func startsOnce() {
        var machine = RelaunchMachine()
        #expect(machine.somethingHappened() == nil, "it is there")
        #expect(machine.appDied(at: .seconds(100), isDue: false) == nil)
        #expect(machine.somethingHappened() == .start)
        #expect(machine.somethingHappened() == nil)
        machine.appCame(at: .seconds(101))
        #expect(machine.somethingHappened() == nil)
        // Something waits that it has not delivered.
        #expect(machine.appDied(at: .seconds(200), isDue: true) == .start)
    }

    @Test("RS-5 an app that dies at once is started after longer and longer pauses, and finally not any more")
    func backsOff() {
        var machine = RelaunchMachine()
        #expect(machine.appDied(at: .seconds(100), isDue: true) == .start)
        var pauses: [Duration] = []
        var now: Duration = .seconds(100)
        while pauses.count < 20 {
            machine.appCame(at: now)
            now += .seconds(1)
            guard case .wait(let pause)? = machine.appDied(at: now, isDue: true) else { break }
            pauses.append(pause)
            #expect(machine.somethingHappened() == nil)
            #expect(machine.timerFired() == .start)
            now += pause
        }
        #expect(pauses == [1, 2, 4, 8, 16, 32, 64].map { .seconds($0) })
        #expect(machine.somethingHappened() == nil, "it has been given up")
        machine.appCame(at: now)
        #expect(machine.appDied(at: now + .seconds(60), isDue: true) == .start, "started by hand, it works")
    }

    @Test("an app that cannot be started, or does not come, is started again")
    func fails() {
        var machine = RelaunchMachine()
        #expect(machine.appDied(at: .seconds(100), isDue: true) == .start)
        #expect(machine.startFailed() == .wait(.seconds(1)))
        #expect(machine.timerFired() == .start)
        #expect(machine.timerFired() == .wait(.seconds(2)), "60 s have passed")
    }
}
