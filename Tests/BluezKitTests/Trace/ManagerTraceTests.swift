import Foundation
import Testing

@testable import BluezKit
@testable import BluezKitRestore

/// What stands between an app's objects and the core if there is a trace.
@Suite struct ManagerTraceTests {
    private let place: TracePath
    private let file: TraceFile

    init() throws {
        place = try TracePath()
        file = try TraceFile(place.path, .init())
    }

    /// A backend that notes what it gets, and how many lines the trace has by then.
    private class Core: @unchecked Sendable {  // holds: used by one thread
        let place: TracePath
        var calls: [String] = []
        init(_ place: TracePath) { self.place = place }
        func note(_ what: String) { calls.append("\(what) \(place.items().count)") }
        var timing: BlueZTiming { BlueZTiming() }
        var isKept: Bool { false }
        func daemonVersion(_ answer: @escaping @Sendable (String) -> Void) { answer("5.66") }
        func release() { note("release") }
        func die() { note("die") }
    }

    private final class CentralCore: Core, CentralBackend, @unchecked Sendable {  // holds: likewise
        func send(_ request: CentralRequest, generation: UInt64?) { note("send") }
        func sendHere(_ request: CentralRequest, generation: UInt64?) { note("sendHere") }
        func report(_ event: CentralEvent) { note("report") }
        func write(_ request: CentralRequest, on connectionID: ConnectionID) -> CommandProgress? {
            note("write")
            return CommandProgress(writes: 1, bytes: 2)
        }
        func knownDevices(_ query: DeviceQuery) -> [KnownDevice] {
            note("devices")
            return [KnownDevice(identity: DetachedCentral.identity(1), name: "Kit", services: [])]
        }
        var isOnMainQueue: Bool { true }
    }

    private final class PublishCore: Core, PublishBackend, @unchecked Sendable {  // holds: likewise
        func send(_ request: PublishRequest, generation: UInt64?) { note("send") }
        func report(_ event: PublishEvent) { note("report") }
        func update(_ characteristic: LocalAttributeID, _ value: [UInt8], centrals: Set<UUID>?) -> Bool {
            note("update")
            return false
        }
    }

    @Test("what a central's app asks for is written down before it is carried out, and then what has come of it")
    func central() throws {
        let core = CentralCore(place)
        let traced = ManagerTrace(file, .central).tracing(core)
        let identity = DetachedCentral.identity(1)
        #expect(traced.isOnMainQueue && !traced.isKept)
        traced.send(.connect(identity, 1, ConnectRequest(options: [:])), generation: 4)
        traced.sendHere(.perform(.read(AttributeID(rawValue: 7)), identity, 1), generation: nil)
        let command = CentralRequest.perform(.writeWithoutResponse([1, 2], AttributeID(rawValue: 8)), identity, 1)
        #expect(traced.write(command, on: 1)?.bytes == 2)
        #expect(traced.knownDevices(.bonded).count == 1)
        traced.report(.peripheral(identity, .room(1)))
        traced.release()
        // The header, the manager and BlueZ's version come before.
        #expect(core.calls == ["send 4", "sendHere 5", "write 6", "devices 8", "report 9", "release 10"])
        let address = identity.addressText
        #expect(
            try place.shown().dropFirst() == [
                "a central manager, on unix:path=/x, for hci1, \"app\"", "BlueZ 5.66", "-> connect \(address)",
                "-> readValue \(address) attribute 7",
                "-> writeValue \(address) attribute 8 [1, 2], without response",
                "<- writes without response \(address), 1 taken", "-> retrieveBondedPeripherals",
                "<- known devices, Kit", "the manager is released",
            ])
    }

    @Test("an update for which there is no room is written down as such")
    func peripheral() throws {
        let core = PublishCore(place)
        let traced = ManagerTrace(file, .peripheral).tracing(core)
        let service = LocalService(
            call: 1, uuid: CodableUUID(CBUUID(string: "180D")), isPrimary: true, includes: [],
            characteristics: [
                LocalCharacteristic(
                    uuid: CodableUUID(CBUUID(string: "2A37")), properties: Coded([.notify]),
                    permissions: Coded([.readable]), value: nil, descriptors: [])
            ], placement: nil)
        traced.send(.add(service, isResumed: false), generation: nil)
        #expect(!traced.update(LocalAttributeID(call: 1, index: 0), [3], centrals: nil))
        #expect(
            try place.shown().dropFirst() == [
                "a peripheral manager, on unix:path=/x, with a keeper", "BlueZ 5.66", "-> add 180D, 2A37",
                "-> updateValue 2A37 [3]", "<- updateValue 2A37, false: there is no room",
            ])
    }

    @Test("each event is written down before its callback, and what the app asks for in that comes after it")
    func events() throws {
        let trace = ManagerTrace(file, .central)
        let traced = trace.tracing(CentralCore(place))
        let counts = ProtectedBox<[Int]>([])
        let receive = trace.receiving(
            { [place] (events: [CentralEvent]) in
                #expect(events.count == 1)
                counts.withLock { $0.append(place.items().count) }
                traced.send(.endScan)
            }, as: { .centralEvent($0) })
        let identity = DetachedCentral.identity(1)
        receive([
            .value(Data([1]), AttributeID(rawValue: 1), identity, 1),
            .peripheral(identity, .cancelled(1)),
        ])
        #expect(counts.withLock { $0 } == [3, 6])
        #expect(
            try place.shown().suffix(2) == [
                "<- didDisconnectPeripheral \(identity.addressText), the app has cancelled", "-> stopScan",
            ])
    }

    @Test("what a channel's streams move is written down, and of much of it the beginning")
    func channels() throws {
        let traced = ManagerTrace(file, .central).tracing(CentralCore(place))
        var ends: [Int32] = [0, 0]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        defer { close(ends[1]) }
        let socket = ChannelSocket(descriptor: ends[0])
        let endpoint = try #require(
            ChannelEndpoint(socket, BlueZTiming.Channel(), trace: traced.channelTrace(9)) {})
        endpoint.open(.input)
        endpoint.open(.output)
        let sent = [UInt8](repeating: 7, count: 100)
        #expect(sent.withUnsafeBytes { endpoint.write($0) } == 100)
        #expect(Glibc.write(ends[1], [1, 2, 3] as [UInt8], 3) == 3)
        var buffer = [UInt8](repeating: 0, count: 10)
        #expect(buffer.withUnsafeMutableBytes { endpoint.read(into: $0) } == 3)
        let entries = try place.items().map { try $0.get() }.suffix(2)
        #expect(entries.map(\.name) == ["write, channel 9", "read, channel 9"])
        #expect(entries.map { $0.value?.count } == [100, 3])
        #expect(entries.map { $0.value.map { [UInt8]($0.bytes) } } == [Array(sent.prefix(64)), [1, 2, 3]])
    }

    // Of an opened channel the socket goes beside the message: in a trace there is none, and the message is read.
    @Test("a message with a socket is written and read without it")
    func socket() throws {
        var ends: [Int32] = [0, 0]
        #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        defer { close(ends[1]) }
        let identity = DetachedCentral.identity(1)
        let passed = PassedSocket(ChannelSocket(descriptor: ends[0]))
        ManagerTrace(file, .central).write(
            .centralEvent(.peripheral(identity, .channelOpened(5, 0x80, passed, 1))))
        #expect(try place.shown().last == "<- didOpen \(identity.addressText), channel 5, PSM 128")
    }

    @Test("without BLUEZKIT_TRACE there is nothing between a manager and its core", seesCore)
    func off() {
        #expect(TraceFile.shared == nil)
        let options = [BluezManagerOptionBusAddressKey: "unix:path=/nonexistent"]
        let queue = DispatchQueue(label: "test")
        let central = CBCentralManager(delegate: nil, queue: queue, options: options)
        #expect(central.backend is CentralManagerCore)
        let peripheral = CBPeripheralManager(delegate: nil, queue: queue, options: options)
        #expect(peripheral.backend is PeripheralManagerCore)
        #expect(central.backend.channelTrace(1) == nil && peripheral.backend.channelTrace(1) == nil)
    }
}
