import BluezKit
import BluezKitSimulator
import Foundation

/// A fresh simulator with the rig's peripherals.
final class SimulatedWorld: World {
    var managerOptions: [String: Any] { [:] }
    let connectTimeout = 1.0
    init() async throws { throw RigWorld.Refused(description: "no simulator yet") }
    func control(_ line: String) async throws -> String { "" }
    func nextEvent(_ what: String, where matches: @escaping @Sendable (String) -> Bool) async throws -> String { "" }
}
