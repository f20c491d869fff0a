import BluezKitSimulator
import BluezDBus
import Dispatch
import Foundation
import Synchronization

/// One input is one life: a bluetoothd that does what the bytes say, and an app in both roles that uses everything it
/// is shown. The bus is the same for all.
enum FuzzedWorld {
    private static let bus = Result { () throws(PrivateBus.StartError) in try PrivateBus(policy: .open) }
    private static let counts = Mutex((worlds: 0, messages: 0))

    static func play(_ bytes: UnsafeBufferPointer<UInt8>) {
        guard case .success(let bus) = bus else { preconditionFailure("no bus: \(bus)") }
        let daemon = FuzzedDaemon(bus.busAddress, Choices(bytes))
        let app = FuzzedApp(bus.busAddress, seed: bytes.reduce(0) { $0 &* 31 &+ UInt64($1) })
        let messages = daemon.play { app.settle() }
        app.end()
        daemon.end()
        let worlds = counts.withLock { counts in
            counts.worlds += 1
            counts.messages += messages
            return counts.worlds
        }
        // What one life leaves open, a thousand leave open a thousand times.
        if worlds % 256 == 0 {
            let open = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd"))?.count ?? 0
            precondition(open < 400, "\(open) descriptors are open")
        }
    }

    static func printCounts() {
        let (worlds, messages) = counts.withLock { $0 }
        if worlds > 0 { FileHandle.standardError.write(Data("bus: \(messages) messages in \(worlds) worlds\n".utf8)) }
    }
}

/// Waits for something that another thread does. Too long is a finding: something hangs.
func wait(_ what: String, _ begin: (DispatchSemaphore) -> Void) {
    let done = DispatchSemaphore(value: 0)
    begin(done)
    precondition(done.wait(timeout: .now() + 20) == .success, "\(what): nothing happens")
}
