import Glibc

/// Who opens a channel to a PSM of a peripheral, gets to this.
struct ChannelServer {
    let security: VirtualSecurity
    /// The result with which it is refused; nil: it is not.
    var refusal: @Sendable () -> UInt16? = { nil }
    let handler: @Sendable (VirtualChannel) async -> Void
}

/// L2CAP channels of a peripheral.
extension VirtualPeripheral {
    /// Serves L2CAP channels: `handler` gets each channel that a central opens to `psm`, in a task of its own.
    ///
    /// A channel stays open when its handler returns, until one end closes it.
    /// - Parameters:
    ///   - psm: 0x01 to 0xFF; 0: the first free one from 0x80 on.
    ///   - security: What the link must provide; a program that opens a channel then pairs, or is refused.
    ///   - handler: Gets each channel.
    /// - Returns: The PSM.
    /// - Throws: ``VirtualChannelError/psmInUse``
    @discardableResult
    public func serveChannels(
        psm: UInt16 = 0, security: VirtualSecurity = .none,
        _ handler: @escaping @Sendable (VirtualChannel) async -> Void
    ) throws -> UInt16 {
        try sync {
            let isFree = { self.channelServers[$0] == nil }
            guard let free = psm == 0 ? (0x80...0xFF).first(where: isFree) : psm, (1...0xFF).contains(free),
                isFree(free)
            else { throw VirtualChannelError.psmInUse }
            channelServers[free] = ChannelServer(security: security, handler: handler)
            return free
        }
    }

    /// Refuses channels to `psm` from now on. Open ones stay open.
    public func stopServingChannels(psm: UInt16) { sync { _ = channelServers.removeValue(forKey: psm) } }

    /// The channels on its links: those that it serves and those that it opened.
    public var channels: [VirtualChannel] { sync { links.flatMap(\.channels).filter { $0.peer != address } } }

    /// What a link must provide for channels to this PSM; nil: it is not served.
    func securityOfChannels(_ psm: UInt16, in simulator: Simulator) -> VirtualSecurity? {
        guard isAdapter else { return channelServers[psm].flatMap { $0.refusal() == nil ? $0.security : nil } }
        guard let controller = simulator.controllers.first(where: { $0.presence === self }),
            simulator.channelSockets.hasListener(on: psm, of: address)
        else { return nil }
        return controller.encryptedPSMs.contains(psm) ? .encrypted : VirtualSecurity.none
    }

    /// Hands a channel that a central has opened to who serves the PSM.
    func accept(_ channel: VirtualChannel, on link: Link, from central: Adapter) throws(SocketError) {
        guard link.hasRoomForChannel else { throw SocketError(code: ECONNREFUSED) }
        if let server = channelServers[channel.psm] {
            link.add(channel, of: .peripheral)
            Task { await server.handler(channel) }
            return
        }
        // A program that has published it on another adapter: what arrives at one end is passed on to the other.
        let sockets = central.simulator.channelSockets
        let end = try sockets.connect(to: channel.psm, of: address, from: channel.peer, type: "public")
        let other = VirtualChannel(end, psm: channel.psm, peer: address, sockets: sockets)
        link.add(channel, of: .peripheral)
        link.add(other)
        for (source, target) in [(channel, other), (other, channel)] {
            Task {
                while let bytes = await source.receive(), (try? await target.send(bytes)) != nil {}
                target.close()
            }
        }
    }

    func setChannelsSilent(_ isSilent: Bool) {
        for channel in links.flatMap(\.channels) { channel.setSilent(isSilent) }
    }
}

/// L2CAP channels of a central.
extension VirtualCentral {
    /// Opens an L2CAP channel to a PSM of the connected peripheral: one that a program has published there, or one that
    /// ``VirtualPeripheral/serveChannels(psm:security:_:)`` serves.
    /// - Parameters:
    ///   - psm: Of the channel.
    ///   - pairs: If the PSM is for encrypted links only, and this one is not encrypted, the central pairs; otherwise
    ///     it is refused.
    /// - Throws: ``VirtualChannelError/refused(result:)``, ``VirtualCentralError``
    public func openChannel(_ psm: UInt16, pairs: Bool = true) async throws -> VirtualChannel {
        let simulator = try simulator
        let mustEncrypt = try simulator.sync {
            guard let link else { throw VirtualCentralError.notConnected }
            if let result = link.peripheral.channelServers[psm]?.refusal() {
                throw VirtualChannelError.refused(result: result)
            }
            guard let security = link.peripheral.securityOfChannels(psm, in: simulator) else {
                throw VirtualChannelError.refused(result: 0x0002)  // LE_PSM not supported
            }
            return security != .none && !link.isEncrypted
        }
        if mustEncrypt {
            guard pairs else { throw VirtualChannelError.refused(result: 0x0008) }  // insufficient encryption
            try await pair()
        }
        return try simulator.sync {
            guard let link else { throw VirtualCentralError.disconnected }
            do throws(SocketError) {
                return try open(psm, on: link, simulator.channelSockets)
            } catch {
                // LE_PSM not supported; no resources
                throw VirtualChannelError.refused(result: error.code == ECONNREFUSED ? 0x0002 : 0x0004)
            }
        }
    }

    private func open(_ psm: UInt16, on link: Link, _ sockets: ChannelSockets) throws(SocketError) -> VirtualChannel {
        let peripheral = link.peripheral
        guard link.hasRoomForChannel else { throw SocketError(code: ENOMEM) }
        guard let server = peripheral.channelServers[psm] else {
            let end = try sockets.connect(to: psm, of: peripheral.address, from: address, type: "random")
            let channel = VirtualChannel(end, psm: psm, peer: peripheral.address, sockets: sockets)
            link.add(channel, of: .central)
            return channel
        }
        let (own, other) = try ChannelSockets.pair()
        let channel = VirtualChannel(own, psm: psm, peer: peripheral.address, sockets: sockets)
        let served = VirtualChannel(other, psm: psm, peer: address, sockets: sockets)
        link.add(channel, of: .central)
        link.add(served)
        Task { await server.handler(served) }
        return channel
    }

    /// Its ends of the channels on its link.
    public var channels: [VirtualChannel] {
        (try? simulator.sync { link.map { link in link.channels.filter { $0.peer == link.peripheral.address } } }) ?? []
    }
}
