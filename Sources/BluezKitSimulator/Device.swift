import BluezDBus
import Dispatch

/// One remote device as bluetoothd knows it. It is kept small, because there may be thousands.
final class Device {
    unowned let adapter: Adapter
    let address: String
    let addressType: String
    let path: ObjectPath
    /// Whether ``address`` is private.
    let isPrivate: Bool
    /// The identity address, if the device bonded with a private address. Its path keeps the private address.
    var identity: String?
    var identityAddress: String { identity ?? address }
    var name: String?
    var alias: String?
    var appearance: UInt16?
    var rssi: Int16?
    var txPower: Int16?
    var uuids: [String] = []
    /// By company.
    var manufacturerData: [(UInt16, [UInt8])] = []
    /// By UUID.
    var serviceData: [(String, [UInt8])] = []
    var flags: UInt8?
    var unparsed: [UInt8: [UInt8]] = [:]
    var isConnectable = true
    var isFound = false
    var isTemporary = false
    var isPaired = false
    var isBonded = false
    var isTrusted = false
    var isBlocked = false
    /// What D-Bus shows; the link may end slightly earlier or later.
    var isConnected = false
    var isResolved: Bool { resolution == .now }
    var resolution = Resolution.never

    /// Whether its services are known, since bluetoothd knows the device.
    enum Resolution {
        case never, now, earlier
        /// A link has ended before: `UUIDs` is empty from then on, and what it advertises does not change that.
        case failed
    }
    /// When it will be removed if it is not heard again.
    var expiry: DispatchTime? {
        didSet { if expiry != nil, oldValue == nil { adapter.armSweep() } }
    }

    // The link; see Device+Connection.swift.
    var link: Link?
    /// The link that the device made as a central.
    var inbound: Link?
    var connectCall: IncomingCall?
    /// The time limit of an attempt: of ``connectCall``, or of the one that bluetoothd makes on its own.
    var connectAlarm: Alarm?
    var setupAlarm: Alarm?
    var disconnectAlarm: Alarm?
    var whenDisconnected: [() -> Void] = []
    var services: [RemoteService] = []
    var battery: UInt8?
    var pairing: Pairing?

    var simulator: Simulator { adapter.simulator }
    var server: ObjectServer? { adapter.simulator.server }

    init(adapter: Adapter, address: String, type: String) {
        (self.adapter, self.address, addressType) = (adapter, address, type)
        let element = "dev_" + String(address.map { $0 == ":" ? "_" : $0 })
        path = adapter.path.appending(element) ?? adapter.path
        isPrivate = adapter.simulator.privateAddresses[address] != nil
    }

    func changed(_ property: String) { server?.propertyChanged(property, of: Self.interface.name, at: path) }

    /// Removes all objects, the innermost ones first.
    func unregister() {
        link?.end(reason: 0x13, quietly: true)
        inbound?.end(reason: 0x16)
        closeSockets()
        for service in services { service.unregister() }
        services = []
        if let connectCall {
            self.connectCall = nil
            server?.refuse(connectCall, .failed("br-connection-canceled"))
        }
        connectAlarm?.cancel()
        setupAlarm?.cancel()
        expiry = nil
        server?.remove(path)
    }

    func closeSockets() {
        for service in services { for characteristic in service.characteristics { characteristic.closeSockets() } }
    }

    /// Stores what outlives the daemon.
    func store() {
        guard !isPrivate || identity != nil else { return }
        simulator.stored[adapter.controller.address, default: [:]][identityAddress] = StoredDevice(
            addressType: addressType, name: name, alias: alias, appearance: appearance, uuids: uuids,
            isTrusted: isTrusted, isBonded: isBonded)
    }

    func setTemporary() {
        isTemporary = true
        expiry = DispatchQueue.now.later(by: simulator.temporaryTimeout)
    }

    /// A device with a private address is never permanent, but is kept as long as it has a link.
    func setPermanent() {
        isTemporary = isPrivate && identity == nil
        expiry = nil
    }

    /// The device has bonded and revealed its identity address.
    func reveal(_ identity: String) {
        guard isPrivate, self.identity == nil else { return }
        self.identity = identity
        adapter.identities[identity] = self
        changed("Address")
        setPermanent()
    }

    // MARK: Advertisements

    /// Updates the properties from an advertisement, in bluetoothd's order.
    func update(from report: AdvertisingReport, isFiltered: Bool, always: Bool) {
        let content = report.content
        updateRSSI(report.rssi, isFiltered: isFiltered)
        if let power = content.txPower, power != txPower {
            txPower = power
            changed("TxPower")
        }
        if let value = content.appearance, value != appearance {
            appearance = value
            changed("Appearance")
        }
        if let text = content.localName { setName(text) }
        let new = resolution == .failed ? [] : content.serviceUUIDs.filter { !uuids.contains($0) }
        if !new.isEmpty {
            uuids += new
            changed("UUIDs")
        }
        if merge(Array(content.manufacturerData), into: &manufacturerData, always) {
            changed("ManufacturerData")
        }
        if merge(Array(content.serviceData), into: &serviceData, always) { changed("ServiceData") }
        if simulator.optionsState.isExperimental, content.unparsed != unparsed {
            unparsed = content.unparsed
            changed("AdvertisingData")
        }
        if let value = content.flags, value != flags {
            flags = value
            changed("AdvertisingFlags")
        }
    }

    private func updateRSSI(_ value: Int16, isFiltered: Bool) {
        if let rssi {
            let delta = abs(Int(rssi) - Int(value))
            if isFiltered {
                if delta == 0, !simulator.optionsState.repeatsEqualRSSI { return }
            } else if delta < 8 {
                return
            }
        }
        rssi = value
        changed("RSSI")
    }

    func setName(_ text: String) {
        guard text != name else { return }
        name = text
        changed("Name")
        if alias == nil { changed("Alias") }
    }

    /// Entries are merged by key. With DuplicateData only those of the last report are kept, and always count as
    /// changed.
    private func merge<Key: Equatable>(
        _ new: [(key: Key, value: [UInt8])], into old: inout [(Key, [UInt8])], _ always: Bool
    ) -> Bool {
        guard !new.isEmpty else { return false }
        if always {
            old = new.map { ($0.key, $0.value) }
            return true
        }
        var isChanged = false
        for (key, value) in new {
            if let index = old.firstIndex(where: { $0.0 == key }) {
                if old[index].1 == value { continue }
                old[index].1 = value
            } else {
                old.append((key, value))
            }
            isChanged = true
        }
        return isChanged
    }
}
