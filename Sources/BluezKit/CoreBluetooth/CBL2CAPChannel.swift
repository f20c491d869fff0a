import Dispatch
public import Foundation

/// An open L2CAP channel: a stream of bytes in each direction. Keep it: releasing it closes the channel.
///
/// ```swift
/// import CoreBluetooth
/// final class Receiver: NSObject, StreamDelegate {
///     private let channel: CBL2CAPChannel
///     init(_ channel: CBL2CAPChannel) {  // from `didOpen`
///         self.channel = channel
///         super.init()
///         for stream in [channel.inputStream!, channel.outputStream!] as [Stream] {
///             stream.delegate = self
///             stream.schedule(in: .main, forMode: .default)
///             stream.open()
///         }
///     }
///     func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
///         if eventCode == .endEncountered { return aStream.close() }
///         guard eventCode == .hasBytesAvailable else { return }
///         var buffer = [UInt8](repeating: 0, count: 4096)
///         let count = channel.inputStream.read(&buffer, maxLength: buffer.count)
///         if count > 0 { print("received", Data(buffer.prefix(count))) }
///     }
/// }
/// ```
///
/// A central gets it from ``CBPeripheral/openL2CAPChannel(_:)``, a peripheral from
/// ``CBPeripheralManager/publishL2CAPChannel(withEncryption:)``.
///
/// The streams are delivered neither open nor scheduled: set their `delegate`, which they hold weakly,
/// `schedule(in:forMode:)` on a run loop, and `open()` both. Their events are those of sockets: `.openCompleted`;
/// `.hasBytesAvailable`, again after each read if there is more; `.hasSpaceAvailable`, again after each write if there
/// is room; and `.endEncountered`, once for each stream, when the peer closes the channel, its link ends, or it is
/// unpublished. What had arrived can be read before the input stream ends.
///
/// If the peer does not read, there is no room, so that nothing is lost; if the app does not read, the peer has to
/// wait. On a stream that is not ready, `read` and `write` wait, as on Apple's systems: call them after the event, or
/// after `hasBytesAvailable` and `hasSpaceAvailable`, which need no run loop. They may be called on any thread; `write`
/// may take less than it was given, and returns how much.
///
/// Closing both streams closes the channel, when what was written has been sent, which may take some seconds, 10 at
/// most.
///
/// There is no event `.errorOccurred`: errors of opening come with `didOpen`, and a channel that ends later, for
/// whatever reason, ends its streams. Then `read` returns 0 and `write` -1. The end of the link is reported by the
/// central manager as well.
/// - SeeAlso: Apple, `CBL2CAPChannel`; Core Spec 5.4, Vol 3, Part A, 10.1 (credit-based flow control).
open class CBL2CAPChannel: NSObject, @unchecked Sendable {  // holds: constants; a stream belongs to its run loop
    private let storedPeer: CBPeer?
    private let storedInput: ChannelInputStream?
    private let storedOutput: ChannelOutputStream?
    private let storedPSM: CBL2CAPPSM
    private let endpoint: ChannelEndpoint?
    private let socket: ChannelSocket?
    private let onRelease: (@Sendable () -> Void)?

    /// A channel that has been opened.
    /// - Parameter onRelease: Called when the app has let go of it.
    init(
        peer: CBPeer, psm: CBL2CAPPSM, _ socket: ChannelSocket, _ endpoint: ChannelEndpoint,
        onRelease: (@Sendable () -> Void)? = nil
    ) {
        (storedPeer, storedPSM, self.socket, self.endpoint) = (peer, psm, socket, endpoint)
        self.onRelease = onRelease
        (storedInput, storedOutput) = (ChannelInputStream(endpoint), ChannelOutputStream(endpoint))
        super.init()
    }

    /// An unconnected channel, without streams. Apple's class can also be created like this.
    public override init() {
        (storedPeer, storedInput, storedOutput, storedPSM, endpoint, socket) = (nil, nil, nil, 0, nil, nil)
        onRelease = nil
        super.init()
    }

    deinit {
        endpoint?.close()
        onRelease?()
    }

    /// The other end: a ``CBPeripheral`` if this side opened the channel, otherwise a ``CBCentral``.
    open var peer: CBPeer! { storedPeer }

    /// Data from the peer.
    open var inputStream: InputStream! { storedInput }

    /// Data to the peer.
    open var outputStream: OutputStream! { storedOutput }

    /// The channel's PSM at the listening side.
    open var psm: CBL2CAPPSM { storedPSM }

    /// **BluezKit addition.** Delivers the events of both streams on a dispatch queue, instead of a run loop, as
    /// `CFReadStreamSetDispatchQueue` does on Apple's systems. It needs no thread with a run loop, and no memory stays
    /// behind, as it does for each stream on a run loop (`Docs/LIMITS.md`).
    ///
    /// ```swift
    /// channel.inputStream.delegate = self
    /// channel.schedule(on: DispatchQueue(label: "channel"))  // in place of schedule(in:forMode:)
    /// channel.inputStream.open()
    /// channel.outputStream.open()
    /// ```
    /// - Parameter queue: A serial queue; nil: no queue any more.
    public func schedule(on queue: DispatchQueue?) {
        guard let endpoint else { return }
        endpoint.schedulers.input.schedule(on: queue)
        endpoint.schedulers.output.schedule(on: queue)
        endpoint.updateSchedule(.input)
        endpoint.updateSchedule(.output)
    }

    /// **BluezKit addition.** The channel's socket, for a program with an event loop of its own. Use it instead of the
    /// streams.
    ///
    /// It is a duplicate that does not block: wait with `poll`, `epoll` or a dispatch source before reading or writing,
    /// and write at most ``maximumPacketLength`` bytes at a time. Closing the handle does not close the channel, which
    /// lasts as long as this object.
    /// - Returns: Nil if the channel has been closed, or the process has no descriptor left.
    public func makeFileHandle() -> FileHandle? {
        guard let socket, let endpoint, endpoint.status(of: .input) != .closed else { return nil }
        let duplicate = fcntl(socket.descriptor, F_DUPFD_CLOEXEC, 0)
        return duplicate < 0 ? nil : FileHandle(fileDescriptor: duplicate, closeOnDealloc: true)
    }

    /// **BluezKit addition.** The largest packet (SDU) in bytes that is sent: what the peer accepts, from 23 on, and
    /// 4,096 at most; 65,535 in a simulator. Streams divide what is written into such packets.
    public var maximumPacketLength: Int { socket?.longestSDU ?? 0 }
}
