import DBus
import Dispatch
import Foundation

/// Scans: one discovery of BlueZ for all managers, filtered again for each.
extension Session {
    /// A manager's scan has begun, changed or ended. A new one wants to hear again of what was reported already.
    func updateDiscovery(afresh: Bool = false) {
        assertOnQueue()
        guard adapter.state == .poweredOn else { return }
        var filters = managers.compactMap { $0.scan?.filter }
        perform(turns.scan(!filters.isEmpty))
        // A connect that waits for its device needs every report: devices are not obliged to advertise a service.
        if isLookingForDevices || !filters.isEmpty && scanWatch.isInDoubt {
            filters.append(DiscoveryStateMachine.Filter(services: nil, wantsDuplicates: false))
        }
        let wish = filters.dropFirst().reduce(filters.first) { $0?.merged(with: $1) }
        if afresh { scanEpoch += 1 }
        setFollowing(wish != nil)
        perform(discovery.wish(wish, afresh: afresh))
        perform(scanWatch.scan(wish != nil))
    }

    // MARK: A scan that is silent

    private func perform(_ actions: [ScanWatch.Action]) {
        for action in actions {
            switch action {
            case .startTimer(let delay):
                scanTimer = blueZ.timer(delay) { [weak self] in self?.scanMinuteIsOver() }
            case .stopTimer: stopScanTimer()
            case .restart:
                let text = "the scan has heard nothing for a minute: it is started anew"
                discovery.isFiltered ? Log.debug(text) : Log.warning(text)
                scanWatch.patience = discovery.isFiltered ? 10 : 1
                updateDiscovery(afresh: true)
            case .trust: updateDiscovery()
            case .powerCycle: powerCycle()
            }
        }
    }

    func scanMinuteIsOver() { perform(scanWatch.timerFired()) }

    func stopScanTimer() {
        scanTimer?.cancel()
        scanTimer = nil
    }

    /// The last resort, which ends the links of every program.
    private func powerCycle() {
        guard managers.contains(where: \.mayPowerCycle), let adapterPath, linked.isEmpty, guests.count == 0
        else {
            return Log.warning(
                "the scan has heard nothing for two minutes. If there are devices near, switching Bluetooth off and on "
                    + "helps; with BluezManagerOptionMayPowerCycleKey this program does so where it has no connections")
        }
        Log.warning("the scan has heard nothing for two minutes: switching \(adapterPath.lastElement) off and on")
        scanWatch.hasPowerCycled = true
        adapter.powerCycle()
    }

    private var isLookingForDevices: Bool { isLookingForTurns || linked.contains { $0.link?.isLooking == true } }

    /// The rule for device signals exists only while somebody scans: other programs' scans are broadcast too.
    func setFollowing(_ following: Bool) {
        guard following != isFollowingDevices else { return }
        isFollowingDevices = following
        guard let bus else { return }
        let rule = MatchRule(
            sender: BlueZ.busName, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged",
            argument0: BlueZ.device)
        if following { bus.addMatch(rule) } else { bus.removeMatch(rule) }
    }

    // MARK: BlueZ

    private func perform(_ actions: [DiscoveryStateMachine.Action]) {
        guard let bus, let adapterPath else { return }
        let proxy = BlueZProxy(bus: bus, path: adapterPath, interface: BlueZ.adapter)
        let life = discoveryLife
        let replied: BlueZProxy.Completion = { [weak self] result in
            if let self, discoveryLife == life { self.replied(result) }
        }
        for action in actions {
            switch action {
            case .setFilter(let filter): proxy.setDiscoveryFilter(filter, completion: replied)
            case .start: startDiscovery(proxy)
            case .stop: proxy.stopDiscovery(completion: replied)
            case .startTimer(let delay):
                blueZ.after(delay) { [weak self] in
                    if let self, discoveryLife == life { perform(discovery.timerFired()) }
                }
            }
        }
    }

    /// While another program scans, BlueZ's discovery does not begin with ours, and devices of which nothing changes are
    /// not signalled: what it has heard is read.
    private func startDiscovery(_ proxy: BlueZProxy) {
        let life = discoveryLife
        var wasRunning = false
        proxy.get("Discovering") { wasRunning = (try? $0.get().values().first)?.boolValue == true }
        proxy.startDiscovery { [weak self] result in
            guard let self else { return }
            if discoveryLife == life {
                replied(result)
                if wasRunning, result.failure == nil { readHeardDevices() }
            } else if result.failure == nil {
                // It got there when Bluetooth was on again, and nobody knows of it.
                perform(discovery.strayed())
            }
        }
    }

    private func replied(_ result: Result<Message, BusError>) {
        switch result {
        case .success: perform(discovery.replied(.done))
        case .failure(let error) where error.name == BlueZErrorName.notReady: perform(discovery.replied(.notReady))
        case .failure(let error):
            Log.debug("discovery: \(error.name) \(error.message)")
            perform(discovery.replied(.busy))
        }
    }

    /// Connecting takes seconds while a scan goes on, and a fraction of one when it does not.
    func pauseDiscovery(_ pause: Bool, for link: Link) {
        guard link.isPausingDiscovery != pause else { return }
        link.isPausingDiscovery = pause
        discoveryPauses += pause ? 1 : -1
        perform(discovery.pause(discoveryPauses > 0))
    }

    // MARK: Reports

    /// Whether a change of a device brings nothing that a scan wants. Reads the keys and no value.
    func isOldNews(_ device: Device, _ reader: MessageReader) throws(BusError) -> Bool {
        var reportedToAll: DeviceProperties.Kinds?
        for core in managers {
            guard let scan = core.scan else { continue }
            guard !scan.wantsDuplicates, let kinds = core.scan?.reported.kinds(of: device.identity) else {
                return false
            }
            reportedToAll = reportedToAll.map { $0.intersection(kinds) } ?? kinds
        }
        guard let reportedToAll else { return false }
        var keys: DeviceProperties.Kinds = []
        var isHeard = false
        var reader = reader
        try reader.readDictionary { (entry) throws(BusError) in
            let key = try entry.readCString()
            if key.matches("RSSI") { isHeard = true }
            if key.matches("Name") { keys.insert(.name) }
            if key.matches("UUIDs") { keys.insert(.services) }
            if key.matches("ManufacturerData") { keys.insert(.manufacturerData) }
            if key.matches("ServiceData") { keys.insert(.serviceData) }
            if key.matches("TxPower") { keys.insert(.txPower) }
            if key.matches("AdvertisingData") { keys.insert(.solicited) }
        }
        if isHeard { scanWatch.hear() }
        return keys.isSubset(of: reportedToAll)
    }

    /// An advertisement of `device` was received: tells every scan that wants to know.
    func report(_ device: Device) {
        for core in managers {
            guard core.scan?.admit(device) == true, let token = core.scan?.token else { continue }
            let (properties, identity) = (device.properties, device.identity)
            core.post { manager in manager.discovered(identity, properties, scan: token) }
        }
    }
}

extension ManagerCore.Scan {
    /// What BlueZ should look for. It knows nothing of solicitation, so that is filtered here.
    fileprivate var filter: DiscoveryStateMachine.Filter {
        let names = solicitedServices.isEmpty ? services.map { Set($0.map(\.bluezString)) } : nil
        return DiscoveryStateMachine.Filter(services: names, wantsDuplicates: wantsDuplicates)
    }

    /// Notes an advertisement of `device`.
    /// - Returns: Whether the app is told of it: always with duplicates, else for a new kind of information (SC-6).
    fileprivate mutating func admit(_ device: Device) -> Bool {
        guard accepts(device.properties) else { return false }
        let kinds = device.properties.kinds
        let known = reported.kinds(of: device.identity)
        if let known, kinds.isSubset(of: known) { return wantsDuplicates }
        reported.note(known?.union(kinds) ?? kinds, of: device.identity)
        return true
    }

    /// SC-3: any of the services, advertised or solicited.
    private func accepts(_ properties: DeviceProperties) -> Bool {
        guard let services else { return true }
        return properties.services.contains { services.contains($0) }
            || properties.solicitedServices.contains { solicitedServices.contains($0) }
    }
}
