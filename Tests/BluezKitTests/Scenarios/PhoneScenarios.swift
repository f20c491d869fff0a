import BluezKitProfiles
import CoreBluetooth
import Foundation
import Testing

/// GATT over the link that a phone has made, while this computer is its accessory.
extension Scenarios {
    @Suite struct PhoneScenarios {
        /// How it comes to a bond.
        enum Bonding: String, CaseIterable {
            case ofPhone = "the phone pairs at once"
            case ofAccess = "the phone refuses a subscription, and has a private address"
            case ofDaemon = "the phone refuses bluetoothd's own read"
        }

        // Slow: in the rig, the phone finds and connects to the accessory twice in each of three cases, and pairs.
        @Test(
            "CE-1 CN-14 ID-3 an accessory uses a phone's service over the link that the phone has made, now and after it has come again",
            arguments: Bonding.allCases)
        func pairs(_ bonding: Bonding) async throws {
            let accessory = try await Accessory()
            let world = accessory.world
            if bonding == .ofDaemon { try await world.control("phone battery on") }
            if bonding == .ofAccess { try await world.control("phone private") }
            try await world.control("phone find \(bonding == .ofPhone ? "pair" : "wait")")
            let phone = try await accessory.nextPhone()
            try await accessory.expectEvent(7, of: try await accessory.subscribe(to: phone))
            #expect(phone.identityIdentifier.uuidString.hasSuffix("F0F1F2000006"))
            #expect((phone.identifier == phone.identityIdentifier) == (bonding != .ofAccess))
            // The bond is there when the phone comes again.
            try await world.control("phone disconnect")
            try await accessory.central.next("the end") {
                if case .disconnected(phone, _, _?) = $0 { true } else { nil }
            }
            if bonding == .ofAccess { try await world.control("phone private") }
            try await world.control("phone find wait")
            let same = try await accessory.nextPhone()
            #expect(same === phone)
            try await accessory.expectEvent(8, of: try await accessory.subscribe(to: same))
            try await accessory.end(same)
        }

        @Test("both phones refuse what they cannot read with the codes of ANCS")
        func refuses() async throws {
            let accessory = try await Accessory()
            try await accessory.world.control("phone post 1 4 0 com.apple.MobileSMS Ada||Hello")
            try await accessory.world.control("phone find pair")
            let phone = try await accessory.nextPhone()
            try await accessory.central.connect(phone)
            let point = try await accessory.central.characteristic(ANCS.controlPoint, of: ANCS.uuid, on: phone)
            for (bytes, code) in [
                ([9], 0xA0), ([0, 1, 0], 0xA1), ([0, 1, 0, 0, 0, 1, 0], 0xA1), ([1, 0, 0], 0xA1), ([1, 65], 0xA1),
                ([2, 1, 0, 0, 0, 0, 0], 0xA1), ([0, 1, 0, 0, 0, 8], 0xA2), ([1, 65, 0, 0], 0xA2),
                ([0, 2, 0, 0, 0, 0], 0xA2),
                ([2, 1, 0, 0, 0, 2], 0xA2), ([2, 1, 0, 0, 0, 0], 0xA3),
            ] as [([UInt8], Int)] {
                let error = try await accessory.central.write(Data(bytes), to: point)
                #expect((error as? CBATTError)?.code.rawValue == code, "\(bytes)")
            }
            try await accessory.world.control("phone remove 1")
            try await accessory.end(phone)
        }

        @Test("CE-1 RT-3 a connected phone whose service comes later is reported then, and retrieved by it")
        func permits() async throws {
            let accessory = try await Accessory()
            try await accessory.world.control("phone permit off")
            // Every phone has Generic Access, which tells that its services are known.
            let watcher = Central(accessory.world)
            try await watcher.powerOn()
            watcher.manager.registerForConnectionEvents(options: [.serviceUUIDs: [CBUUID(string: "1800")]])
            try await accessory.world.control("phone find pair")
            try await watcher.next("the phone") {
                if case .connectionEvent(.peerConnected, _) = $0 { true } else { nil }
            }
            let manager = accessory.central.manager
            #expect(manager?.retrieveConnectedPeripherals(withServices: [ANCS.uuid]).isEmpty == true)
            try await accessory.world.control("phone permit on")
            let phone = try await accessory.nextPhone()
            try await expectAtOnce("it is retrieved") {
                manager?.retrieveConnectedPeripherals(withServices: [ANCS.uuid]) == [phone]
            }
            try await accessory.expectEvent(7, of: try await accessory.subscribe(to: phone))
            try await accessory.end(phone)
        }

        @Test("CE-1 an accessory reads notifications of any length, in order, and performs their actions")
        func reads() async throws {
            let accessory = try await Accessory()
            let world = accessory.world
            try await world.control("phone post 1 4 0 com.apple.MobileSMS Ada|Sub|Hello")
            try await world.control("phone find pair")
            let phone = try await accessory.nextPhone()
            try await accessory.central.connect(phone)
            let reader = NotificationReader(accessory.central)
            await reader.start(phone)
            try await reader.expect("added, 1, earlier, Messages, Ada, Sub, Hello")
            // Several packets, and 1024 bytes at most are asked for.
            let long = String(repeating: "Löwe ", count: 120)
            try await world.control("phone post 2 6 0 com.example.other %1B[2JTitle||" + long + "end")
            try await reader.expect("added, 2, new, no app, \u{1B}[2JTitle, , \(long)end")
            try await world.control("phone post 3 1 24 com.apple.mobilephone Charles|||Answer|Decline")
            try await world.control("phone post 1 4 0 com.apple.MobileSMS Ada|Sub|Bye")
            try await reader.expect("added, 3, new, Phone, Charles, , ")
            try await reader.expect("modified, 1, new, Messages, Ada, Sub, Bye")
            for number in [3, 1, 99] as [UInt32] { await reader.perform(.negative, of: number) }
            try await reader.expect("negative 3: done")
            _ = try await world.nextEvent("the action") { $0 == "phone performed 3 negative" }
            try await reader.expect("negative 1: the phone did not perform the action")
            _ = try await world.nextEvent("0xA3") { $0 == "phone refused 020100000001 0xa3" }
            try await reader.expect("negative 99: the phone does not have that notification, or that app")
            // What is absurd is an error, or nothing, and the next is read.
            try await world.control("phone data 090909")
            try await world.control("phone source 0700000000000000")
            try await reader.expect("failed: the event ID has the reserved value 7")
            try await world.control("phone remove 1")
            try await reader.expect("removed 1")
            // Its user takes the permission away, and gives it again.
            try await world.control("phone permit off")
            try await reader.expect("failed: the device has no Apple Notification Center Service")
            try await world.control("phone permit on")
            try await reader.expect("ready")
            try await world.control("phone post 5 4 0 com.apple.MobileSMS Ada||Again")
            try await reader.expect("added, 5, new, Messages, Ada, , Again")
            for number in [2, 3, 5] { try await world.control("phone remove \(number)") }
            try await accessory.end(phone)
        }
    }
}

/// An accessory that solicits the notifications of phones, and a phone that knows nothing of it.
struct Accessory {
    let world: any World
    let publisher: Publisher
    let central: Central

    init() async throws {
        world = try await Worlds.make()
        try await world.forgetPhone()
        publisher = Publisher(world, options: [BluezManagerOptionAllowJustWorksPairingKey: true])
        central = Central(world)
        try await publisher.powerOn()
        try await central.powerOn()
        central.manager.pairing = .justWorks
        central.manager.registerForConnectionEvents(options: [.serviceUUIDs: [ANCS.uuid]])
        let solicitation = [BluezAdvertisementSolicitedServiceUUIDsKey: [ANCS.uuid]]
        #expect(try await publisher.advertise(solicitation) == nil)
    }

    func nextPhone() async throws -> CBPeripheral {
        try await central.next("the phone") {
            if case .connectionEvent(.peerConnected, let peer) = $0 { peer } else { nil }
        }
    }

    private struct LinkLost: Error {}

    /// Connects to the phone that is connected, and subscribes. A busy bluetoothd may lose the request that makes it
    /// pair, or the whole of a link (COMPATIBILITY.md): then the phone comes once more.
    func subscribe(to phone: CBPeripheral, isRepeated: Bool = false) async throws -> CBCharacteristic {
        do {
            try await central.connect(phone)
            try await awaitServices(of: phone)
            let source = try await central.characteristic(ANCSEvent.uuid, of: ANCS.uuid, on: phone)
            if let error = try await central.setNotify(true, source) { throw error }
            #expect(try await world.control("phone state").contains("encrypted=1"))
            return source
        } catch {
            let isLinkLost = phone.state != .connected
            guard Worlds.isRig, !isRepeated, isLinkLost || (error as? CBATTError)?.code == .unlikelyError else {
                throw error
            }
            if phone.state == .connecting {
                try await central.disconnect(phone)  // the link was lost before; a phone does not advertise
            } else if !isLinkLost {
                _ = try? await world.control("phone disconnect")  // unless bluetoothd has
                try await central.next("the end") { if case .disconnected(phone, _, _?) = $0 { true } else { nil } }
            }
            try await world.control("phone find wait")
            return try await subscribe(to: try await nextPhone(), isRepeated: true)
        }
    }

    /// Waits until the services are known; of a link that bluetoothd has lost they never are.
    private func awaitServices(of phone: CBPeripheral) async throws {
        phone.discoverServices([ANCS.uuid])
        let isKnown = try await central.next("services, or the end") { event -> Bool? in
            switch event {
            case .services(phone, _): true
            case .disconnected(phone, _, _): false
            default: nil
            }
        }
        if !isKnown { throw LinkLost() }
    }

    /// The next notification that is posted.
    func expectEvent(_ uid: UInt8, of source: CBCharacteristic) async throws {
        try await world.control("phone post \(uid) 4 0 com.apple.MobileSMS Ada|Sub|Hello")
        try await central.next("an event") {
            if case .value(source, let value?, nil) = $0, value[0] < 2, value[4] == uid { true } else { nil }
        }
        try await world.control("phone remove \(uid)")
    }

    /// The phone ends the link. A bond would outlive this test.
    func end(_ phone: CBPeripheral) async throws {
        try await world.control("phone disconnect")
        try await central.next("the end") { if case .disconnected(phone, _, _?) = $0 { true } else { nil } }
        try await central.removeBond(phone)
        try await world.forgetPhone()
    }
}

extension World {
    /// The phone and BlueZ know nothing of each other.
    func forgetPhone() async throws {
        _ = try? await control("phone disconnect")
        try await awaitConnections("phone", 0)
        // Not before it knows that the link has ended: it could store the phone's table again, for the next link.
        try await eventually("BlueZ knows that the phone has left") {
            try await !saysConnected("F0:F1:F2:00:00:06")
        }
        for line in ["forget", "permit on", "battery off", "identity"] { try await control("phone " + line) }
        try await forget("F0:F1:F2:00:00:06")
        try removeStoredTable(of: "F0:F1:F2:00:00:06")
    }

    /// BlueZ keeps the table of a device that it was told to forget, and in it the hash of the one before (seen with
    /// 5.66): a device that has what it had then is taken for one that has all.
    func removeStoredTable(of address: String) throws {
        guard Worlds.isRig else { return }
        for adapter in try FileManager.default.contentsOfDirectory(atPath: "/var/lib/bluetooth") {
            try? FileManager.default.removeItem(atPath: "/var/lib/bluetooth/\(adapter)/cache/\(address)")
        }
    }
}
