import Foundation

/// A Protocol/Service Multiplexer: which L2CAP channel of a device.
/// - SeeAlso: Core Spec 5.4, Vol 3, Part A, 4.22.
public typealias CBL2CAPPSM = UInt16

/// An open L2CAP channel: two streams of bytes. Keep it: releasing it closes the channel.
///
/// The streams are handed over neither open nor scheduled.
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

    /// A channel to nowhere, with no streams. Apple's class can be created like this as well.
    public override init() {
        (storedPeer, storedInput, storedOutput, storedPSM) = (nil, nil, nil, 0)
        super.init()
    }

    /// Who is at the other end: a ``CBPeripheral`` where this side opened the channel, else a ``CBCentral``.
    open var peer: CBPeer! { storedPeer }

    /// What the peer sends.
    open var inputStream: InputStream! { storedInput }

    /// What is sent to the peer.
    open var outputStream: OutputStream! { storedOutput }

    /// The channel's number at the side that listens.
    open var psm: CBL2CAPPSM { storedPSM }
}
