/// Actions of a peripheral in a test.
extension VirtualPeripheral {
    /// What it advertises. A change takes effect with the next advertisement.
    public var advertisement: VirtualAdvertisement {
        get { sync { content } }
        set { sync { content = newValue } }
    }

    /// Signal strength at which others hear it, in dBm.
    public var rssi: Int16 {
        get { sync { signalStrength } }
        set { sync { signalStrength = newValue } }
    }

    /// Links are refused: a `Connect` to it fails after the connect timeout.
    public var refusesLinks: Bool {
        get { sync { faults.refusesLinks } }
        set { sync { faults.refusesLinks = newValue } }
    }

    /// The ATT_MTU that it accepts; 517 by default.
    public var mtu: UInt16 {
        get { sync { offeredMTU } }
        set { sync { offeredMTU = newValue } }
    }

    /// How it pairs from now on.
    public func setPairing(_ pairing: VirtualPairing, passkey: UInt32 = 123_456) {
        sync { (self.pairing, self.passkey) = (pairing, passkey) }
    }

    /// Enters a passkey on it, which it requests with the event `passkey?`.
    public func type(passkey: UInt32) {
        sync {
            guard case .awaited(let enter)? = passkeyEntry else { return passkeyEntry = .made(passkey) }
            passkeyEntry = nil
            enter(passkey)
        }
    }

    /// Advertises from a new resolvable private address from now on. Bonded devices resolve it; to others it is a new
    /// device.
    /// - Returns: The address.
    @discardableResult
    public func usePrivateAddress() -> String {
        let bytes = [UInt8.random(in: 0x40...0x7F)] + (0..<5).map { _ in UInt8.random(in: 0...255) }
        let new = bytes.map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined(separator: ":")
            .uppercased()
        use(new)
        return new
    }

    /// Advertises from its identity address, ``address``, again.
    public func useIdentityAddress() { use(nil) }

    private func use(_ newAddress: String?) {
        sync {
            if let privateAddress { simulator?.privateAddresses[privateAddress] = nil }
            privateAddress = newAddress
            if let newAddress { simulator?.privateAddresses[newAddress] = self }
            simulator?.airChanged(self)
        }
    }

    /// Deletes its bond, while the other side keeps its own.
    public func forgetBond() { sync { holdsBond = false } }

    /// Whether it is connected.
    public var isConnected: Bool { sync { !links.isEmpty } }

    /// Starts or stops advertising. If stopped, it also does not resume after a disconnection.
    public func advertise(_ on: Bool) {
        sync {
            isAdvertisingEnabled = on
            simulator?.airChanged(self)
        }
    }

    /// Sends exactly one advertisement, now. If an adapter is discovering, it is reported regardless of the
    /// controller's duplicate filter.
    /// - Returns: Whether an adapter is discovering.
    @discardableResult
    public func advertiseOnce(rssi: Int16? = nil) -> Bool {
        sync {
            var report = nextReport()
            if let rssi { report.rssi = rssi }
            simulator?.emit(report, unfiltered: true)
            return simulator?.adapters.contains(where: \.isScanning) ?? false
        }
    }

    /// Ends its links from the peripheral's side.
    public func disconnect() {
        sync { for link in links { link.end(reason: 0x13) } }
    }

    /// Goes out of range: it is no longer heard, and its links are lost after the supervision timeout. Apps get
    /// `CBError.connectionTimeout` where BlueZ gives the reason (``SimulatorVersion/v5_83`` and later), and
    /// `CBError.peripheralDisconnected` otherwise.
    public func vanish() {
        sync {
            isInRange = false
            simulator?.airChanged(self)
            guard !links.isEmpty, let simulator else { return }
            setChannelsSilent(true)
            supervision = simulator.afterAlways(simulator.timing.supervisionTimeout) { [weak self] in
                guard let self, !isInRange else { return }
                for link in links { link.end(reason: 0x08) }
            }
        }
    }

    /// Comes back into range.
    public func comeBack() {
        sync {
            isInRange = true
            supervision?.cancel()
            setChannelsSilent(false)
            simulator?.airChanged(self)
        }
    }

    /// The stored value of a characteristic, without a notification.
    public func value(of uuid: String) -> [UInt8]? { sync { table.characteristic(UUIDText.full(uuid))?.value } }

    /// Sets the stored value of a characteristic, without a notification.
    public func setValue(_ value: [UInt8], of uuid: String) {
        sync { table.characteristic(UUIDText.full(uuid))?.value = value }
    }

    /// Sends one notification or indication, if a central subscribed to the characteristic.
    /// - Returns: Whether a central was subscribed.
    @discardableResult
    public func notify(_ uuid: String, _ value: [UInt8]) -> Bool {
        sync {
            guard let characteristic = table.characteristic(UUIDText.full(uuid)) else { return false }
            return send(value, of: characteristic)
        }
    }

    /// The same, of one of several characteristics with this UUID.
    func send(_ value: [UInt8], of characteristic: GATTTable.Characteristic) -> Bool {
        guard isInRange else { return false }
        var sent = false
        for link in links where link.isSubscribed(to: characteristic) {
            sent = true
            link.deliver(Array(value.prefix(Int(link.mtu) - 3)), of: characteristic)
        }
        return sent
    }

    /// Whether a central is subscribed to the characteristic.
    public func isSubscribed(to uuid: String) -> Bool {
        sync {
            guard let characteristic = table.characteristic(UUIDText.full(uuid)) else { return false }
            return hasSubscriber(to: characteristic)
        }
    }

    func hasSubscriber(to characteristic: GATTTable.Characteristic) -> Bool {
        links.contains { $0.isSubscribed(to: characteristic) }
    }

    /// Notifies `value(0)`, `value(1)`… repeatedly; the previous stream of that characteristic ends.
    /// - Parameters:
    ///   - uuid: Of the characteristic.
    ///   - interval: The time between two notifications.
    ///   - count: The number of notifications; nil: until ``stopNotifying(_:)``.
    ///   - value: Makes the values, with their numbers.
    public func notifyRepeatedly(
        _ uuid: String, every interval: Duration, count: Int? = nil, value: @escaping @Sendable (Int) -> [UInt8]
    ) {
        sync {
            let uuid = UUIDText.full(uuid)
            streams[uuid]?.cancel()
            func next(_ index: Int) {
                if let count, index >= count { return }
                notify(uuid, value(index))
                streams[uuid] = simulator?.afterAlways(interval) { next(index + 1) }
            }
            next(0)
        }
    }

    /// Ends ``notifyRepeatedly(_:every:count:value:)``.
    public func stopNotifying(_ uuid: String) { sync { streams.removeValue(forKey: UUIDText.full(uuid))?.cancel() } }

    /// Appends a service to the table and indicates Service Changed if a link is up; otherwise it is visible from the
    /// next connection on.
    public func addService(_ service: VirtualService) {
        sync {
            table.add(service)
            for link in links { link.servicesChanged() }
        }
    }

    /// Removes the last service with this UUID, likewise.
    @discardableResult
    public func removeService(_ uuid: String) -> Bool {
        sync {
            guard table.remove(UUIDText.full(uuid)) != nil else { return false }
            for link in links { link.servicesChanged() }
            return true
        }
    }

    /// Replaces the whole table, as a firmware update does. If a link is up, Service Changed is indicated.
    public func replaceServices(_ services: [VirtualService]) {
        sync {
            table = GATTTable(services)
            for link in links { link.servicesChanged() }
        }
    }
}
