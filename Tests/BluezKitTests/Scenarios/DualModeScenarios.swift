import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// A peripheral with a public address that has classic Bluetooth as well, and an adapter that has: BlueZ prefers to
/// page it. The simulator has no classic Bluetooth: what the library does about that is in `StubbornBlueZTests`.
extension Scenarios {
    @Suite(.enabled(if: Worlds.isRig, "the simulator has no classic Bluetooth")) struct DualModeScenarios {
        // Slow: bluetoothd stops and starts twice, and three attempts have failed before the error is reported.
        @Test("D9 BlueZ 5.66 pages a dual-mode peripheral: the error says what to change, and has all attempts")
        func paged() async throws {
            try await withDualMode("dual") { world in
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
            }
        }

        // Slow: bluetoothd stops and starts twice, and ends the link two to three seconds after it was asked to.
        @Test("D9 with the suggested ControllerMode = le, a dual-mode peripheral is connected by LE")
        func byLE() async throws {
            try await withDualMode("le") { world in
                let central = Central(world)
                try await central.powerOn()
                let dual = try await central.find("Rig Dual")
                try await central.connect(dual)
                #expect(try await central.discoverServices(dual).map(\.uuid) == [CBUUID(string: "1815")])
                #expect(try await world.control("rig pages") == "0")
                try await central.disconnect(dual)
            }
        }

        /// Runs `body` with an adapter that has classic Bluetooth as well. bluetoothd is stopped while it is replaced:
        /// a manager that began before bluetoothd has noticed would see it go.
        private func withDualMode(_ mode: String, _ body: (any World) async throws -> Void) async throws {
            let world = try await Worlds.make()
            func replace(_ lines: String...) async throws {
                for line in ["bluetoothd stop"] + lines + ["bluetoothd start"] { try await world.control(line) }
            }
            try await replace("rig dual on", "bluetoothd mode \(mode)")
            let result: Result<Void, any Error>
            do { result = .success(try await body(world)) } catch { result = .failure(error) }
            try await replace("rig dual off", "bluetoothd mode dual")
            try result.get()
        }
    }
}
