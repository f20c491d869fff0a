@testable import BluezKitSimulator

/// What a simulated BlueZ is busy with, and for what it was told to do so.
struct BlueZWork: Equatable, CustomStringConvertible {
    /// Addresses of peripherals.
    var links: Set<String> = []
    var attempts: Set<String> = []
    var isDiscovering = false
    /// Characteristics, as `ADDRESS UUID`.
    var subscriptions: Set<String> = []

    var description: String {
        "links \(links.sorted()), attempts \(attempts.sorted()), \(isDiscovering ? "" : "not ")discovering, "
            + "subscriptions \(subscriptions.sorted())"
    }
}

extension Simulator {
    var work: BlueZWork {
        sync {
            var work = BlueZWork()
            for peripheral in peripherals.values where !peripheral.isAdapter && !peripheral.links.isEmpty {
                work.links.insert(peripheral.address)
            }
            for adapter in adapters {
                if !adapter.sessions.isEmpty { work.isDiscovering = true }
                for device in adapter.devices.values {
                    if device.connectCall != nil { work.attempts.insert(device.address) }
                    for characteristic in device.services.flatMap(\.characteristics)
                    where !characteristic.notifyClients.isEmpty || characteristic.notifySocket != nil {
                        work.subscriptions.insert("\(device.address) \(characteristic.source.definition.uuid)")
                    }
                }
            }
            return work
        }
    }

    /// BlueZ says that the link has ended, and takes it back.
    func flicker(_ peripheral: VirtualPeripheral) {
        sync {
            for adapter in adapters {
                guard let device = adapter.devices[peripheral.address], device.isConnected else { continue }
                for isConnected in [false, true] {
                    device.isConnected = isConnected
                    device.changed("Connected")
                    server?.flush()
                }
            }
        }
    }
}
