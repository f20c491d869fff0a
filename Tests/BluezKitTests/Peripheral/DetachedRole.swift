import BluezDBus
import Dispatch

@testable import BluezKit

/// The peripheral role without a bus: what its parts decide before BlueZ has a say.
final class DetachedRole {
    let bus = BlueZBus(address: BusAddress("unix:path=/nonexistent"))
    let role: PeripheralRole

    init() {
        let adapter = AdapterController(bus, choice: nil)
        role = PeripheralRole(bus, adapter, PairingService(bus, adapter), L2CAPSockets(bus, adapter))
    }

    /// A manager's, without the manager.
    func core() -> PeripheralManagerCore {
        PeripheralManagerCore(
            role: role, of: self, receive: { _ in }, place: DispatchQueue(label: "test"), preserved: nil,
            configuration: .init())
    }

    /// Does `body` in a turn of the bus queue.
    func turn<Result>(_ body: () throws -> Result) rethrows -> Result {
        try bus.queue.sync {
            defer { bus.flush() }
            return try body()
        }
    }
}
