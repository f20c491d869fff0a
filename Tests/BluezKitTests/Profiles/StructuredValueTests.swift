import BluezKitProfiles
import Foundation
import Testing

/// The values whose layout is described once, in the SIG's layout.
@Suite struct StructuredValueTests {
    private static let time = DateTime(Date(timeIntervalSince1970: 1_700_000_000), in: .gmt)

    private static let temperature = TemperatureMeasurement {
        $0.temperature = MedFloat(36.6)
        $0.time = time
        $0.type = .ear
    }
    private static let speed = CSCMeasurement {
        $0.wheel = WheelRevolutions(count: 0x0102_0304, lastEventTime: 0x0506)
        $0.crank = CrankRevolutions(count: 0x0708, lastEventTime: 0x090A)
    }
    private static let power = CyclingPowerMeasurement {
        $0.power = -2
        ($0.pedalBalance, $0.isLeftBalance) = (101, true)
        ($0.accumulatedTorque, $0.isCrankTorque) = (32, true)
        $0.wheel = WheelRevolutions(count: 1, lastEventTime: 2048)
        $0.crank = CrankRevolutions(count: 3, lastEventTime: 1024)
        var extremes = CyclingPowerMeasurement.Extremes()
        (extremes.largest, extremes.smallest) = (400, -5)
        ($0.forces, $0.torques) = (extremes, extremes)
        var angles = CyclingPowerMeasurement.ExtremeAngles()
        (angles.largest, angles.smallest) = (0x123, 0x456)
        $0.angles = angles
        ($0.topDeadSpot, $0.bottomDeadSpot, $0.accumulatedEnergy) = (1, 181, 1000)
        $0.needsOffsetCompensation = true
    }
    private static let vector = CyclingPowerVector {
        $0.crank = CrankRevolutions(count: 3, lastEventTime: 1024)
        $0.firstAngle = 90
        $0.forces = [1, -1, 300]
        $0.direction = .lateral
    }
    private static let run = RSCMeasurement {
        ($0.speed, $0.cadence, $0.isRunning) = (768, 180, true)
        ($0.strideLength, $0.totalDistance) = (120, 100_000)
    }
    private static let weight = WeightMeasurement {
        ($0.weight, $0.time, $0.user) = (14_000, time, 3)
        var body = WeightMeasurement.Body()
        (body.bodyMassIndex, body.height) = (221, 1780)
        $0.body = body
    }
    private static let pressure = BloodPressureMeasurement {
        $0.systolic = MedFloat(120, digits: 0)
        $0.diastolic = MedFloat(80, digits: 0)
        $0.mean = MedFloat(93, digits: 0)
        ($0.time, $0.pulseRate, $0.user) = (time, MedFloat(60, digits: 0), 1)
        $0.status = [.bodyMovement, .improperPosition]
    }
    private static let conditions = EnvironmentalMeasurement {
        ($0.function, $0.period, $0.updateInterval) = (.arithmeticMean, 600, 0x0A_0B0C)
        ($0.application, $0.uncertainty) = (.solar, 5)
    }
    private static func trigger(_ condition: EnvironmentalTrigger.Condition) -> EnvironmentalTrigger {
        EnvironmentalTrigger {
            $0.condition = condition
            switch condition {
            case .inactive, .changed: break
            case .interval, .minimumInterval: $0.seconds = 0x01_0203
            default: $0.reference = Data([0xC4, 0x09])
            }
        }
    }
    private static let glucose = GlucoseMeasurement {
        ($0.sequenceNumber, $0.baseTime, $0.timeOffset) = (7, time, -60)
        var result = GlucoseMeasurement.Result()
        result.concentration = MedFloat(0.0055, digits: 4)
        (result.sample, result.location) = (.capillaryPlasma, .finger)
        ($0.result, $0.isMolar, $0.status, $0.hasContext) = (result, true, [.batteryLow, .timeFault], true)
    }
    private static let context = GlucoseMeasurementContext {
        ($0.sequenceNumber, $0.extendedFlags, $0.meal) = (7, 0, .fasting)
        ($0.carbohydrate, $0.tester, $0.exercise) = (.init(), .init(), .init())
        ($0.medication, $0.isMedicationInLiters, $0.hbA1c) = (.init(), true, MedFloat(6.1))
    }
    private static let spotCheck = PLXSpotCheckMeasurement {
        $0.result.saturation = MedFloat(98)
        $0.result.pulseRate = MedFloat(61)
        ($0.time, $0.status, $0.deviceStatus) = (time, .validated, [.poorSignal, .sensorDisconnected])
        ($0.pulseAmplitudeIndex, $0.isClockNotSet) = (MedFloat(5), true)
    }
    private static let continuous = PLXContinuousMeasurement {
        $0.normal = spotCheck.result
        ($0.fast, $0.slow, $0.status) = (spotCheck.result, .init(), .ongoing)
        ($0.deviceStatus, $0.pulseAmplitudeIndex) = (.lowPerfusion, MedFloat(5))
    }
    private static let oximeter = PLXFeatures {
        ($0.hasFast, $0.status, $0.deviceStatus) = (true, .validated, .lowPerfusion)
    }

    @Test("mutated values of each profile are refused, or read and produced without a change")
    func mutated() {
        for value in [Self.temperature, TemperatureMeasurement { $0.isFahrenheit = true }] { mutate(value) }
        mutate(TemperatureType.tympanum)
        mutate(MeasurementInterval { $0.seconds = 60 })
        mutate(MagneticFluxDensity2D { ($0.x, $0.y) = (-1, 2) })
        mutate(MagneticFluxDensity3D { ($0.x, $0.y, $0.z) = (-1, 2, 3) })
        mutate(Self.conditions)
        for condition in EnvironmentalTrigger.Condition.allCases { mutate(Self.trigger(condition)) }
        mutate(Self.speed)
        mutate(CSCFeature.assigned)
        mutate(SensorLocation.chainRing)
        mutate(SCControlPoint(.setCumulativeValue, parameter: Data([1, 2, 3, 4])))
        mutate(SCControlPoint(to: .requestSupportedSensorLocations, .success, parameter: Data([5, 6])))
        mutate(Self.power)
        mutate(Self.vector)
        mutate(CyclingPowerFeature.assigned)
        mutate(CyclingPowerControlPoint(to: .setCrankLength, .invalidParameter))
        mutate(Self.run)
        mutate(RSCFeature.assigned)
        mutate(Self.weight)
        mutate(WeightScaleFeature.assigned)
        mutate(Self.pressure)
        mutate(BloodPressureFeature.assigned)
        mutate(Self.glucose)
        mutate(Self.context)
        mutate(GlucoseFeature.assigned)
        mutate(RecordAccessControlPoint(.report, .within(1, 500)))
        mutate(RecordAccessControlPoint(to: .report, .success))
        mutate(Self.spotCheck)
        mutate(Self.continuous)
        mutate(Self.oximeter)
        mutate(AlertLevel.high)
        mutate(TxPowerLevel { $0.dBm = -4 })
    }

    @Test("mutated readings of each environmental quantity are refused, or read and produced without a change")
    func mutatedReadings() {
        for quantity in EnvironmentalQuantity.allCases {
            var changed = 0
            for _ in 0..<Mutation.count {
                let bytes = Data((0..<Int.random(in: 0...5)).map { _ in UInt8.random(in: 0 ... .max) })
                guard let reading = try? EnvironmentalReading(quantity, bytes) else { continue }
                if (try? EnvironmentalReading(quantity, reading.data)) != reading { changed += 1 }
                if reading.data != bytes.prefix(reading.data.count) { changed += 1 }
            }
            #expect(changed == 0, "\(quantity)")
            #expect(throws: CharacteristicValueError.missing) { try EnvironmentalReading(quantity, nil) }
            #expect(EnvironmentalQuantity(quantity.uuid) == quantity && !quantity.name.isEmpty)
        }
    }

    @Test("values have the layout of the Bluetooth SIG")
    func layouts() {
        func bytes(_ value: some CharacteristicValue) -> [UInt8] { [UInt8](value.data) }
        let time: [UInt8] = [0xE7, 0x07, 11, 14, 22, 13, 20]  // 2023-11-14 22:13:20
        #expect(bytes(Self.temperature) == [6, 0x6E, 1, 0, 0xFF] + time + [3])
        #expect(bytes(Self.speed) == [3, 4, 3, 2, 1, 6, 5, 8, 7, 10, 9])
        #expect(
            bytes(Self.power) == [
                0xFF, 0x1F, 0xFE, 0xFF, 101, 32, 0, 1, 0, 0, 0, 0, 8, 3, 0, 0, 4, 0x90, 1, 0xFB, 0xFF, 0x90, 1, 0xFB,
                0xFF, 0x23, 0x61, 0x45, 1, 0, 181, 0, 0xE8, 3,
            ])
        #expect(bytes(Self.vector) == [0x37, 3, 0, 0, 4, 90, 0, 1, 0, 0xFF, 0xFF, 0x2C, 1])
        #expect(bytes(Self.run) == [7, 0, 3, 180, 120, 0, 0xA0, 0x86, 1, 0])
        #expect(bytes(Self.weight) == [0x0E, 0xB0, 0x36] + time + [3, 221, 0, 0xF4, 6])
        #expect(bytes(Self.pressure) == [0x1E, 120, 0, 80, 0, 93, 0] + time + [60, 0, 1, 0x21, 0])
        #expect(bytes(Self.glucose) == [0x1F, 7, 0] + time + [0xC4, 0xFF, 55, 0xC0, 0x12, 1, 8])
        #expect(
            bytes(Self.context) == [0xFF, 7, 0, 0, 1, 0, 0, 3, 0xFF, 0, 0, 0, 1, 0, 0, 61, 0xF0])
        #expect(
            bytes(Self.spotCheck) == [0x1F, 0xD4, 0xF3, 0x62, 0xF2] + time + [0x80, 0, 0x10, 0x80, 0, 50, 0xF0])
        #expect(bytes(Self.oximeter) == [0x13, 0, 0x80, 0, 0x20, 0, 0])
        #expect(bytes(SCControlPoint(to: .updateSensorLocation, .success)) == [16, 3, 1])
        #expect(bytes(RecordAccessControlPoint(.report, .within(1, 500))) == [1, 4, 1, 1, 0, 0xF4, 1])
        #expect(bytes(RecordAccessControlPoint(.report, .all)) == [1, 1])
        #expect(bytes(RecordAccessControlPoint.abort) == [3, 0])
        #expect(bytes(RecordAccessControlPoint(count: 513)) == [5, 0, 1, 2])
        #expect(bytes(RecordAccessControlPoint(to: .delete, .noRecordsFound)) == [6, 0, 2, 6])
        #expect(bytes(WeightMeasurement()) == [0, 0xFF, 0xFF])
        #expect(bytes(Self.conditions) == [0, 0, 2, 0x58, 2, 0, 0x0C, 0x0B, 0x0A, 0x21, 5])
        #expect(bytes(EnvironmentalMeasurement()) == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF])
        #expect(EnvironmentalMeasurement.Application.allCases.count == 0x22)
        #expect(bytes(Self.trigger(.changed)) == [3] && bytes(Self.trigger(.minimumInterval)) == [2, 3, 2, 1])
        #expect(bytes(Self.trigger(.notEqual)) == [9, 0xC4, 9])
        #expect(throws: CharacteristicValueError.truncated(field: "reference value")) {
            try EnvironmentalTrigger(Data([4]))
        }
        #expect(throws: CharacteristicValueError.reserved(field: "condition", value: 10)) {
            try EnvironmentalTrigger(Data([10]))
        }
    }

    @Test("values have their units: speeds, weights, temperatures, dates")
    func units() throws {
        #expect(
            Self.temperature.celsius == 36.6 && Self.temperature.time?.date(in: .gmt)?.timeIntervalSince1970 == 1.7e9)
        let fahrenheit = TemperatureMeasurement { ($0.temperature, $0.isFahrenheit) = (MedFloat(212), true) }
        #expect(fahrenheit.celsius == 100)
        #expect(Self.run.metersPerSecond == 3 && Self.weight.kilograms == 70)
        let start = WheelRevolutions(count: .max, lastEventTime: 0xFFFF)
        #expect(WheelRevolutions(count: 1, lastEventTime: 1023).rate(since: start, ticks: 1024) == 2)
        #expect(WheelRevolutions(count: 1, lastEventTime: 0xFFFF).rate(since: start, ticks: 1024) == nil)
        let crank = CrankRevolutions(count: 0xFFFF, lastEventTime: 0xFC00)
        #expect(CrankRevolutions(count: 1, lastEventTime: 0x0400).cadence(since: crank) == 60)
        #expect(EnvironmentalReading(.temperature, 21.5)?.data == Data([0x66, 0x08]))
        #expect((try? EnvironmentalReading(.temperature, Data([0, 0x80])))?.value == .some(nil))
        #expect((try? EnvironmentalReading(.elevation, Data([0x9C, 0xFF, 0xFF])))?.value == -1)
        #expect(EnvironmentalReading(.pressure, 101_325)?.data == Data([0x02, 0x76, 0x0F, 0]))
        for value in [-300, 1e300, .nan, .infinity] { #expect(EnvironmentalReading(.temperature, value) == nil) }
        #expect(EnvironmentalReading(.rainfall, nil) == nil)
        // A sensor with an offset: 103 %, which the Bluetooth SIG has reserved.
        let humid = try EnvironmentalReading(.humidity, Data([0x3C, 0x28]))
        #expect(humid.value == nil && humid.number == 10_300 && humid.data == Data([0x3C, 0x28]))
        #expect(Double(humid.number) * EnvironmentalQuantity.humidity.resolution == 103)
        #expect(try EnvironmentalReading(.barometricPressureTrend, Data([10])).value == nil)
    }

    @Test("decimal numbers have IEEE 11073's layout and special values")
    func decimals() {
        #expect(MedFloat16(36.4).bits == 0xF16C && MedFloat32(36.4).bits == 0xFF00_016C)
        #expect(MedFloat16(114, digits: 0).bits == 0x0072 && MedFloat16(-0.1).bits == 0xFFFF)
        for bits: UInt16 in [0x07FF, 0x0800, 0x0801] { #expect(MedFloat16(bits: bits).value == nil) }
        for bits: UInt32 in [0x007F_FFFF, 0x0080_0000, 0x0080_0001] { #expect(MedFloat32(bits: bits).value == nil) }
        #expect(MedFloat16(bits: 0x07FE).value == .infinity && MedFloat16(bits: 0x0802).value == -.infinity)
        #expect(MedFloat32(bits: 0x007F_FFFE).value == .infinity && MedFloat32(bits: 0x0080_0002).value == -.infinity)
        #expect(MedFloat16(.infinity).bits == 0x07FE && MedFloat16(-.infinity).bits == 0x0802)
        #expect(MedFloat32(1e300).value == .infinity && MedFloat16(.nan) == .notANumber)
        #expect(MedFloat16(bits: 0x07FF) == .notANumber && MedFloat16(bits: 0x0800) == .notAtThisResolution)
        #expect(MedFloat16(300).value == 300 && MedFloat16(-12_345).value == -12_350)
        #expect(MedFloat16(1, digits: .max).value == 1 && MedFloat16(1, digits: .min).value == 1)
        for bits in UInt16.min...UInt16.max {
            // The mantissas of special values are numbers with other exponents, which are never produced.
            let mantissa = Int(Int16(bitPattern: bits << 4)) >> 4
            guard abs(mantissa) <= 2045, let value = MedFloat16(bits: bits).value else { continue }
            let digits = max(0, -(Int(Int16(bitPattern: bits)) >> 12))
            #expect(MedFloat16(value, digits: digits).value == value, "\(bits)")
        }
    }

    // One reserved number, or one field that was cut off, took the whole value.
    @Test("a reserved number leaves the other fields readable, can be had itself, and is transmitted again")
    func reserved() throws {
        let temperature = try TemperatureMeasurement(Data([6, 0x6E, 1, 0, 0xFF, 0xE7, 7, 13, 1, 25, 0, 0, 10]))
        #expect(temperature.celsius == 36.6 && temperature.type == nil && temperature.$type == 10)
        #expect(
            temperature.time?.month == 13 && temperature.time?.hours == 25 && temperature.time?.date(in: .gmt) == nil)
        #expect(temperature.data == Data([6, 0x6E, 1, 0, 0xFF, 0xE7, 7, 13, 1, 25, 0, 0, 10]))
        let glucose = try GlucoseMeasurement(Data([2, 7, 0, 0, 0, 0, 0, 0, 0, 0, 55, 0xC0, 0x9F]))
        #expect(glucose.result?.concentration == MedFloat(0.0055, digits: 4))
        #expect(glucose.result?.sample == nil && glucose.result?.$sample == 15)
        #expect(glucose.result?.location == nil && glucose.result?.$location == 9)
        let context = try GlucoseMeasurementContext(
            Data([0x1F, 7, 0, 8, 1, 0, 6, 0x64, 60, 0, 101, 9, 2, 0]))
        #expect(context.carbohydrate?.kind == nil && context.carbohydrate?.$kind == 8)
        #expect(context.carbohydrate?.amount.value == 1 && context.meal == nil && context.$meal == 6)
        #expect(context.tester?.tester == nil && context.tester?.$tester == 4 && context.tester?.$health == 6)
        #expect(context.exercise?.duration == 60 && context.exercise?.intensity == nil)
        #expect(context.exercise?.intensityNumber == 101)
        #expect(context.medication?.kind == nil && context.medication?.$kind == 9)
        #expect(context.medication?.amount.value == 2)
        let conditions = try EnvironmentalMeasurement(Data([0, 0, 8, 60, 0, 0, 0, 0, 0, 0x22, 5]))
        #expect(conditions.function == nil && conditions.$function == 8 && conditions.period == 60)
        #expect(conditions.application == nil && conditions.$application == 0x22 && conditions.uncertainty == 5)
        let response = try SCControlPoint(Data([16, 3, 5, 1, 2]))
        #expect(response.request == .updateSensorLocation && response.result == nil && response.$result == 5)
        #expect(response.parameter == Data([1, 2]))
    }

    @Test("a value that ends within a field that can be left out has the fields before it", arguments: 0..<4)
    func endsEarly(_ kind: Int) throws {
        func check<V: StructuredValue>(_ value: V, atLeast: Int) throws {
            for length in 0..<value.data.count {
                let part = value.data.prefix(length)
                guard length >= atLeast else {
                    #expect(throws: CharacteristicValueError.self) { try V(part) }
                    continue
                }
                // Each of its fields is whole: they are transmitted as they arrived, behind their flags.
                let read = try V(part).data
                let flags = V.self == CyclingPowerMeasurement.self ? 2 : 1
                #expect(part.dropFirst(flags).starts(with: read.dropFirst(flags)), "\(length): \(Array(read))")
            }
        }
        switch kind {
        case 0: try check(Self.pressure, atLeast: 7)
        case 1: try check(Self.power, atLeast: 4)
        case 2: try check(Self.vector, atLeast: 1)
        default: try check(Self.glucose, atLeast: 10)
        }
    }

    @Test("a request to a control point that is longer or shorter than its operation's parameter is refused")
    func controlPoints() throws {
        #expect(try SCControlPoint(Data([1, 1, 2, 3, 4])).parameter == Data([1, 2, 3, 4]))
        #expect(throws: CharacteristicValueError.truncated(field: "parameter")) {
            try SCControlPoint(Data([1, 1, 2, 3]))
        }
        #expect(throws: CharacteristicValueError.trailing(bytes: 2)) { try SCControlPoint(Data([3, 5, 9, 9])) }
        #expect(throws: CharacteristicValueError.trailing(bytes: 1)) { try SCControlPoint(Data([4, 0])) }
        for (operation, length) in [(1, 4), (2, 1), (3, 0), (4, 2), (6, 2), (8, 2), (10, 2), (13, 2), (16, 0)]
            as [(UInt8, Int)]
        {
            for count in 0...6 {
                let request = try? CyclingPowerControlPoint(Data([operation] + [UInt8](repeating: 0, count: count)))
                #expect((request != nil) == (count == length), "\(operation): \(count)")
            }
        }
        // Of what is not known only a response can be said, and responses have any length.
        #expect(try SCControlPoint(Data([99, 1, 2])).parameter.count == 2)
        #expect(try SCControlPoint(Data([16, 4, 1, 5, 6, 7])).parameter.count == 3)
        #expect(throws: CharacteristicValueError.trailing(bytes: 1)) { try HeartRateControlPoint(Data([1, 0])) }
    }

    @Test("absurd and truncated values are errors that name the field; what an app sets is brought into range")
    func absurd() throws {
        #expect(throws: CharacteristicValueError.truncated(field: "temperature")) {
            try TemperatureMeasurement(Data([0, 1, 2]))
        }
        #expect(throws: CharacteristicValueError.reserved(field: "response value", value: 99)) {
            try RecordAccessControlPoint(Data([6, 0, 1, 99]))
        }
        #expect(TxPowerLevel { $0.dBm = 100 }.data == Data([20]))
        #expect(try TxPowerLevel(Data([0x9C])).dBm == -100)
        #expect(throws: CharacteristicValueError.reserved(field: "Tx power level", value: 21)) {
            try TxPowerLevel(Data([21]))
        }
    }
}
