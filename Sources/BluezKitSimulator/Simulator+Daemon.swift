import BluezDBus

/// The lifetime of the simulated bluetoothd.
extension Simulator {
    /// bluetoothd crashes: its bus name is lost, and nothing else is signalled. Links are lost 2 s later, because the
    /// daemon's sockets are closed; but a link with an open L2CAP channel stays until that ends.
    public func killDaemon() {
        sync {
            guard let connection else { return }
            let links = adapters.flatMap { $0.devices.values.flatMap { [$0.link, $0.inbound].compactMap { $0 } } }
            for adapter in adapters { adapter.closeSockets() }
            forgetDaemon()
            connection.close()
            for link in links { link.abandon() }
        }
    }

    /// bluetoothd exits normally: links end, all objects are removed, the adapters are powered off, the name is
    /// released.
    public func stopDaemon() {
        sync {
            guard let connection, let server else { return }
            for adapter in adapters {
                adapter.releaseAdvertisements()
                adapter.endServing(reason: 0x15)
                for device in adapter.devices.values { device.link?.end(reason: 0x16) }
                server.flush()
                adapter.unregister()
                adapter.controller.isPowered = false
            }
            server.remove("/org/bluez")
            server.flush()
            forgetDaemon()
            connection.close()
        }
    }

    /// Calls a client, as bluetoothd. A daemon that has exited gets no answer.
    func call(_ call: MethodCall, deadline: Duration, completion: @escaping Connection.Completion) {
        connection?.call(call, deadline: deadline) { [weak self] result in
            if case .failure(.disconnected) = result { return }
            self?.duringTurn { _ in completion(result) }
        }
    }

    private func forgetDaemon() {
        generation += 1
        traffic?.daemonGone()
        for controller in controllers { controller.presence.leaveBus() }
        server?.close()
        (connection, server) = (nil, nil)
        adapters = []
        watchedClients = []
        agents = []
        scanningChanged()
    }

    /// Whether bluetoothd is running.
    public var isDaemonRunning: Bool { sync { connection != nil } }

    /// Starts bluetoothd again: its name, `/org/bluez`, and each plugged adapter with its stored devices. Returns when
    /// everything has been announced.
    public func startDaemon() async throws {
        try await clock.run { [self] in
            try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
                sync {
                    do {
                        try startDaemon { continuation.resume(with: $0) }
                    } catch {
                        continuation.resume(throwing: error)
                    }
                }
            }
        }
    }

    /// The same, without waiting for it.
    func beginDaemon() { try? startDaemon { _ in } }

    private func startDaemon(completion: @escaping (Result<Void, any Error>) -> Void) throws {
        guard connection == nil else { return completion(.success(())) }
        let connection = try Connection(address: busAddress, queue: queue)
        let server = ObjectServer(connection: connection) { [weak self] in self?.afterAlways(.zero, $0) }
        (self.connection, self.server) = (connection, server)
        connection.answersPings = false  // bluetoothd answers in the order of the calls
        server.intercept = { [weak self] call in
            self?.duringTurn { simulator in
                if let traffic = simulator.traffic { traffic.receive(call) } else { simulator.handle(call) }
            }
            return true
        }
        server.addManager(at: "/")
        connection.onSignal = { [weak self] message in
            self?.duringTurn { for adapter in $0.adapters { adapter.clientSignalled(message) } }
        }
        let life = generation
        connection.onDisconnected = { [weak self] _ in
            guard let self, generation == life else { return }
            forgetDaemon()
        }
        updateName(by: connection) { [weak self] result in
            guard let self else { return }
            if case .failure(let error) = result { return completion(.failure(error)) }
            // With the simulator it starts at once: no program has waited for it yet.
            let delay = life == 0 ? .zero : timing.adapterStart
            after(delay) { [self] in
                server.add(RootObject.agentManager, to: "/org/bluez", owner: root)
                server.add(RootObject.profileManager, to: "/org/bluez", owner: root)
                for controller in controllers where controller.isPlugged { attach(controller, isFirst: life == 0) }
                server.flush()
                after(delay) { completion(.success(())) }
            }
        }
    }

    /// The bus may take a moment to notice that the previous daemon has exited.
    private func updateName(
        by connection: Connection, until deadline: ContinuousClock.Instant = .now + .seconds(5),
        completion: @escaping (Result<Void, BusError>) -> Void
    ) {
        connection.requestName("org.bluez") { [weak self] result in
            guard let self, case .failure = result, .now < deadline, self.connection === connection else {
                return completion(result)
            }
            afterAlways(.milliseconds(5)) { self.updateName(by: connection, until: deadline, completion: completion) }
        }
    }

    // MARK: Adapters

    /// The controller gets an adapter object; it is powered a moment later if the kernel does not report it as powered
    /// already.
    /// - Parameter isFirst: The simulator is starting, and the adapter is powered.
    private func attach(_ controller: Controller, isFirst: Bool = false) {
        let adapter = Adapter(simulator: self, controller: controller)
        adapters.append(adapter)
        adapter.register()
        for (address, device) in (stored[controller.address] ?? [:]).sorted(by: { $0.key < $1.key }) {
            adapter.restore(device, address: address)
        }
        guard !controller.isPowered else { return adapter.updatePresence() }
        if isFirst {
            controller.isPowered = true
        } else {
            after(timing.adapterStart) { [weak self, weak adapter] in
                guard let adapter else { return }
                adapter.controller.isPowered = true
                adapter.changed("Powered")
                adapter.updatePresence()
                for peripheral in self?.peripherals.values.map({ $0 }) ?? [] { self?.airChanged(peripheral) }
            }
        }
    }

    /// Adds an adapter, `hciN`.
    /// - Returns: Its number.
    @discardableResult
    public func addAdapter(address: String) -> Int {
        sync {
            let index = (controllers.map(\.index).max() ?? -1) + 1
            let controller = Controller(index: index, address: address)
            controllers.append(controller)
            putOnAir(controller)
            if connection != nil { attach(controller) }
            return index
        }
    }

    /// Changes the number of adapters, which are in range of each other.
    func setAdapters(_ count: Int) {
        while let last = sync({ controllers.last }), last.index >= count {
            unplugAdapter(last.index)
            sync {
                controllers.removeLast()
                peripherals[last.address] = nil
            }
        }
        while sync({ controllers.count }) < count {
            addAdapter(address: "00:B1:5E:00:00:0\(sync { controllers.count } + 1)")
        }
    }

    /// Unplugs an adapter: its links are lost, all its objects are removed.
    public func unplugAdapter(_ index: Int = 0) {
        sync {
            guard let controller = controllers.first(where: { $0.index == index }) else { return }
            controller.isPlugged = false
            controller.isPowered = false
            guard let position = adapters.firstIndex(where: { $0.controller === controller }) else { return }
            adapters[position].unplugged()
            adapters.remove(at: position)
        }
    }

    /// Plugs an adapter in again.
    public func plugAdapter(_ index: Int = 0) {
        sync {
            guard let controller = controllers.first(where: { $0.index == index && !$0.isPlugged }) else { return }
            controller.isPlugged = true
            if connection != nil { attach(controller) }
        }
    }

    /// Switches an adapter on or off, as the user does in the system's settings.
    public func setPowered(_ on: Bool, adapter index: Int = 0) {
        sync { adapters.first { $0.controller.index == index }?.setPowered(on) }
    }

    // MARK: The radio

    /// A peripheral has become audible, or inaudible.
    func airChanged(_ peripheral: VirtualPeripheral) {
        updateAdvertising(of: peripheral)
        guard peripheral.isOnAir else { return }
        for adapter in adapters { adapter.device(at: peripheral.airAddress)?.attemptConnection() }
    }

    /// Reports an advertisement to all scanning adapters.
    func emit(_ report: AdvertisingReport, unfiltered: Bool = false) {
        for adapter in adapters where adapter.isScanning && adapter.controller.address != report.address {
            var report = report
            if let traffic { report.rssi = traffic.measured(report.rssi) }
            adapter.receive(report, unfiltered: unfiltered)
        }
        for listener in listeners where listener.address == report.address { listener.heard(report) }
    }

    /// Advertisements cost time only while an adapter scans.
    func updateAdvertising(of peripheral: VirtualPeripheral) {
        let due =
            peripheral.isOnAir
            && (adapters.contains { $0.isScanning } || listeners.contains { $0.address == peripheral.address })
        if !due {
            peripheral.advertising?.cancel()
            peripheral.advertising = nil
        } else if peripheral.advertising == nil {
            advertiseNext(peripheral, after: .zero)
        }
    }

    private func advertiseNext(_ peripheral: VirtualPeripheral, after delay: Duration) {
        peripheral.advertising = afterAlways(delay, isRoutine: true) { [weak self, weak peripheral] in
            guard let self, let peripheral else { return }
            emit(peripheral.nextReport())
            advertiseNext(peripheral, after: peripheral.nextInterval ?? timing.advertisingInterval)
        }
    }

    func scanningChanged() {
        for peripheral in peripherals.values { updateAdvertising(of: peripheral) }
        beacons?.update()
    }
}
