import BluezKit
import BluezKitProfiles
import Foundation
import Testing

@Suite struct BodyCompositionTests {
    static let measurement = BodyCompositionMeasurement {
        ($0.fatPercentage, $0.time, $0.user) = (194, DateTime(Date(timeIntervalSince1970: 1.7e9), in: .gmt), 2)
        ($0.basalMetabolism, $0.musclePercentage, $0.muscleMass) = (0x0102, 0x0304, 0x0506)
        ($0.fatFreeMass, $0.softLeanMass, $0.waterMass) = (0x0708, 0x090A, 0x0B0C)
        ($0.impedance, $0.weight, $0.height) = (0x0D0E, 0x0F10, 0x1112)
        ($0.isImperial, $0.hasSeveralPackets) = (true, true)
    }

    @Test("what real scales send is read")
    func realScales() async throws {
        // A Beurer BF720: https://github.com/KristianP26/ble-scale-sync/issues/168
        let bytes: [UInt8] = [0x98, 0x03, 0xC2, 0x00, 0xDF, 0x1A, 0x97, 0x01, 0xCC, 0x2F, 0xCA, 0x21, 0xA8, 0x11]
        let body = try BodyCompositionMeasurement(Data(bytes))
        #expect(body.fatPercentage == 194 && body.basalMetabolism == 6879 && body.musclePercentage == 407)
        #expect(body.softLeanMass.map(body.kilograms) == 61.18 && body.waterMass.map(body.kilograms) == 43.25)
        #expect(body.impedance == 4520 && body.weight == nil && body.time == nil && body.user == nil)
        #expect([UInt8](body.data) == bytes)
        let weight = try WeightMeasurement(
            Data([0x0E, 0x78, 0x3E, 0xEA, 0x07, 0x05, 0x0C, 0x12, 0x35, 0x36, 0x01, 0xEE, 0x00, 0x26, 0x07]))
        #expect(weight.kilograms == 79.96 && weight.user == 1 && weight.body?.height == 1830)
        // The consent of a Beurer BF500, https://github.com/KristianP26/ble-scale-sync/issues/83, and the refusal of a
        // BF915, issue 335.
        let consent = try UserControlPoint(Data([0x02, 0x01, 0x25, 0x20]))
        #expect(consent.command == .consent(user: 1, code: 8229))
        let refused = try UserControlPoint(Data([0x20, 0x02, 0x05]))
        let refusal = await thrown { try refused.checkSuccess() } as? ControlPointRefusal<UserOperation>
        #expect(refusal?.request == .consent && refusal?.result == .userNotAuthorized)
    }

    @Test("body compositions have every field in the layout of the Bluetooth SIG")
    func layout() throws {
        let bytes: [UInt8] =
            [0xFF, 0x1F, 194, 0, 0xE7, 7, 11, 14, 22, 13, 20, 2]
            + [2, 1, 4, 3, 6, 5, 8, 7, 0x0A, 9, 0x0C, 0x0B, 0x0E, 0x0D, 0x10, 0x0F, 0x12, 0x11]
        #expect([UInt8](Self.measurement.data) == bytes)
        #expect(try BodyCompositionMeasurement(Data(bytes)) == Self.measurement)
        // Each field on its own.
        let lengths = [1: 7, 2: 1, 3: 2, 4: 2, 5: 2, 6: 2, 7: 2, 8: 2, 9: 2, 10: 2, 11: 2]
        for (bit, length) in lengths {
            let flags = 1 << bit
            let value = Data([UInt8(flags & 0xFF), UInt8(flags >> 8), 1, 0]) + Data(repeating: 7, count: length)
            #expect(try BodyCompositionMeasurement(value).data == value, "bit \(bit)")
        }
        #expect(BodyCompositionMeasurement().data == Data([0, 0, 0xFF, 0xFF]))
        #expect(try BodyCompositionMeasurement(Data([0, 0xE0, 1, 0, 9])).data == Data([0, 0, 1, 0]))
        #expect(abs(BodyCompositionMeasurement { $0.isImperial = true }.kilograms(10_000) - 45.359237) < 1e-9)
        #expect(BodyCompositionFeature.assigned.data == Data([0xFF, 0xFF, 3, 0]))
        #expect(throws: CharacteristicValueError.truncated(field: "body fat percentage")) {
            try BodyCompositionMeasurement(Data([0, 0, 1]))
        }
    }

    @Test("two packets of a measurement are joined")
    func packets() throws {
        var body = try BodyCompositionMeasurement(Data([0x04, 0x10, 194, 0, 3]))
        #expect(body.hasSeveralPackets && body.user == 3)
        try body.add(packet: Data([0x00, 0x14, 0xFF, 0xFF, 0x10, 0x27]))
        #expect(body.fatPercentage == 194 && body.user == 3 && body.weight == 10_000)
        let before = body
        #expect(throws: CharacteristicValueError.truncated(field: "flags")) { try body.add(packet: Data([1])) }
        #expect(throws: CharacteristicValueError.missing) { try body.add(packet: nil) }
        #expect(body == before)
    }

    @Test("data of users have the layout of the Bluetooth SIG")
    func users() throws {
        func check<V: StructuredValue>(_ value: V, _ bytes: [UInt8], _ uuid: String) throws {
            #expect([UInt8](value.data) == bytes && V.uuid.uuidString == uuid)
            #expect(try V(Data(bytes)) == value)
        }
        try check(UserData.FirstName("Zoë"), [0x5A, 0x6F, 0xC3, 0xAB], "2A8A")
        try check(UserData.LastName("Li"), [0x4C, 0x69], "2A90")
        try check(UserData.EmailAddress(""), [], "2A87")
        try check(UserData.Language("en"), [0x65, 0x6E], "2AA2")
        try check(UserData.Age { $0.years = 42 }, [42], "2A80")
        try check(
            UserData.DateOfBirth { ($0.year, $0.month, $0.day) = (1980, 2, 29) }, [0xBC, 7, 2, 29], "2A85")
        try check(UserData.Gender.female, [1], "2A8C")
        try check(UserData.Weight { $0.weight = 14_000 }, [0xB0, 0x36], "2A98")
        try check(UserData.Height { $0.centimeters = 178 }, [178, 0], "2A8E")
        try check(DatabaseChangeIncrement { $0.count = 0x0102_0304 }, [4, 3, 2, 1], "2A99")
        try check(UserIndex { $0.number = 1 }, [1], "2A9A")
        try check(UserIndex(), [0xFF], "2A9A")
        #expect(UserData.Weight { $0.weight = 14_000 }.kilograms == 70)
        #expect(throws: CharacteristicValueError.reserved(field: "value", value: 3)) {
            try UserData.Gender(Data([3]))
        }
        // A name that was cut off within a character.
        #expect(try UserData.FirstName(Data([0x5A, 0x6F, 0xC3])).text == "Zo")
        #expect(try UserData.FirstName(Data([0xFF, 0x41])).text == "\u{FFFD}A")
    }

    @Test("requests for users have their parameters, and responses the user")
    func userCommands() throws {
        for (command, bytes): (UserCommand, [UInt8]) in [
            (.registerNewUser(consentCode: 0x0102), [1, 2, 1]), (.consent(user: 3, code: 0x0102), [2, 3, 2, 1]),
            (.deleteUserData, [3]), (.listAllUsers, [4]), (.deleteUser(255), [5, 255]),
        ] {
            #expect([UInt8](UserControlPoint(command: command).data) == bytes)
            #expect(try UserControlPoint(Data(bytes)).command == command)
            #expect(throws: CharacteristicValueError.trailing(bytes: 1)) { try UserControlPoint(Data(bytes + [0])) }
        }
        #expect(try UserControlPoint(Data([9, 1, 2, 3])).command == nil)
        let registered = try UserControlPoint(Data([0x20, 1, 1, 7]))
        #expect(registered.user == 7 && registered == UserControlPoint(to: .registerNewUser, user: 7))
        try registered.checkSuccess()
        #expect(try UserControlPoint(Data([0x20, 1, 4])).user == nil)
        #expect(try UserControlPoint(Data([0x20, 2, 1, 7])).user == nil)
    }
}
