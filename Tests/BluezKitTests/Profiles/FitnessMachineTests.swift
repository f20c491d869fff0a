import BluezKit
import BluezKitProfiles
import Foundation
import Testing

@Suite struct FitnessMachineTests {
    static let progress: FitnessProgress = {
        var progress = FitnessProgress()
        var energy = FitnessEnergy()
        (energy.total, energy.perHour, energy.perMinute) = (0x0102, 0x0304, 5)
        (progress.energy, progress.heartRate, progress.metabolicEquivalent) = (energy, 6, 7)
        (progress.elapsedTime, progress.remainingTime) = (0x0809, 0x0A0B)
        return progress
    }()
    private static let progressBytes: [UInt8] = [2, 1, 4, 3, 5, 6, 7, 9, 8, 0x0B, 0x0A]
    private static let gain: ElevationGain = {
        var gain = ElevationGain()
        (gain.positive, gain.negative) = (0x1112, 0x1314)
        return gain
    }()
    private static let slope: FitnessInclination = {
        var slope = FitnessInclination()
        (slope.inclination, slope.rampAngle) = (-2, 0x1516)
        return slope
    }()

    static let treadmill = TreadmillData {
        ($0.speed, $0.averageSpeed, $0.totalDistance) = (0x2122, 0x2324, 0x25_2627)
        ($0.inclination, $0.elevationGain) = (slope, gain)
        ($0.pace, $0.averagePace, $0.progress) = (0x3132, 0x3334, progress)
        var belt = TreadmillData.Belt()
        (belt.force, belt.power) = (-3, 0x3536)
        $0.belt = belt
    }
    static let crossTrainer = CrossTrainerData {
        ($0.speed, $0.averageSpeed, $0.totalDistance) = (0x2122, 0x2324, 0x25_2627)
        var rate = CrossTrainerData.StepRate()
        (rate.current, rate.average) = (0x4142, 0x4344)
        ($0.stepRate, $0.strideCount, $0.elevationGain, $0.inclination) = (rate, 0x4546, gain, slope)
        ($0.resistanceLevel, $0.power, $0.averagePower) = (-4, -5, 0x4748)
        ($0.progress, $0.isBackward) = (progress, true)
    }
    static let rower = RowerData {
        var strokes = RowerData.Strokes()
        (strokes.rate, strokes.count) = (0x51, 0x5253)
        ($0.strokes, $0.averageStrokeRate, $0.totalDistance) = (strokes, 0x54, 0x55_5657)
        ($0.pace, $0.averagePace, $0.power, $0.averagePower) = (0x5859, 0x5A5B, -6, 0x5C5D)
        ($0.resistanceLevel, $0.progress) = (-7, progress)
    }
    static let bike = IndoorBikeData {
        ($0.speed, $0.averageSpeed, $0.cadence, $0.averageCadence) = (0x2122, 0x2324, 0x6162, 0x6364)
        ($0.totalDistance, $0.resistanceLevel, $0.power, $0.averagePower) = (0x65_6667, -8, -9, 0x6869)
        $0.progress = progress
    }
    static let stepClimber = StepClimberData {
        var climb = StepClimberData.Climb()
        (climb.floors, climb.steps) = (0x7172, 0x7374)
        ($0.climb, $0.stepRate, $0.averageStepRate, $0.elevationGain) = (climb, 0x7576, 0x7778, 0x797A)
        $0.progress = progress
    }
    static let stairClimber = StairClimberData {
        ($0.floors, $0.stepRate, $0.averageStepRate) = (0x7172, 0x7576, 0x7778)
        ($0.elevationGain, $0.strideCount, $0.progress) = (0x797A, 0x7B7C, progress)
    }

    @Test("data of machines have every field in the layout of the Bluetooth SIG")
    func layouts() throws {
        // Parts, as Swift 6.0 gives up on sums of that many literals.
        func check<V: FitnessMachineData>(
            _ value: V, _ parts: [UInt8]..., location: SourceLocation = #_sourceLocation
        ) {
            let bytes = Array(parts.joined())
            #expect([UInt8](value.data) == bytes, sourceLocation: location)
            #expect((try? V(Data(bytes))) == value && !value.hasMoreData, sourceLocation: location)
            // Only the flags: more data.
            #expect(V().hasMoreData && V().data.first == 1, sourceLocation: location)
            #expect((try? V(V().data)) == V(), sourceLocation: location)
        }
        let distance: [UInt8] = [0x22, 0x21, 0x24, 0x23, 0x27, 0x26, 0x25]
        let (slope, gain): ([UInt8], [UInt8]) = ([0xFE, 0xFF, 0x16, 0x15], [0x12, 0x11, 0x14, 0x13])
        check(
            Self.treadmill,
            [0xFE, 0x1F], distance, slope, gain, [0x32, 0x31, 0x34, 0x33], Self.progressBytes,
            [0xFD, 0xFF, 0x36, 0x35])
        check(
            Self.crossTrainer,
            [0xFE, 0xFF, 0], distance, [0x42, 0x41, 0x44, 0x43, 0x46, 0x45], gain, slope,
            [0xFC, 0xFF, 0xFB, 0xFF, 0x48, 0x47], Self.progressBytes)
        check(
            Self.rower,
            [
                0xFE, 0x1F, 0x51, 0x53, 0x52, 0x54, 0x57, 0x56, 0x55, 0x59, 0x58, 0x5B, 0x5A, 0xFA, 0xFF, 0x5D, 0x5C,
                0xF9, 0xFF,
            ], Self.progressBytes)
        check(
            Self.bike,
            [
                0xFE, 0x1F, 0x22, 0x21, 0x24, 0x23, 0x62, 0x61, 0x64, 0x63, 0x67, 0x66, 0x65, 0xF8, 0xFF, 0xF7, 0xFF,
                0x69, 0x68,
            ], Self.progressBytes)
        check(
            Self.stepClimber,
            [0xFE, 0x01, 0x72, 0x71, 0x74, 0x73, 0x76, 0x75, 0x78, 0x77, 0x7A, 0x79], Self.progressBytes)
        check(
            Self.stairClimber,
            [0xFE, 0x03, 0x72, 0x71, 0x76, 0x75, 0x78, 0x77, 0x7A, 0x79, 0x7C, 0x7B], Self.progressBytes)
    }

    @Test("what real machines send is read")
    func realMachines() throws {
        // An Elite trainer: https://github.com/Berg0162/simcline/issues/4
        let trainer = try IndoorBikeData(
            Data([0x54, 0x08, 0x58, 0x08, 0x64, 0x00, 0x30, 0x01, 0x00, 0x67, 0x00, 0x31, 0x00]))
        #expect(trainer.kilometersPerHour == 21.36 && trainer.revolutionsPerMinute == 50)
        #expect(trainer.totalDistance == 304 && trainer.power == 103 && trainer.progress.elapsedTime == 49)
        let feature = try FitnessMachineFeature(Data([0x86, 0x50, 0, 0, 0x0C, 0xE0, 0, 0]))
        #expect(feature.features == [.cadence, .totalDistance, .resistanceLevel, .elapsedTime, .power])
        #expect(
            feature.targetSettings == [.resistanceLevel, .power, .simulation, .wheelCircumference, .spinDown])
        let levels = try SupportedResistanceLevelRange(Data([0, 0, 0xC8, 0, 1, 0]))
        #expect(levels.minimum == 0 && levels.maximum == 200 && levels.increment == 1)
        let powers = try SupportedPowerRange(Data([0, 0, 0xA0, 0x0F, 1, 0]))
        #expect(powers.minimum == 0 && powers.maximum == 4000 && powers.increment == 1)
        let status = try FitnessMachineStatus(Data([0x12, 0, 0, 0xCF, 0xFF, 0x28, 0x33]))
        var simulation = IndoorBikeSimulation()
        (simulation.grade, simulation.rollingResistance, simulation.windResistance) = (-49, 40, 51)
        #expect(status == .changed(.simulation(simulation)))
        let response = try FitnessMachineControlPoint(Data([0x80, 0x11, 0x01]))
        #expect(response.request == .setIndoorBikeSimulation && response.result == .success)
        try response.checkSuccess()
        #expect(try TrainingStatus(Data([0, 0x0A])).phase == .speedTooHigh)

        // An exercise bike at rest and in motion: https://stackoverflow.com/q/76808270. Its resistance level has two
        // bytes.
        let rest = try IndoorBikeData(Data([116, 3, 0, 0, 62, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0]))
        #expect(rest.speed == 0 && rest.revolutionsPerMinute == 31 && rest.resistanceLevel == 16)
        let ride = try IndoorBikeData(
            Data([116, 3, 66, 14, 206, 0, 181, 0, 0, 17, 0, 219, 0, 3, 0, 0, 0, 0, 0]))
        #expect(ride.kilometersPerHour == 36.5 && ride.cadence == 206 && ride.totalDistance == 181)
        #expect(ride.resistanceLevel == 17 && ride.power == 219 && ride.progress.energy?.total == 3)
        #expect(ride.progress.heartRate == 0)

        // An elliptical trainer, which knows neither the descent nor energy per time:
        // https://github.com/TrackMyIndoorWorkout/TrackMyIndoorWorkout/issues/534
        let elliptical = try CrossTrainerData(
            Data([
                190, 103, 0, 35, 2, 47, 2, 140, 0, 0, 86, 0, 85, 0, 37, 5, 26, 0, 255, 255, 20, 0, 59, 0, 57, 0, 4, 0,
                255, 255, 255, 93, 0, 57, 0,
            ]))
        #expect(elliptical.kilometersPerHour == 5.47 && elliptical.averageSpeed == 559)
        #expect(elliptical.totalDistance == 140 && elliptical.stepRate?.current == 86)
        #expect(elliptical.stepRate?.average == 85 && elliptical.strideCount == 1317)
        #expect(elliptical.elevationGain?.positive == 26 && elliptical.elevationGain?.negative == nil)
        #expect(elliptical.resistanceLevel == 20 && elliptical.power == 59 && elliptical.averagePower == 57)
        let energy = try #require(elliptical.progress.energy)
        #expect(energy.total == 4 && energy.perHour == nil && energy.perMinute == nil)
        #expect(elliptical.progress.elapsedTime == 93 && elliptical.progress.remainingTime == 57)
        #expect(!elliptical.isBackward)

        // Treadmills: https://github.com/cagnulein/qdomyos-zwift/issues/175,
        // https://github.com/TrackMyIndoorWorkout/TrackMyIndoorWorkout/issues/470
        let treadmill = try TreadmillData(Data([0x84, 0x04] + [UInt8](repeating: 0, count: 12)))
        #expect(treadmill.speed == 0 && treadmill.totalDistance == 0 && treadmill.progress.elapsedTime == 0)
        #expect(treadmill.progress.energy?.perMinute == 0 && treadmill.pace == nil)
        let belt = try FitnessMachineFeature(Data([0x5C, 0x16, 0, 0, 3, 0, 0, 0]))
        #expect(
            belt.features == [
                .totalDistance, .inclination, .elevationGain, .stepCount, .expendedEnergy, .heartRate, .elapsedTime,
            ] && belt.targetSettings == [.speed, .inclination])
        let idle = try TrainingStatus(Data([1, 1]))
        #expect(idle.phase == .idle && idle.text == "")
    }

    @Test("a record that a rower sends in three notifications is joined")
    func realRecord() throws {
        // A Viking Pro V: https://github.com/zpukr/ArduRower/issues/1. The last notification has the strokes.
        let notifications: [[UInt8]] = [
            [0x01, 0x01, 0x04, 0x00, 0xC5, 0x01, 0x07],
            [0x05, 0x0A, 0x62, 0x00, 0x00, 0x00, 0x31, 0x00],
            [0xF8, 0x00, 0x26, 0x0B, 0x00, 0xC7, 0x00, 0x00, 0x00, 0x2C, 0x00, 0x1B, 0x00, 0x02, 0x00],
        ]
        var records = FitnessMachineRecords<RowerData>()
        #expect(try records.add(Data(notifications[0])) == nil)
        #expect(try records.add(Data(notifications[1])) == nil)
        let record = try #require(try records.add(Data(notifications[2])))
        #expect(record.strokes?.perMinute == 19 && record.strokes?.count == 11 && record.pace == 199)
        #expect(record.power == 44 && record.averagePower == 27 && record.resistanceLevel == 2)
        #expect(record.progress.energy?.total == 4 && record.progress.energy?.perHour == 453)
        #expect(record.totalDistance == 98 && record.progress.heartRate == 0 && record.progress.elapsedTime == 49)
        // The next record begins without anything of this one.
        let next = try #require(try records.add(Data(notifications[2])))
        #expect(next.totalDistance == nil && next.progress.energy == nil && next.power == 44)
    }

    @Test("a record whose end was lost, or that cannot be read, is abandoned")
    func lostNotifications() throws {
        var records = FitnessMachineRecords<IndoorBikeData>()
        let parts = Self.bike.notifications(length: 20)
        #expect(parts.count == 2)
        #expect(try records.add(parts[0]) == nil)
        // The first part of the next record: nothing of the lost one is in it.
        let next = IndoorBikeData { ($0.speed, $0.averageSpeed, $0.power) = (1, 2, 3) }.notifications(length: 6)
        #expect(next.count == 2)
        #expect(try records.add(next[0]) == nil)
        #expect(
            try records.add(next[1]) == IndoorBikeData { ($0.speed, $0.averageSpeed, $0.power) = (1, 2, 3) })
        #expect(try records.add(parts[0]) == nil)
        #expect(throws: CharacteristicValueError.truncated(field: "instantaneous speed")) {
            try records.add(Data([0, 0, 1]))
        }
        #expect(throws: CharacteristicValueError.missing) { try records.add(nil) }
        #expect(try records.add(Data([0, 0, 1, 0])) == IndoorBikeData { $0.speed = 1 })
    }

    @Test("a record of any length is split into notifications that fit, and joined again", arguments: 0..<6)
    func split(_ kind: Int) throws {
        func check<V: FitnessMachineData>(_ value: V, flags: Int) throws {
            for length in 0...50 {
                let notifications = value.notifications(length: length)
                var records = FitnessMachineRecords<V>()
                for notification in notifications.dropLast() {
                    #expect(notification[0] & 1 == 1)
                    #expect(try records.add(notification) == nil)
                }
                let last = try #require(notifications.last)
                #expect(try records.add(last) == value, "\(V.self) \(length)")
                // The longest field is the energy.
                #expect(notifications.allSatisfy { $0.count <= max(length, flags + 5) }, "\(V.self) \(length)")
                if length >= value.data.count { #expect(notifications == [value.data]) }
            }
            // Without the field that ends it, a record is not complete.
            #expect(V().notifications(length: 20) == [V().data])
        }
        switch kind {
        case 0: try check(Self.treadmill, flags: 2)
        case 1: try check(Self.crossTrainer, flags: 3)
        case 2: try check(Self.rower, flags: 2)
        case 3: try check(Self.bike, flags: 2)
        case 4: try check(Self.stepClimber, flags: 2)
        default: try check(Self.stairClimber, flags: 2)
        }
    }

    @Test("fields that the Bluetooth SIG has defined with one byte and with two are read in either layout")
    func twoLayouts() throws {
        // Speed, paces, heart rate.
        let short = try TreadmillData(Data([0x60, 0x01, 1, 0, 2, 3, 60]))
        #expect(short.isPaceSpeed && short.pace == 2 && short.averagePace == 3 && short.progress.heartRate == 60)
        #expect(short.data == Data([0x60, 0x01, 1, 0, 2, 3, 60]))
        let long = try TreadmillData(Data([0x60, 0x01, 1, 0, 2, 0, 3, 0, 60]))
        #expect(!long.isPaceSpeed && long.pace == 2 && long.averagePace == 3 && long.progress.heartRate == 60)
        // Speed, resistance level, power.
        for bytes: [UInt8] in [[0x60, 0, 1, 0, 200, 0, 9, 0], [0x60, 0, 1, 0, 200, 9, 0]] {
            let bike = try IndoorBikeData(Data(bytes))
            #expect(bike.resistanceLevel == 200 && bike.power == 9)
            #expect(bike.data == Data([0x60, 0, 1, 0, 200, 0, 9, 0]))
        }
        for bytes: [UInt8] in [[0x80, 0, 40, 1, 0, 5, 0], [0x80, 0, 40, 1, 0, 5]] {
            #expect(try RowerData(Data(bytes)).resistanceLevel == 5)
        }
        for bytes: [UInt8] in [[0x80, 0, 0, 1, 0, 5, 0], [0x80, 0, 0, 1, 0, 5]] {
            #expect(try CrossTrainerData(Data(bytes)).resistanceLevel == 5)
        }
        let levels = try SupportedResistanceLevelRange(Data([1, 200, 2]))
        #expect(levels.minimum == 1 && levels.maximum == 200 && levels.increment == 2)
        #expect(levels.data == Data([1, 0, 200, 0, 2, 0]))
        #expect(throws: CharacteristicValueError.truncated(field: "maximum")) {
            try SupportedPowerRange(Data([1, 2, 3]))
        }
    }

    @Test("special values are not numbers, and reserved ones leave the other fields readable")
    func specialValues() throws {
        let treadmill = try TreadmillData(
            Data([
                0x98, 0x10, 0, 0, 0xFF, 0x7F, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                0x7F, 0xFF, 0x7F,
            ]))
        #expect(treadmill.inclination == FitnessInclination() && treadmill.elevationGain == ElevationGain())
        #expect(treadmill.progress.energy == FitnessEnergy() && treadmill.belt == TreadmillData.Belt())
        // Reserved flags, and the four bytes of what they stand for: a Technogym rower,
        // https://github.com/TrackMyIndoorWorkout/TrackMyIndoorWorkout/issues/320
        let rower = try RowerData(Data([0x00, 0xE0, 40, 1, 0, 9, 9, 9, 9]))
        #expect(rower.strokes?.perMinute == 20 && rower.data == Data([0, 0, 40, 1, 0]))
        let status = try TrainingStatus(Data([3, 0x10, 0x61, 0xC3]))
        #expect(status.phase == nil && status.$phase == 16 && status.text == "a" && status.isTextCutOff)
        #expect(IndoorBikeData { $0.totalDistance = .max }.data == Data([0x11, 0, 0xFF, 0xFF, 0xFF]))
        let advertised = try FitnessMachineAdvertisement(Data([1, 0x20, 0xFF]))
        #expect(advertised.isAvailable && advertised.kind == .indoorBike && advertised.data == Data([1, 0x20, 0]))
    }

    @Test("ranges have the layout of the Bluetooth SIG")
    func ranges() throws {
        #expect(SupportedSpeedRange { ($0.minimum, $0.maximum, $0.increment) = (50, 2000, 10) }.data.count == 6)
        #expect(
            SupportedInclinationRange { ($0.minimum, $0.maximum, $0.increment) = (-30, 150, 5) }.data
                == Data([0xE2, 0xFF, 150, 0, 5, 0]))
        #expect(
            SupportedHeartRateRange { ($0.minimum, $0.maximum, $0.increment) = (60, 220, 1) }.data
                == Data([60, 220, 1]))
        let uuids = [
            SupportedSpeedRange.uuid, SupportedInclinationRange.uuid, SupportedResistanceLevelRange.uuid,
            SupportedHeartRateRange.uuid, SupportedPowerRange.uuid,
        ]
        #expect(uuids.map(\.uuidString) == ["2AD4", "2AD5", "2AD6", "2AD7", "2AD8"])
    }

    static let targets: [(FitnessMachineTarget, [UInt8], UInt8)] = {
        var simulation = IndoorBikeSimulation()
        (simulation.windSpeed, simulation.grade) = (-2, 0x0102)
        (simulation.rollingResistance, simulation.windResistance) = (3, 4)
        return [
            (.speed(0x0102), [0x02, 2, 1], 0x05), (.inclination(-2), [0x03, 0xFE, 0xFF], 0x06),
            (.resistanceLevel(5), [0x04, 5], 0x07), (.power(-2), [0x05, 0xFE, 0xFF], 0x08),
            (.heartRate(6), [0x06, 6], 0x09), (.expendedEnergy(0x0102), [0x09, 2, 1], 0x0A),
            (.steps(0x0102), [0x0A, 2, 1], 0x0B), (.strides(0x0102), [0x0B, 2, 1], 0x0C),
            (.distance(0x01_0203), [0x0C, 3, 2, 1], 0x0D), (.trainingTime(0x0102), [0x0D, 2, 1], 0x0E),
            (.timeInTwoZones(fatBurn: 1, fitness: 2), [0x0E, 1, 0, 2, 0], 0x0F),
            (.timeInThreeZones(light: 1, moderate: 2, hard: 3), [0x0F, 1, 0, 2, 0, 3, 0], 0x10),
            (
                .timeInFiveZones(veryLight: 1, light: 2, moderate: 3, hard: 4, maximum: 5),
                [0x10, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0], 0x11
            ), (.simulation(simulation), [0x11, 0xFE, 0xFF, 2, 1, 3, 4], 0x12),
            (.wheelCircumference(0x0102), [0x12, 2, 1], 0x13), (.cadence(0x0102), [0x14, 2, 1], 0x15),
        ]
    }()

    @Test("requests to the control point have their parameters, and the status repeats them")
    func commands() throws {
        func check(_ command: FitnessMachineCommand, _ bytes: [UInt8]) throws {
            let request = FitnessMachineControlPoint(command: command)
            #expect([UInt8](request.data) == bytes)
            #expect(try FitnessMachineControlPoint(Data(bytes)) == request)
            #expect(try FitnessMachineControlPoint(Data(bytes)).command == command)
            #expect(throws: CharacteristicValueError.trailing(bytes: 1)) {
                try FitnessMachineControlPoint(Data(bytes + [0]))
            }
            if bytes.count > 1 {
                #expect(throws: CharacteristicValueError.truncated(field: "parameter")) {
                    try FitnessMachineControlPoint(Data(bytes.dropLast()))
                }
            }
        }
        for (target, bytes, number) in Self.targets {
            try check(.set(target), bytes)
            let status = try FitnessMachineStatus(Data([number] + bytes.dropFirst()))
            #expect(status == .changed(target) && [UInt8](status.data) == [number] + bytes.dropFirst())
            // What ends within its parameter has the bytes.
            let cut = try FitnessMachineStatus(Data([number] + bytes.dropFirst().dropLast()))
            #expect(cut == .other(number: number, parameter: Data(bytes.dropFirst().dropLast())))
        }
        for (command, bytes): (FitnessMachineCommand, [UInt8]) in [
            (.requestControl, [0]), (.reset, [1]), (.startOrResume, [7]), (.stop, [8, 1]), (.pause, [8, 2]),
            (.startSpinDown, [0x13, 1]), (.ignoreSpinDown, [0x13, 2]),
        ] { try check(command, bytes) }
        // A server says "invalid parameter" to the first two, and "not supported" to the last.
        for bytes: [UInt8] in [[8, 3], [0x13, 0], [0x15, 1, 2]] {
            #expect(try FitnessMachineControlPoint(Data(bytes)).command == nil)
        }
        #expect(
            FitnessMachineControlPoint(command: .set(.distance(.max))).data == Data([0x0C, 0xFF, 0xFF, 0xFF]))
    }

    @Test("responses of the control point are results or errors")
    func responses() async throws {
        try FitnessMachineControlPoint(to: .reset, .success).checkSuccess()
        try FitnessMachineControlPoint(command: .reset).checkSuccess()  // no response
        let refused = try FitnessMachineControlPoint(Data([0x80, 5, 5]))
        #expect(refused.command == nil && refused.result == .controlNotPermitted)
        let refusal = await thrown { try refused.checkSuccess() } as? ControlPointRefusal<FitnessMachineOperation>
        #expect(refusal?.request == .setTargetPower && refusal?.result == .controlNotPermitted)
        #expect(refusal?.localizedDescription == "operation 5 was refused: controlNotPermitted")
        let unknown = try SCControlPoint(Data([16, 1, 9]))
        let reserved = await thrown { try unknown.checkSuccess() } as? ControlPointRefusal<SCOperation>
        #expect(reserved?.result == nil && reserved?.$result == 9)
        #expect(reserved?.localizedDescription == "operation 1 was refused: 9")
        let spinDown = try FitnessMachineControlPoint(Data([0x80, 0x13, 1, 0x20, 3, 0x40, 6]))
        #expect(spinDown.spinDownSpeeds?.low == 800 && spinDown.spinDownSpeeds?.high == 1600)
        #expect(FitnessMachineControlPoint(spinDownSpeeds: (800, 1600)) == spinDown)
        #expect(try FitnessMachineControlPoint(Data([0x80, 0x13, 4])).spinDownSpeeds == nil)
        #expect(try FitnessMachineControlPoint(Data([0x80, 0x13, 1, 0x20, 3, 0x40])).spinDownSpeeds == nil)
    }

    @Test("each status has its number, and what is not assigned is kept")
    func statuses() throws {
        let known: [(FitnessMachineStatus, [UInt8])] = [
            (.reset, [1]), (.stopped, [2, 1]), (.paused, [2, 2]), (.stoppedBySafetyKey, [3]), (.startedOrResumed, [4]),
            (.spinDown(.requested), [0x14, 1]), (.spinDown(.success), [0x14, 2]), (.spinDown(.error), [0x14, 3]),
            (.spinDown(.stopPedaling), [0x14, 4]), (.controlPermissionLost, [0xFF]),
        ]
        for (status, bytes) in known {
            #expect([UInt8](status.data) == bytes)
            #expect(try FitnessMachineStatus(Data(bytes)) == status)
            #expect(try FitnessMachineStatus(Data(bytes + [9])) == status)  // of a later version
        }
        for bytes: [UInt8] in [[0], [2], [2, 3], [0x14, 5], [0x14], [0x16, 1, 2], [0xFE]] {
            let status = try FitnessMachineStatus(Data(bytes))
            #expect(status == .other(number: bytes[0], parameter: Data(bytes.dropFirst())))
            #expect([UInt8](status.data) == bytes)
        }
        #expect(throws: CharacteristicValueError.truncated(field: "op code")) { try FitnessMachineStatus(Data()) }
    }
}
