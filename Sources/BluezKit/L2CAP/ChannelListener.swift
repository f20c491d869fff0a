import CBluezL2CAP
import Dispatch
import Foundation

/// A socket that listens for channels. Confined to the bus queue; it ends with its last reference.
final class ChannelListener {
    let psm: CBL2CAPPSM
    let isEncrypted: Bool
    private let bus: BlueZBus
    private let descriptor: Int32
    private var source: (any DispatchSourceRead)?
    private var isPaused = false
    private var isEnded = false

    /// A channel that a central has opened; and which one, if the kernel can tell.
    var onAccept: ((ChannelSocket, DeviceIdentity?) -> Void)?

    /// - Parameter descriptor: Taken over.
    init(descriptor: Int32, psm: CBL2CAPPSM, isEncrypted: Bool, on bus: BlueZBus) {
        (self.descriptor, self.psm, self.isEncrypted, self.bus) = (descriptor, psm, isEncrypted, bus)
        _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
    }

    deinit { end() }

    func start() {
        let descriptor = descriptor
        let source = DispatchSource.makeReadSource(fileDescriptor: descriptor, queue: bus.queue)
        source.setEventHandler { [weak self] in
            self?.acceptAll()
            self?.bus.flush()
        }
        source.setCancelHandler { close(descriptor) }
        self.source = source
        source.activate()
    }

    /// Nothing is accepted any more, and the PSM is free.
    func end() {
        onAccept = nil
        guard !isEnded else { return }
        isEnded = true
        guard let source else { return _ = close(descriptor) }  // it was never started
        // The PSM is free when the socket is closed, and the next manager may want it at once. The number of the
        // descriptor stays taken until the source has let go of it.
        let nothing = open("/dev/null", O_RDONLY | O_CLOEXEC)
        if nothing < 0 || dup2(nothing, descriptor) < 0 { shutdown(descriptor, Int32(SHUT_RDWR)) }
        if nothing >= 0 { close(nothing) }
        source.cancel()
        if isPaused { source.resume() }  // only then is it cancelled
        self.source = nil
    }

    private func acceptAll() {
        while source != nil {
            let new = cl2cap_accept(descriptor)
            guard new >= 0 else {
                switch errno {
                case EINTR, ECONNABORTED: continue
                case EAGAIN: return
                default: return pause(errno)
                }
            }
            onAccept?(ChannelSocket(descriptor: new), Self.peer(of: new))
        }
    }

    private static func peer(of descriptor: Int32) -> DeviceIdentity? {
        if let address = L2CAPAddress(of: descriptor, getpeername) { return address.device }
        return SimulatedPeerName(of: descriptor)?.device
    }

    /// The process has no descriptor left, or no memory: the source would fire again at once, without end.
    private func pause(_ code: Int32) {
        Log.warning(
            from: "accept \(psm)", "cannot accept an L2CAP channel (PSM \(psm.hex)): \(String(cString: strerror(code)))"
        )
        source?.suspend()
        isPaused = true
        bus.after(bus.timing.channel.acceptRetry) { [weak self] in
            guard let self, isPaused else { return }
            isPaused = false
            source?.resume()
        }
    }
}

/// The name that a simulator gives its end of a channel: `bluezkit-l2cap/…/F0:F1:F2:00:00:04/random`, in the abstract
/// name space of Unix sockets.
private struct SimulatedPeerName {
    let device: DeviceIdentity

    init?(of descriptor: Int32) {
        var address = sockaddr_un()
        var size = socklen_t(MemoryLayout.size(ofValue: address))
        let status = withUnsafeMutableBytes(of: &address) { buffer in
            getpeername(descriptor, buffer.baseAddress?.assumingMemoryBound(to: sockaddr.self), &size)
        }
        guard status == 0, Int32(address.sun_family) == AF_UNIX else { return nil }
        let start = MemoryLayout<sa_family_t>.size
        let end = max(start, Int(clamping: size))
        let name = withUnsafeBytes(of: &address) { String(decoding: $0[start..<end], as: UTF8.self) }
        let parts = name.split(separator: "/")
        guard parts.count == 4, parts[0] == "\0bluezkit-l2cap",
            let device = DeviceIdentity(address: String(parts[2]), isRandom: parts[3] == "random")
        else { return nil }
        self.device = device
    }
}
