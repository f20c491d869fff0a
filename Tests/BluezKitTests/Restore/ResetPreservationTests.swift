import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

// A manager that does not resume after a reset lost its preserved state with it, at once or after ten seconds. So an
// app was not restored after a restart of the computer if bluetoothd had exited before it. Now the state stays on disk
// until Bluetooth is on again; then what has ended is removed.
@Suite struct ResetPreservationTests {
    private func options(_ directory: TemporaryDirectory) -> [String: Any] {
        directory.centralOptions.merging([BluezManagerOptionResumeAfterResetKey: false]) { $1 }
    }

    private func content(_ directory: TemporaryDirectory) -> String {
        directory.files.compactMap { try? String(contentsOfFile: "\(directory.path)/\($0)", encoding: .utf8) }.joined()
    }

    @Test(
        "RS-17 R-25 services, channels and advertisement stay on disk during a reset, and no longer",
        arguments: ["kill", "stop"])
    func publishing(_ how: String) async throws {
        let world = try await SimulatedWorld()
        let directory = try TemporaryDirectory()
        let publisher = Publisher(world, options: options(directory))
        try await publisher.powerOn()
        #expect(try await publisher.add(localService(0x100, [local(0x110, .read)])) == nil)
        #expect(try await publisher.advertise() == nil)
        let psm = try await publisher.publishChannel()
        let expected = [sinkUUID(0x100).uuidString, "\"psm\":\(psm)", "advertisement"]
        try await world.control("bluetoothd \(how)")
        try await publisher.next("the reset") { if case .state(.resetting) = $0 { true } else { nil } }
        for part in expected { #expect(content(directory).contains(part)) }
        try await world.control("bluetoothd start")
        try await publisher.next("the end of the reset") { if case .state(.poweredOn) = $0 { true } else { nil } }
        #expect(directory.files.isEmpty)
        // What is published now is preserved.
        #expect(try await publisher.add(localService(0x101, [local(0x111, .read)])) == nil)
        #expect(content(directory).contains(sinkUUID(0x101).uuidString))
        #expect(!content(directory).contains(sinkUUID(0x100).uuidString))
    }

    @Test("RS-17 R-25 scan and connections stay on disk during a reset, and no longer", arguments: ["kill", "stop"])
    func central(_ how: String) async throws {
        let world = try await SimulatedWorld()
        let directory = try TemporaryDirectory()
        let central = Central(world, options: options(directory))
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        try await central.connect(heart)
        try await world.control("bluetoothd \(how)")
        try await central.next("the reset") { if case .state(.resetting) = $0 { true } else { nil } }
        if how == "kill" { #expect(content(directory).contains(heart.identifier.uuidString)) }
        #expect(heart.state == .disconnected)
        try await world.control("bluetoothd start")
        try await central.next("the end of the reset") { if case .state(.poweredOn) = $0 { true } else { nil } }
        #expect(directory.files.isEmpty)
    }
}
