import BluezKitProfiles
import Foundation
import Testing

@testable import BluezKit

@Suite struct BatteryStatusTests {
    static let level = BatteryLevelStatus {
        ($0.isPresent, $0.wiredPower, $0.wirelessPower) = (true, .connected, .notConnected)
        ($0.chargeState, $0.chargeLevel, $0.chargingType) = (.charging, .low, .float)
        ($0.chargingFaults, $0.identifier, $0.level) = ([.externalPower], 0x0106, 55)
        var additional = BatteryLevelStatus.AdditionalStatus()
        (additional.serviceRequired, additional.hasFault) = (.yes, true)
        $0.additional = additional
    }
    static let energy = BatteryEnergyStatus {
        ($0.externalSourcePower, $0.voltage, $0.availableEnergy) = (MedFloat(5), MedFloat(3.7), MedFloat(0.1))
        ($0.availableCapacity, $0.chargeRate, $0.availableEnergyAtLastCharge) = (
            MedFloat(1), MedFloat(-2.5), MedFloat(2)
        )
    }
    static let information = BatteryInformation {
        ($0.features, $0.chemistry, $0.aggregationGroup) = ([.replaceable, .rechargeable], .lithiumPolymer, 9)
        $0.manufactureDate = DateUTC(Date(timeIntervalSince1970: 1_700_000_000))
        $0.expirationDate = DateUTC(Date(timeIntervalSince1970: 2_000_000_000))
        ($0.designedCapacity, $0.lowEnergy, $0.criticalEnergy) = (MedFloat(1), MedFloat(0.2), MedFloat(0.1))
        $0.nominalVoltage = MedFloat(3.7)
    }
    static let healthInformation = BatteryHealthInformation {
        var range = BatteryHealthInformation.Temperatures()
        (range.lowest, range.highest) = (-20, 60)
        ($0.designedCycleCount, $0.temperatures) = (500, range)
    }

    @Test("what is known of a battery has the layout of the Bluetooth SIG")
    func layouts() throws {
        func check<V: StructuredValue>(_ value: V, _ bytes: [UInt8], _ uuid: String) throws {
            #expect([UInt8](value.data) == bytes, "\(V.self)")
            #expect(try V(Data(bytes)) == value && V.uuid.uuidString == uuid)
        }
        // Present, wired 01, wireless 00, state 01, level 10, type 100, faults 010, from the lowest bit.
        let state: UInt16 = 0b0_010_100_10_01_00_01_1
        try check(
            Self.level, [7, UInt8(state & 0xFF), UInt8(state >> 8), 6, 1, 55, 0b101], "2BED")
        try check(BatteryLevelStatus(), [0, 0b0001_0100, 0], "2BED")
        try check(BatteryCriticalStatus.immediateServiceRequired, [2], "2BE9")
        try check(
            BatteryTimeStatus {
                ($0.untilDischarged, $0.untilDischargedOnStandby, $0.untilRecharged) = (0x01_0203, 0x04_0506, 0x07_0809)
            }, [3, 3, 2, 1, 6, 5, 4, 9, 8, 7], "2BEE")
        try check(BatteryTimeStatus(), [0, 0xFF, 0xFF, 0xFF], "2BEE")
        try check(
            Self.energy,
            [0x3F, 50, 0xF0, 37, 0xF0, 1, 0xF0, 10, 0xF0, 0xE7, 0xFF, 20, 0xF0], "2BF0")
        try check(
            BatteryHealthStatus {
                ($0.summary, $0.cycleCount, $0.temperature, $0.deepDischargeCount) = (90, 0x0102, -5, 0x0304)
            }, [15, 90, 2, 1, 0xFB, 4, 3], "2BEA")
        try check(Self.healthInformation, [3, 0xF4, 1, 0xEC, 60], "2BEB")
        try check(
            Self.information,
            [0xFF, 0, 3, 0xDB, 0x4C, 0, 0x6C, 0x5A, 0, 10, 0xF0, 2, 0xF0, 1, 0xF0, 6, 37, 0xF0, 9], "2BEC")
        try check(
            EstimatedServiceDate { $0.day = DateUTC(Date(timeIntervalSince1970: 1_700_000_000)) }, [0xDB, 0x4C, 0],
            "2BEF")
    }

    @Test("numbers that are not assigned leave the others readable, and dates out of range are the nearest ones")
    func reserved() throws {
        // Wired power 3, charging type 7, a flag and a bit that are reserved.
        let status = try BatteryLevelStatus(Data([0x84, 0b0000_0111, 0b1000_1110, 0b1111_0011, 9]))
        #expect(status.isPresent && status.wiredPower == nil && status.$wiredPower == 3)
        #expect(status.wirelessPower == .notConnected && status.chargingType == nil && status.$chargingType == 7)
        #expect(status.additional?.serviceRequired == nil && status.additional?.$serviceRequired == 3)
        #expect(status.additional?.hasFault == false && status.level == nil && status.identifier == nil)
        #expect(status.data == Data([4, 0b0000_0111, 0b0000_1110, 0b11]))
        let information = try BatteryInformation(Data([0x60, 0, 0xFF, 14, 37, 0xF0]))
        #expect(information.chemistry == nil && information.$chemistry == 14)
        #expect(information.nominalVoltage?.value == 3.7 && information.features == .assigned)
        for seconds in [-1, -1e300, .nan, -.infinity] {
            #expect(DateUTC(Date(timeIntervalSince1970: seconds)).days == 0)
        }
        for seconds in [1e300, .infinity] {
            #expect(DateUTC(Date(timeIntervalSince1970: seconds)).days == 0xFF_FFFF)
        }
        #expect(DateUTC(Date(timeIntervalSince1970: 1_700_000_000)).date.timeIntervalSince1970 == 1_699_920_000)
    }

    @Test("a battery has what else is known of it, and sends it")
    func service() throws {
        let manager = RecordingManager(delegate: nil, queue: nil)
        let uuids = [
            BatteryLevelStatus.uuid, EstimatedServiceDate.uuid, BatteryCriticalStatus.uuid, BatteryEnergyStatus.uuid,
            BatteryTimeStatus.uuid, BatteryHealthStatus.uuid, BatteryHealthInformation.uuid, BatteryInformation.uuid,
        ]
        let battery = BatteryService(level: BatteryLevel(percent: 80), including: uuids)
        let characteristics = try #require(battery.service.characteristics)
        // 2: read, 16: notify, 32: indicate
        #expect(
            characteristics.map { "\($0.uuid.uuidString) \($0.properties.rawValue)" } == [
                "2A19 18", "2BED 18", "2BEF 18", "2BE9 34", "2BF0 18", "2BEE 18", "2BEA 18", "2BEB 2", "2BEC 2",
            ])
        #expect(battery.value(of: characteristics[0]) == Data([80]))
        #expect(battery.value(of: characteristics[1]) == BatteryLevelStatus().data)
        battery.set(Self.level)
        #expect(battery.value(of: characteristics[1]) == Self.level.data)
        #expect(battery.send(BatteryCriticalStatus.assigned, by: manager))
        #expect(battery.update(BatteryLevel(percent: 79), by: manager))
        #expect(manager.updates.map(\.characteristic.uuidString) == ["2BE9", "2A19"])
        #expect(battery.value(of: characteristics[3]) == Data([3]) && battery.level.percent == 79)
        #expect(!BatteryService(level: BatteryLevel(percent: 1)).send(Self.level, by: manager))
    }
}
