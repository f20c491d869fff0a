import BluezKitProfiles
import Foundation
import Testing

@testable import BluezKit

@Suite struct ProfileServiceTests {
    private let manager = RecordingManager(delegate: nil, queue: nil)
    private let central = CBCentral(identifier: UUID())

    private func table(_ service: any StandardService) -> [String] {
        (service.service.characteristics ?? []).map { "\($0.uuid.uuidString) \($0.properties.rawValue)" }
    }

    private func write(_ value: Data?, to uuid: CBUUID, of service: any StandardService) throws -> CBATTError.Code {
        let characteristic = try #require(service.service.characteristics?.first { $0.uuid == uuid })
        let request = CBATTRequest(central: central, characteristic: characteristic, offset: 0, value: value)
        #expect(service.answer([request], of: manager))
        return try #require(manager.answers.last).result
    }

    private func read(_ uuid: CBUUID, of service: any StandardService) throws -> Data? {
        let characteristic = try #require(service.service.characteristics?.first { $0.uuid == uuid })
        #expect(
            service.answer(
                CBATTRequest(central: central, characteristic: characteristic, offset: 0, value: nil), of: manager))
        return try #require(manager.answers.last).value
    }

    @Test("the services have the characteristics and properties that the Bluetooth SIG requires")
    func tables() {
        // 2: read, 4: write without response, 8: write, 16: notify, 32: indicate
        #expect(table(HealthThermometerService()) == ["2A1C 32"])
        #expect(
            table(
                HealthThermometerService(including: [TemperatureType.uuid, HealthThermometer.intermediateTemperature]))
                == ["2A1C 32", "2A1D 2", "2A1E 16"])
        #expect(table(EnvironmentalSensingService(including: [EnvironmentalQuantity.pressure.uuid])) == ["2A6D 18"])
        #expect(
            table(CyclingSpeedAndCadenceService(including: [SensorLocation.uuid, SCControlPoint.uuid]))
                == ["2A5B 16", "2A5C 2", "2A5D 2", "2A55 40"])
        #expect(table(CyclingPowerService()) == ["2A63 16", "2A65 2", "2A5D 2"])
        #expect(table(RunningSpeedAndCadenceService()) == ["2A53 16", "2A54 2"])
        #expect(table(WeightScaleService()) == ["2A9E 2", "2A9D 32"])
        #expect(table(BloodPressureService()) == ["2A35 32", "2A49 2"])
        #expect(table(GlucoseService()) == ["2A18 16", "2A51 2", "2A52 40"])
        #expect(table(PulseOximeterService(including: [PLXContinuousMeasurement.uuid])) == ["2A5F 16", "2A60 2"])
        #expect(
            table(ContinuousGlucoseMonitoringService())
                == ["2AA7 16", "2AA8 2", "2AA9 2", "2AAA 10", "2AAB 2", "2A52 40", "2AAC 40"])
        #expect(table(BodyCompositionService()) == ["2A9B 2", "2A9C 32"])
        #expect(
            table(UserDataService(including: [UserData.Age.uuid, UserData.Gender.uuid]))
                == ["2A80 10", "2A8C 10", "2A99 26", "2A9A 2", "2A9F 40"])
        #expect(table(FitnessMachineService()) == ["2ACC 2"])
        let machine = FitnessMachineService(including: FitnessMachine.characteristics.map(\.uuid))
        #expect(
            table(machine) == [
                "2ACC 2", "2ACD 16", "2ACE 16", "2ACF 16", "2AD0 16", "2AD1 16", "2AD2 16", "2AD3 18", "2AD4 2",
                "2AD5 2", "2AD6 2", "2AD8 2", "2AD7 2", "2AD9 40", "2ADA 16",
            ])
        #expect(table(ImmediateAlertService()) == ["2A06 4"])
        #expect(table(LinkLossService()) == ["2A06 10"])
        #expect(table(TxPowerService()) == ["2A07 2"])
        #expect(
            table(NordicUARTService()) == [
                "6E400002-B5A3-F393-E0A9-E50E24DCCA9E 12", "6E400003-B5A3-F393-E0A9-E50E24DCCA9E 16",
            ])
        // With encryption: 0x100 notify, 0x200 indicate.
        #expect(table(GlucoseService(requiresEncryption: true)) == ["2A18 272", "2A51 2", "2A52 552"])
    }

    @Test("a value is sent to its characteristic, and read afterwards where it can be read")
    func sends() throws {
        let thermometer = HealthThermometerService(including: [
            TemperatureType.uuid, HealthThermometer.intermediateTemperature,
        ])
        manager.add(thermometer.service)
        thermometer.set(TemperatureType.ear)
        #expect(try read(TemperatureType.uuid, of: thermometer) == Data([3]))
        let measurement = TemperatureMeasurement { $0.temperature = MedFloat(36.6) }
        #expect(thermometer.send(measurement, by: manager))
        #expect(thermometer.send(measurement, of: HealthThermometer.intermediateTemperature, by: manager))
        #expect(!thermometer.send(AlertLevel.high, by: manager))
        #expect(manager.updates.map(\.value) == [measurement.data, measurement.data])
        #expect(manager.updates.map(\.characteristic.uuidString) == ["2A1C", "2A1E"])
        let sensor = EnvironmentalSensingService(including: [EnvironmentalQuantity.temperature.uuid])
        #expect(try read(EnvironmentalQuantity.temperature.uuid, of: sensor) == Data([0, 0x80]))
        let reading = try #require(EnvironmentalReading(.temperature, 21.5))
        #expect(sensor.send(reading.data, of: reading.quantity.uuid, by: manager))
        #expect(try read(EnvironmentalQuantity.temperature.uuid, of: sensor) == reading.data)
        #expect(try read(CSCFeature.uuid, of: CyclingSpeedAndCadenceService()) == Data([0, 0]))
    }

    @Test("writes are read as values, kept where they can be read, and refused if they are absurd")
    func writes() throws {
        let loss = LinkLossService()
        #expect(try write(Data([1]), to: AlertLevel.uuid, of: loss) == .writeNotPermitted)
        var levels: [AlertLevel] = []
        loss.onWrite(of: AlertLevel.self) { level in
            levels.append(level)
            return .success
        }
        #expect(try write(Data([2]), to: AlertLevel.uuid, of: loss) == .success)
        #expect(try write(Data([3]), to: AlertLevel.uuid, of: loss).rawValue == 0x13)
        #expect(try write(nil, to: AlertLevel.uuid, of: loss) == .invalidAttributeValueLength)
        #expect(levels == [.high])
        #expect(try read(AlertLevel.uuid, of: loss) == Data([2]))
        let uart = NordicUARTService()
        uart.onWrite(of: NordicUART.receive) { bytes in
            uart.send(Data(bytes.reversed()), of: NordicUART.transmit, by: manager)
            return .success
        }
        #expect(try write(Data("abc".utf8), to: NordicUART.receive, of: uart) == .success)
        #expect(manager.updates.last?.value == Data("cba".utf8))
        uart.onWrite(of: NordicUART.receive) { _ in .success }  // it held the service
    }

    @Test("a machine answers its control point, sends its status, and records in parts")
    func machine() throws {
        let bike = FitnessMachineService(including: [
            IndoorBikeData.uuid, FitnessMachineControlPoint.uuid, FitnessMachineStatus.uuid,
        ])
        var commands: [FitnessMachineCommand?] = []
        bike.onWrite(of: FitnessMachineControlPoint.self) { request in
            commands.append(request.command)
            return .success
        }
        let controlPoint = FitnessMachineControlPoint.uuid
        #expect(try write(Data([5, 200, 0]), to: controlPoint, of: bike) == .success)
        #expect(try write(Data([8, 9]), to: controlPoint, of: bike) == .success)
        #expect(try write(Data([5, 200]), to: controlPoint, of: bike) == .invalidAttributeValueLength)
        #expect(try write(Data([5, 200, 0, 0]), to: controlPoint, of: bike) == .invalidAttributeValueLength)
        #expect(commands == [.set(.power(200)), nil])
        #expect(bike.send(FitnessMachineControlPoint(to: .setTargetPower, .success), by: manager))
        #expect(bike.send(FitnessMachineStatus.changed(.power(200)), by: manager))
        #expect(manager.updates.map(\.value) == [Data([0x80, 5, 1]), Data([8, 200, 0])])
        // No central is subscribed: as much as every central has room for.
        let record = FitnessMachineTests.bike
        #expect(bike.send(record: record, by: manager))
        let parts = manager.updates.dropFirst(2)
        #expect(parts.map(\.value) == record.notifications(length: 20) && parts.count == 2)
        #expect(!bike.send(record: FitnessMachineTests.rower, by: manager))
        manager.hasRoom = false
        #expect(!bike.send(record: record, by: manager))
    }

    @Test("writes to a glucose sensor with a wrong checksum are refused")
    func checksums() throws {
        let sensor = ContinuousGlucoseMonitoringService()
        var requests: [CGMSpecificOpsControlPoint] = []
        sensor.onWrite(of: CGMSpecificOpsControlPoint.self) { request in
            guard request.isSecured else { return ContinuousGlucoseMonitoring.missingCRC }
            requests.append(request)
            return .success
        }
        let request = CGMSpecificOpsControlPoint(command: .startSession).secured()
        #expect(try write(request.data, to: CGMSpecificOpsControlPoint.uuid, of: sensor) == .success)
        #expect(try write(Data([0x1A]), to: CGMSpecificOpsControlPoint.uuid, of: sensor).rawValue == 0x80)
        #expect(try write(Data([0x1A, 0, 0]), to: CGMSpecificOpsControlPoint.uuid, of: sensor).rawValue == 0x81)
        #expect(requests == [request] && UserData.accessNotPermitted.rawValue == 0x80)
    }

    @Test("R-19 a restored service finds its typed server object again")
    func restored() throws {
        func state(_ services: [any StandardService]) -> [String: Any] {
            [CBPeripheralManagerRestoredStateServicesKey: services.map(\.service)]
        }
        // The services of an earlier process, and the objects of this one.
        let earlier: [any StandardService] = [
            HeartRateService(location: .chest), BatteryService(level: BatteryLevel(percent: 1)), CurrentTimeService(),
            DeviceInformationService(DeviceInformation([.modelNumber: "1"])), GlucoseService(), NordicUARTService(),
        ]
        let heart = HeartRateService(location: .chest)
        let battery = BatteryService(level: BatteryLevel(percent: 87))
        let now: [any StandardService] = [
            heart, battery, CurrentTimeService(), DeviceInformationService(DeviceInformation([.modelNumber: "1"])),
            GlucoseService(), NordicUARTService(),
        ]
        for (old, new) in zip(earlier, now) {
            #expect(old.service !== new.service)
            #expect(new.restore(from: state(earlier)), "\(new)")
            #expect(old.service === new.service, "\(new)")
        }
        #expect(heart.measurement === heart.service.characteristics?.first)
        #expect(try read(BatteryLevel.uuid, of: battery) == Data([87]))
        #expect(heart.send(HeartRateMeasurement(beatsPerMinute: 60), by: manager))
        #expect(battery.update(BatteryLevel(percent: 86), by: manager))
        #expect(manager.updates.map(\.characteristic.uuidString) == ["2A37", "2A19"])
        // Other characteristics than this version's.
        let other = GlucoseService(including: [GlucoseMeasurementContext.uuid])
        let service = other.service
        #expect(!other.restore(from: state(earlier)) && !other.restore(from: [:]))
        #expect(other.service === service)
    }

    // Restoring compared types and properties only: a service kept the permissions and values of an earlier version of
    // the app, and an unpaired central's write reached the app. Everything that can differ is compared now.
    @Test("R-19 a restored service that this version of the app makes differently is not continued")
    func outdated() {
        let pairs: [(any StandardService, any StandardService)] = [
            (HealthThermometerService(), HealthThermometerService(requiresEncryption: true)),
            (LinkLossService(), LinkLossService(requiresEncryption: true)),
            (LinkLossService(requiresEncryption: true), LinkLossService()),
            (HeartRateService(location: .chest), HeartRateService(location: .wrist)),
            (HeartRateService(location: .chest), HeartRateService()),
            (HeartRateService(), HeartRateService(resetEnergyExpended: {})),
            (
                DeviceInformationService(DeviceInformation([.firmwareRevision: "1"])),
                DeviceInformationService(DeviceInformation([.firmwareRevision: "2"]))
            ), (GlucoseService(), GlucoseService(including: [GlucoseMeasurementContext.uuid])),
        ]
        for (earlier, new) in pairs {
            let (service, state) = (new.service, [CBPeripheralManagerRestoredStateServicesKey: [earlier.service]])
            #expect(!new.restore(from: state), "\(type(of: new))")
            #expect(new.service === service)
            #expect(earlier.restore(from: state))
        }
    }

    @Test("R-19 two services of one type each continue a restored one, and a third starts new")
    func twins() {
        func battery() -> BatteryService { BatteryService(level: BatteryLevel(percent: 1)) }
        let restored = [battery().service, battery().service]
        let twins = [battery(), battery(), battery()]
        let results = twins.map { $0.restore(from: [CBPeripheralManagerRestoredStateServicesKey: restored]) }
        #expect(results == [true, true, false])
        #expect(twins[0].service === restored[0] && twins[1].service === restored[1])
        #expect(!restored.contains { $0 === twins[2].service })
    }

    @Test("a store of records answers each request of the record access control point")
    func records() throws {
        var store = RecordStore<GlucoseMeasurement>(sequenceNumber: \.sequenceNumber)
        for number in [3, 5, 7, 9] as [UInt16] { store.append(GlucoseMeasurement { $0.sequenceNumber = number }) }
        func numbers(_ request: RecordAccessControlPoint) throws -> [UInt16] {
            // As it is transmitted.
            let answer = store.answer(try RecordAccessControlPoint(request.data))
            let response = try RecordAccessControlPoint(answer.response.data).response
            #expect(response?.result == (answer.records.isEmpty ? .noRecordsFound : .success))
            return answer.records.map(\.sequenceNumber)
        }
        #expect(try numbers(.init(.report, .all)) == [3, 5, 7, 9])
        #expect(try numbers(.init(.report, .upTo(5))) == [3, 5])
        #expect(try numbers(.init(.report, .from(6))) == [7, 9])
        #expect(try numbers(.init(.report, .within(4, 7))) == [5, 7])
        #expect(try numbers(.init(.report, .first)) == [3])
        #expect(try numbers(.init(.report, .last)) == [9])
        #expect(try numbers(.init(.report, .from(10))) == [])
        #expect(store.answer(.init(.count, .from(5))).response.count == 3)
        #expect(store.answer(.abort).response.response?.result == .success)
        func result(_ bytes: UInt8...) throws -> RecordAccessControlPoint.Result? {
            store.answer(try RecordAccessControlPoint(Data(bytes))).response.response?.result
        }
        #expect(try result(99, 1) == .operationNotSupported)
        #expect(try result(1, 0) == .invalidOperator)
        #expect(try result(1, 7) == .operatorNotSupported)
        #expect(try result(1, 2) == .invalidOperand)
        #expect(try result(1, 2, 1, 5) == .invalidOperand)
        #expect(try result(1, 2, 2, 5, 0) == .operandNotSupported)
        #expect(try result(1, 4, 1, 5, 0, 4, 0) == .invalidOperand)
        #expect(try result(1, 1, 1) == .invalidOperand)
        // Bytes after the operand were ignored, and the request carried out.
        #expect(try result(1, 3, 1, 5, 0, 9, 9) == .invalidOperand && result(1, 3, 1, 5, 0, 9) == .invalidOperand)
        #expect(try result(1, 4, 1, 1, 0, 9, 0, 7) == .invalidOperand && result(4, 2, 1, 5, 0, 0xFF) == .invalidOperand)
        #expect(try result(3, 1) == .invalidOperator && result(3, 0, 9, 9) == .invalidOperand)
        #expect(store.answer(.init(.delete, .first)).response.response?.result == .success)
        #expect(store.records.map(\.sequenceNumber) == [5, 7, 9])
    }
}
