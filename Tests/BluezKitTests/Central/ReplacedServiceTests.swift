import BluezDBus
import BluezKitSimulator
import CoreBluetooth
import Dispatch
import Foundation
import Testing

@testable import BluezKit

// BlueZ gives a new attribute the path of an old one, and does not answer an operation on an attribute that is removed.
// Calls on an old object by an app whose queue was behind were applied to the new attribute; and an operation on a
// removed attribute delayed all others of the link for 95 s. Now an object knows the version of its table, and a
// removal ends the operations on it.
@Suite struct ReplacedServiceTests {
    private struct Stage {
        let world: SimulatedWorld
        let device: VirtualPeripheral
        let central: Central
        let peripheral: CBPeripheral
        let characteristic: CBCharacteristic
        let descriptor: CBDescriptor
        var session: Session { central.manager.session }

        static func table(_ value: UInt8) -> [VirtualService] {
            [
                VirtualService(
                    "1815",
                    [
                        VirtualCharacteristic(
                            "2A56", [.read, .write, .writeWithoutResponse, .notify], value: [value],
                            descriptors: [VirtualDescriptor("2901", value: [value], isWritable: true)])
                    ])
            ]
        }

        /// Connected, with all that there is discovered.
        init(_ name: String, _ address: String, in given: SimulatedWorld? = nil) async throws {
            world = if let given { given } else { try await SimulatedWorld() }
            device = VirtualPeripheral(
                address, VirtualAdvertisement(localName: name),
                services: [VirtualService("180F", [VirtualCharacteristic("2A19", .read, value: [50])])] + Self.table(1))
            world.simulator.add(device)
            central = Central(world)
            try await central.powerOn()
            peripheral = try await central.find(name)
            try await central.connect(peripheral)
            characteristic = try await central.characteristic(
                CBUUID(string: "2A56"), of: CBUUID(string: "1815"), on: peripheral)
            descriptor = try await Self.descriptor(of: characteristic, central)
        }

        static func descriptor(of characteristic: CBCharacteristic, _ central: Central) async throws -> CBDescriptor {
            try #require(characteristic.service?.peripheral).discoverDescriptors(for: characteristic)
            try await central.next("descriptors") {
                if case .descriptors(characteristic, nil) = $0 { true } else { nil }
            }
            return try #require(characteristic.descriptors?.first { $0.uuid == CBUUID(string: "2901") })
        }

        func ask(_ kind: Kind) {
            switch kind {
            case .read: peripheral.readValue(for: characteristic)
            case .readDescriptor: peripheral.readValue(for: descriptor)
            case .write: peripheral.writeValue(Data([7]), for: characteristic, type: .withResponse)
            case .command: peripheral.writeValue(Data([8]), for: characteristic, type: .withoutResponse)
            case .writeDescriptor: peripheral.writeValue(Data([9]), for: descriptor)
            case .subscribe: peripheral.setNotifyValue(true, for: characteristic)
            case .unsubscribe: peripheral.setNotifyValue(false, for: characteristic)
            }
        }

        /// The error that it was answered with.
        func answer(_ kind: Kind) async throws -> CBError.Code? {
            try await central.next("answer to \(kind)") { [characteristic, descriptor] event -> [CBError.Code?]? in
                switch (kind, event) {
                case (.read, .value(characteristic, _, let error)), (.write, .written(characteristic, let error)),
                    (.subscribe, .notifying(characteristic, false, let error)),
                    (.unsubscribe, .notifying(characteristic, false, let error)),
                    (.readDescriptor, .descriptorValue(descriptor, let error)),
                    (.writeDescriptor, .descriptorWritten(descriptor, let error)):
                    [(error as? CBError)?.code]
                default: nil
                }
            }[0]
        }
    }

    enum Kind: CaseIterable {
        case read, readDescriptor, write, command, writeDescriptor, subscribe, unsubscribe

        var method: String {
            switch self {
            case .read, .readDescriptor: "ReadValue"
            case .write, .writeDescriptor: "WriteValue"
            case .command: "AcquireWrite"
            case .subscribe: "StartNotify"
            case .unsubscribe: "StopNotify"
            }
        }
    }

    @Test(
        "IV-1 IV-3 an operation on a replaced attribute fails, and is not applied to the new attribute",
        arguments: [true, false])
    func replaced(isReported: Bool) async throws {
        let stage = try await Stage("Replaced", "C0:00:00:09:00:02")
        let (central, session, old) = (stage.central, stage.session, stage.characteristic)
        let go = await central.block()
        let replace = {
            stage.device.replaceServices(
                [VirtualService("180F", [VirtualCharacteristic("2A19", .read, value: [50])])] + Stage.table(2))
        }
        if isReported {
            try await central.awaitReportedChange(of: stage.peripheral, replace)
        } else {
            session.queue.sync { session.blueZ.timing.gatt.tableChange = .seconds(3600) }
            replace()
            try await waitForReplacement(stage)
        }
        for kind in Kind.allCases { stage.ask(kind) }
        await central.passBusQueue()
        if !isReported { session.reportChanges() }
        go.signal()
        func change() async throws {
            try await central.next("change") { if case .modified(stage.peripheral, _) = $0 { true } else { nil } }
        }
        if isReported { try await change() }
        for kind in Kind.allCases where kind != .command { #expect(try await stage.answer(kind) == .invalidHandle) }
        if !isReported { try await change() }
        try await central.settle(stage.peripheral)
        #expect(stage.device.value(of: "2A56") == [2] && !stage.device.isSubscribed(to: "2A56"))
        try await central.awaitService("1815", of: stage.peripheral)
        let new = try await central.characteristic(
            CBUUID(string: "2A56"), of: CBUUID(string: "1815"), on: stage.peripheral)
        #expect(new !== old && new.element == old.element)
        #expect(try await central.read(new).get() == Data([2]))
        #expect(try await central.setNotify(true, new) == nil)
        let descriptor = try await Stage.descriptor(of: new, central)
        stage.peripheral.readValue(for: descriptor)
        try await central.next("descriptor") { if case .descriptorValue(descriptor, nil) = $0 { true } else { nil } }
        #expect(descriptor.value as? String == "\u{2}")
    }

    @Test(
        "IV-3 a service is removed during an operation that BlueZ never answers: it ends, and the next one runs",
        arguments: Kind.allCases)
    func goes(_ kind: Kind) async throws {
        let stage = try await Stage("Going", "C0:00:00:09:00:03")
        if kind == .unsubscribe { #expect(try await stage.central.setNotify(true, stage.characteristic) == nil) }
        stage.world.simulator.inject(SimulatorFault(kind.method, .ignore))
        stage.ask(kind)
        _ = await stage.world.simulator.waitForCalls(kind.method)
        #expect(stage.device.removeService("1815"))
        switch kind {
        case .command: break
        // It has ended.
        case .unsubscribe: #expect(try await stage.answer(kind) == nil)
        default: #expect(try await stage.answer(kind) == .invalidHandle)
        }
        try await stage.central.next("change") { if case .modified(stage.peripheral, _) = $0 { true } else { nil } }
        try await stage.central.settle(stage.peripheral)
        #expect(stage.peripheral.services?.count == 0 && stage.peripheral.canSendWriteWithoutResponse)
    }

    @Test(
        "IV-3 RW-1 an answer that arrives after the service was removed is ignored",
        arguments: [
            Kind.read, .write, .subscribe,
        ])
    func late(_ kind: Kind) async throws {
        // Calm: others would do something in each second that passes.
        let stage = try await Stage("Late", "C0:00:00:09:00:04", in: SimulatedWorld(.calm, times: .virtual))
        let (central, simulator) = (stage.central, stage.world.simulator)
        let level = try await central.characteristic(
            CBUUID(string: "2A19"), of: CBUUID(string: "180F"), on: stage.peripheral)
        simulator.inject(SimulatorFault(kind.method, .delay(.milliseconds(300))))
        stage.ask(kind)
        _ = await simulator.waitForCalls(kind.method)
        #expect(stage.device.removeService("1815"))
        #expect(try await stage.answer(kind) == .invalidHandle)
        // Begun later and delayed longer: its answer comes after the late one.
        simulator.inject(SimulatorFault("ReadValue", .delay(.milliseconds(600))))
        #expect(try await central.read(level).get() == Data([50]))
        try await central.settle(stage.peripheral)
        let answers = central.count { event in
            switch event {
            case .value(stage.characteristic, _, _), .written(stage.characteristic, _),
                .notifying(stage.characteristic, _, _):
                true
            default: false
            }
        }
        #expect(answers == 1)
    }

    @Test("CN-10 IV-3 BlueZ forgets the device during an operation: only the disconnection is reported")
    func forgotten() async throws {
        let stage = try await Stage("Forgotten", "C0:00:00:09:00:05")
        stage.world.simulator.inject(SimulatorFault("ReadValue", .ignore))
        stage.ask(.read)
        _ = await stage.world.simulator.waitForCalls("ReadValue")
        // Its attributes go first.
        stage.world.simulator.forgetDevice(stage.device)
        try await stage.central.next("loss") {
            if case .disconnected(stage.peripheral, _, .some) = $0 { true } else { nil }
        }
        #expect(stage.central.count { if case .value = $0 { true } else { false } } == 0)
        #expect(stage.central.count { if case .modified = $0 { true } else { false } } == 0)
    }

    @Test("CN-10 IV-3 operations requested while BlueZ removes the attributes of a lost link are not answered")
    func ending() async throws {
        let stage = try await Stage("Ending", "C0:00:00:09:00:06")
        let session = stage.session
        session.queue.sync { session.blueZ.timing.gatt.tableChange = .seconds(3600) }
        #expect(stage.device.removeService("1815"))
        try await wait(session) { !$0.reader.changedServices.isEmpty }
        for kind in Kind.allCases { stage.ask(kind) }
        await stage.central.passBusQueue()
        stage.device.disconnect()
        try await stage.central.next("loss") {
            if case .disconnected(stage.peripheral, _, .some) = $0 { true } else { nil }
        }
        let answers = stage.central.count { event in
            switch event {
            case .value, .written, .notifying, .descriptorValue, .descriptorWritten, .modified: true
            default: false
            }
        }
        #expect(answers == 0)
    }

    @Test("IV-1 attributes discovered after a change of the table stay valid when the change is reported")
    func discoveredSince() async throws {
        let stage = try await Stage("Since", "C0:00:00:09:00:07")
        let (central, session) = (stage.central, stage.session)
        session.queue.sync { session.blueZ.timing.gatt.tableChange = .seconds(3600) }
        stage.device.addService(
            VirtualService("1809", [VirtualCharacteristic("2A1C", [.read, .notify], value: [5])]))
        try await wait(session) { client in
            client.reader.table.characteristics.values.contains {
                client.reader.table.hasCCCD($0.path.rawValue) && $0.uuid == CBUUID(string: "2A1C")
            }
        }
        let new = try await central.characteristic(
            CBUUID(string: "2A1C"), of: CBUUID(string: "1809"), on: stage.peripheral)
        #expect(try await central.setNotify(true, new) == nil)
        session.reportChanges()
        let invalidated = try await central.next("change") {
            if case .modified(stage.peripheral, let services) = $0 { services } else { nil }
        }
        #expect(invalidated == [])
        #expect(new.isNotifying && stage.peripheral.services?.contains { $0 === new.service } == true)
        #expect(try await central.read(new).get() == Data([5]))
        stage.device.notify("2A1C", [6])
        try await central.next("value") { if case .value(new, Data([6]), nil) = $0 { true } else { nil } }
    }

    @Test("IV-1 NT-4 subscribing to a new attribute with the path of an old one subscribes to the new one")
    func subscribedSince() async throws {
        let stage = try await Stage("Sharing", "C0:00:00:09:00:08")
        let session = stage.session
        #expect(try await stage.central.setNotify(true, stage.characteristic) == nil)
        session.queue.sync { session.blueZ.timing.gatt.tableChange = .seconds(3600) }
        stage.device.replaceServices(
            [VirtualService("180F", [VirtualCharacteristic("2A19", .read, value: [50])])] + Stage.table(2))
        try await waitForReplacement(stage)
        let other = Central(stage.world)
        try await other.powerOn()
        let identifier = stage.peripheral.identifier
        let peripheral = try #require(
            await other.perform { other.manager.retrievePeripherals(withIdentifiers: [identifier]).first })
        peripheral.delegate = other
        try await other.connect(peripheral)
        let new = try await other.characteristic(
            CBUUID(string: "2A56"), of: CBUUID(string: "1815"), on: peripheral)
        #expect(new.element == stage.characteristic.element)
        #expect(try await other.setNotify(true, new) == nil)
        #expect(stage.device.isSubscribed(to: "2A56"))
        session.reportChanges()
        try await stage.central.next("change") { if case .modified(stage.peripheral, _) = $0 { true } else { nil } }
        try await other.settle(peripheral)
        #expect(new.isNotifying && !stage.characteristic.isNotifying)
        stage.device.notify("2A56", [3])
        try await other.next("value") { if case .value(new, Data([3]), nil) = $0 { true } else { nil } }
    }

    @Test("IV-1 R-13 an app is restored before a replaced service was reported: it is reported, and not subscribed")
    func restoredBeforeReport() async throws {
        let stage = try await Stage("Restored", "C0:00:00:09:00:09")
        let directory = try TemporaryDirectory()
        let first = Central(stage.world, options: directory.centralOptions)
        try await first.powerOn()
        let identifier = stage.peripheral.identifier
        let peripheral = try #require(first.manager.retrievePeripherals(withIdentifiers: [identifier]).first)
        try await first.connect(peripheral)
        let old = try await first.characteristic(CBUUID(string: "2A56"), of: CBUUID(string: "1815"), on: peripheral)
        #expect(try await first.setNotify(true, old) == nil)
        // Killed, as far as the disk knows.
        let copy = try TemporaryDirectory(copying: directory)
        first.release()
        _ = try #require(await stage.world.simulator.waitForCalls("StopNotify"))
        stage.session.queue.sync { stage.session.blueZ.timing.gatt.tableChange = .seconds(3600) }
        stage.device.replaceServices(
            [VirtualService("180F", [VirtualCharacteristic("2A19", .read, value: [50])])] + Stage.table(2))
        try await waitForReplacement(stage)
        let (second, restored) = try await Central.restored(stage.world, options: copy.centralOptions)
        stage.session.reportChanges()
        let gone = try await second.next("change") {
            if case .modified(restored, let services) = $0 { services } else { nil }
        }
        #expect(gone.map(\.uuid) == [CBUUID(string: "1815")])
        try await stage.central.next("change") { if case .modified(stage.peripheral, _) = $0 { true } else { nil } }
        try await second.settle(restored)
        #expect(!stage.device.isSubscribed(to: "2A56"))
        let new = try await second.characteristic(CBUUID(string: "2A56"), of: CBUUID(string: "1815"), on: restored)
        #expect(!new.isNotifying)
        #expect(try await second.setNotify(true, new) == nil)
    }

    /// Waits until `condition` holds on the bus queue.
    /// The service has gone and come again, with every descriptor: BlueZ announces each on its own.
    private func waitForReplacement(_ stage: Stage) async throws {
        let (characteristic, descriptor) = (
            stage.peripheral.path(of: stage.characteristic), stage.peripheral.path(of: stage.descriptor)
        )
        try await wait(stage.session) { client in
            client.reader.changedServices.contains(AttributeTable.service(of: characteristic))
                && client.reader.table.descriptors[descriptor] != nil && client.reader.table.hasCCCD(characteristic)
        }
    }

    private func wait(_ session: Session, until condition: @escaping (GATTClient) -> Bool) async throws {
        try await eventually("what the test waits for holds of the services") {
            session.queue.sync { session.central.connected.first?.connection.map { condition($0.client) } ?? false }
        }
    }
}

extension Session {
    /// Reports the changes now.
    fileprivate func reportChanges() {
        queue.sync {
            for device in central.connected { device.connection?.client.reader.reportChangedServices() }
            blueZ.flush()
        }
    }
}
