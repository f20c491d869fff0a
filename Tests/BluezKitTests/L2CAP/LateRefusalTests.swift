import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

// The kernel waits 40 s for the pairing that a channel needs, and then says that the peer refuses the channel, which
// looked like a PSM that does not exist. Now such a refusal is a pairing that did not come about.
@Suite struct LateRefusalTests {
    @Test(
        "L2-9 a channel that is refused at once does not exist; one that is refused after the kernel's time was not paired",
        arguments: [true, false])
    func refused(isLate: Bool) async throws {
        let world = try await SimulatedWorld(.calm)
        let times = ShortTimes(on: world.busAddress) { if isLate { $0.channel.unpaired = .zero } }
        defer { withExtendedLifetime(times) {} }
        let central = Central(world)
        try await central.powerOn()
        try await world.control("coc channel mode echo")
        let device = try await central.find("Rig CoC")
        try await central.connect(device)
        device.openL2CAPChannel(0x99)
        let error = try await central.next("didOpen") {
            if case .channel(nil, let error) = $0 { [error] } else { nil }
        }[0]
        #expect((error as? CBError)?.code == (isLate ? .encryptionTimedOut : .connectionFailed))
    }
}
