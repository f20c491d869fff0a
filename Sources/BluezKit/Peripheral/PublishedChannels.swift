import BluezDBus
import BluezKitRestore
import Foundation

/// The L2CAP channels that one manager publishes, and those that centrals have opened. Confined to the bus queue.
final class PublishedChannels: @unchecked Sendable {  // holds: confined to the bus queue
    private unowned let core: PeripheralManagerCore
    private var listeners: [ChannelListener] = []

    /// Those that centrals have opened, and the app has not let go of, with their PSMs. The app has the sockets.
    private var open: [UInt32: CBL2CAPPSM] = [:]
    /// Those whose centrals BlueZ is being asked about.
    private var introductions: [Introduction] = []
    /// From a number that another process is unlikely to have given, as with ``RequestBroker``'s tickets.
    private var count = UInt32.random(in: 0..<1 << 30)
    /// Changes when everything has been withdrawn: answers to earlier requests are not wanted any more.
    private var generation = 0
    /// Requests to publish are carried out one after the other, so that they are answered in order.
    private var waiting: [Request] = []
    /// The one that is being carried out.
    private var current: Request?
    /// Its channel was withdrawn meanwhile.
    private var isWithdrawn = false

    private struct Request {
        let isEncrypted: Bool
        /// That of an earlier process, or from before a reset: another one if it is not free; nil: any.
        let psm: CBL2CAPPSM?
        /// What waits for the answer; nil: the delegate.
        let ticket: UInt32?
    }

    /// What waits for BlueZ's answer has the socket, and is dropped with its central, or with Bluetooth.
    private struct Introduction {
        weak var socket: ChannelSocket?
    }

    /// How many channels centrals may have open at a time: a process often has 1,024 descriptors.
    static let openLimit = 256

    init(of core: PeripheralManagerCore) { self.core = core }

    private var bus: BlueZBus { core.bus }

    var isEmpty: Bool { listeners.isEmpty }

    /// The PSMs that the app has, or has asked for again.
    var wanted: Set<CBL2CAPPSM> {
        Set(listeners.map(\.psm) + waiting.compactMap(\.psm) + [current?.psm].compactMap(\.self))
    }

    // MARK: Publishing

    /// Begins to listen.
    /// - Parameters:
    ///   - psm: That of an earlier process, or from before a reset: another one if it is not free; nil: any.
    ///   - ticket: What waits for the answer; nil: the delegate.
    func publish(isEncrypted: Bool, psm: CBL2CAPPSM? = nil, ticket: UInt32? = nil) {
        bus.assertOnQueue()
        if let psm, core.isHosted, wanted.contains(psm) {
            // A keeper has it already, or soon, and the app's next process does not know.
            guard listeners.contains(where: { $0.psm == psm }) else { return }
            return core.post(.channelPublished(.init(psm: psm, isEncrypted: isEncrypted), old: psm, ticket: ticket))
        }
        waiting.append(Request(isEncrypted: isEncrypted, psm: psm, ticket: ticket))
        publishNext()
    }

    private func publishNext() {
        guard current == nil, !waiting.isEmpty else { return }
        let next = waiting.removeFirst()
        (current, isWithdrawn) = (next, false)
        listen(at: next.psm, next)
    }

    private func listen(at psm: CBL2CAPPSM?, _ request: Request) {
        bus.assertOnQueue()
        let generation = generation
        core.role.sockets.listen(psm: psm, isEncrypted: request.isEncrypted) { [weak core] result in
            guard let channels = core?.channels, channels.generation == generation else { return }
            // Another program has taken the PSM.
            if psm != nil, !channels.isWithdrawn, case .failure = result { return channels.listen(at: nil, request) }
            channels.current = nil
            if channels.isWithdrawn {
                if case .success(let listener) = result { listener.end() }
            } else {
                channels.answered(request, result)
            }
            channels.publishNext()
        }
    }

    private func answered(_ request: Request, _ result: Result<ChannelListener, SocketFailure>) {
        switch result {
        case .success(let listener):
            let psm = listener.psm
            listener.onAccept = { [weak self] socket, peer in self?.accepted(socket, peer, psm) }
            listeners.append(listener)
            core.post(
                .channelPublished(
                    .init(psm: psm, isEncrypted: request.isEncrypted), old: request.psm, ticket: request.ticket))
            // Not before: the app hears of the PSM before any channel (O-41).
            listener.start()
        case .failure(let failure):
            core.post(.channelNotPublished(AppError(failure.error), ticket: request.ticket))
        }
    }

    /// Stops listening, and ends the channels that are open (L2-8); or does not begin to, where an earlier process has
    /// left it.
    func unpublish(_ psm: CBL2CAPPSM) {
        bus.assertOnQueue()
        if let index = listeners.firstIndex(where: { $0.psm == psm }) {
            listeners.remove(at: index).end()
            if open.values.contains(psm) { core.post(.endChannels(psm)) }
        } else if let index = waiting.firstIndex(where: { $0.psm == psm }) {
            waiting.remove(at: index)
        } else if current?.psm == psm, !isWithdrawn {
            isWithdrawn = true
        } else {
            let error = CBError(
                .invalidParameters,
                userInfo: [NSLocalizedFailureReasonErrorKey: "this manager has published no channel \(psm.hex)"])
            return core.post(.channelUnpublished(psm, AppError(error)))
        }
        core.post(.channelUnpublished(psm, nil))
    }

    /// The manager has ended, or Bluetooth is away.
    func withdrawAll() {
        generation += 1
        (waiting, current) = ([], nil)
        for listener in listeners { listener.end() }
        listeners = []
        endChannels()
    }

    /// Bluetooth is off: there are no links.
    func endChannels() {
        if !open.isEmpty { core.post(.endChannels(nil)) }
    }

    /// The app has let go of it.
    func released(_ number: UInt32) { open[number] = nil }

    // MARK: Channels of centrals

    /// How many there are, or may be soon.
    var openCount: Int { open.count + introductions.filter { $0.socket != nil }.count }

    func accepted(_ socket: ChannelSocket, _ peer: DeviceIdentity?, _ psm: CBL2CAPPSM) {
        // Each has a descriptor as long as it lives, also after its end: until the app has let go of it.
        func refuse(_ cause: String) {
            Log.warning(from: "channels \(psm)", "refused an L2CAP channel (PSM \(psm.hex)): \(cause)")
        }
        guard openCount < Self.openLimit else {
            return refuse("\(openCount) are open, and \(Self.openLimit) is the limit")
        }
        guard let adapter = core.role.adapter.path, let peer, let path = adapter.appending(peer.pathElement) else {
            return refuse("the link has ended, or its other end has no address")
        }
        introductions.removeAll { $0.socket == nil }
        introductions.append(Introduction(socket: socket))
        core.role.remoteCentrals.withCentral(path, identity: peer) { [weak core] central in
            core?.channels.introduced(socket, central, psm)
        }
    }

    private func introduced(_ socket: ChannelSocket, _ central: CentralInfo, _ psm: CBL2CAPPSM) {
        introductions.removeAll { $0.socket === socket }
        // It may have been unpublished while BlueZ was asked.
        guard listeners.contains(where: { $0.psm == psm }) else { return }
        count += 1
        open[count] = psm
        core.post(.channelOpened(count, psm, central, PassedSocket(socket)))
    }
}
