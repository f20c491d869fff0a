import BluezDBus

/// Subscriptions: by StartNotify, shared by clients, or by AcquireNotify, for a single client.
extension RemoteCharacteristic {
    private var subscription: UInt16 { flags.contains(.notify) ? 1 : 2 }

    func startNotify(_ call: IncomingCall) {
        guard let server, let client = call.sender else { return }
        guard device.disconnectAlarm == nil else { return server.refuse(call, .notConnected) }
        guard notifySocket == nil, !isAcquiringNotify else {
            return server.refuse(call, .notPermitted("Notify acquired"))
        }
        guard canNotify else { return server.refuse(call, .notSupported) }
        if let known = notifyClients.first(where: { $0.client == client }) {
            return known.pending == nil ? server.reply(to: call) : server.refuse(call, .inProgress)
        }
        simulator.watchClient(client)
        let isFirst = notifyClients.isEmpty
        guard let link = device.link else {
            notifyClients.append((client, nil))
            return server.reply(to: call)  // it is subscribed when the link is up
        }
        let isPending = isFirst || notifyClients.contains { $0.pending != nil }
        notifyClients.append((client, isPending ? call : nil))
        guard isPending else { return server.reply(to: call) }
        guard isFirst else { return }
        configure(on: link) { [weak self] in self?.configured($0) }
    }

    /// Subscribes, when the link is as secure as that needs.
    private func configure(on link: Link, _ completion: @escaping Link.Answer<Void>) {
        device.secured(source.definition.security) { [source, subscription] failure in
            if let failure { return completion(.failure(failure)) }
            link.configure(source, subscription, completion: completion)
        }
    }

    private func configured(_ result: Result<Void, ATTFailure>) {
        guard let server else { return }
        let calls = notifyClients.compactMap(\.pending)
        switch result {
        case .success:
            for index in notifyClients.indices { notifyClients[index].pending = nil }
            setNotifying(!notifyClients.isEmpty)
            for call in calls { server.reply(to: call) }
        case .failure(let failure):
            notifyClients.removeAll { $0.pending != nil }
            for call in calls { server.refuse(call, BlueZError(att: failure.code)) }
        }
    }

    private func setNotifying(_ on: Bool) {
        guard on != isNotifying else { return }
        isNotifying = on
        changed("Notifying")
    }

    func stopNotify(_ call: IncomingCall) {
        guard let server else { return }
        if isHalfAcquired {
            return crash()  // it uses freed memory
        }
        if let notifySocket {
            notifySocket.close()
            return server.reply(to: call)
        }
        guard let index = notifyClients.firstIndex(where: { $0.client == call.sender }) else {
            return server.refuse(call, .failed("No notify session started"))
        }
        removeClient(at: index)
        server.reply(to: call)
    }

    private func crash() { simulator.after(.zero) { [simulator] in simulator.killDaemon() } }

    private func removeClient(at index: Int) {
        notifyClients.remove(at: index)
        guard notifyClients.isEmpty else { return }
        device.link?.configure(source, 0) { _ in }
        setNotifying(false)
    }

    func clientGone(_ client: String) {
        if notifySocketOwner == client {
            notifySocketOwner = nil
            // Before 5.86 bluetoothd uses freed memory.
            if simulator.optionsState.version < .v5_86 { crash() }
        }
        if let index = notifyClients.firstIndex(where: { $0.client == client }) { removeClient(at: index) }
    }

    /// A link is up again: clients that did not stop are subscribed again.
    func resubscribe() {
        guard !notifyClients.isEmpty, let link = device.link else { return }
        configure(on: link) { [weak self] result in
            guard let self, case .success = result else { return }
            setNotifying(!notifyClients.isEmpty)
        }
    }

    /// A notification or indication has arrived.
    func received(_ bytes: [UInt8]) {
        if let notifySocket {
            notifySocket.send(bytes)
            return
        }
        guard !notifyClients.isEmpty else { return }
        value = bytes
        // Each client's session broadcasts it, so there are as many equal signals as clients.
        for _ in notifyClients { changed("Value") }
    }

    // MARK: Sockets

    func acquireNotify(_ call: IncomingCall) {
        guard let server else { return }
        guard let link = device.link else { return server.refuse(call, .noLink) }
        guard notifySocket == nil, !isAcquiringNotify else {
            return server.refuse(call, .notPermitted("Notify acquired"))
        }
        guard notifyClients.isEmpty else { return server.refuse(call, .inProgress) }
        let version = simulator.optionsState.version
        // Since 5.80.
        guard flags.contains(.notify) || flags.contains(.indicate) && version >= .v5_82 else {
            return server.refuse(call, .notSupported)
        }
        if let client = call.sender { simulator.watchClient(client) }
        isAcquiringNotify = true
        configure(on: link) { [weak self] result in
            guard let self else { return }
            if case .failure(let failure) = result {
                // Until 5.84 it never answers, and the characteristic stays half acquired.
                guard version >= .v5_86 else { return (isAcquiringNotify, isHalfAcquired) = (true, true) }
                isAcquiringNotify = false
                return server.refuse(call, BlueZError(att: failure.code))
            }
            isAcquiringNotify = false
            guard let socket = AcquiredSocket(of: simulator) else {
                return server.refuse(call, .failed)
            }
            (notifySocket, notifySocketOwner) = (socket, call.sender)
            socket.onClosed = { [weak self] in
                guard let self else { return }
                (notifySocket, notifySocketOwner) = (nil, nil)
                device.link?.configure(source, 0) { _ in }
                changed("NotifyAcquired")
            }
            changed("NotifyAcquired")
            hand(socket, to: call, mtu: link.mtu)
        }
    }

    func acquireWrite(_ call: IncomingCall) {
        guard let server else { return }
        guard flags.contains(.writeWithoutResponse) else { return server.refuse(call, .notSupported) }
        guard writeSocket == nil else { return server.refuse(call, .notPermitted("Write acquired")) }
        guard let link = device.link else { return server.refuse(call, .noLink) }
        guard let socket = AcquiredSocket(of: simulator) else { return server.refuse(call, .failed) }
        writeSocket = socket
        socket.onPacket = { [weak self] bytes in
            guard let self, let link = device.link, bytes.count <= Int(link.mtu) - 3 else { return }
            link.command(bytes, to: source)
        }
        socket.onClosed = { [weak self] in
            self?.writeSocket = nil
            self?.changed("WriteAcquired")
        }
        changed("WriteAcquired")
        hand(socket, to: call, mtu: link.mtu)
    }

    private func hand(_ socket: AcquiredSocket, to call: IncomingCall, mtu: UInt16) {
        server?.reply(to: call) { (writer) throws(BusError) in
            try writer.write(fileDescriptor: socket.clientEnd)
            try writer.write(mtu)
        }
        socket.handedOver()
    }

    func closeSockets() {
        notifySocket?.close()
        writeSocket?.close()
        isAcquiringNotify = isHalfAcquired
    }
}

extension Device {
    /// A notification from the peripheral.
    func received(_ bytes: [UInt8], of source: GATTTable.Characteristic) {
        if source.definition.uuid == "2a19".asUUID, battery != nil, let level = bytes.first, level != battery {
            battery = level
            server?.propertyChanged("Percentage", of: Device.batteryInterface.name, at: path)
        }
        for service in services {
            for characteristic in service.characteristics where characteristic.source === source {
                return characteristic.received(bytes)
            }
        }
    }
}
