import BluezKitSimulator
import CoreBluetooth
import Testing

// Each link had a match rule with its own path_namespace. dbus-daemon (1.14) treats rules that differ only in that as
// equal, so the end of one link removed the rule of another: it was connected and subscribed, but received no values.
// Now rules differ in what the daemon compares. Found by the storm.
@Suite struct MatchRuleTests {
    @Test("DL-7 the end of one link does not affect the signals of the others")
    func linksAreIndependent() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let heart = try await central.find("Rig Heart")
        let sink = try await central.find("Rig Sink")
        for (ending, staying, key, number) in [(heart, sink, "sink", "0013"), (sink, heart, "heart", "2a37")] {
            for peripheral in [ending, staying] {
                try await central.connect(peripheral)
                try await subscribe(to: peripheral, central)
            }
            try await central.disconnect(ending)
            _ = try await world.control("\(key) notify \(number) 0042")
            try await central.next("value after the other link's end") { event in
                if case .value(let characteristic, _, nil) = event {
                    characteristic.service?.peripheral === staying ? true : nil
                } else {
                    nil
                }
            }
            try await central.disconnect(staying)
        }
    }

    private func subscribe(to peripheral: CBPeripheral, _ central: Central) async throws {
        let isHeart = peripheral.name == "Rig Heart"
        let characteristic = try await central.characteristic(
            isHeart ? CBUUID(string: "2A37") : sinkUUID(0x13), of: isHeart ? CBUUID(string: "180D") : sinkUUID(1),
            on: peripheral)
        #expect(try await central.setNotify(true, characteristic) == nil)
    }
}
