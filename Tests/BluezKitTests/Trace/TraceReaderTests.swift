import Foundation
import Testing

@testable import BluezKit
@testable import BluezKitRestore

@Suite struct TraceReaderTests {
    private let identity = DetachedCentral.identity(1)

    /// Lines as they would be written.
    private func trace(_ lines: [TraceLine]) throws -> Data {
        var data = Data()
        for line in lines { data += try BorderFormat.encoder().encode(line) + Data("\n".utf8) }
        return data
    }

    private func line(
        _ message: TraceMessage, at clock: Double = 100, wall: Double? = nil, process: Int32 = 7, manager: Int? = 1
    ) -> TraceLine {
        TraceLine(wall: wall ?? clock + 1_000_000, clock: clock, process: process, manager: manager, message: message)
    }

    private func header(boot: String = "a", border: Int = BorderFormat.version) -> TraceMessage {
        .began(
            TraceHeader(
                version: "1", border: border, program: "app", system: "Linux", boot: boot, hidesValues: false))
    }

    private func event(_ event: PeripheralEvent) -> TraceMessage { .centralEvent(.peripheral(identity, event)) }

    private func shown(_ messages: [TraceMessage]) throws -> [String] {
        let items = [TraceReader.Item](reading: try trace(messages.map { line($0) }))
        return try items.map { try $0.get().shown }
    }

    private func service(_ id: UInt32, _ uuid: String) throws -> FoundService {
        FoundService(
            id: AttributeID(rawValue: id), element: try element("service\(id)"),
            uuid: CodableUUID(CBUUID(string: uuid)), isPrimary: true, layout: "")
    }

    private func characteristic(_ id: UInt32, _ uuid: String) throws -> FoundCharacteristic {
        FoundCharacteristic(
            id: AttributeID(rawValue: id), element: try element("char\(id)"),
            uuid: CodableUUID(CBUUID(string: uuid)), properties: Coded([.read]), value: nil)
    }

    @Test("messages are told in the words of the API, with names and UUIDs where earlier ones have told them")
    func names() throws {
        var properties = DeviceProperties()
        (properties.name, properties.rssiDBm, properties.services) = ("Kit", -60, [CBUUID(string: "180D")])
        let (service, value) = (AttributeID(rawValue: 1), AttributeID(rawValue: 2))
        let timeout = coreBluetoothError(
            name: "org.bluez.Error.Failed", message: "le-connection-timeout", context: .connect, isBonded: false)
        let lines = try shown([
            .centralRequest(
                CentralMessage(
                    request: .startScan(
                        ScanRequest(
                            services: [try attributeUUID("180d")], allowsDuplicates: true, solicitedServices: nil),
                        token: 1))),
            .centralEvent(.discovered(identity, properties, scan: 1)),
            .centralRequest(CentralMessage(request: .connect(identity, 1, ConnectRequest(options: ["delay": 2])))),
            event(.connected(1, mtuBytes: 23, isOurs: true)),
            .centralRequest(CentralMessage(request: .perform(.discoverServices(nil), identity, 1))),
            event(.answer(.services([try self.service(1, "180D")]), 1)),
            event(.answer(.characteristics([try characteristic(2, "2A37")], of: service), 1)),
            .centralRequest(CentralMessage(request: .perform(.setNotify(true, value), identity, 1))),
            .centralEvent(.value(Data([0, 0x3C]), value, identity, 1)),
            event(.lost(1, next: nil, AppError(timeout), at: 0)),
        ])
        #expect(
            lines == [
                "-> scanForPeripherals, 180D, with duplicates", "<- didDiscover Kit, -60 dBm, 180D",
                "-> connect Kit, delay 2.0", "<- didConnect Kit, ATT_MTU 23", "-> discoverServices Kit, all",
                "<- didDiscoverServices Kit, 180D", "<- didDiscoverCharacteristicsFor Kit 180D, 2A37",
                "-> setNotifyValue Kit 2A37, true", "<- didUpdateValueFor Kit 2A37 [0, 60]",
                "<- didDisconnectPeripheral Kit, \(timeout.localizedDescription) (CBError "
                    + "\((timeout as NSError).code), org.bluez.Error.Failed: le-connection-timeout)",
            ])
    }

    @Test("numbers of attributes are forgotten with the link, and what belongs to an earlier one is marked")
    func laterLinks() throws {
        let value = AttributeID(rawValue: 2)
        func connect(_ id: ConnectionID) -> TraceMessage {
            .centralRequest(CentralMessage(request: .connect(identity, id, ConnectRequest(options: [:]))))
        }
        let notified = TraceMessage.centralEvent(.value(Data(), value, identity, 1))
        let lines = try shown([
            connect(1), event(.answer(.characteristics([try characteristic(2, "2A37")], of: value), 1)), notified,
            .centralRequest(CentralMessage(request: .cancel(identity, 2))), notified, connect(3), notified,
        ])
        let address = identity.addressText
        #expect(lines[2] == "<- didUpdateValueFor \(address) 2A37 []")
        #expect(lines[4] == "<- didUpdateValueFor \(address) 2A37 [], dropped: of an earlier connection")
        #expect(lines[6] == "<- didUpdateValueFor \(address) attribute 2 [], dropped: of an earlier connection")
    }

    @Test("two devices with one name are told apart by their addresses")
    func sameName() throws {
        func found(_ number: Int) -> TraceMessage {
            var properties = DeviceProperties()
            properties.name = "Kit"
            return .centralEvent(.discovered(DetachedCentral.identity(number), properties, scan: 1))
        }
        #expect(try shown([found(1), found(2)]) == ["<- didDiscover Kit", "<- didDiscover Kit (00:02)"])
    }

    @Test("restored attributes have the numbers that the app's objects have")
    func restored() throws {
        var snapshot = Snapshot(role: .central, identifier: "x", app: "x", boot: "x", saved: Date())
        snapshot.peripherals[identity.identifier] = Snapshot.Peripheral(
            identifier: identity.identifier, name: "Kit", adapter: nil, state: .connected, isBonded: false,
            options: ConnectRequest(options: [:]),
            services: [
                Snapshot.Service(
                    element: try element("service0001"), uuid: try attributeUUID("180d"), isPrimary: true,
                    isOnlyIncluded: false,
                    layout: "", includedServices: nil,
                    characteristics: [
                        Snapshot.Characteristic(
                            element: try element("char0002"), uuid: try attributeUUID("2a37"), properties: 16,
                            isNotifying: true,
                            descriptors: [
                                Snapshot.Descriptor(element: try element("desc0003"), uuid: try attributeUUID("2902"))
                            ]),
                        Snapshot.Characteristic(
                            element: try element("char0004"), uuid: try attributeUUID("2a38"), properties: 2,
                            isNotifying: false,
                            descriptors: nil),
                    ])
            ])
        let plan = RestorationPlan(snapshot, .init(bluetooth: nil, adapter: nil, peripherals: [:]))
        func value(_ id: UInt32) -> TraceMessage {
            .centralEvent(.value(Data(), AttributeID(rawValue: id), identity, RestorationPlan.connectionID(at: 0)))
        }
        #expect(
            try shown([.centralEvent(.restored(plan, adapter: "hci0")), value(2), value(4)]) == [
                "<- willRestoreState, Kit connected, hci0", "<- didUpdateValueFor Kit 2A37 []",
                "<- didUpdateValueFor Kit 2A38 []",
            ])
    }

    @Test("questions and their answers have the same key, and that of another attribute is another one")
    func questions() throws {
        let (one, two) = (AttributeID(rawValue: 1), AttributeID(rawValue: 2))
        let data = try trace(
            [
                .centralRequest(CentralMessage(request: .perform(.read(one), identity, 1))),
                .centralRequest(CentralMessage(request: .perform(.write([1], two), identity, 1))),
                event(.answer(.failed(.read(one), AppError(CBATTError(.readNotPermitted))), 1)),
                event(.answer(.written(two), 1)),
            ].map { line($0) })
        let entries = try [TraceReader.Item](reading: data).map { try $0.get() }
        #expect(entries[0].asks != nil && entries[0].asks == entries[2].answers)
        #expect(entries[1].asks != nil && entries[1].asks == entries[3].answers)
        #expect(entries[0].asks != entries[1].asks)
        #expect(entries[2].error?.hasSuffix("(CBATTError 2)") == true)
    }

    @Test("managers are numbered in the order of the trace, over all processes")
    func managers() throws {
        let made = [(7, 1), (7, 2), (8, 1), (7, 1)].map { process, manager in
            line(.made(.central), process: Int32(process), manager: manager)
        }
        let entries = try [TraceReader.Item](reading: try trace(made)).map { try $0.get() }
        #expect(entries.map(\.place.manager) == [1, 2, 3, 1])
        #expect(entries.allSatisfy { $0.place.role == .central && $0.direction == nil })
    }

    @Test("time continues after a restart of the computer, and a number of a process may come again")
    func restart() throws {
        let entries = try [TraceReader.Item](
            reading: trace([
                line(header(), at: 100, wall: 1000, manager: nil), line(.released, at: 101.5, wall: 1001.5),
                line(header(boot: "b"), at: 5, wall: 1060, manager: nil), line(.released, at: 6, wall: 1061),
            ])
        ).map { try $0.get() }
        #expect(entries.map(\.place.seconds) == [0, 1.5, 60, 61])
        #expect(entries.map(\.place.manager) == [nil, 1, nil, 2])
    }

    @Test("the lines of a process with another format are left out, which is said once")
    func foreignFormat() throws {
        let items = [TraceReader.Item](
            reading: try trace([
                line(header(border: 99), manager: nil), line(.released), line(.released),
                line(.released, process: 8),
            ]))
        #expect(items.count == 2 && items.damages.count == 1)
        #expect(items.damages.first?.reason.contains("whose format is 99") == true)
    }

    /// Not in the attribute: Swift 6.0 crashes of the interpolations there.
    private static let damaged: [(String, String)] = [
        ("nonsense", "it is no JSON"), ("\u{0}", "it is no JSON"), ("{}", "it has no \"wall\""),
        ("{\"\u{1}\":1}", "it is no JSON"),  // Swift 6.0's JSONDecoder ended the process
        ("[]", ""), (#"{"wall":"x"}"#, "wall: "),
        (#"{"wall":1,"clock":nan,"process":1,"message":{"released":{}}}"#, "it is no JSON"),
        (#"{"wall":"nan","clock":1,"process":1,"message":{"released":{}}}"#, "its time is none"),
        (#"{"wall":1,"clock":"infinity","process":1,"message":{"released":{}}}"#, "its time is none"),
        (#"{"wall":1,"clock":-1,"process":1,"message":{"released":{}}}"#, "its time is none"),
        (#"{"wall":1,"clock":1e300,"process":1,"message":{"released":{}}}"#, "its time is none"),
        (#"{"wall":1,"clock":1,"process":1,"message":{"fly":{}}}"#, "message: "),
        (#"{"wall":1,"clock":1,"process":99999999999,"message":{"released":{}}}"#, ""),
        (#"{"wall":1,"clock":1,"process":1,"message":{"bytes":{"_0":{}}}}"#, "it has no "),
        (#"{"wall":1,"clock":1,"process":1,"message":{"centralEvent":{"_0":{"state":{"_0":9,"generation":1}}}}}"#, ""),
    ]

    @Test("a damaged line is an error with its number, and the lines around it are read", arguments: damaged)
    func damage(_ text: String, _ reason: String) throws {
        let good = try trace([line(.released)])
        let items = [TraceReader.Item](reading: good + Data((text + "\n").utf8) + good)
        #expect(items.count == 3 && items.damages.map(\.line) == [2], "\(items)")
        #expect(items.damages.first?.reason.hasPrefix(reason) == true, "\(items.damages)")
    }

    @Test("a line without end does not fill the memory, and the next one is read")
    func endlessLine() throws {
        var reader = TraceReader()
        var items: [TraceReader.Item] = []
        for _ in 0..<100 { items += reader.read(Data(repeating: UInt8(ascii: "x"), count: 50_000)) }
        items += reader.read(Data("\n".utf8) + (try trace([line(.released)])))
        #expect(items.count == 2)
        #expect(items.damages == [.init(line: 1, reason: "it has more than 1000000 bytes")])
    }

    @Test("a trace is read in pieces of any length, and without a line break at its end")
    func pieces() throws {
        let data = try trace([line(header(), manager: nil), line(.made(.central)), line(.released)]).dropLast()
        let expected = [TraceReader.Item](reading: Data(data))
        #expect(expected.count == 3 && expected.damages.isEmpty)
        for length in [1, 2, 7, 64, 1000] {
            var reader = TraceReader()
            var items: [TraceReader.Item] = []
            var rest = Data(data)[...]
            while !rest.isEmpty {
                items += reader.read(rest.prefix(length))
                rest = rest.dropFirst(length)
            }
            if let last = reader.end() { items.append(last) }
            #expect(items == expected, "\(length)")
        }
    }
}
