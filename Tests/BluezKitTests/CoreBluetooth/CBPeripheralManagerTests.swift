import BluezKitSimulator
import Foundation
import Testing

@testable import BluezKit
@testable import BluezKitRestore

/// What a peripheral manager decides without BlueZ.
@Suite struct CBPeripheralManagerTests {
    private func publisher(_ options: [String: Any] = [:]) async throws -> Publisher {
        let publisher = Publisher(try await SimulatedWorld(), options: options)
        try await publisher.powerOn()
        return publisher
    }

    private func code(_ error: (any Error)?) -> CBError.Code? { (error as? CBError)?.code }

    @Test("ST-1 DL-1 DL-2 the state is reported once, on the given queue, even if it is concurrent")
    func state() async throws {
        let publisher = Publisher(
            try await SimulatedWorld(), queue: DispatchQueue(label: "test.concurrent", attributes: .concurrent))
        #expect(publisher.manager.state == .unknown)
        try await publisher.powerOn()
        #expect(publisher.records.count == 1)
        #expect(publisher.records.allSatisfy { $0.wasOnQueue && $0.depth == 1 && $0.managerState == .poweredOn })
    }

    @Test("RS-4 R-26 any services and advertisement in a state file are restored without a trap")
    func restoresNonsense() async throws {
        func uuid(_ text: String) throws -> AttributeUUID { try #require(AttributeUUID(text)) }
        var descriptors: [Snapshot.LocalDescriptor] = []
        for number in ["2900", "2901", "2902", "2904", "2A37"] {
            for (text, data) in [(nil, nil), ("text", nil), (nil, Data([1])), ("text", Data([1]))] as [(String?, Data?)]
            {
                descriptors.append(.init(uuid: try uuid(number), text: text, data: data))
            }
        }
        let characteristic = Snapshot.LocalCharacteristic(
            uuid: try uuid("2A38"), properties: .max, permissions: .max, value: Data(count: 1000),
            descriptors: descriptors, subscribers: [])
        var snapshot = try SnapshotTests.full()
        snapshot.services.append(
            .init(
                uuid: try uuid("00000000"), isPrimary: true, includedServices: [-1, 2, 7, .max],
                characteristics: [characteristic]))
        snapshot.advertisement?.minimumIntervalMilliseconds = .infinity
        let directory = try TemporaryDirectory()
        let publisher = try await publisher([
            CBPeripheralManagerOptionRestoreIdentifierKey: "app", BluezManagerOptionStateDirectoryKey: directory.path,
        ])
        publisher.manager.restore(RestorationPlan(snapshot, .init(bluetooth: nil, adapter: nil, peripherals: [:])))
        let services = publisher.manager.shared.withLock { $0.services }
        #expect(services.map(\.uuid.uuidString) == ["180A", "180D", "00000000"])
        #expect(services[1].includedServices == [services[0]] && services[2].includedServices == nil)
        let restored = try #require(services[1].characteristics?.first)
        #expect(restored.properties.rawValue == 0x1A && restored.value == Data([0, 255]))
        #expect(restored.descriptors?.map { $0.value as? String } == ["Ä\n", nil])
        #expect(services[2].characteristics?.first?.descriptors?.count == 5 * 4 - 4)
        // BlueZ checks it as well.
        publisher.manager.enter(.poweredOn)
        try await LogCapture.shared.expect("the advertisement cannot be restarted", "intervals")
        try await LogCapture.shared.expect("cannot be published again")
        try await eventually("it does not advertise") { !publisher.manager.isAdvertising }
        // The app finds it in what was restored, and does nothing wrong.
        let lost = try #require(services[2].characteristics?.first as? CBMutableCharacteristic)
        let text = "updateValue: \(lost.uuid) is not in a service"
        try await eventually("it is taken back") {
            publisher.manager.shared.withLock { !$0.services.contains(services[2]) }
        }
        let before = LogCapture.shared.count(text)
        #expect(!publisher.manager.updateValue(Data(), for: lost, onSubscribedCentrals: nil))
        #expect(LogCapture.shared.count(text) == before)
    }

    @Test("MIS-1 UP-4 RQ-10 commands before the first state have no effect, and do not trap")
    func beforePowerOn() async throws {
        let world = try await SimulatedWorld()
        let publisher = Publisher(world)
        publisher.queue.suspend()  // where the first state would arrive
        let characteristic = local(0x110, .notify)
        let service = localService(0x100, [characteristic])
        publisher.manager.startAdvertising(nil)
        publisher.manager.add(service)
        #expect(publisher.manager.updateValue(Data(), for: characteristic, onSubscribedCentrals: nil) == false)
        publisher.manager.remove(service)
        publisher.manager.removeAllServices()
        publisher.manager.stopAdvertising()
        let central = CBCentral(identifier: UUID())
        publisher.manager.setDesiredConnectionLatency(.low, for: central)
        let request = CBATTRequest(central: central, characteristic: characteristic, offset: 0, value: nil, ticket: 77)
        for _ in 0..<2 { publisher.manager.respond(to: request, withResult: .success) }
        publisher.queue.resume()
        try await LogCapture.shared.expect("respond", "answered already")
        try await publisher.powerOn()
        // Only calls from now on are answered.
        #expect(code(try await publisher.add(localService(0x101, [local(0x110, .broadcast)]))) == .invalidParameters)
        #expect(publisher.records.count == 2)
    }

    @Test("PB-7 system services are refused in their short form")
    func systemServices() async throws {
        let publisher = try await publisher()
        for uuid in ["1800", "1801", "1805", "180A", "180F", "1812", "181E"] {
            let service = CBMutableService(type: CBUUID(string: uuid), primary: true)
            #expect(code(try await publisher.add(service)) == .uuidNotAllowed, "\(uuid)")
        }
    }

    @Test("PB-8 PB-9 attributes that the system creates, or cannot create, are refused with the reason")
    func flaws() async throws {
        let publisher = try await publisher()
        func refusal(_ characteristic: CBMutableCharacteristic) async throws -> String {
            let error = try await publisher.add(localService(0x100, [characteristic]))
            #expect(code(error) == .invalidParameters)
            return (error as? CBError)?.localizedDescription ?? ""
        }
        #expect(try await refusal(local(0x110, [.read, .broadcast])).contains("broadcast"))
        #expect(try await refusal(local(0x110, [.read, .extendedProperties])).contains("extendedProperties"))
        #expect(try await refusal(local(0x110, [])).contains("no properties"))
        #expect(try await refusal(local(0x110, .read, value: Data(count: 513))).contains("513"))
        for (uuid, value) in [("2900", Data([0, 0])), ("2902", Data([0, 0])), ("2903", Data([0, 0]))] {
            let characteristic = local(0x110, .read)
            characteristic.descriptors = [CBMutableDescriptor(type: CBUUID(string: uuid), value: value)]
            _ = try await refusal(characteristic)
        }
        let odd = local(0x110, .read)
        odd.descriptors = [CBMutableDescriptor(type: sinkUUID(0x120), value: 5)]
        #expect(try await refusal(odd).contains("descriptor"))
    }

    @Test("PB-5 a service that includes one which was not added is refused")
    func unknownInclude() async throws {
        let publisher = try await publisher()
        let service = localService(0x100, [local(0x110, .read)])
        service.includedServices = [localService(0x101, [])]
        let error = try await publisher.add(service)
        #expect(code(error) == .invalidParameters)
        // It is not published, so it may be added again.
        #expect(code(try await publisher.add(service)) == .invalidParameters)
    }

    @Test("MIS-1 L2-1 L2-8 channels are neither published nor unpublished before power-on, and not answered then")
    func channelsBeforePowerOn() async throws {
        let publisher = Publisher(try await SimulatedWorld())
        publisher.manager.publishL2CAPChannel(withEncryption: false)
        publisher.manager.unpublishL2CAPChannel(0x80)
        try await publisher.powerOn()
        #expect(try await publisher.publishChannel() == 0x80)
        let answers = publisher.count { event in
            switch event {
            case .published, .unpublished: true
            default: false
            }
        }
        #expect(answers == 1)
    }

    @Test("CN-15 O-45 a released manager reports nothing")
    func released() async throws {
        let world = try await SimulatedWorld()
        let publisher = Publisher(world)
        publisher.queue.suspend()
        publisher.manager.publishL2CAPChannel(withEncryption: false)
        let core = Weak(publisher.manager.core)
        publisher.queue.resume()
        publisher.release()
        let second = Publisher(world)
        try await second.powerOn()
        try await eventually("the manager's core is released") { core.object == nil }
        #expect(publisher.records.count <= 1)
    }

    #if compiler(>=6.2)  // exit tests
    @Test("PB-3 MIS-14 a fixed value that can be written or subscribed to stops the process")
    func fixedValues() async {
        await #expect(processExitsWith: .failure) {
            let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
            service.characteristics = [
                CBMutableCharacteristic(
                    type: CBUUID(string: "2A37"), properties: [.read, .notify], value: Data([1]),
                    permissions: .readable)
            ]
            CBPeripheralManager(delegate: nil, queue: DispatchQueue(label: "test")).add(service)
        }
    }

    @Test("PB-6 MIS-13 adding a service twice stops the process")
    func addedTwice() async {
        await #expect(processExitsWith: .failure) {
            let publisher = Publisher(try await SimulatedWorld())
            try await publisher.powerOn()
            let service = localService(0x100, [local(0x110, .read)])
            publisher.manager.add(service)
            publisher.manager.add(service)
        }
    }
    #endif
}
