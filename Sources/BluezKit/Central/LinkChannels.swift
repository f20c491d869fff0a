import BluezDBus
import Dispatch
import Foundation

/// The L2CAP channels that apps have opened on one link, or are opening. Lives as long as the link. Confined to the bus
/// queue.
final class LinkChannels: @unchecked Sendable {  // holds: confined to the bus queue
    private let device: Device
    private let central: CentralRole

    private struct Pending {
        let core: PeripheralCore
        let psm: CBL2CAPPSM
        let since: DispatchTime
        let opening: L2CAPSockets.Opening
    }

    private var pending: [UInt32: Pending] = [:]
    /// Those that were opened, with their peripherals. The apps have the sockets.
    private var open: [UInt32: PeripheralCore] = [:]

    init(of device: Device, in central: CentralRole) { (self.device, self.central) = (device, central) }

    private var bus: BlueZBus { central.bus }

    /// `openL2CAPChannel(_:)`: each call gets one answer, as long as the link lasts (L2-2).
    func open(_ psm: CBL2CAPPSM, for core: PeripheralCore) {
        bus.assertOnQueue()
        let number = core.manager.newChannelNumber()
        // The address as BlueZ has it now: the app's identifier may be of an earlier, private one.
        let peer = device.properties.identity ?? device.identity
        let opening = central.sockets.open(to: peer, at: device.path, psm: psm) { [weak self] result in
            self?.answered(number, result)
        }
        pending[number] = Pending(core: core, psm: psm, since: DispatchQueue.now, opening: opening)
    }

    /// This program has refused a pairing. The kernel would wait for it for 40 s, and say then that the peer refuses
    /// the channel.
    func pairingRefused() {
        for number in pending.keys.sorted() {
            pending[number]?.opening.cancel()
            answered(number, .failure(.unpaired))
        }
    }

    private func answered(_ number: UInt32, _ result: Result<ChannelSocket, SocketFailure>) {
        guard let entry = pending.removeValue(forKey: number) else { return }
        let (core, psm) = (entry.core, entry.psm)
        switch result {
        case .success(let socket):
            guard let connectionID = core.request?.connectionID else { return }
            open[number] = core
            core.post(.channelOpened(number, psm, PassedSocket(socket), connectionID))
        case .failure(let failure):
            let isLate = entry.since.later(by: bus.timing.channel.unpaired) <= DispatchQueue.now
            tell(core, psm, isLate && failure.code == ECONNREFUSED ? .unpaired : failure)
        }
    }

    private func tell(_ core: PeripheralCore, _ psm: CBL2CAPPSM, _ failure: SocketFailure) {
        Log.debug("channel \(psm.hex) of \(device.path): \(SocketFailure.name(of: failure.code))")
        guard let connectionID = core.request?.connectionID else { return }
        core.post(.channelRefused(psm, AppError(failure.error), connectionID))
    }

    /// The channel has ended, or the app has closed it.
    func ended(_ number: UInt32) { open[number] = nil }

    /// A peripheral does not use the link any longer.
    func end(of core: PeripheralCore) { end { $0 === core } }

    /// The link has ended. The kernel ends channels with it; a simulated link, or one that other programs use, may
    /// last.
    func end() { end { _ in true } }

    private func end(where isGone: (PeripheralCore) -> Bool) {
        for (number, entry) in pending where isGone(entry.core) {
            entry.opening.cancel()
            pending[number] = nil
        }
        for (number, core) in open where isGone(core) {
            open[number] = nil
            core.post(.endChannel(number))
        }
    }
}
