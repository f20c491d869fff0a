import BluezKitProfiles
import Foundation
import Testing

@testable import BluezKit

/// A manager that keeps what a service does with it.
// holds: a test uses it from one task
final class RecordingManager: CBPeripheralManager, @unchecked Sendable {
    var answers: [(value: Data?, result: CBATTError.Code)] = []
    var updates: [(value: Data, characteristic: CBUUID)] = []
    var hasRoom = true

    override func respond(to request: CBATTRequest, withResult result: CBATTError.Code) {
        answers.append((request.value, result))
    }

    override func updateValue(
        _ value: Data, for characteristic: CBMutableCharacteristic, onSubscribedCentrals centrals: [CBCentral]?
    ) -> Bool {
        guard hasRoom else { return false }
        updates.append((value, characteristic.uuid))
        return true
    }
}

@Suite struct StandardServiceTests {
    private let manager = RecordingManager(delegate: nil, queue: nil)
    private let central = CBCentral(identifier: UUID())

    private func characteristic(_ uuid: CBUUID, of service: CBMutableService) throws -> CBCharacteristic {
        try #require(service.characteristics?.first { $0.uuid == uuid })
    }

    private func request(_ characteristic: CBCharacteristic, offset: Int = 0, _ value: Data? = nil) -> CBATTRequest {
        CBATTRequest(central: central, characteristic: characteristic, offset: offset, value: value)
    }

    @Test("services have the characteristics and properties that the Bluetooth SIG requires")
    func tables() {
        func table(_ service: CBMutableService) -> [String] {
            (service.characteristics ?? []).map { "\($0.uuid.uuidString) \($0.properties.rawValue)" }
        }
        // 2: read, 8: write, 16: notify
        #expect(table(HeartRateService().service) == ["2A37 16"])
        #expect(
            table(HeartRateService(location: .wrist, resetEnergyExpended: {}).service)
                == ["2A37 16", "2A38 2", "2A39 8"])
        #expect(table(BatteryService(level: BatteryLevel(percent: 1)).service) == ["2A19 18"])
        #expect(table(CurrentTimeService().service) == ["2A2B 18", "2A0F 2"])
        let reference = ReferenceTimeInformation(source: .gps, accuracy: .unknown, hoursSinceUpdate: 0)
        #expect(table(CurrentTimeService(reference: { reference }).service) == ["2A2B 18", "2A0F 2", "2A14 2"])
        #expect(HeartRateService().service.uuid == HeartRateService.uuid)
        #expect(HeartRateService.uuid.uuidString == "180D" && BatteryService.uuid.uuidString == "180F")
        #expect(DeviceInformationService.uuid.uuidString == "180A" && CurrentTimeService.uuid.uuidString == "1805")
    }

    @Test("no service is refused as a system service, because its UUID has the equivalent long form")
    func longForm() {
        let services: [any StandardService] = [
            HeartRateService(), BatteryService(level: BatteryLevel(percent: 1)), CurrentTimeService(),
            DeviceInformationService(DeviceInformation()),
        ]
        for service in services {
            #expect(service.service.uuid == type(of: service).uuid && service.service.uuid.data.count == 16)
            #expect(type(of: service).uuid.data.count == 2)
        }
    }

    @Test("every service can be added to a manager: fixed values are read-only")
    func canBeAdded() {
        manager.add(HeartRateService(location: .chest, resetEnergyExpended: {}).service)
        manager.add(BatteryService(level: BatteryLevel(percent: 1)).service)
        manager.add(DeviceInformationService(DeviceInformation([.modelNumber: "1"])).service)
        manager.add(CurrentTimeService().service)
    }

    @Test("a read is answered with the current value, from the offset on")
    func reads() throws {
        let battery = BatteryService(level: BatteryLevel(percent: 87))
        let level = try characteristic(BatteryLevel.uuid, of: battery.service)
        #expect(battery.answer(request(level), of: manager))
        battery.update(BatteryLevel(percent: 86), by: manager)
        #expect(battery.answer(request(level), of: manager))
        #expect(battery.answer(request(level, offset: 1), of: manager))
        #expect(battery.answer(request(level, offset: 2), of: manager))
        #expect(battery.answer(request(level, offset: -1), of: manager))
        #expect(manager.answers.map(\.value) == [Data([87]), Data([86]), Data(), nil, nil])
        #expect(manager.answers.map(\.result) == [.success, .success, .success, .invalidOffset, .invalidOffset])
    }

    @Test("a request for another service is ignored")
    func leavesOthersAlone() throws {
        let battery = BatteryService(level: BatteryLevel(percent: 87))
        let other = BatteryService(level: BatteryLevel(percent: 12))
        let level = try characteristic(BatteryLevel.uuid, of: other.service)
        #expect(!battery.answer(request(level), of: manager))
        #expect(!battery.answer([request(level, Data([1]))], of: manager))
        #expect(!battery.answer([], of: manager))
        #expect(manager.answers.isEmpty)
        #expect(battery.answer([request(try characteristic(BatteryLevel.uuid, of: battery.service))], of: manager))
        #expect(manager.answers.map(\.result) == [.writeNotPermitted])
    }

    @Test("a battery level is sent when it changes, and only then")
    func updates() {
        let battery = BatteryService(level: BatteryLevel(percent: 87))
        #expect(battery.update(BatteryLevel(percent: 87), by: manager))
        #expect(manager.updates.isEmpty)
        manager.hasRoom = false
        #expect(!battery.update(BatteryLevel(percent: 50), by: manager))
        #expect(battery.level.percent == 50)
        manager.hasRoom = true
        #expect(battery.update(BatteryLevel(percent: 49), by: manager))
        #expect(manager.updates.map(\.value) == [Data([49])])
    }

    // The second call took the level for sent, returned true, and subscribed centrals never got it.
    @Test("UP-2 a battery level that there was no room for is sent by the next call, although it is the same")
    func updatesAgain() {
        let battery = BatteryService(level: BatteryLevel(percent: 87))
        manager.hasRoom = false
        for _ in 0..<2 { #expect(!battery.update(BatteryLevel(percent: 50), by: manager)) }
        manager.hasRoom = true
        for _ in 0..<2 { #expect(battery.update(BatteryLevel(percent: 50), by: manager)) }
        #expect(manager.updates.map(\.value) == [Data([50])])
    }

    @Test("the energy is reset by the only command; others get the service's own error, and so do malformed writes")
    func controlPoint() throws {
        var resets = 0
        let sensor = HeartRateService(resetEnergyExpended: { resets += 1 })
        let point = try characteristic(HeartRateControlPoint.uuid, of: sensor.service)
        #expect(sensor.answer([request(point, Data([1]))], of: manager))
        #expect(resets == 1)
        for value in [Data([2]), Data(), nil] { #expect(sensor.answer([request(point, value)], of: manager)) }
        #expect(sensor.answer([request(point, offset: 1, Data([1]))], of: manager))
        #expect(sensor.answer([request(point, Data([1])), request(point, Data([1]))], of: manager))
        #expect(sensor.answer([request(sensor.measurement, Data([1]))], of: manager))
        #expect(sensor.answer(request(point), of: manager))
        #expect(resets == 1)
        #expect(
            manager.answers.map(\.result.rawValue) == [
                0, 0x80, 0x80, 0x80, CBATTError.Code.requestNotSupported.rawValue,
                CBATTError.Code.requestNotSupported.rawValue, CBATTError.Code.writeNotPermitted.rawValue,
                CBATTError.Code.readNotPermitted.rawValue,
            ])
    }

    @Test("a measurement is cut to what every subscriber can receive; without subscribers to the minimum")
    func measurements() {
        let sensor = HeartRateService()
        let measurement = HeartRateMeasurement(beatsPerMinute: 60, rrIntervals: (0..<20).map { $0 })
        #expect(sensor.send(measurement, by: manager))
        #expect(manager.updates.map(\.value) == [measurement.fitting(20).data])
        #expect(manager.updates[0].value.count == 20)
        manager.hasRoom = false
        #expect(!sensor.send(measurement, by: manager))
    }

    @Test("the current time is that of the read request")
    func time() throws {
        let zone = try #require(TimeZone(identifier: "Asia/Tokyo"))
        var now = Date(timeIntervalSince1970: 1_700_000_000)
        let reference = ReferenceTimeInformation(source: .manual, accuracy: .init(seconds: 1), hoursSinceUpdate: 3)
        let service = CurrentTimeService(timeZone: zone, reference: { reference }, clock: { now })
        let time = try characteristic(CurrentTime.uuid, of: service.service)
        #expect(service.answer(request(time), of: manager))
        now += 60
        #expect(service.answer(request(time), of: manager))
        #expect(
            service.answer(request(try characteristic(LocalTimeInformation.uuid, of: service.service)), of: manager))
        #expect(
            service.answer(request(try characteristic(ReferenceTimeInformation.uuid, of: service.service)), of: manager)
        )
        let values = manager.answers.map(\.value)
        #expect(try CurrentTime(values[0]).date(in: zone) == now - 60)
        #expect(try CurrentTime(values[1]).date(in: zone) == now)
        #expect(try LocalTimeInformation(values[2]).secondsFromGMT == 9 * 3600)
        #expect(try ReferenceTimeInformation(values[3]) == reference)
        #expect(service.announce(.changeOfTimeZone, by: manager))
        #expect(
            try CurrentTime(manager.updates[0].value) == CurrentTime(now, in: zone, adjustReason: .changeOfTimeZone))
        #expect(manager.updates[0].characteristic == CurrentTime.uuid)
    }
}
