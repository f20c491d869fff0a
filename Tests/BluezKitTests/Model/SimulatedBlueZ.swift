import BluezDBus
@testable import BluezKitSimulator

/// The current work of a simulated BlueZ, and the calls that requested it.
struct BlueZWork: Equatable, CustomStringConvertible {
    /// Addresses of peripherals.
    var links: Set<String> = []
    var attempts: Set<String> = []
    var isDiscovering = false
    /// Characteristics, as `ADDRESS UUID`.
    var subscriptions: Set<String> = []
    /// Of hosts: services by their UUID, advertisements, and characteristics with how many centrals are subscribed.
    var services: Set<String> = []
    var advertisements = 0
    var subscribers: [String: Int] = [:]

    var description: String {
        "links \(links.sorted()), attempts \(attempts.sorted()), \(isDiscovering ? "" : "not ")discovering, "
            + "subscriptions \(subscriptions.sorted()), services \(services.sorted()), advertisements \(advertisements), "
            + "subscribers \(subscribers.sorted { $0.key < $1.key })"
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
                work.services.formUnion(adapter.applications.flatMap(\.services).map(\.definition.uuid))
                work.advertisements += adapter.advertisements.count
                let presence = adapter.controller.presence
                let served = presence.table.services.flatMap(\.characteristics).filter { $0.served != nil }
                for link in presence.links {
                    for characteristic in served where link.isSubscribed(to: characteristic) {
                        work.subscribers[characteristic.definition.uuid, default: 0] += 1
                    }
                }
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

    /// BlueZ reports that the link has ended, and then reports the opposite.
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
