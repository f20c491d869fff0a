import BluezKit
import Foundation

/// Shows the devices in range: a table on a terminal, otherwise one line for each.
final class ScanCommand: CentralCommand {
    private let options: ScanOptions
    private var table = ScanTable()
    private let began = ContinuousClock.now
    private var isFresh = false

    init(_ options: ScanOptions, common: CommonOptions, output: Output) {
        self.options = options
        super.init(common: common, output: output)
    }

    override var timeLimit: Double? { options.duration }
    override var simulatedScenario: Scenario { .crowd(SimulatedNeighbour.all.count) }

    override func bluetoothIsOn(_ central: CBCentralManager) {
        let isFirst = !isFresh
        isFresh = true
        central.scanForPeripherals(
            withServices: options.services,
            options: [CBCentralManagerScanOptionAllowDuplicatesKey: output.mode == .live])
        guard isFirst else { return }
        if let duration = options.duration { after(duration) { $0.stop(.success) } }
        if output.mode == .live { refresh() }
    }

    override func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        guard ending == nil else { return }
        let advertisement = Advertisement(peripheral, advertisementData, rssi: RSSI)
        let isNew = table.update(advertisement, at: elapsed)
        guard isNew || output.mode == .json else { return }
        output.report(.discovered(advertisement))
        if output.mode == .plain { output.say(ScanTable.plainLine(advertisement)) }
    }

    /// Twice a second: fast enough to follow, slow enough to read.
    private func refresh() {
        draw()
        after(0.5) { [self] _ in
            if ending == nil { refresh() }
        }
    }

    private func draw() {
        output.show(table.lines(width: Terminal.size.columns, height: Terminal.size.rows, at: elapsed))
    }

    private var elapsed: Double { began.duration(to: .now) / .seconds(1) }

    override func end() -> Bool {
        if central?.state == .poweredOn { central?.stopScan() }
        draw()
        return false
    }
}
