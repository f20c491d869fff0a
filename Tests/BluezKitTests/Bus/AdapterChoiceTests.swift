import BluezKit
import BluezKitSimulator
import Foundation
import Testing

/// Which adapter an app asks for, and what it learns where that one is not there.
@Suite struct AdapterChoiceTests {
    // A key that cannot be a part of an object path led to no question, and so to no callback, ever, and to no log
    // line.
    // Slow: an adapter has a period of grace to appear, in each of ten cases.
    @Test(
        "ST-1 an adapter that is not there leads to a state, in both roles, and the log names it and those that are",
        arguments: [
            "hci7", "00:11:22:33:44:55", "hci0 ", "/org/bluez/hci0", "usb-dongle", "hci+0", "hci", "00:B1:5E:00:00:0",
            "\u{1F4E1}", "hci_7",
        ])
    func missing(_ key: String) async throws {
        let world = try await SimulatedWorld()
        _ = world.simulator.addAdapter(address: "00:B1:5E:00:00:02")
        let options = [BluezManagerOptionAdapterKey: key]
        let (central, publisher) = (Central(world, options: options), Publisher(world, options: options))
        let first = try await central.next("a state") { if case .state(let state) = $0 { state } else { nil } }
        #expect(first == .unsupported)
        #expect(
            try await publisher.next("a state") { if case .state(let state) = $0 { state } else { nil } }
                == CBManagerState.unsupported)
        try await LogCapture.shared.expect(
            "warning: ", key, "BluezManagerOptionAdapterKey or BLUEZKIT_ADAPTER",
            "BlueZ has hci0 (00:B1:5E:00:00:01), hci1 (00:B1:5E:00:00:02)")
    }

    @Test("an adapter is chosen by its name or address, and no other one is used, also when it goes off")
    func chosen() async throws {
        // Calm: other programs scan as well.
        let world = try await SimulatedWorld(.calm)
        _ = world.simulator.addAdapter(address: "00:B1:5E:00:00:02")
        for key in ["hci1", "00:B1:5E:00:00:02", "00:b1:5e:00:00:02"] {
            let central = Central(world, options: [BluezManagerOptionAdapterKey: key])
            try await central.powerOn()
            world.simulator.forgetCalls()
            _ = try await central.find("Rig Heart")
            #expect(Set(world.simulator.calls("StartDiscovery").map(\.path)) == ["/org/bluez/hci1"])
            world.simulator.setPowered(false, adapter: 1)
            try await central.next("off") { if case .state(.poweredOff) = $0 { true } else { nil } }
            world.simulator.setPowered(true, adapter: 1)
            try await central.powerOn()
            central.release()
        }
    }

    @Test("ST-1 ST-6 an adapter that was chosen by its address is used when it is plugged in")
    func pluggedIn() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world, options: [BluezManagerOptionAdapterKey: "00:B1:5E:00:00:02"])
        try await central.next("none") { if case .state(.unsupported) = $0 { true } else { nil } }
        _ = world.simulator.addAdapter(address: "00:B1:5E:00:00:02")
        try await central.powerOn()
    }

    @Test("adapter options that are not text are ignored and logged")
    func wrongType() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world, options: [BluezManagerOptionAdapterKey: 1])
        try await central.powerOn()
        try await LogCapture.shared.expect("misuse: BluezManagerOptionAdapterKey needs a String")
    }
}
