import BluezDBus

/// Making links, discovering services, ending links.
extension Device {
    // MARK: Connect

    func connect(_ call: IncomingCall) {
        guard let server else { return }
        guard adapter.isPowered else { return server.refuse(call, .failed("Input/output error")) }
        if isConnected {
            disconnectAlarm == nil ? server.reply(to: call) : server.refuse(call, .alreadyInProgressFailed)
            return
        }
        guard connectAlarm == nil else { return server.refuse(call, .alreadyInProgressFailed) }
        connectCall = call
        setPermanent()
        limitAttempt { [weak self] in self?.failConnect(.failed("le-connection-abort-by-local")) }
        attemptConnection()
    }

    /// Only the time counts in which the peripheral is absent: a link that is being made takes its time.
    private func limitAttempt(_ expired: @escaping () -> Void) {
        connectAlarm = simulator.after(simulator.timing.connectTimeout) { [weak self] in
            guard let self else { return }
            setupAlarm == nil ? expired() : limitAttempt(expired)
        }
    }

    /// Makes the requested link if the peripheral can be heard now.
    func attemptConnection() {
        guard wantsLink, setupAlarm == nil, adapter.isPowered, connectable() != nil else { return }
        setupAlarm = simulator.after(simulator.timing.linkSetup) { [weak self] in
            guard let self else { return }
            setupAlarm = nil
            guard wantsLink, let peripheral = connectable() else { return }
            linkUp(to: peripheral)
        }
    }

    private var wantsLink: Bool { connectAlarm != nil || pairing?.waitsForLink == true }

    private func connectable() -> VirtualPeripheral? {
        guard !simulator.isSuspended, let peripheral = simulator.peripheral(behind: self), peripheral.isOnAir,
            !peripheral.faults.refusesLinks, peripheral.isConnectableNow
        else { return nil }
        return peripheral
    }

    private func endAttempt() {
        connectAlarm?.cancel()
        connectAlarm = nil
    }

    private func failConnect(_ error: BlueZError) {
        endAttempt()
        setupAlarm?.cancel()
        setupAlarm = nil
        guard let call = connectCall else { return }
        connectCall = nil
        server?.refuse(call, error)
        if !isBonded, !isConnected { setTemporary() }
    }

    private func linkUp(to peripheral: VirtualPeripheral) {
        endAttempt()
        setPermanent()
        let link = Link(central: self, peripheral: peripheral)
        self.link = link
        peripheral.links.append(link)
        simulator.airChanged(peripheral)
        peripheral.event("connected \(linkAddress)")
        peripheral.host?.inboundLinkUp(link, address: adapter.controller.address, type: "public")
        isConnected = true
        changed("Connected")
        // Without its bond, the peripheral refuses to encrypt; if neither side has one, no encryption is attempted.
        link.isEncrypted = isBonded && peripheral.holdsBond
        let call = connectCall
        connectCall = nil
        if isBonded, !peripheral.holdsBond, simulator.optionsState.crashesOnMissingBond {
            return crashOnMissingBond(call)
        }
        if isBonded, !peripheral.holdsBond {
            // PIN or Key Missing: the kernel ends the link; BlueZ takes the attempt for a success, and connects once
            // more to discover services.
            simulator.after(simulator.timing.linkSetup) { [weak self, weak link] in
                guard let self else { return }
                let isRefused = link != nil && self.link === link && disconnectAlarm == nil
                if let call { server?.reply(to: call) }
                link?.end(reason: 0x06)
                if call != nil, isRefused { connectAgain() }
            }
            return
        }
        if let call { server?.reply(to: call) }
        restoreSubscriptions()
        let isKnown = !services.isEmpty
        let timing = simulator.timing
        simulator.after(isKnown ? timing.serviceRediscovery : timing.serviceDiscovery) { [weak self, weak link] in
            guard let self, let link, self.link === link else { return }
            resolve()
        }
        pairing?.linkIsUp()
    }

    private func connectAgain() {
        limitAttempt { [weak self] in self?.endAttempt() }
        attemptConnection()
    }

    /// What bluetoothd 5.66 does if a bonded peripheral has lost its bond.
    private func crashOnMissingBond(_ call: IncomingCall?) {
        simulator.after(simulator.timing.linkSetup) { [weak self] in
            guard let self else { return }
            if let call { server?.refuse(call, .failed("le-connection-abort-by-local")) }
            server?.flush()
            simulator.after(.zero) { [simulator] in simulator.killDaemon() }
        }
    }

    // MARK: Services

    /// Service discovery has finished: objects, `UUIDs`, `ServicesResolved`, in this order.
    func resolve() {
        guard let link, !isResolved else { return }
        let peripheral = link.peripheral
        if let name = peripheral.content.localName ?? peripheral.table.deviceName { setName(name) }
        if !simulator.failures.hiddenServices.contains(address) {
            synchronize(with: peripheral.table)
            setUUIDs(peripheral.table.uuids)
        }
        resolution = .now
        changed("ServicesResolved")
        store()
        simulator.tell("\(peripheral.key) mtu \(link.mtu)")
        guard let level = peripheral.table.characteristic("2a19".asUUID), services.contains(where: { $0.has(level) })
        else { return }
        if level.served != nil {
            link.configure(level, 1) { _ in }
        } else {
            link.internalSubscriptions.insert(level.handle + 1)
        }
        secured(level.definition.security) { failure in
            guard failure == nil else { return }
            link.read(level, offset: 0, isByDaemon: true) { [weak self] result in
                guard let self, case .success(let value) = result, let percentage = value.first else { return }
                battery = percentage
                server?.add(Device.batteryInterface, to: path, owner: self)
            }
        }
    }

    func setUUIDs(_ new: [String]) {
        guard new != uuids else { return }
        uuids = new
        changed("UUIDs")
    }

    private var keepsServices: Bool {
        switch simulator.optionsState.serviceCache {
        case .always: true
        case .yes: isBonded
        case .no: false
        }
    }

    /// Updates the GATT objects to match the table. Unchanged services keep their objects.
    func synchronize(with table: GATTTable?) {
        let sources = table?.services ?? []
        let before = services.map(\.source)
        for service in services where !sources.contains(where: { $0 === service.source }) {
            service.unregister()
            services.removeAll { $0 === service }
        }
        // GAP has no objects; bluetoothd uses it internally.
        for source in sources
        where !services.contains(where: { $0.source === source }) && source.definition.uuid != "1800".asUUID {
            let isReplacement = before.contains { $0.isReplaced(by: source) }
            let service = RemoteService(device: self, source: source, isReplacement: isReplacement)
            services.append(service)
            service.register()
        }
        for service in services where simulator.optionsState.fillsIncludesLate && !service.source.includes.isEmpty {
            server?.flush()
            service.showsIncludes = true
            server?.propertyChanged("Includes", of: RemoteService.interface.name, at: service.path)
        }
    }

    /// The peripheral indicated Service Changed.
    func servicesChanged(_ handles: ClosedRange<UInt16>) {
        guard let link, isResolved else { return }
        simulator.after(simulator.timing.serviceChanged) { [weak self, weak link] in
            guard let self, let link, self.link === link else { return }
            // Observed: if a service was added, `UUIDs` is signalled first; if one was removed, last. Removals of other
            // objects are sent at once, so marking first puts it first; a removal precedes what was only marked.
            setUUIDs(link.peripheral.table.uuids)
            synchronize(with: link.peripheral.table)
        }
    }

    /// Clients that were still subscribed are subscribed again first.
    func restoreSubscriptions() {
        for service in services { for characteristic in service.characteristics { characteristic.resubscribe() } }
    }

    // MARK: The end of a link

    /// Ends the link after bluetoothd's pause of 2 s, or at once if there is none. A pending connect ends as well.
    func disconnect(completion: @escaping () -> Void) {
        if connectAlarm != nil { failConnect(.failed("br-connection-canceled")) }
        pairing?.cancel()
        guard isConnected else { return completion() }
        whenDisconnected.append(completion)
        guard disconnectAlarm == nil else { return }
        removeBattery()
        disconnectAlarm = simulator.after(simulator.timing.disconnectDelay) { [weak self] in
            guard let self else { return }
            link?.end(reason: 0x16)
            inbound?.end(reason: 0x16)
        }
    }

    /// The link has ended, for whatever reason.
    func linkEnded(reason: UInt8) {
        let isOwn = disconnectAlarm != nil && reason == 0x16
        disconnectAlarm?.cancel()
        disconnectAlarm = nil
        if reason == 0x06, simulator.optionsState.version >= .v5_79 {
            simulator.failures.connectedProfiles.insert(address)
        }
        let completions = whenDisconnected
        whenDisconnected = []
        let refused = link?.refusedOperations ?? []
        link = nil
        guard !simulator.failures.stuckConnections.contains(address) else { return }
        if isResolved {
            resolution = .earlier
            changed("ServicesResolved")
        } else if isConnected, resolution == .never, simulator.optionsState.version < .v5_72 {  // not from 5.69 on
            (uuids, resolution) = ([], .failed)  // without a signal
        }
        isConnected = false
        if isOwn, !simulator.optionsState.signalsDisconnectionFirst {
            for completion in completions { completion() }
            tell(reason)
            changed("Connected")
        } else {
            tell(reason)
            changed("Connected")
            removeBattery()
            for completion in completions { completion() }
        }
        closeSockets()
        if !keepsServices {
            // Requests that are waiting on this link fail first.
            simulator.after(.zero) { [weak self] in if let self, link == nil { synchronize(with: nil) } }
        }
        pairing?.linkEnded()
        // Not from 5.67 on.
        if simulator.optionsState.version < .v5_72 { for answer in refused { answer(ATTFailure(0x0E)) } }
        if isPaired, !isBonded {
            isPaired = false
            changed("Paired")
        }
        if !isBonded { setTemporary() }
    }

    /// Signals why the link ended, as BlueZ derives it from the controller's reason.
    private func tell(_ reason: UInt8) {
        guard simulator.optionsState.signalsDisconnectReason else { return }
        let (name, text) =
            switch reason {
            case 0x15 where simulator.isSuspended: ("Suspend", "Connection terminated by local host for suspend")
            case 0x08: ("Timeout", "Connection timeout")
            case 0x13, 0x14, 0x15: ("Remote", "Connection terminated by remote user")
            case 0x16: ("Local", "Connection terminated by local host")
            case 0x06: ("Authentication", "Connection terminated due to authentication failure")
            default: ("Unknown", "Unspecified")
            }
        try? server?.emit(path: path, interface: Self.interface.name, member: "Disconnected") {
            (writer) throws(BusError) in
            try writer.write("org.bluez.Reason.\(name)")
            try writer.write(text)
        }
    }

    /// The kernel cancels an attempt and ends the link, because the computer is going to sleep.
    func suspended() {
        failConnect(.failed("le-connection-abort-by-local"))
        link?.end(reason: 0x15)
    }

    /// Bluetooth was switched off or the adapter unplugged.
    func adapterGone() {
        failConnect(.failed("le-connection-abort-by-local"))
        link?.end(reason: 0x16)
        inbound?.end(reason: 0x16)
        rssi = nil
    }

    private func removeBattery() {
        guard battery != nil else { return }
        battery = nil
        server?.remove(Device.batteryInterface.name, from: path)
    }
}

extension BlueZError {
    /// Device1.Connect reports it with this name.
    static let alreadyInProgressFailed = BlueZError.failed("Operation already in progress")
}

extension String {
    var asUUID: String { UUIDText.full(self) }
}

extension Device: LinkCentral {
    var linkAddress: String { adapter.controller.address + "/P" }

    func received(_ value: [UInt8], of characteristic: GATTTable.Characteristic, confirm: (() -> Void)?) {
        received(value, of: characteristic)
        if let confirm { simulator.after(.zero, confirm) }
    }
}
