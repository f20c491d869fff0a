import CBluezL2CAP
import Foundation

/// The kernel's interface for L2CAP channels.
///
/// Sockets are of the type SOCK_STREAM: the kernel keeps the rest of an SDU that was read in part, and what has arrived
/// can be read before the end of the channel is reported. With SOCK_SEQPACKET neither is so.
/// - SeeAlso: Linux include/net/bluetooth/bluetooth.h, include/net/bluetooth/l2cap.h.
enum BluetoothSocket {
    private static let family = Int32(CL2CAP_AF_BLUETOOTH)
    private static let level = Int32(CL2CAP_SOL_BLUETOOTH)

    /// The largest SDU that a peer may send. Not more: since Linux 6.10 (and 6.1.93) the kernel gives credits for what
    /// it thinks that the receive buffer has room for, which is 12 KB for packets of 247 bytes. A longer SDU never
    /// arrives whole, and the channel stands still (seen on 6.1.176 with 16,384).
    private static let longestSDU: UInt16 = 4096

    /// A new non-blocking socket, bound to an adapter.
    /// - Parameters:
    ///   - adapter: The adapter's own address. Binding with an LE type makes it an LE socket.
    ///   - psm: To listen at; 0: the kernel chooses one.
    static func make(at adapter: DeviceIdentity, psm: UInt16 = 0) throws(SocketFailure) -> Int32 {
        // Never blocking: on Linux 6.1 nothing arrives while a call that reads waits in the kernel.
        let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        let descriptor = socket(family, type, Int32(CL2CAP_BTPROTO_L2CAP))
        guard descriptor >= 0 else { throw SocketFailure(.make, errno) }
        let status = L2CAPAddress(adapter, psm: psm).withPointer { bind(descriptor, $0, $1) }
        guard status == 0 else {
            let code = errno
            close(descriptor)
            throw SocketFailure(.listen, code)
        }
        var mtu = longestSDU
        _ = setsockopt(descriptor, level, Int32(CL2CAP_BT_RCVMTU), &mtu, socklen_t(MemoryLayout.size(ofValue: mtu)))
        return descriptor
    }

    /// Begins to connect. The socket becomes writable when that has succeeded or failed.
    static func connect(_ descriptor: Int32, to peer: DeviceIdentity, psm: UInt16) throws(SocketFailure) {
        let status = L2CAPAddress(peer, psm: psm).withPointer { Glibc.connect(descriptor, $0, $1) }
        guard status != 0, errno != EINPROGRESS, errno != EAGAIN else { return }
        throw SocketFailure(.connect, errno)
    }

    /// Begins to listen.
    /// - Parameters:
    ///   - isEncrypted: Whether the kernel refuses channels on links that are not encrypted.
    ///   - backlog: How many channels may wait to be accepted. The kernel refuses further ones.
    /// - Returns: The PSM.
    static func listen(_ descriptor: Int32, isEncrypted: Bool, backlog: Int32) throws(SocketFailure) -> UInt16 {
        if isEncrypted {
            var security = cl2cap_security(level: UInt8(CL2CAP_BT_SECURITY_MEDIUM), key_size: 0)
            let size = socklen_t(MemoryLayout.size(ofValue: security))
            guard setsockopt(descriptor, level, Int32(CL2CAP_BT_SECURITY), &security, size) == 0 else {
                throw SocketFailure(.listen, errno)
            }
        }
        guard Glibc.listen(descriptor, backlog) == 0 else { throw SocketFailure(.listen, errno) }
        guard let own = L2CAPAddress(of: descriptor, getsockname) else { throw SocketFailure(.listen, errno) }
        return own.psm
    }

    /// The largest SDU that the peer accepts, in bytes; nil: not a Bluetooth socket.
    static func peerMTU(_ descriptor: Int32) -> Int? {
        var mtu: UInt16 = 0
        var size = socklen_t(MemoryLayout.size(ofValue: mtu))
        guard getsockopt(descriptor, level, Int32(CL2CAP_BT_SNDMTU), &mtu, &size) == 0 else { return nil }
        return Int(mtu)
    }

    /// Why a socket is not connected; 0: it is. Clears the error.
    static func pendingError(_ descriptor: Int32) -> Int32 {
        var code: Int32 = 0
        var size = socklen_t(MemoryLayout.size(ofValue: code))
        return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &size) == 0 ? code : errno
    }
}

/// The address of one end of a channel.
struct L2CAPAddress: Equatable {
    let device: DeviceIdentity
    let psm: UInt16

    init(_ device: DeviceIdentity, psm: UInt16) { (self.device, self.psm) = (device, psm) }

    /// That of a socket's own end or of its peer. Nil if it is not that of an LE device.
    init?(
        of descriptor: Int32,
        _ ask: (Int32, UnsafeMutablePointer<sockaddr>?, UnsafeMutablePointer<socklen_t>?) -> Int32
    ) {
        var address = cl2cap_address()
        var size = socklen_t(MemoryLayout.size(ofValue: address))
        let status = withUnsafeMutableBytes(of: &address) {
            ask(descriptor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), &size)
        }
        guard status == 0 else { return nil }
        self.init(address)
    }

    /// Nil if it is not that of an LE device.
    init?(_ address: cl2cap_address) {
        let type = Int(address.address_type)
        guard Int(address.family) == CL2CAP_AF_BLUETOOTH,
            type == CL2CAP_BDADDR_LE_PUBLIC || type == CL2CAP_BDADDR_LE_RANDOM
        else { return nil }
        let number = withUnsafeBytes(of: address.address) { $0.reversed().reduce(0) { $0 << 8 | UInt64($1) } }
        self.init(
            DeviceIdentity(address: number, isRandom: type == CL2CAP_BDADDR_LE_RANDOM),
            psm: UInt16(littleEndian: address.psm))
    }

    var kernelAddress: cl2cap_address {
        var address = cl2cap_address()
        address.family = UInt16(CL2CAP_AF_BLUETOOTH)
        address.psm = psm.littleEndian
        address.address_type = UInt8(device.isRandom ? CL2CAP_BDADDR_LE_RANDOM : CL2CAP_BDADDR_LE_PUBLIC)
        withUnsafeMutableBytes(of: &address.address) { bytes in
            for index in bytes.indices { bytes[index] = UInt8(truncatingIfNeeded: device.address >> UInt64(8 * index)) }
        }
        return address
    }

    func withPointer<R>(_ body: (UnsafePointer<sockaddr>?, socklen_t) -> R) -> R {
        withUnsafeBytes(of: kernelAddress) {
            body($0.baseAddress?.assumingMemoryBound(to: sockaddr.self), socklen_t($0.count))
        }
    }
}
