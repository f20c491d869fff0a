public import Foundation

/// A Protocol/Service Multiplexer, which identifies an L2CAP channel of a device.
/// - SeeAlso: Core Spec 5.4, Vol 3, Part A, 4.22.
public typealias CBL2CAPPSM = UInt16

/// An open L2CAP channel: two streams of bytes. Keep it: releasing it closes the channel.
///
/// The streams are delivered neither open nor scheduled.
/// - SeeAlso: Apple, `CBL2CAPChannel`.
open class CBL2CAPChannel: NSObject, @unchecked Sendable {  // holds: constants; a stream belongs to its run loop
    private let storedPeer: CBPeer?
    private let storedInput: InputStream?
    private let storedOutput: OutputStream?
    private let storedPSM: CBL2CAPPSM

    init(peer: CBPeer?, inputStream: InputStream?, outputStream: OutputStream?, psm: CBL2CAPPSM) {
        (storedPeer, storedInput, storedOutput, storedPSM) = (peer, inputStream, outputStream, psm)
        super.init()
    }

    /// An unconnected channel, without streams. Apple's class can also be created like this.
    public override init() {
        (storedPeer, storedInput, storedOutput, storedPSM) = (nil, nil, nil, 0)
        super.init()
    }

    /// The other end: a ``CBPeripheral`` if this side opened the channel, otherwise a ``CBCentral``.
    open var peer: CBPeer! { storedPeer }

    /// Data from the peer.
    open var inputStream: InputStream! { storedInput }

    /// Data to the peer.
    open var outputStream: OutputStream! { storedOutput }

    /// The channel's PSM at the listening side.
    open var psm: CBL2CAPPSM { storedPSM }
}
