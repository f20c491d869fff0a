import BluezDBus
import Dispatch

/// What bluetoothd believes of its discovery.
struct Discovery {
    /// The property `Discovering`.
    var isOn = false
    /// Whether it continues for no client; nothing is heard before it is ended, or has another filter.
    var isStranded = false
    /// The last one.
    var filter: DiscoveryFilter?
    /// How many changes of the filter have not taken effect.
    var restarts = 0
}

/// Discovery: one session for each client, merged filters, results for all.
extension Adapter {
    /// Whether the controller is scanning.
    var isScanning: Bool { isPowered && !sessions.isEmpty && !simulator.isSuspended && !discovery.isStranded }
    private var isFiltered: Bool {
        sessions.contains { session in
            session.filter.map { simulator.optionsState.version < .v5_72 || !$0.isNone } ?? false
        }
    }
    private var reportsDuplicates: Bool { sessions.contains { $0.filter?.reportsDuplicates == true } }

    func startDiscovery(_ call: IncomingCall) {
        guard let server = simulator.server, let client = call.sender else { return }
        guard isPowered else { return server.refuse(call, .notReady) }
        guard !sessions.contains(where: { $0.client == client }) else {
            return server.refuse(call, .alreadyInProgress)
        }
        if filters[client] != discovery.filter { discovery.isStranded = false }
        discovery.filter = filters[client]
        sessions.append(DiscoverySession(client: client, filter: filters[client]))
        simulator.watchClient(client)
        server.reply(to: call)
        if !discovery.isOn {
            discovery.isOn = true
            if controller.deafness == .scan { controller.deafness = .off }
            changed("Discovering")
            startScanCycle()
        }
        simulator.scanningChanged()
    }

    func setDiscoveryFilter(_ call: IncomingCall) {
        guard let server = simulator.server, let client = call.sender else { return }
        guard isPowered else { return server.refuse(call, .notReady) }
        do {
            guard let values = try call.values().first?.dictionaryValue else { throw BlueZError.invalidArguments }
            let filter = values.isEmpty ? nil : try DiscoveryFilter(values)
            filters[client] = filter
            if filter != nil { simulator.watchClient(client) }
            if let index = sessions.firstIndex(where: { $0.client == client }), sessions[index].filter != filter {
                sessions[index].filter = filter
                reported.removeAll()  // the scan is restarted
                (discovery.filter, discovery.isStranded) = (filter, false)
                discovery.restarts += 1
                simulator.after(simulator.timing.scanRestart) { [weak self] in self?.discovery.restarts -= 1 }
            }
            server.reply(to: call)
        } catch {
            server.refuse(call, .invalidArguments)
        }
    }

    func stopDiscovery(_ call: IncomingCall) {
        guard let server = simulator.server else { return }
        guard isPowered else { return server.refuse(call, .notReady) }
        guard let index = sessions.firstIndex(where: { $0.client == call.sender }) else {
            return server.refuse(call, .failed("No discovery started"))
        }
        sessions.remove(at: index)
        if sessions.isEmpty, discovery.restarts > 0 {
            // bluetoothd (src/adapter.c, `stop_discovery_complete`) forgets the client, and not that it discovers.
            discovery.isStranded = true
            simulator.scanningChanged()
            return server.refuse(call, .alreadyInProgress)
        }
        discovery.isStranded = false
        server.reply(to: call)
        if sessions.isEmpty { discoveryEnded() }
    }

    /// A client has left the bus.
    func clientGone(_ client: String) {
        filters[client] = nil
        guard let index = sessions.firstIndex(where: { $0.client == client }) else { return }
        sessions.remove(at: index)
        if sessions.isEmpty { discoveryEnded() }
    }

    /// Power was switched off, or the adapter was removed: all sessions and filters are discarded.
    func endAllDiscovery() {
        (filters, sessions, discovery.isStranded) = ([:], [], false)
        for device in takeFound() { device.rssi = nil }
        scanCycle?.cancel()
        if discovery.isOn {
            discovery.isOn = false
            changed("Discovering")
        }
        simulator.scanningChanged()
    }

    private func takeFound() -> [Device] {
        let devices = found
        found = []
        for device in devices { device.isFound = false }
        return devices
    }

    private func discoveryEnded() {
        let devices = takeFound()
        for device in devices {
            device.rssi = nil
            device.changed("RSSI")
            if device.txPower != nil {
                device.txPower = nil
                device.changed("TxPower")
            }
        }
        // Devices that cannot be connected are not kept.
        for device in devices where device.isTemporary && !device.isConnectable { remove(device) }
        discovery.isOn = false
        changed("Discovering")
        scanCycle?.cancel()
        simulator.scanningChanged()
    }

    private func startScanCycle() {
        reported.removeAll()
        scanCycle?.cancel()
        scanCycle = simulator.after(simulator.timing.scanCycle) { [weak self] in self?.startScanCycle() }
    }

    // MARK: Reports

    /// The controller heard an advertisement.
    func receive(_ report: AdvertisingReport, unfiltered: Bool) {
        guard controller.deafness == .off else { return }
        if !unfiltered, simulator.optionsState.duplicateFilter != .none {
            let byData = simulator.optionsState.duplicateFilter == .data
            let key = ReportKey(address: report.address, content: byData ? report.content : nil)
            guard reported.insert(key).inserted else { return }
        }
        simulator.reportCount += 1
        guard passesKernelFilter(report), passesPatterns(report) else { return }
        let content = report.content
        if simulator.optionsState.version == .v5_87, !content.serviceUUIDs.isEmpty,
            sessions.contains(where: { $0.filter?.uuids.isEmpty == false })
        {
            return crash()
        }
        guard isFiltered || content.isDiscoverable else { return }
        let known = device(at: report.address)
        let device = known ?? addDevice(report.address, type: report.addressType)
        if known == nil { device.isTemporary = true }
        device.isConnectable = content.isConnectable
        if device.isTemporary, device.link == nil {
            device.expiry = DispatchQueue.now.later(by: simulator.temporaryTimeout)
            armSweep()
        }
        if !device.isFound {
            device.isFound = true
            found.append(device)
        }
        device.update(from: report, isFiltered: isFiltered, always: reportsDuplicates)
    }

    private func crash() { simulator.after(.zero) { [simulator] in simulator.killDaemon() } }

    /// The kernel checks UUIDs and signal strength if all sessions filter by them.
    private func passesKernelFilter(_ report: AdvertisingReport) -> Bool {
        guard isFiltered, sessions.allSatisfy({ $0.filter != nil }) else { return true }
        let filters = sessions.compactMap(\.filter)
        if filters.allSatisfy({ $0.transport == "bredr" }) { return false }
        if filters.allSatisfy({ $0.rssi != nil }), let least = filters.compactMap(\.rssi).min(), report.rssi < least {
            return false
        }
        guard filters.allSatisfy({ !$0.uuids.isEmpty }) else { return true }
        return filters.contains { $0.uuids.contains { report.content.serviceUUIDs.contains($0) } }
    }

    /// A pattern in any session hides all other devices from all sessions.
    private func passesPatterns(_ report: AdvertisingReport) -> Bool {
        let patterns = sessions.compactMap { $0.filter?.pattern }.filter { !$0.isEmpty }
        return patterns.isEmpty
            || patterns.contains { report.address.hasPrefix($0) || report.content.localName?.hasPrefix($0) == true }
    }
}
