import Foundation
import Testing

/// A reboot: another bus, another bluetoothd, the same devices around, and the state on the disk. `Tests/Rig/reboot`
/// does it with a machine.
@Suite struct RebootTests {
    @Test("R-25 RS-17 after a reboot: connecting, then didConnect, with the same identifier; the scan resumes")
    func reboot() async throws {
        let directory = try TemporaryDirectory()
        let arguments = ["--restore", "app", "--state-dir", directory.path]
        let heart = Scenarios.RestorationScenarios.heart
        do {
            let world = try await SimulatedWorld()
            let probe = try Probe(world, arguments)
            try await probe.next("state poweredOn")
            probe.send("scan 180D")
            probe.send("connect \(heart)")
            try await probe.next("connected \(heart)")
            try await probe.kill()
        }
        let world = try await SimulatedWorld()
        let probe = try Probe(world, arguments)
        try await probe.next("restored", "scanning=true services=180D", "\(heart):connecting")
        try await probe.next("connected \(heart)", "same=true")
        #expect(!probe.callbacks.contains("disconnected"))
        withExtendedLifetime(world) {}
    }
}
