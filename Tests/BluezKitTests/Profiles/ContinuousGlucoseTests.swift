import BluezKitProfiles
import Foundation
import Testing

@Suite struct ContinuousGlucoseTests {
    static let record = CGMMeasurement.Record {
        ($0.concentration, $0.timeOffset) = (MedFloat16(12.34, digits: 2), 5)
        $0.status = CGMSensorStatus(rawValue: 0xFF_1402)
        ($0.trend, $0.quality, $0.isSecured) = (MedFloat16(0.2), MedFloat16(99.7), true)
    }
    static let calibration: CGMCalibration = {
        var calibration = CGMCalibration()
        (calibration.concentration, calibration.time) = (MedFloat16(100, digits: 0), 10)
        (calibration.sample, calibration.location) = (.capillaryPlasma, .earLobe)
        (calibration.nextTime, calibration.number, calibration.status) = (20, 1, .pending)
        return calibration
    }()
    static let start: CGMSessionStartTime = {
        let berlin = TimeZone(identifier: "Europe/Berlin") ?? .gmt
        return CGMSessionStartTime(Date(timeIntervalSince1970: 1_700_000_000), in: berlin)
    }()

    @Test("what a real sensor sends is read, and its checksum is correct")
    func realSensor() throws {
        // https://github.com/nordicsemi/Android-nRF-Connect/issues/174
        let bytes = Data([0x0D, 0x43, 0x73, 0x00, 0x2C, 0x01, 0x03, 0x24, 0x00, 0x1A, 0x00, 0x3E, 0x04])
        let measurement = try CGMMeasurement(bytes)
        let record = try #require(measurement.records.first)
        #expect(measurement.records.count == 1 && record.isSecured)
        #expect(record.concentration.value == 115 && record.timeOffset == 300)
        #expect(record.status == [.timeSynchronizationRequired, .calibrationNotAllowed])
        #expect(record.trend?.value == 36 && record.quality?.value == 26)
        #expect(measurement.data == bytes)
        for index in bytes.indices.dropFirst(2) {
            var wrong = bytes
            wrong[index] ^= 1
            #expect(throws: CharacteristicValueError.checksum) { try CGMMeasurement(wrong) }
        }
    }

    /// The values of the tests of Nordic's Android-BLE-Common-Library (callback/cgm).
    @Test("the values of another implementation are read and produced")
    func otherImplementation() throws {
        let record: [UInt8] = [15, 0xE3, 0xD2, 0xE4, 5, 0, 2, 0x14, 0xFF, 2, 0xF0, 0xE5, 0xF3, 0x8E, 0x3F]
        #expect(CGMMeasurement([Self.record]).data == Data(record))
        #expect(try CGMMeasurement(Data(record)).records == [Self.record])
        #expect(
            Self.record.status == [
                .batteryLow, .calibrationRecommended, .temperatureTooHigh, .belowPatientLow, .abovePatientHigh,
                .belowHypo, .aboveHyper, .rateOfDecreaseExceeded, .rateOfIncreaseExceeded, .resultTooLow,
                .resultTooHigh,
            ])
        let two = try CGMMeasurement(Data([6, 0, 0x0C, 0x10, 5, 0, 6, 0, 0x0C, 0x10, 6, 0]))
        #expect(two.records.map(\.concentration.value) == [120, 120] && two.records.map(\.timeOffset) == [5, 6])
        #expect(two.records.allSatisfy { !$0.isSecured && $0.status == [] && $0.trend == nil && $0.quality == nil })

        let feature = CGMFeature {
            $0.features = CGMFeature.Features(rawValue: 0b1_1001_1110_0110_1110)
            ($0.sample, $0.location) = (.arterialPlasma, .finger)
        }
        #expect(feature.features.contains(.e2eCRC) && feature.data == Data([0x6E, 0x9E, 1, 0x16, 0x8A, 0xC1]))
        #expect(try CGMFeature(feature.data) == feature)
        #expect(throws: CharacteristicValueError.checksum) {
            try CGMFeature(Data([0x6E, 0x9E, 1, 0x16, 0xAF, 0xBE]))
        }
        #expect(throws: CharacteristicValueError.truncated(field: "E2E-CRC")) {
            try CGMFeature(Data([0x6E, 0x9E, 1, 0x16]))
        }
        let unsecured = try CGMFeature(Data([0x6E, 0x8E, 1, 0x16, 0xFF, 0xFF]))
        #expect(!unsecured.features.contains(.e2eCRC) && unsecured.data == Data([0x6E, 0x8E, 1, 0x16, 0xFF, 0xFF]))

        let status = CGMStatus { ($0.timeOffset, $0.status, $0.isSecured) = (5, .assigned, true) }
        #expect(status.data == Data([5, 0, 0x3F, 0x3F, 0xFF, 0xA7, 0xE0]))
        #expect(try CGMStatus(status.data) == status)
        #expect(throws: CharacteristicValueError.checksum) {
            try CGMStatus(Data([6, 0, 1, 1, 1, 0xA7, 0xE0]))
        }
        #expect(
            try CGMStatus(Data([6, 0, 1, 1, 1])).status == [
                .sessionStopped, .timeSynchronizationRequired, .belowPatientLow,
            ])

        let time = try CGMSessionStartTime(Data([0xE2, 7, 4, 24, 13, 8, 24, 8, 4, 0xE0, 0xC2]))
        #expect(time.isSecured && time.time.year == 2018 && time.timeZoneNumber == 8)
        #expect(time.timeZone?.secondsFromGMT() == 3 * 3600 && time.daylightSavingNumber == 4)
        #expect(time.date?.timeIntervalSince1970 == 1_524_564_504)
        #expect(throws: CharacteristicValueError.checksum) {
            try CGMSessionStartTime(Data([0xE2, 7, 4, 24, 13, 8, 24, 8, 4, 0xE0, 0xC3]))
        }
        let runTime = CGMSessionRunTime { ($0.hours, $0.isSecured) = (2, true) }
        #expect(runTime.data == Data([2, 0, 8, 0xC3]))
        #expect(try CGMSessionRunTime(runTime.data) == runTime)
        #expect(throws: CharacteristicValueError.checksum) { try CGMSessionRunTime(Data([2, 0, 9, 0xC3])) }
        #expect(try CGMSessionRunTime(Data([2, 0, 1])) == CGMSessionRunTime { $0.hours = 2 })

        func point(_ bytes: UInt8...) throws -> CGMSpecificOpsControlPoint {
            let value = try CGMSpecificOpsControlPoint(Data(bytes))
            #expect(value.data == Data(bytes))
            return value
        }
        try point(28, 2, 1).checkSuccess()
        let refused = try point(28, 2, 2, 0xA7, 0x09)
        #expect(refused.isSecured && refused.request == .getCommunicationInterval && refused.result == .notSupported)
        #expect(throws: ControlPointRefusal<CGMOperation>.self) { try refused.checkSuccess() }
        #expect(throws: CharacteristicValueError.checksum) { try point(28, 2, 2, 0xA7, 0x01) }
        #expect(try point(3, 11).command == .communicationInterval(11))
        let secured = try point(3, 10, 0x8A, 0x75)
        #expect(secured.isSecured && secured.command == .communicationInterval(10))
        #expect(secured == CGMSpecificOpsControlPoint(command: .communicationInterval(10)).secured())
    }

    @Test("each request and response of the control point has its number and its parameter, secured or not")
    func commands() throws {
        let level = MedFloat16(180, digits: 0)
        var expected: [(CGMCommand, [UInt8])] = [
            (.setCommunicationInterval(5), [1, 5]), (.getCommunicationInterval, [2]),
            (.communicationInterval(5), [3, 5]),
            (.setCalibration(Self.calibration), [4, 100, 0, 10, 0, 0x32, 20, 0, 1, 0, 4]),
            (.getCalibration(0xFFFF), [5, 0xFF, 0xFF]),
            (.calibration(Self.calibration), [6, 100, 0, 10, 0, 0x32, 20, 0, 1, 0, 4]),
            (.resetDeviceSpecificAlert, [0x19]), (.startSession, [0x1A]), (.stopSession, [0x1B]),
        ]
        for (index, kind) in CGMAlertLevel.allCases.enumerated() {
            let number = UInt8(7 + 3 * index)
            expected += [
                (.setLevel(kind, level), [number, 180, 0]), (.getLevel(kind), [number + 1]),
                (.level(kind, level), [number + 2, 180, 0]),
            ]
        }
        for (command, bytes) in expected {
            let request = CGMSpecificOpsControlPoint(command: command)
            #expect([UInt8](request.data) == bytes)
            #expect(try CGMSpecificOpsControlPoint(Data(bytes)) == request)
            #expect(try CGMSpecificOpsControlPoint(request.secured().data) == request.secured())
            #expect(try CGMSpecificOpsControlPoint(request.secured().data).command == command)
            #expect(request.secured().data.count == bytes.count + 2)
            #expect(throws: CharacteristicValueError.trailing(bytes: 1)) {
                try CGMSpecificOpsControlPoint(Data(bytes + [0]))
            }
        }
        #expect(Set(expected.map { $0.1[0] }) == Set(1...0x1B))
        // What is not known has any length, and no command.
        #expect(try CGMSpecificOpsControlPoint(Data([0x1D, 1, 2, 3])).command == nil)
        #expect(CGMSpecificOpsControlPoint(to: .startSession, .success).command == nil)
    }

    @Test("records that are cut off are left out, and the first one is an error then")
    func cutOff() throws {
        let bytes = CGMMeasurement([Self.record, Self.record]).data
        #expect(bytes.count == 30)
        for length in 0..<30 {
            let part = bytes.prefix(length)
            if length < 15 {
                #expect(throws: CharacteristicValueError.self) { try CGMMeasurement(part) }
            } else {
                #expect(try CGMMeasurement(part).records == [Self.record], "\(length)")
            }
        }
        #expect(throws: CharacteristicValueError.reserved(field: "size", value: 5)) {
            try CGMMeasurement(Data([5, 0, 0, 0, 0]))
        }
        // After the first record, it is not one.
        #expect(try CGMMeasurement(Data([6, 0, 1, 0, 2, 0, 5, 0, 0, 0, 0, 0])).records.count == 1)
        // Flags of fields for which the size has no room.
        let small = try CGMMeasurement(Data([6, 3, 1, 0, 2, 0]))
        #expect(small.records.first?.trend == nil && small.records.first?.timeOffset == 2)
        // Four bytes of a later version: neither fields nor a checksum.
        let later = try CGMMeasurement(Data([10, 0, 1, 0, 2, 0, 9, 9, 9, 9])).records
        #expect(later == [CGMMeasurement.Record { ($0.concentration, $0.timeOffset) = (MedFloat16(1, digits: 0), 2) }])
    }

    @Test("a session starts at a point in time; without time zone there is none")
    func sessionStart() throws {
        #expect(Self.start.data == Data([0xE7, 7, 11, 14, 23, 13, 20, 4, 0]))
        #expect(Self.start.date == Date(timeIntervalSince1970: 1_700_000_000))
        #expect(CGMSessionStartTime().date == nil && CGMSessionStartTime().timeZone == nil)
        let reserved = try CGMSessionStartTime(Data([0xE7, 7, 13, 14, 23, 13, 20, 100, 3]))
        #expect(reserved.date == nil && reserved.timeZoneNumber == 100 && reserved.daylightSavingNumber == 3)
        #expect(reserved.time.month == 13)
        let feature = try CGMFeature(Data([0, 0, 0, 0xEB, 0, 0]))
        #expect(feature.sample == nil && feature.$sample == 11 && feature.location == nil && feature.$location == 14)
    }

    @Test("a store of records answers by their time offsets")
    func records() {
        var store = RecordStore(sequenceNumber: \CGMMeasurement.Record.timeOffset)
        for time: UInt16 in [0, 5, 10] { store.append(CGMMeasurement.Record { $0.timeOffset = time }) }
        let answer = store.answer(RecordAccessControlPoint(.report, .from(5)))
        #expect(answer.records.map(\.timeOffset) == [5, 10] && answer.response.response?.result == .success)
    }
}
