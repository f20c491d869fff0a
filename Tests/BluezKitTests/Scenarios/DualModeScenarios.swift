import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// A peripheral with a public address that has classic Bluetooth as well, and an adapter that has: BlueZ prefers to
/// page it. The simulator has no classic Bluetooth: what the library does about that is in `StubbornBlueZTests`.
extension Scenarios {
    @Suite(.enabled(if: Worlds.isRig, "the simulator has no classic Bluetooth")) struct DualModeScenarios {
        @Test("D9 BlueZ 5.66 pages a dual-mode peripheral: the error says what to change, and has all attempts")
        func paged() async throws {
            let world = try await Worlds.make()
            try await world.control("rig dual on")
            let central = Central(world)
            try await central.powerOn()
            let dual = try await central.find("Rig Dual")
            central.manager.connect(dual)
            let error = try await central.next("failure") {
                if case .failed(dual, let error) = $0 { [error] } else { nil }
            }[0]
            let failure = try #require(error as? CBError)
            #expect(failure.code == .connectionFailed)
            let advice = failure.userInfo[NSLocalizedRecoverySuggestionErrorKey] as? String
            #expect(advice?.contains("ControllerMode = le") == true)
            let attempts = try #require(failure.userInfo[BluezErrorAttemptsKey] as? [BluezConnectAttempt])
            #expect(attempts.count >= 3)
            #expect(try await world.control("rig pages") != "0")
            try await world.control("rig dual off")
        }

        @Test("D9 with the suggested ControllerMode = le, a dual-mode peripheral is connected by LE")
        func byLE() async throws {
            let world = try await Worlds.make()
            try await world.control("rig dual on")
            try await world.restartDaemon(with: "mode le")
            let central = Central(world)
            try await central.powerOn()
            let dual = try await central.find("Rig Dual")
            try await central.connect(dual)
            #expect(try await central.discoverServices(dual).map(\.uuid) == [CBUUID(string: "1815")])
            #expect(try await world.control("rig pages") == "0")
            try await central.disconnect(dual)
            try await world.restartDaemon(with: "mode dual")
            try await world.control("rig dual off")
        }
    }
}
