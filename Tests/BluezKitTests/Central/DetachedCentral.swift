import BluezDBus
import Dispatch

@testable import BluezKit

/// The central role without a bus: what its parts decide before BlueZ is asked.
final class DetachedCentral {
    let bus = BlueZBus(address: BusAddress("unix:path=/nonexistent"))
    let role: CentralRole

    init() {
        let adapter = AdapterController(bus, choice: nil)
        role = CentralRole(bus, adapter, PairingService(bus, adapter), L2CAPSockets(bus, adapter))
    }

    /// A manager's, without the manager.
    func manager() -> CentralManagerCore {
        CentralManagerCore(
            central: role, of: self, receive: { _ in }, place: DispatchQueue(label: "test"), preserved: nil,
            configuration: .init())
    }

    /// One of its peripherals, without the app's object.
    func peripheral(_ number: Int = 1) -> PeripheralCore {
        PeripheralCore(identity: Self.identity(number), manager: manager())
    }

    /// Does `body` in a turn of the bus queue.
    func turn<Result>(_ body: () throws -> Result) rethrows -> Result {
        try bus.queue.sync {
            defer { bus.flush() }
            return try body()
        }
    }

    static func identity(_ number: Int, isRandom: Bool = true) -> DeviceIdentity {
        DeviceIdentity(address: 0xF05E_0000_0000 + UInt64(number), isRandom: isRandom)
    }

    /// BlueZ's object for it.
    static func device(_ number: Int = 1, isRandom: Bool = true, _ properties: DeviceProperties? = nil) -> Device {
        let identity = identity(number, isRandom: isRandom)
        let device = Device(identity: identity, path: ObjectPath("/org/bluez/hci0/" + identity.pathElement) ?? "/")
        if let properties { device.found(properties, scan: 1) }
        return device
    }
}
