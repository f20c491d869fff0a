import BluezKit
import Foundation

/// Scans, and keeps each new peripheral, as apps do.
final class ScanApp: App, CBCentralManagerDelegate {
    private let duplicates: Bool
    private var peripherals: [CBPeripheral] = []
    private var reports = 0
    private var marks: [(at: Measurement, reports: Int)] = []

    init(duplicates: Bool, queue: DispatchQueue?) {
        self.duplicates = duplicates
        super.init(queue: queue)
    }

    override func begin(_ central: CBCentralManager) {
        let options = [CBCentralManagerScanOptionAllowDuplicatesKey: NSNumber(value: duplicates)]
        central.scanForPeripherals(withServices: nil, options: options)
    }

    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {
        reports += 1
        // The generator's devices are all new before its second mark.
        if marks.count < 2 { peripherals.append(peripheral) }
        guard peripheral.name == "mark \(marks.count)" else { return }
        marks.append((Measurement(), reports))
        guard marks.count == 3 else { return }
        let (begin, middle, end) = (marks[0], marks[1], marks[2])
        report([
            "new": middle.reports - begin.reports - 1, "new_cpu_us": middle.at.cpuUs - begin.at.cpuUs,
            "new_allocations": middle.at.allocations - begin.at.allocations,
            "updates": end.reports - middle.reports - 1, "updates_cpu_us": end.at.cpuUs - middle.at.cpuUs,
            "updates_allocations": end.at.allocations - middle.at.allocations, "rss_kib": Measurement.rssKiB,
        ])
    }
}
