import BluezDBus
import BluezKitSimulator
import CoreBluetooth
import Foundation
import Testing

@testable import BluezKit

/// What a test suite needs of a simulator: that it starts at once, that many run beside each other, and that the end of
/// a test is silent.
@Suite("Simulator: in a suite of tests") struct ManySimulatorsTests {
    @Test("a simulator starts in a few milliseconds")
    func startsAtOnce() async throws {
        // 12 ms, nearly all of it for dbus-daemon to start. The best of many, and a multiple: others use this machine.
        let limit = Duration.milliseconds(60)
        var times: [Duration] = []
        while times.count < 10 || times.count < 100 && times.allSatisfy({ $0 >= limit }) {
            let start = ContinuousClock.now
            let simulator = try await Simulator()
            times.append(.now - start)
            withExtendedLifetime(simulator) {}
        }
        let best = try #require(times.min())
        print("a simulator starts in \(best)")
        #expect(best < limit, "\(times)")
    }

    @Test("a hundred simulators beside each other, each with an app that connects")
    func hundred() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<100 {
                group.addTask {
                    let world = try await SimulatedWorld(.calm)
                    let central = Central(world)
                    try await central.powerOn()
                    let heart = try await central.find("Rig Heart")
                    try await central.connect(heart)
                    #expect(world.heart.connections.count == 1, "\(number)")
                }
            }
            try await group.waitForAll()
        }
    }

    private final class App: NSObject, CBCentralManagerDelegate {
        let connected = EventLog<CBPeripheral>()
        private let central = ProtectedBox<(CBCentralManager?, CBPeripheral?)>((nil, nil))

        func start(_ options: [String: Any]) {
            let manager = CBCentralManager(delegate: self, queue: DispatchQueue(label: "app"), options: options)
            central.withLock { $0.0 = manager }
        }

        func centralManagerDidUpdateState(_ central: CBCentralManager) {
            if central.state == .poweredOn { central.scanForPeripherals(withServices: nil) }
        }

        func centralManager(
            _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
            rssi RSSI: NSNumber
        ) {
            guard peripheral.name == "Quiet" else { return }
            central.stopScan()
            self.central.withLock { $0.1 = peripheral }
            central.connect(peripheral)
        }

        func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
            connected.append(peripheral)
        }
    }

    // Each test that ended while connected printed "API MISUSE: Forcing disconnection of unused peripheral", or "no
    // connection to the bus" where the simulator went first.
    @Test("a test that ends while its app is connected leaves nothing in the log", arguments: [true, false])
    func silentEnd(isAppFirst: Bool) async throws {
        _ = LogCapture.shared
        let address = isAppFirst ? "F0:00:00:00:E0:01" : "F0:00:00:00:E0:02"
        var simulator: Simulator? = try await Simulator(options: .calm)
        simulator?.add(VirtualPeripheral(address, VirtualAdvertisement(localName: "Quiet")))
        let bus = try #require(simulator).address
        var times = BlueZTiming()
        times.link.release = .milliseconds(20)
        times.daemon.reconnect = .seconds(60)  // the app goes before that, on a slow machine as well
        Session.setTiming(times, on: BusAddress(bus))
        defer { Session.setTiming(nil, on: BusAddress(bus)) }
        var app: App? = App()
        app?.start([BluezManagerOptionBusAddressKey: bus])
        _ = try await app?.connected.next("the link") { $0 }
        app?.connected.forget()
        if isAppFirst { app = nil }
        simulator = nil
        app = nil
        // On the queue that says, a moment later, that a peripheral was released while it was connected.
        let said = EventLog<Bool>()
        DispatchQueue.files.later(.milliseconds(300)) { said.append(true) }
        try await said.next("what is said of a released peripheral") { $0 }
        #expect(LogCapture.shared.count(address) == 0 && LogCapture.shared.count(bus) == 0)
    }
}
