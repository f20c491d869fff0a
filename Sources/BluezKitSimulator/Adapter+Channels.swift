import BluezDBus
import Glibc

/// L2CAP channels. BlueZ has no API for them: programs open sockets of the kernel, which knows no simulated devices.
/// Here they ask the adapter, which has the property `SimulatedSockets`. Failures are
/// `org.bluezkit.Simulator.Error.EACCES` and so on, after what the kernel's sockets fail with.
extension Adapter {
    static let channels = ExportedInterface(
        "org.bluezkit.Simulator.L2CAP1", of: Adapter.self,
        methods: [
            // A socket whose other end is the channel of a peripheral. `encrypted`: only on an encrypted link, for
            // which it pairs.
            .init(
                "Connect", takes: [.init("device", "o"), .init("psm", "q"), .init("encrypted", "b")],
                gives: [.init("socket", "h")]
            ) { adapter, call, _ in adapter.connectChannel(call) },
            // A listening socket. PSM 0: the first one that is free. Who accepts a connection finds the central's
            // address in the name of its socket: `…/F0:F1:F2:00:00:04/random`.
            .init(
                "Listen", takes: [.init("psm", "q"), .init("encrypted", "b")],
                gives: [.init("socket", "h"), .init("psm", "q")]
            ) { adapter, call, _ in adapter.listen(call) },
        ])

    private static let dynamicPSMs: ClosedRange<UInt16> = 0x80...0xFF

    // MARK: As the central

    private func connectChannel(_ call: IncomingCall) {
        var reader = call.reader
        guard let path = try? reader.readPath(), let psm = try? reader.readUInt16(),
            let encrypted = try? reader.readBool(), (1...Self.dynamicPSMs.upperBound).contains(psm)
        else { return refuse(call, EINVAL) }
        guard isPowered else { return refuse(call, EHOSTUNREACH) }
        guard let device = devices.values.first(where: { $0.path == path }), let link = device.link else {
            return refuse(call, ENOTCONN)
        }
        // The request and its answer travel over the air.
        simulator.after(simulator.timing.attRoundTrip) { [weak self, weak device] in
            guard let self, let device, link.isUp else { self?.refuse(call, ENOTCONN); return }
            guard let served = link.peripheral.securityOfChannels(psm, in: simulator) else {
                return refuse(call, ECONNREFUSED)
            }
            // A pairing that fails ends the link, at once or by its timeout.
            let refused = { [weak self] in self?.refuse(call, link.isUp ? EACCES : ECONNABORTED) ?? () }
            device.secured(encrypted && served == .none ? .encrypted : served, refused: refused) {
                [weak self] failure in
                guard failure == nil else { return refused() }
                guard let self else { return }
                guard link.isUp else { return refuse(call, ENOTCONN) }
                do throws(SocketError) {
                    let (clientEnd, end) = try ChannelSockets.pair()
                    defer { close(clientEnd) }
                    let channel = VirtualChannel(
                        end, psm: psm, peer: controller.address, sockets: simulator.channelSockets)
                    try link.peripheral.accept(channel, on: link, from: self)
                    simulator.server?.reply(to: call) { (writer) throws(BusError) in
                        try writer.write(fileDescriptor: clientEnd)
                    }
                } catch {
                    refuse(call, error.code)
                }
            }
        }
    }

    // MARK: As the peripheral

    private func listen(_ call: IncomingCall) {
        var reader = call.reader
        guard let asked = try? reader.readUInt16(), let encrypted = try? reader.readBool(),
            asked <= Self.dynamicPSMs.upperBound
        else { return refuse(call, EINVAL) }
        guard asked == 0 || asked >= Self.dynamicPSMs.lowerBound else { return refuse(call, EACCES) }
        for psm in asked == 0 ? Self.dynamicPSMs : asked...asked {
            do throws(SocketError) {
                let socket = try simulator.channelSockets.listen(psm, of: controller.address)
                defer { close(socket) }
                if encrypted { controller.encryptedPSMs.insert(psm) } else { controller.encryptedPSMs.remove(psm) }
                simulator.server?.reply(to: call) { (writer) throws(BusError) in
                    try writer.write(fileDescriptor: socket)
                    try writer.write(psm)
                }
                return
            } catch {
                guard asked == 0, error.code == EADDRINUSE else { return refuse(call, error.code) }
            }
        }
        refuse(call, EINVAL)  // the kernel's answer when all are in use
    }

    private func refuse(_ call: IncomingCall, _ code: Int32) {
        let (name, message) = SocketError(code: code).answer
        simulator.server?.refuse(call, name: name, message: message)
    }
}
