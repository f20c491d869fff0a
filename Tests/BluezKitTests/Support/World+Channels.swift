import Foundation

/// L2CAP channels of the devices of a world. All that a device's channels do is in control lines, `coc channel pause`:
/// see `Tests/Rig/channels.py`.
extension World {
    /// The channels' devices do as at the start, and no channel is open.
    func resetChannels() async throws {
        for device in ["coc", "central", "central2"] { try await control("\(device) channel reset") }
    }

    /// The same, without links.
    func prepareChannels() async throws {
        try await resetChannels()
        // A link of an earlier test: a device with one does not advertise, and a central uses the one that it has.
        for device in ["central", "central2", "coc"] {
            _ = try? await control("\(device) disconnect")
            try await awaitConnections(device, 0)
        }
        for line in ["coc return", "coc advertise on"] { _ = try? await control(line) }
    }

    /// A connected central opens a channel.
    /// - Parameter pairs: If it must, it pairs.
    func openChannel(_ psm: UInt16, by central: String = "central", pairs: Bool = false) async throws {
        try await control("\(central) channel open \(String(psm, radix: 16))" + (pairs ? " pair" : ""))
    }

    /// What `channel send` sends.
    static func channelPattern(_ count: Int) -> Data {
        Data((0..<count).map { UInt8(truncatingIfNeeded: $0 + ($0 >> 8) + ($0 >> 16)) })
    }

    /// Waits for what a device says of its channels: `open 0080`, `closed 0080 COUNT SHA256`, `sent COUNT SHA256`,
    /// `received COUNT SHA256`.
    @discardableResult
    func awaitChannel(_ device: String, _ what: String, within seconds: Double = world_deadline) async throws -> String
    {
        let deadline = ContinuousClock.now + .seconds(seconds)
        while true {
            do {
                return try await nextEvent("\(device) channel-\(what)") { $0.hasPrefix("\(device) channel-\(what)") }
            } catch { guard ContinuousClock.now < deadline else { throw error } }
        }
    }
}
