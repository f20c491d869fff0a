import BluezDBus
import Dispatch
import Foundation
import Testing

@testable import BluezKit

@testable import BluezKitSimulator

// The simulator crashed on valid actions of tests and clients: a service that is removed during a read or write of it
// (characteristics referred to a released service), a storm against a peripheral without attributes, a table that uses
// the last handle, control lines with numbers such as `inf`. It also kept data that was no longer needed: file
// descriptors in properties that a client sets, and every call it had ever received. When the first adapter was plugged
// in, it dropped its pending actions. Now all of this works.
@Suite("Simulator: robustness") struct SimulatorRobustnessTests {
    private static let slow = VirtualCharacteristic("2A56", [.read, .write], value: [1], delay: .milliseconds(100))

    @Test("a central's request to an app ends with the link, even if bluetoothd exits before the app answers")
    func daemonDiesDuringStep() async throws {
        let characteristic = local(0x112, [.read, .notify])
        let (world, publisher) = try await Publisher.connected([characteristic])
        let simulator = try #require((world as? SimulatedWorld)?.simulator)
        let session = try #require(publisher.manager?.session)
        // The app answers nothing.
        session.queue.suspend()
        let subscription = Task { try await simulator.central().subscribe(characteristic.uuid.line) }
        simulator.killDaemon()
        session.queue.resume()
        await #expect(throws: (any Error).self) { try await subscription.value }
    }

    @Test("a service that is removed during a read and a write ends them; other services keep working")
    func serviceGoes() async throws {
        let simulator = try await Simulator()
        let peripheral = simulator.add(
            VirtualPeripheral(
                "F0:F1:F2:00:00:01", VirtualAdvertisement(localName: "Slow"),
                services: [
                    VirtualService("181A", [VirtualCharacteristic("2A6E", .read, value: [5])]),
                    VirtualService(
                        "1815", [Self.slow, Self.slow].enumerated().map { VirtualCharacteristic(like: $1, number: $0) }),
                ]))
        let client = try await BusClient(simulator.busAddress)
        try await client.adapter("StartDiscovery")
        #expect(await client.hears("+ dev01 Device1"))
        try await client.device("Connect")
        #expect(await client.waits { $0.contains { $0.contains("ServicesResolved=true") } })
        func path(_ uuid: String) async throws -> String {
            try await client.objects().first {
                $0.value["org.bluez.GattCharacteristic1"]?["UUID"]?.stringValue == UUIDText.full(uuid)
            }?.key ?? ""
        }
        let (read, written, other) = (try await path("2A50"), try await path("2A51"), try await path("2A6E"))
        Task { _ = try? await client.read(read) }
        Task { _ = try? await client.characteristic(written, "WriteValue", .bytes([1]), .noOptions) }
        await simulator.waitForCalls("ReadValue")
        await simulator.waitForCalls("WriteValue")
        #expect(peripheral.removeService("1815"))
        // Waits for its turn on the link, behind those.
        #expect(try await client.read(other) == [5])
        #expect(try await client.objects()[read] == nil)
    }

    @Test("a storm against a peripheral without attributes is refused")
    func emptyStorm() async throws {
        let simulator = try await Simulator()
        simulator.add(
            VirtualPeripheral("F0:F1:F2:00:00:01", VirtualAdvertisement(), services: [VirtualService("1801")]))
        let central = simulator.central()
        try await central.connect(to: "F0:F1:F2:00:00:01")
        await #expect(throws: VirtualCentralError.noCharacteristics) { try await central.storm(1) }
    }

    @Test("a table may use every handle up to the last")
    func fullTable() throws {
        let unused = GATTTable([VirtualService("1801")]).room
        // A declaration, and two handles for each characteristic.
        let count = (unused - 1) / 2
        var table = GATTTable([
            VirtualService("1801"), VirtualService("180D", Array(repeating: .init("2A37", .read), count: count)),
        ])
        #expect(table.room == (unused - 1) % 2)
        if table.room == 1 { table.add(VirtualService("1801")) }
        #expect(table.room == 0)
        #expect(table.services.last?.endHandle == 0xFFFF)
    }

    @Test("control lines with numbers out of range are refused without other effects")
    func numbers() async throws {
        let simulator = try await Simulator()
        let sensor = simulator.add(.rigSink())
        let central = simulator.central()
        try await central.connect(to: sensor.address)
        for line in [
            "heart beat inf", "heart beat nan", "heart beat 1e300", "heart beat 1e-300", "heart beat -1",
            "heart beat x",
            "sink burst 0013 inf", "sink burst 0013 1e30", "sink burst 0013 -5", "sink burst 0013 nan",
            "sink burst 0013 1 inf", "sink burst 0013 1 -20", "sink burst 0013 1 20 inf", "sink burst 0013 1 20 1e-300",
            "sink burst 0013 1 20 -1", "sink burst 0013 x", "sink rssi 99999", "sink rssi x", "sink once x",
            "sink pairing display 99999999999", "sink pairing display -1", "sink enter 1e3", "sink measure 99999",
            "crowd set -3", "crowd set 1 -1", "crowd set 1 9223372036854775807", "crowd set 1 100 -1",
            "crowd set 9223372036854775807", "crowd known -1", "crowd known 9223372036854775807", "rig adapters -1",
            "rig adapters 1e3", "rig sensors 99", "central readat 0010 -5", "central readat 0010 9223372036854775807",
            "central preparewrite 0010 -1 00", "central preparewrite 0010 9223372036854775807 00",
            "central storm -5", "central storm 1e9", "central churn \(sensor.address) 0013 -3", "central connect x 1e9",
            "central configure 0013 65536", "central configure 0013 -1",
        ] {
            await #expect(throws: ControlError.self, "\(line)") { try await simulator.control(line) }
        }
    }

    @Test("file descriptors in a property that a client sets are not kept", arguments: ["Alias", "Nonsense"])
    func descriptors(_ name: String) async throws {
        let simulator = try await Simulator()
        let client = try await BusClient(simulator.busAddress)
        var ends: [Int32] = [-1, -1]
        #expect(pipe(&ends) == 0)
        defer { close(ends[0]) }
        let values: [Value] = [
            .fileDescriptor(ends[1]), .array(element: "h", [.fileDescriptor(ends[1])]),
            .structure([.variant(.fileDescriptor(ends[1]))]),
        ]
        for value in values {
            _ = try? await client.call(
                "/org/bluez/hci0", "org.freedesktop.DBus.Properties", "Set", .string("org.bluez.Adapter1"),
                .string(name), .variant(value))
        }
        // In the options of other calls as well.
        _ = try? await client.adapter(
            "SetDiscoveryFilter", .properties([("Transport", .string("le")), ("x", .fileDescriptor(ends[1]))]))
        close(ends[1])
        #expect(await reachesEnd(ends[0]))
    }

    @Test("calls in progress are answered when an adapter is plugged in")
    func plugged() async throws {
        let simulator = try await Simulator()
        let client = try await BusClient(simulator.busAddress)
        simulator.inject(SimulatorFault("GetManagedObjects", .delay(.milliseconds(500))))
        async let objects = client.objects()
        await simulator.waitForCalls("GetManagedObjects")
        simulator.addAdapter(address: "00:B1:5E:00:00:02")
        #expect(try await objects["/org/bluez/hci1"] != nil)
    }

    /// Has the last reference to a simulator until one of its properties is read.
    private final class LastHolder: @unchecked Sendable {  // holds: used on the simulator's queue only
        let wasThere = EventLog<Bool>()
        private var simulator: Simulator?
        private weak var watched: Simulator?

        init(_ simulator: Simulator) { (self.simulator, watched) = (simulator, simulator) }

        func export() { simulator?.server?.add(Self.interface, to: "/holder", owner: self) }

        private static let interface = ExportedInterface(
            "org.example.Holder1", of: LastHolder.self,
            properties: [
                .init("Release", "b") { holder in
                    holder.simulator = nil
                    return nil
                },
                .init("Next", "b") { holder in
                    holder.wasThere.append(holder.watched != nil)
                    return nil
                },
            ])
    }

    // An adapter has a reference to its simulator only while it reads a property. Where the app released the simulator
    // in that moment, it was freed before the next property was read: a segmentation fault, rarely.
    @Test("a simulator that is released while its objects are announced stays until they are")
    func releasedDuringSignal() async throws {
        let (queue, holder) = try await {
            let simulator = try await Simulator()
            return (simulator.queue, LastHolder(simulator))
        }()
        queue.async { holder.export() }
        #expect(try await holder.wasThere.next("the second property") { $0 })
    }

    @Test("a limited number of received calls is remembered")
    func calls() async throws {
        var options = SimulatorOptions()
        options.rememberedCalls = 100
        let simulator = try await Simulator(options: options)
        let client = try await BusClient(simulator.busAddress)
        for _ in 0..<500 { _ = try await client.property("/org/bluez/hci0", "org.bluez.Adapter1", "Powered") }
        try await client.adapter("StartDiscovery")
        #expect((100...200).contains(simulator.calls.count))
        #expect(simulator.calls.last?.member == "StartDiscovery")
    }
}

extension VirtualCharacteristic {
    /// The same under another UUID, `2A50` and so on.
    fileprivate init(like other: VirtualCharacteristic, number: Int) {
        self = other
        uuid = UUIDText.full("2A5\(number)")
    }
}
