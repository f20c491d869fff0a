import BluezKit
import BluezKitProfiles
import Foundation

/// Acts as a heart-rate sensor until it is stopped.
final class VirtualHeartRateCommand: PeripheralCommand {
    private let options: VirtualHeartRateOptions
    private var heart: VirtualHeart
    private var display = HeartRateDisplay()
    private var seconds = 0
    private var isBeating = false
    private lazy var sensor = HeartRateService(location: .chest) { [weak self] in self?.resetEnergy() }
    private let battery = BatteryService(level: BatteryLevel(percent: 100))
    private let information = DeviceInformationService(
        DeviceInformation([
            .manufacturerName: "BluezKit", .modelNumber: "Virtual heart-rate sensor",
            .softwareRevision: Program.version,
        ]))

    init(_ options: VirtualHeartRateOptions, common: CommonOptions, output: Output) {
        self.options = options
        heart = VirtualHeart(rate: Double(options.rate))
        super.init(common: common, output: output)
        display.battery = battery.level.percent
    }

    override var timeLimit: Double? { options.duration }
    override var simulatedScenario: Scenario { .subscriber(HeartRateMeasurement.uuid.uuidString) }

    override var services: [CBMutableService] { [sensor.service, battery.service, information.service] }

    override var advertisement: [String: Any] {
        [
            CBAdvertisementDataLocalNameKey: options.name,
            CBAdvertisementDataServiceUUIDsKey: [HeartRateService.uuid, BatteryService.uuid],
        ]
    }

    override func isOnAir() {
        output.say(Line("\(options.name.harmless) is advertising.", .green))
        output.say(Line("Any app for heart-rate sensors finds it; on another machine: bluez-demo heart-rate", .dim))
        output.say(Line("Ctrl-C ends it.", .dim))
        display.isConnected = true
        guard !isBeating else { return }
        if let duration = options.duration { after(duration) { $0.stop(.success) } }
        beat()
    }

    override func bluetoothWentOff() { show { ($0.isConnected, $0.listeners) = (false, 0) } }

    /// Once a second, as sensors do.
    private func beat() {
        guard ending == nil else { return }
        isBeating = true
        seconds += 1
        let measurement = heart.measurement(over: 1)
        if let manager, manager.state == .poweredOn {
            // If there is no room for a measurement, the next one replaces it.
            sensor.send(measurement, by: manager)
            if let level = battery.level.drained(at: seconds) {
                battery.update(level, by: manager)
                output.report(.battery(level.percent))
            }
            output.report(.measurement(measurement))
            if output.mode == .plain { output.say(display.plainLine(measurement)) }
        }
        show {
            $0.take(measurement)
            $0.battery = battery.level.percent
        }
        after(1) { [self] _ in beat() }
    }

    override func didSubscribe(_ central: CBCentral, to characteristic: CBCharacteristic) {
        guard characteristic === sensor.measurement else { return }
        output.say("A central has subscribed" + Line(" (\(central.identifier))", .dim))
        showListeners()
    }

    override func didUnsubscribe(_ central: CBCentral, from characteristic: CBCharacteristic) {
        guard characteristic === sensor.measurement else { return }
        output.say("A central has unsubscribed" + Line(" (\(central.identifier))", .dim))
        showListeners()
    }

    private func showListeners() { show { $0.listeners = sensor.measurement.subscribedCentrals?.count ?? 0 } }

    private func resetEnergy() {
        heart.resetEnergy()
        output.report(.energyReset)
        output.say("The energy expended was reset to 0.")
    }

    override func answer(_ request: CBATTRequest, of manager: CBPeripheralManager) -> Bool {
        battery.answer(request, of: manager)
    }

    override func answer(_ requests: [CBATTRequest], of manager: CBPeripheralManager) -> Bool {
        sensor.answer(requests, of: manager)
    }

    private func show(_ change: (inout HeartRateDisplay) -> Void) {
        change(&display)
        if output.mode == .live { output.show(display.block(width: Terminal.size.columns)) }
    }
}
