import BluezDBus
import BluezKitSimulator
import Dispatch
import Foundation
import Testing

@Suite("Simulator: private bus")
struct PrivateBusTests {
    // Threads of a dispatch queue block SIGTERM, and the daemon inherited that: it outlived the bus, and `deinit`
    // waited for it forever. Now it starts with no signal blocked.
    @Test("a bus that was started on a dispatch queue ends with its object, and leaves nothing behind")
    func ends() async throws {
        let address = try await withCheckedThrowingContinuation { continuation in
            DispatchQueue(label: "test").async {
                continuation.resume(with: Result { try PrivateBus().address.rawValue })
            }
        }
        // unix:path=/tmp/…/bus,guid=…
        let path = try #require(address.split(separator: ",").first?.split(separator: "=").last)
        #expect(!FileManager.default.fileExists(atPath: String(path)))
    }
}
