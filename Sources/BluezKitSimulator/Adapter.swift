import BluezDBus
import Dispatch

/// One adapter object, `/org/bluez/hciN`. It exists as long as the daemon knows the controller.
final class Adapter {
    // holds: the simulator's deinit waits for its queue and cancels everything that could still run on it, so no
    // adapter is used afterwards; and each turn keeps the simulator until its end (`duringTurn`). (A checked reference
    // would trap in code that runs on the queue while deinit waits.)
    unowned(unsafe) let simulator: Simulator
    let controller: Controller
    let path: ObjectPath
    let name: String
    var alias: String?
    var isDiscoverable = false
    var discoverableTimeout: UInt32 = 180
    var isPairable = false
    /// What bluetoothd knows of ``isPairable``.
    var isKnownPairable = false
    var pairableTimeout: UInt32 = 0
    var discovery = Discovery()
    /// Devices by the address in their path.
    var devices: [String: Device] = [:]
    /// Devices that bonded with a private address, by identity address.
    var identities: [String: Device] = [:]
    var applications: [Application] = []
    var advertisements: [AdvertisementInstance] = []
    /// Client characteristic configurations of bonded centrals that are disconnected, by address.
    var rememberedConfigurations: [String: [UInt16: UInt16]] = [:]

    // Discovery; see Adapter+Discovery.swift.
    var sessions: [DiscoverySession] = []
    /// Filters by client. They outlive the client's sessions.
    var filters: [String: DiscoveryFilter] = [:]
    var found: [Device] = []
    var reported: Set<ReportKey> = []
    var scanCycle: Alarm?
    var sweep: Alarm?

    var isPowered: Bool { controller.isPowered }

    init(simulator: Simulator, controller: Controller) {
        (self.simulator, self.controller) = (simulator, controller)
        name = "BlueZ \(simulator.optionsState.version.rawValue)"
        path = ObjectPath("/org/bluez/hci\(controller.index)") ?? "/org/bluez/hci0"
        controller.presence.host = self
        controller.presence.table = .ofAdapter(name: name)
    }

    func changed(_ property: String) {
        simulator.server?.propertyChanged(property, of: Self.interface.name, at: path)
    }

    func register() {
        guard let server = simulator.server else { return }
        server.add(Self.interface, to: path, owner: self)
        server.add(Self.gattManager, to: path, owner: self)
        server.add(Self.media, to: path, owner: self)
        server.add(Self.networkServer, to: path, owner: self)
        server.add(Self.advertisingManager, to: path, owner: self)
        server.add(Self.channels, to: path, owner: self)
    }

    /// Removes all objects, devices first.
    func unregister() {
        for device in devices.values.sorted(by: { $0.address > $1.address }) { device.unregister() }
        (devices, identities) = ([:], [:])
        simulator.server?.remove(path)
    }

    /// The controller was removed.
    func unplugged() {
        endAllDiscovery()
        changed("Powered")
        releaseAdvertisements()
        endServing(reason: 0x08)
        for device in devices.values { device.adapterGone() }
        simulator.server?.flush()
        unregister()
    }

    func setPowered(_ on: Bool, answer: (() -> Void)? = nil) {
        guard on != isPowered else {
            answer?()
            return
        }
        controller.isPowered = on
        if on {
            if controller.deafness == .power { controller.deafness = .off }
            answer?()
            changed("Powered")
            updatePresence()
            for device in devices.values { device.attemptConnection() }
            return
        }
        // Observed order: discovered devices are removed, links end, the reply, then the adapter's own properties.
        for device in devices.values.sorted(by: { $0.address > $1.address }) where device.isTemporary {
            remove(device)
        }
        endServing(reason: 0x15)
        for device in devices.values { device.adapterGone() }
        answer?()
        changed("Powered")
        endAllDiscovery()
    }

    func closeSockets() {
        for device in devices.values { device.closeSockets() }
        for application in applications { application.close() }
    }

    // MARK: Devices

    /// Creates an object for a new device.
    func addDevice(_ address: String, type: String) -> Device {
        let device = Device(adapter: self, address: address, type: type)
        devices[address] = device
        simulator.server?.add(Device.interface, to: device.path, owner: device)
        return device
    }

    func restore(_ stored: StoredDevice, address: String) {
        let device = addDevice(address, type: stored.addressType)
        device.name = stored.name
        device.alias = stored.alias
        device.appearance = stored.appearance
        device.uuids = stored.uuids
        device.isTrusted = stored.isTrusted
        device.isBonded = stored.isBonded
        device.isPaired = stored.isBonded
    }

    /// Removes a device with all its objects.
    func remove(_ device: Device) {
        device.unregister()
        devices[device.address] = nil
        if let identity = device.identity { identities[identity] = nil }
        if device.isFound { found.removeAll { $0 === device } }
        simulator.stored[controller.address]?[device.identityAddress] = nil
    }

    /// The device that advertises from this address, if known.
    func device(at address: String) -> Device? {
        if let device = devices[address] { return device }
        let identity = simulator.privateAddresses[address]?.address ?? address
        return identities[identity] ?? devices[identity].flatMap { $0.isBonded ? $0 : nil }
    }

    // MARK: The lifetime of temporary devices

    /// Ensures that expired devices will be removed.
    func armSweep() {
        guard sweep == nil else { return }
        var next: DispatchTime?
        for device in devices.values {
            if let expiry = device.expiry, next.map({ expiry < $0 }) ?? true { next = expiry }
        }
        guard let next else { return }
        // At most 30 times during a device's lifetime, because each sweep visits all devices.
        let now = DispatchQueue.now.uptimeNanoseconds
        let rest = Duration.nanoseconds(next.uptimeNanoseconds > now ? next.uptimeNanoseconds - now : 0)
        let pause = max(rest, simulator.temporaryTimeout / 30)
        sweep = simulator.after(pause) { [weak self] in
            guard let self else { return }
            sweep = nil
            let now = DispatchQueue.now
            let expired = devices.values.filter { $0.expiry.map { $0 <= now } ?? false }
            for device in expired.sorted(by: { $0.address > $1.address }) { remove(device) }
            armSweep()
        }
    }
}
