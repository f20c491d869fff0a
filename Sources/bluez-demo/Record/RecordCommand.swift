import BluezKit
import BluezKitSimulator
import Foundation

/// Records a device in range.
final class RecordCommand: CentralCommand {
    /// In seconds: how long its advertisements are recorded before it is connected to, or `--seconds` if that is less.
    private static let hearing = 5.0

    private let options: RecordOptions
    private var recorder: Recorder?
    /// Nil: that was not tried.
    private var isSaved: Bool?

    init(_ options: RecordOptions, common: CommonOptions, output: Output) throws(CardFile.Failure) {
        try CardFile.checkWritable(options.output)
        self.options = options
        super.init(common: common, output: output)
    }

    override var timeLimit: Double? { options.timeout }
    override var waitsForBluetooth: Bool { false }

    override func bluetoothIsOn(_ central: CBCentralManager) {
        guard recorder == nil, let device = options.device else { return }
        output.say(Line("Looking for \(device)..."))
        let recorder = Recorder(
            .init(
                hearing: min(Self.hearing, options.seconds), listening: options.seconds,
                readsValues: options.readsValues, timeout: options.timeout),
            device.identifiers, queue: .main, onNews: { [weak self] in self?.tell($0) },
            onEnd: { [weak self] in self?.ended($0) })
        self.recorder = recorder
        recorder.start(central)
    }

    override func bluetoothWentOff() {
        output.complain("Bluetooth is no longer available")
        stop(.failure)
    }

    private func tell(_ news: Recorder.News) {
        switch news {
        case .found(let device, let data, let rssi):
            let advertisement = Advertisement(device, data, rssi: rssi)
            output.report(.discovered(advertisement))
            output.say(Line("Found \(advertisement.name?.harmless ?? "it"). Recording what it advertises..."))
        case .connecting(let device):
            output.report(.connecting(device.identifier, name: device.name))
            output.say("Connecting...")
        case .connected(let device):
            output.report(.connected(device.identifier, name: device.name))
            output.say(Line("Connected. ", .green) + Line("Discovering its services..."))
        case .reading(let count): if count > 0 { output.say(Line("Reading \(count) values...")) }
        case .listening(let count):
            if count > 0 {
                output.say(Line("Recording notifications for \(JSONValue.double(options.seconds)) s; Ctrl-C ends it."))
            }
        case .disconnected(let device, let reason):
            output.report(.disconnected(device.identifier, reason: reason))
            output.say(Line("The link was lost (\(reason ?? "no reason given")).", .yellow))
        }
    }

    private func ended(_ ending: Recorder.Ending) {
        guard self.ending == nil else { return }
        let isWritten = save()
        if case .failed(let reason) = ending {
            output.complain(reason)
            return stop(.failure)
        }
        stop(isWritten ? .success : .failure)
    }

    /// Writes what is known, unless that is nothing.
    private func save() -> Bool {
        if let isSaved { return isSaved }
        guard let recorder else { return false }
        var recording = recorder.recording
        guard !recording.advertisements.isEmpty || !recording.services.isEmpty else { return false }
        if options.isAnonymous { recording = recording.anonymized() }
        do throws(CardFile.Failure) { try RecordingFile.write(recording, to: options.output) } catch {
            output.complain(error.message)
            isSaved = false
            return false
        }
        isSaved = true
        let summary = RecordingSummary(recording, path: options.output)
        output.report(.recorded(summary))
        output.say(Line("Recorded ", .green) + Line(summary.text + ", in \(options.output.harmless)."))
        return true
    }

    override func end() -> Bool {
        _ = save()
        if central?.state == .poweredOn { central?.stopScan() }
        return endLink(of: recorder?.device)
    }

    // MARK: CBCentralManagerDelegate

    override func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) { recorder?.discovered(peripheral, advertisementData, rssi: RSSI) }

    override func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        recorder?.connected(peripheral)
    }

    override func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {
        guard ending == nil else { return quit() }
        recorder?.failed(error)
    }

    override func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        guard ending == nil else {
            output.report(.disconnected(peripheral.identifier, reason: error?.sentence))
            return quit()
        }
        recorder?.disconnected(error)
    }
}
