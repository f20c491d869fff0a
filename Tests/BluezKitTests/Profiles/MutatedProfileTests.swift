import BluezKitProfiles
import Foundation
import Testing

/// What machines, glucose sensors, scales and batteries send, mutated: `BLUEZKIT_MUTATIONS=1000000` for more.
@Suite struct MutatedProfileTests {
    /// A record that was read is split into notifications that fit, and joined again.
    private func mutateRecord<V: FitnessMachineData>(_ value: V, _ location: SourceLocation = #_sourceLocation) {
        mutate(value, location) { read in
            let notifications = read.notifications(length: 20)
            var records = FitnessMachineRecords<V>()
            let joined = notifications.map { try? records.add($0) }
            return joined.dropLast().allSatisfy { $0 == nil }
                && joined.last == (read.hasMoreData ? .some(nil) : read)
                && notifications.allSatisfy { $0.count <= 20 }
        }
    }

    @Test("mutated data of machines are refused, or read, produced, split and joined without a change")
    func machines() {
        mutateRecord(FitnessMachineTests.treadmill)
        mutateRecord(TreadmillData { ($0.speed, $0.pace, $0.averagePace, $0.isPaceSpeed) = (1, 2, 3, true) })
        mutateRecord(FitnessMachineTests.crossTrainer)
        mutateRecord(FitnessMachineTests.stepClimber)
        mutateRecord(FitnessMachineTests.stairClimber)
        mutateRecord(FitnessMachineTests.rower)
        mutateRecord(FitnessMachineTests.bike)
        mutate(
            FitnessMachineFeature { ($0.features, $0.targetSettings) = (.assigned, .assigned) })
        mutate(FitnessMachineAdvertisement { ($0.isAvailable, $0.kind) = (true, .assigned) })
        mutate(TrainingStatus { ($0.phase, $0.text, $0.isTextCutOff) = (.coolDown, "Zoë", true) })
        mutate(SupportedSpeedRange { ($0.minimum, $0.maximum, $0.increment) = (50, 2000, 10) })
        mutate(SupportedInclinationRange { ($0.minimum, $0.maximum, $0.increment) = (-30, 150, 5) })
        mutate(SupportedResistanceLevelRange { ($0.minimum, $0.maximum, $0.increment) = (0, 200, 1) })
        mutate(SupportedPowerRange { ($0.minimum, $0.maximum, $0.increment) = (0, 4000, 1) })
        mutate(SupportedHeartRateRange { ($0.minimum, $0.maximum, $0.increment) = (60, 220, 1) })
    }

    @Test("mutated requests to machines are refused, or read and produced, and so are their commands")
    func commands() {
        let commands: [FitnessMachineCommand] =
            FitnessMachineTests.targets.map { .set($0.0) }
            + [.requestControl, .reset, .startOrResume, .stop, .pause, .startSpinDown, .ignoreSpinDown]
        for command in commands {
            mutate(FitnessMachineControlPoint(command: command)) { request in
                _ = request.spinDownSpeeds
                return request.command.map { FitnessMachineControlPoint(command: $0) == request } ?? true
            }
        }
        mutate(FitnessMachineControlPoint(spinDownSpeeds: (800, 1600))) { response in
            _ = (try? response.checkSuccess(), response.spinDownSpeeds)
            return true
        }
        for (target, _, _) in FitnessMachineTests.targets { mutate(FitnessMachineStatus.changed(target)) }
        mutate(FitnessMachineStatus.spinDown(.stopPedaling))
        mutate(FitnessMachineStatus.paused)
    }

    @Test("mutated values of glucose sensors are refused, or read and produced without a change")
    func glucose() {
        var open = ContinuousGlucoseTests.record
        open.isSecured = false
        mutate(CGMMeasurement([ContinuousGlucoseTests.record]))
        mutate(CGMMeasurement([open, open, ContinuousGlucoseTests.record]))
        for isSecured in [false, true] {
            mutate(CGMStatus { ($0.timeOffset, $0.status, $0.isSecured) = (5, .assigned, isSecured) })
            mutate(CGMSessionRunTime { ($0.hours, $0.isSecured) = (240, isSecured) })
            var start = ContinuousGlucoseTests.start
            start.isSecured = isSecured
            mutate(start) { start in
                _ = start.date
                return true
            }
            mutate(CGMFeature { $0.features = isSecured ? .assigned : [.trend] })
        }
        let commands: [CGMCommand] = [
            .setCommunicationInterval(5), .getCommunicationInterval,
            .setCalibration(ContinuousGlucoseTests.calibration),
            .getCalibration(1), .setLevel(.hypo, MedFloat(70)), .level(.rateOfDecrease, MedFloat(2)), .stopSession,
        ]
        for command in commands {
            let request = CGMSpecificOpsControlPoint(command: command)
            for request in [request, request.secured()] {
                mutate(request) { read in
                    guard let command = read.command else { return true }
                    let again = CGMSpecificOpsControlPoint(command: command)
                    // Reserved bits of a calibration are not produced.
                    return again.operation == read.operation && again.command == command
                }
            }
        }
        mutate(CGMSpecificOpsControlPoint(to: .startSession, .success).secured())
    }

    @Test("mutated values of scales and of users are refused, or read and produced without a change")
    func scales() {
        mutate(BodyCompositionTests.measurement) { body in
            var sum = body
            return (try? sum.add(packet: body.data)) != nil && sum == body
        }
        mutate(BodyCompositionFeature.assigned)
        mutate(UserData.FirstName("Zoë"))
        mutate(UserData.Age { $0.years = 42 })
        mutate(UserData.DateOfBirth { ($0.year, $0.month, $0.day) = (1980, 2, 29) })
        mutate(UserData.Gender.female)
        mutate(UserData.Weight { $0.weight = 14_000 })
        mutate(UserData.Height { $0.centimeters = 178 })
        mutate(DatabaseChangeIncrement { $0.count = 7 })
        mutate(UserIndex { $0.number = 1 })
        let commands: [UserCommand] = [
            .registerNewUser(consentCode: 1234), .consent(user: 1, code: 1234), .deleteUserData, .deleteUser(1),
        ]
        for command in commands {
            mutate(UserControlPoint(command: command)) { request in
                request.command.map { UserControlPoint(command: $0) == request } ?? true
            }
        }
        mutate(UserControlPoint(to: .registerNewUser, user: 1)) { response in
            _ = response.user
            return true
        }
    }

    @Test("mutated values of batteries are refused, or read and produced without a change")
    func batteries() {
        mutate(BatteryStatusTests.level)
        mutate(BatteryCriticalStatus.assigned)
        mutate(BatteryTimeStatus { ($0.untilDischarged, $0.untilRecharged) = (1, 2) })
        mutate(BatteryStatusTests.energy)
        mutate(BatteryStatusTests.information) { information in
            _ = information.expirationDate?.date
            return true
        }
        mutate(BatteryHealthStatus { ($0.summary, $0.temperature) = (90, -5) })
        mutate(BatteryStatusTests.healthInformation)
        mutate(EstimatedServiceDate())
    }
}
