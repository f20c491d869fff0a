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
                continuation.resume(with: Result { try PrivateBus().address })
            }
        }
        // unix:path=/tmp/…/bus,guid=…
        let words = address.split { "=,".contains($0) }
        let path = try #require(words.dropFirst().first)
        #expect(!FileManager.default.fileExists(atPath: String(path)))
    }

    // The files of killed programs stayed for a day, and each manager that was made looked through all of them.
    @Test("the files that programs have left about links on a bus go with it, and those of other buses stay")
    func leases() throws {
        let directory = sharedDirectory()
        mkdir(directory, 0o700)
        var bus: PrivateBus? = try PrivateBus()
        let words = bus?.address.split { "=,".contains($0) }
        let guid = try #require(words?.last)
        let names = ["\(guid) :1.4 hci0 dev_1", "\(guid)0 :1.4 hci0 dev_1"]
        for name in names { #expect(FileManager.default.createFile(atPath: "\(directory)/\(name)", contents: nil)) }
        defer { for name in names { unlink("\(directory)/\(name)") } }
        bus = nil
        #expect(names.map { access("\(directory)/\($0)", F_OK) == 0 } == [false, true])
    }
}
