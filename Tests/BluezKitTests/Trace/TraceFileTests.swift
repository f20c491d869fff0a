import Foundation
import Testing

@testable import BluezKit
@testable import BluezKitRestore

@Suite struct TraceFileTests {
    private let place: TracePath

    init() throws { place = try TracePath() }

    private func file(limit: Int64 = 1_000_000, hidesValues: Bool = false) throws -> TraceFile {
        try TraceFile(place.path, .init(limit: limit, hidesValues: hidesValues))
    }

    private func reason(_ path: String) -> String? {
        do throws(TraceFile.Failure) {
            _ = try TraceFile(path, .init())
            return nil
        } catch { return error.reason.replacingOccurrences(of: path + " ", with: "") }
    }

    @Test("each message is a line of JSON with times, process and manager, in a file for the user alone")
    func lines() throws {
        try file().write(.centralRequest(CentralMessage(request: .endScan)), of: 3)
        #expect(place.mode == 0o600)
        let lines = place.text.split(separator: "\n", omittingEmptySubsequences: false)
        try #require(lines.count == 3 && lines[2].isEmpty)
        let header = try #require(try JSONSerialization.jsonObject(with: Data(lines[0].utf8)) as? [String: Any])
        let line = try #require(try JSONSerialization.jsonObject(with: Data(lines[1].utf8)) as? [String: Any])
        #expect(Set(header.keys) == ["clock", "message", "process", "wall"])
        #expect(Set(line.keys) == ["clock", "manager", "message", "process", "wall"])
        #expect(line["process"] as? Int == Int(getpid()) && line["manager"] as? Int == 3)
        let wall = try #require(line["wall"] as? Double)
        #expect(abs(wall - Date().timeIntervalSince1970) < 3600)
        #expect(lines[1].contains(#""message":{"centralRequest":{"_0":{"request":{"endScan":{}}}}}"#), "\(lines[1])")
        let names = try place.items().map { try $0.get().name }
        #expect(names.last == "stopScan" && names.first?.hasSuffix(" begins") == true)
    }

    // Values may be secret. A link could lead to a file of another user, who could also have made the file.
    @Test("only a regular file of the user's own, with one name, is written; nothing else is touched")
    func refusedFiles() throws {
        let folder = place.directory.path
        #expect(reason(folder + "/missing/trace") == "cannot be opened: No such file or directory")
        #expect(reason(folder) == "cannot be opened: Is a directory")
        #expect(reason("/dev/null") == "is not a regular file")
        mkfifo(place.path, 0o600)
        #expect(reason(place.path) == "cannot be opened: No such device or address")  // does not wait for a reader
        let target = folder + "/target"
        _ = FileManager.default.createFile(atPath: target, contents: Data("x".utf8))
        symlink(target, folder + "/link")
        #expect(reason(folder + "/link") == "is a symbolic link")
        link(target, folder + "/second")
        #expect(reason(target) == "has several names")
        #expect(try String(contentsOfFile: target, encoding: .utf8) == "x")
        guard getuid() == 0 else { return }
        unlink(folder + "/second")
        chown(target, 65534, 65534)
        #expect(reason(target) == "belongs to another user")
    }

    @Test("a file that others could read is the user's alone from then on")
    func existingFile() throws {
        _ = FileManager.default.createFile(
            atPath: place.path, contents: Data(), attributes: [.posixPermissions: 0o644])
        _ = try file()
        #expect(place.mode == 0o600)
    }

    // As a process leaves it that is killed in the middle of a write.
    @Test("half a line at the end of the file costs no other line")
    func halfALine() throws {
        try file().write(.released, of: 1)
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: place.path))
        try handle.seekToEnd()
        try handle.write(contentsOf: Data(#"{"clock":1,"mess"#.utf8))
        try file().write(.released, of: 1)
        let items = place.items()
        #expect(items.count == 5)
        #expect(items.damages == [TraceReader.Damage(line: 3, reason: "it is no JSON")])
    }

    @Test("a file that is full says so in its last line, and is not written any more")
    func limit() throws {
        let file = try file(limit: 2000)
        for _ in 0..<100 { file.write(.released, of: 1) }
        #expect(place.data.count < 2300)
        let last = try #require(place.items().last).get()
        #expect(last.name.hasSuffix("writes nothing more") && last.facts == ["the file may have 2000 bytes"])
        let size = place.data.count
        file.write(.released, of: 1)
        #expect(place.data.count == size)
        // Another process says it for itself.
        _ = try self.file(limit: 2000)
        #expect(try #require(place.items().last).get().name.hasSuffix("writes nothing more"))
        #expect(place.items().damages.isEmpty)
    }

    @Test("a message that is too long is left out, and the next ones are written")
    func longMessage() throws {
        let file = try file(limit: 10_000_000)
        file.write(.log(level: "warning", text: String(repeating: "x", count: TraceFile.longestLine)))
        file.write(.released, of: 1)
        let entries = try place.items().map { try $0.get() }
        try #require(entries.count == 3)
        #expect(entries[1].name == "left out" && entries[1].facts.first?.hasPrefix("a message of 1000") == true)
    }

    @Test("threads and processes that write at a time do not mix their lines")
    func concurrentWriters() throws {
        let files = try (0..<4).map { _ in try file(limit: 10_000_000) }
        DispatchQueue.concurrentPerform(iterations: 400) { number in
            files[number % 4].write(.log(level: "warning", text: String(repeating: "y", count: number * 10)))
        }
        let items = place.items()
        #expect(items.count == 404 && items.damages.isEmpty)
    }

    @Test("the environment sets the limit in megabytes, and hides values; what is no number is an error")
    func environment() throws {
        func options(_ variables: [String: String]) throws -> TraceFile.Options {
            try TraceFile.Options(environment: { variables[$0] })
        }
        #expect(try options([:]) == .init(limit: 64_000_000, hidesValues: false))
        #expect(try options(["BLUEZKIT_TRACE_LIMIT": "2"]).limit == 2_000_000)
        #expect(try options(["BLUEZKIT_TRACE_VALUES": "0"]).hidesValues)
        #expect(try !options(["BLUEZKIT_TRACE_VALUES": "1"]).hidesValues)
        for text in ["0", "-1", "1000001", "64 MB", "x", "99999999999999999999"] {
            #expect(throws: TraceFile.Failure.self) { try options(["BLUEZKIT_TRACE_LIMIT": text]) }
        }
    }

    // MARK: Values

    private static let secret: [UInt8] = [0xDE, 0xAD, 0xBE, 0xEF]
    private static let word = "hunter2x"

    /// Every message that has a value in it.
    private static func messages() throws -> [TraceMessage] {
        let (identity, id, data) = (DetachedCentral.identity(1), AttributeID(rawValue: 1), Data(secret))
        let characteristic = LocalAttributeID(call: 1, index: 0)
        let central = CentralInfo(identifier: UUID(), maximumUpdateValueLength: 20)
        let uuid = CodableUUID(CBUUID(string: "FFF1"))
        let requests: [AttributeRequest] = [
            .write(secret, id), .writeWithoutResponse(secret, id), .writeDescriptor(secret, id),
        ]
        let answers: [AttributeAnswer] =
            [
                .value(data, of: id), .descriptorValue(data, of: id),
                .characteristics(
                    [
                        FoundCharacteristic(
                            id: id, element: try element("char0001"), uuid: uuid, properties: Coded([.read]),
                            value: secret)
                    ], of: id),
            ] + requests.map { .failed($0, AppError(CBError(.unknown))) }
        var properties = DeviceProperties()
        properties.manufacturerEntries = [data]
        properties.serviceData = [CBUUID(string: "180F"): data]
        var advertisement = AdvertisementRequest()
        advertisement.manufacturerData = data
        var snapshot = Snapshot(role: .peripheral, identifier: "x", app: "x", boot: "x", saved: Date())
        let text = try attributeUUID("2901")
        snapshot.services = [
            Snapshot.LocalService(
                uuid: text, isPrimary: true, includedServices: [],
                characteristics: [
                    Snapshot.LocalCharacteristic(
                        uuid: text, properties: 2, permissions: 1, value: data,
                        descriptors: [
                            .init(uuid: text, text: word, data: nil), .init(uuid: text, text: nil, data: data),
                        ],
                        subscribers: [])
                ])
        ]
        let plan = RestorationPlan(snapshot, .init(bluetooth: nil, adapter: nil, peripherals: [:]))
        let service = LocalService(
            call: 1, uuid: uuid, isPrimary: true, includes: [],
            characteristics: [
                LocalCharacteristic(
                    uuid: uuid, properties: Coded([.read]), permissions: Coded([.readable]), value: secret,
                    descriptors: [LocalDescriptor(uuid: uuid, value: secret)])
            ], placement: nil)
        let centralRequests: [CentralRequest] =
            requests.map { .perform($0, identity, 1) } + [.answerQuestion(ticket: 1, accepts: true, passkey: 314_159)]
        let centralEvents: [CentralEvent] =
            answers.map { .peripheral(identity, .answer($0, 1)) } + [
                .value(data, id, identity, 1), .discovered(identity, properties, scan: 1),
                .peripheral(identity, .question(.display(314_159), ticket: 1)),
                .peripheral(identity, .question(.comparison(314_159), ticket: 1)),
            ]
        let publishRequests: [PublishRequest] = [
            .add(service, isResumed: false), .update(characteristic, secret, centrals: nil),
            .respond(ticket: 1, Coded(.success), data),
            .advertise(advertisement, AdvertisingStart(token: 1, adapterGeneration: 1), isResumed: false),
        ]
        let publishEvents: [PublishEvent] = [
            .access(
                AttributeAccess(ticket: 1, central: central, characteristic: characteristic, offset: 0, value: data)),
            .restored(plan),
            .handedOver(
                snapshot,
                HandOver(
                    missed: 0, dropped: 0, repeatsFirst: false,
                    work: .peripheral(KeptPublications(calls: [], isAdvertising: false, channels: [])))),
        ]
        return centralRequests.map { .centralRequest(CentralMessage(request: $0)) }
            + centralEvents.map { .centralEvent($0) }
            + publishRequests.map { .peripheralRequest(PublishMessage(request: $0)) }
            + publishEvents.map { .peripheralEvent($0) }
            + [.bytes(TraceBytes(channel: 1, isInput: true, count: 4, first: data))]
    }

    private static let signs = ["222,173,190,239", "3q2+7w==", word, "314159"]

    @Test("with hidden values no message has one: not as numbers, not as base64, nor a passkey")
    func hidesValues() throws {
        let messages = try Self.messages()
        let file = try file(hidesValues: true)
        for message in messages { file.write(message, of: 1) }
        let lines = place.text.split(separator: "\n").map(String.init)
        #expect(lines.count == messages.count + 1)
        for (line, message) in zip(lines.dropFirst(), messages) {
            for sign in Self.signs { #expect(!line.contains(sign), "\(line) of \(message)") }
        }
        let entries = try place.items().map { try $0.get() }
        #expect(entries.count > messages.count / 2 && entries.allSatisfy { $0.value?.isHidden != false })
        #expect(entries.contains { $0.value?.count == 4 })
    }

    @Test("otherwise each of them has")
    func showsValues() throws {
        let file = try file()
        for message in try Self.messages() { file.write(message, of: 1) }
        for line in place.text.split(separator: "\n").dropFirst() {
            #expect(Self.signs.contains(where: line.contains), "\(line)")
        }
        #expect(place.items().damages.isEmpty)
    }
}
