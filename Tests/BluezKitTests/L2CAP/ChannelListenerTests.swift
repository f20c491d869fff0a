import BluezDBus
import Foundation
import Testing

@testable import BluezKit

@Suite struct ChannelListenerTests {
    @Test("L2-8 a channel that is withdrawn frees its PSM at once: the next manager may want it again")
    func freesItsPSM() throws {
        let bus = BlueZBus(address: BusAddress("unix:path=/nonexistent"))
        let name = "bluezkit-test-\(UUID())"
        let listener = ChannelListener(descriptor: try listen(at: name), psm: 0x81, isEncrypted: false, on: bus)
        try bus.queue.sync {
            listener.start()
            listener.end()
            close(try listen(at: name))
        }
    }

    /// A name of Unix sockets is taken as long as the socket is open, as a PSM is.
    private func listen(at name: String) throws -> Int32 {
        let descriptor = socket(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.dropFirst().copyBytes(from: name.utf8) }
        let size = socklen_t(MemoryLayout.size(ofValue: address))
        let isBound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, size) == 0 }
        }
        guard isBound, Glibc.listen(descriptor, 1) == 0 else {
            close(descriptor)
            throw POSIXError(.EADDRINUSE)
        }
        return descriptor
    }
}
