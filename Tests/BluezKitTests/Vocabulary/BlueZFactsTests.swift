import BluezKitSimulator
import Testing

@testable import BluezKit

@Suite struct BlueZFactsTests {
    @Test(
        "the simulator's BlueZ takes as long as BluezKit assumes of bluetoothd, the kernel and controllers",
        arguments: [
            ("Disconnect", SimulatorTiming.real.disconnectDelay, BlueZFacts.disconnect),
            ("a device that was only discovered", SimulatorTiming.real.temporaryTimeout, BlueZFacts.temporaryDevice),
            ("one whose pairing has failed", SimulatorTiming.real.failedPairingRemoval, BlueZFacts.temporaryDevice),
            ("a scan cycle", SimulatorTiming.real.scanCycle, BlueZFacts.scanCycle),
            ("a peer's answer", SimulatorTiming.real.attTimeout, BlueZFacts.attributeTransaction),
            ("an application's answer", SimulatorTiming.real.applicationTimeout, BlueZFacts.applicationAnswer),
        ])
    func simulator(_ what: String, _ simulated: Duration, _ assumed: Duration) {
        #expect(simulated == assumed, "\(what)")
    }

    @Test("the simulator's Connect lasts as long as BluezKit assumes, to the second: it was measured")
    func connect() {
        #expect(SimulatorTiming.real.connectTimeout.components.seconds == BlueZFacts.connect.components.seconds)
    }

    @Test("a device that counts as being in range is one that BlueZ has not forgotten")
    func inRange() { #expect(BlueZTiming().connect.inRange < BlueZFacts.temporaryDevice) }

    @Test("calls have longer than BlueZ takes before it gives up")
    func deadlines() {
        typealias Deadline = BlueZTiming.Deadline
        #expect(Deadline.call > BlueZFacts.disconnect && Deadline.connect > BlueZFacts.connect)
        #expect(Deadline.pair > BlueZFacts.pair)
        #expect(BlueZTiming().gatt.answer > BlueZFacts.attributeTransaction)
        #expect(BlueZTiming().gatt.pairingAnswer > BlueZFacts.attributeTransaction + BlueZFacts.pairingStep)
        #expect(Deadline.connect == .seconds(70) && Deadline.pair == .seconds(150))
        #expect(BlueZTiming().gatt.answer == .seconds(35) && BlueZTiming().gatt.pairingAnswer == .seconds(65))
        #expect(Deadline.blockedList == .seconds(4))
    }

    @Test("a request of a central is answered by the time that bluetoothd would do so, and an indication by its peer's")
    func server() {
        #expect(BlueZTiming().server.request == BlueZFacts.applicationAnswer)
        #expect(BlueZTiming().server.confirmation == BlueZFacts.attributeTransaction)
    }
}
