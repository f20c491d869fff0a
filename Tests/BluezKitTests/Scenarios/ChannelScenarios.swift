import BluezKit
import Foundation
import Testing

extension Scenarios {
    /// L2CAP channels: the other ends that both worlds have.
    @Suite(.serialized)
    struct ChannelScenarios {
        @Test("both worlds' devices open channels to each other, and speak alike about them")
        func worlds() async throws {
            let world = try await Worlds.make()
            try await world.resetChannels()
            try await world.control("central connect F0:F1:F2:00:00:03")
            await #expect(throws: (any Error).self) { try await world.openChannel(0x99) }
            try await world.openChannel(0x80)
            try await world.awaitChannel("coc", "open 0080")

            try await world.control("central channel mode sink")
            try await world.control("central channel send 100000")
            try await world.control("central channel expect 100000")
            let sent = try await world.awaitChannel("central", "sent 100000")
            let echoed = try await world.awaitChannel("central", "received 100000")
            #expect(sent.split(separator: " ").last == echoed.split(separator: " ").last)
            #expect(try await world.control("coc channel hash") == "100000 \(sent.split(separator: " ").last ?? "")")

            try await world.control("coc channel close")
            try await world.awaitChannel("central", "closed 0080 100000")
            #expect(try await world.control("central channel count") == "0")
            try await world.control("coc channel refuse 0x0004")
            await #expect(throws: (any Error).self) { try await world.openChannel(0x80) }
            try await world.resetChannels()
            try await world.control("central channel churn 0080 20")
            try await world.openChannel(0x80)
            try await world.control("central disconnect")
            try await world.awaitChannel("coc", "closed 0080 0")
        }
    }
}
