import Synchronization
import BluezDBus
import BluezKitSimulator
import CoreBluetooth
import Dispatch
import Foundation
import Testing

@testable import BluezKit

// Calls by an app whose queue is behind arrive when their table, link or state is out of date. Discovery in a replaced
// service registered new characteristics under the old object; a subscription that was cancelled while in progress
// ended up without a subscriber, and delivered to objects of the previous link; a `peripheralIsReady` that arrived at a
// full queue was the last one. Now each call is checked against the current state when it arrives.
@Suite struct BusyQueueTests {
    @Test("UP-7 a service that is removed before the app is informed of a reset has no subscribers afterwards")
    func removedBehindReset() async throws {
        let characteristic = local(0x110, [.read, .notify])
        let (world, publisher) = try await Publisher.connected([characteristic])
        _ = try await world.control("central subscribe \(characteristic.uuid.line)")
        _ = try await publisher.nextSubscription()
        let manager = try #require(publisher.manager)
        let session = manager.session
        publisher.queue.suspend()
        let life = session.queue.sync { session.adapter.servicesGeneration }
        _ = try await world.control("rig unplug")
        _ = try await world.control("rig plug")
        try await awaitBluetooth(session, \.adapter.servicesGeneration, after: life)
        manager.removeAllServices()
        publisher.queue.resume()
        try await publisher.next("reset") { if case .state(.resetting) = $0 { true } else { nil } }
        try await publisher.powerOn()
        #expect((characteristic.subscribedCentrals ?? []).isEmpty)
    }

    @Test("UP-7 CN-15 a released manager leaves no subscribers in the services that the app keeps")
    func releasedWithSubscribers() async throws {
        let characteristic = local(0x111, [.read, .notify])
        let (world, publisher) = try await Publisher.connected([characteristic])
        _ = try await world.control("central subscribe \(characteristic.uuid.line)")
        _ = try await publisher.nextSubscription()
        #expect(characteristic.subscribedCentrals?.count == 1)
        let session = try #require(publisher.manager?.session)
        publisher.release()
        session.queue.sync {}
        #expect((characteristic.subscribedCentrals ?? []).isEmpty)
    }

    @Test("IV-1 GD-12 discovery in a service that was replaced in the meantime fails, without results")
    func staleService() async throws {
        let world = try await SimulatedWorld()
        let table = { (value: UInt8) in
            [VirtualService("1815", [VirtualCharacteristic("2A56", [.read, .notify], value: [value])])]
        }
        let device = VirtualPeripheral(
            "C0:00:00:09:00:01", VirtualAdvertisement(localName: "Changing"), services: table(1))
        world.simulator.add(device)
        let central = Central(world)
        try await central.powerOn()
        let peripheral = try await central.find("Changing")
        try await central.connect(peripheral)
        let old = try #require(try await central.discoverServices(peripheral).first)
        let go = await central.block()
        // The change has been reported to the manager, behind what its queue does now.
        try await central.awaitReportedChange(of: peripheral) { device.replaceServices(table(2)) }
        peripheral.discoverCharacteristics(nil, for: old)
        await central.passBusQueue()
        go.signal()
        try await central.next("change") { if case .modified(peripheral, [old]) = $0 { true } else { nil } }
        let error = try await central.next("characteristics") {
            if case .characteristics(old, let error) = $0 { [error] } else { nil }
        }
        #expect((error[0] as? CBError)?.code == .invalidHandle)
        #expect(old.characteristics == nil)
        try await central.awaitService("1815", of: peripheral)
        let new = try #require(peripheral.services?.first)
        #expect(try await central.discoverCharacteristics(new).first?.service === new)
    }

    @Test(
        "NT-7 CN-11 cancelling during a subscription leaves it unsubscribed; the next link's object can be subscribed")
    func cancelledWhileSubscribing() async throws {
        let world = try await SimulatedWorld()
        let (central, other) = (Central(world), Central(world))
        for app in [central, other] { try await app.powerOn() }
        let (heart, others) = (try await central.find("Rig Heart"), try await other.find("Rig Heart"))
        try await other.connect(others)
        try await central.connect(heart)
        let (rate, service) = (CBUUID(string: "2A37"), CBUUID(string: "180D"))
        let old = try await central.characteristic(rate, of: service, on: heart)
        world.simulator.inject(SimulatorFault("StartNotify", .delay(.milliseconds(100))))
        await central.perform { heart.setNotifyValue(true, for: old) }
        _ = await world.simulator.waitForCalls("StartNotify")
        try await central.disconnect(heart)
        #expect(await world.simulator.waitForCalls("StopNotify") != nil)
        try await central.connect(heart)
        let new = try await central.characteristic(rate, of: service, on: heart)
        try await eventually("the heart has no subscriber") { !world.heart.isSubscribed(to: "2A37") }
        #expect(!new.isNotifying)
        #expect(try await central.setNotify(true, new) == nil)
        #expect(world.heart.notify("2A37", [0, 78]))
        let value = try await central.next("value") {
            if case .value(let characteristic, let value, nil) = $0 { (characteristic, value) } else { nil }
        }
        #expect(value.0 === new && value.1 == Data([0, 78]))
        try await central.settle(heart)
        #expect(central.count { if case .value = $0 { true } else { false } } == 1)
    }

    @Test("RW-9 O-26 a peripheralIsReady that is delivered when the queue is full again is followed by another one")
    func readyAgain() async throws {
        let world = try await SimulatedWorld()
        let central = Central(world)
        try await central.powerOn()
        let sink = try await central.find("Rig Sink")
        try await central.connect(sink)
        let token = sink.shared.withLock { $0.connectionID }
        let session = central.manager.session
        // Writes wait, and are taken, as the bus queue sees them.
        func take(_ count: Int) {
            session.run { for _ in 0..<count { sink.peripheralCore?.commandDone(1, connectionID: token) } }
        }
        func wait(_ count: Int) {
            let areAccepted = sink.shared.withLock { shared in (0..<count).allSatisfy { _ in shared.commands.add(1) } }
            #expect(areAccepted)
        }
        wait(64)
        let go = await central.block()
        take(32)
        await central.passBusQueue()
        wait(100)
        go.signal()
        try await central.settle(sink)
        #expect(!sink.canSendWriteWithoutResponse)
        #expect(central.count { if case .ready = $0 { true } else { false } } == 0)
        take(132)
        try await central.next("ready") { if case .ready(sink) = $0 { true } else { nil } }
        #expect(sink.canSendWriteWithoutResponse)
    }

    /// Waits until Bluetooth was away and is back, as the bus queue sees it.
    private func awaitBluetooth(
        _ session: Session, _ life: any KeyPath<Session, UInt64> & Sendable, after earlier: UInt64
    ) async throws {
        try await eventually("Bluetooth was away and is back") {
            session.queue.sync { session[keyPath: life] != earlier && session.adapter.state == .poweredOn }
        }
    }

    @Test("ST-6 AD-4 advertising requested by an app that was not informed that Bluetooth is off does not start")
    func advertisedBeforeOff() async throws {
        let world = try await SimulatedWorld()
        let publisher = Publisher(world)
        try await publisher.powerOn()
        let manager = try #require(publisher.manager)
        let (session, go) = (manager.session, DispatchSemaphore(value: 0))
        let era = session.queue.sync { session.adapter.generation }
        publisher.queue.async { go.wait() }
        world.simulator.setPowered(false)
        world.simulator.setPowered(true)
        try await awaitBluetooth(session, \.adapter.generation, after: era)
        manager.startAdvertising(nil)
        session.queue.sync {}
        go.signal()
        try await publisher.next("off") { if case .state(.poweredOff) = $0 { true } else { nil } }
        try await publisher.powerOn()
        #expect(try await publisher.advertise() == nil)
        #expect(publisher.count { if case .advertising = $0 { true } else { false } } == 1)
        #expect(world.simulator.calls("RegisterAdvertisement").count == 1)
    }

    @Test(
        "PB-6 PB-11 a service that is removed and added again while the first add fails is published, and can be updated"
    )
    func addedAgain() async throws {
        let world = try await SimulatedWorld()
        let publisher = Publisher(world)
        try await publisher.powerOn()
        let characteristic = local(0x110, [.read, .notify])
        let service = localService(0x100, [characteristic])
        world.simulator.inject(
            SimulatorFault("RegisterApplication", .fail(name: "org.bluez.Error.Failed", message: "")))
        let manager = try #require(publisher.manager)
        // Before the answer to the first call can be delivered.
        publisher.queue.sync {
            manager.add(service)
            manager.remove(service)
            manager.add(service)
        }
        for isFirst in [true, false] {
            try await publisher.next("answer") {
                if case .added(_, let error) = $0 { (error != nil) == isFirst ? true : nil } else { nil }
            }
        }
        #expect(manager.updateValue(Data([1]), for: characteristic, onSubscribedCentrals: nil))
    }

    @Test("ST-6 O-20 a service that is added before the app was informed of a reset is not published after it")
    func addedBeforeReset() async throws {
        let world = try await SimulatedWorld()
        let publisher = Publisher(world)
        try await publisher.powerOn()
        let service = localService(0x100, [local(0x110, .read)])
        let (manager, queue) = (publisher.manager, publisher.queue)
        let isHeld = DispatchSemaphore(value: 0), go = DispatchSemaphore(value: 0)
        queue.async {
            isHeld.signal()
            go.wait()
            manager?.add(service)
        }
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                isHeld.wait()
                continuation.resume()
            }
        }
        let session = try #require(manager?.session)
        let life = session.queue.sync { session.adapter.servicesGeneration }
        try await world.simulator.restartDaemon()
        try await awaitBluetooth(session, \.adapter.servicesGeneration, after: life)
        go.signal()
        try await publisher.next("reset") { if case .state(.resetting) = $0 { true } else { nil } }
        try await publisher.powerOn()
        #expect(try await publisher.add(service) == nil)
        #expect(publisher.count { if case .added = $0 { true } else { false } } == 1)
        #expect(world.simulator.calls("RegisterApplication").count == 1)
    }
}

extension Central {
    /// Holds the app's queue until what is returned is signalled.
    func block() async -> DispatchSemaphore {
        let go = DispatchSemaphore(value: 0)
        await withCheckedContinuation { (entered: CheckedContinuation<Void, Never>) in
            queue.async {
                entered.resume()
                go.wait()
            }
        }
        return go
    }

    /// Waits until the bus queue has done what it was given before.
    func passBusQueue() async {
        await withCheckedContinuation { continuation in manager.session.run { continuation.resume() } }
    }

    /// Waits until the bus queue has reported the change of the table that `change` makes, and gathered it before that.
    func awaitReportedChange(of peripheral: CBPeripheral, _ change: () -> Void) async throws {
        let session = manager.session
        let reported = EventLog<Bool>()
        session.run {
            guard let client = peripheral.peripheralCore?.device?.connection?.client else { return }
            func look(_ wasDue: Bool) {
                if wasDue, !client.reader.isChangeReportDue { return reported.append(true) }
                let isDue = client.reader.isChangeReportDue
                session.queue.later(.milliseconds(5)) { look(isDue) }
            }
            look(false)
        }
        change()
        try await reported.next("report of the change") { $0 }
    }
}
