import BluezDBus
import Foundation
import Testing

@testable import BluezKit

@Suite struct PublishedServiceTests {
    private let core = DetachedRole().core()

    private func published(_ service: CBMutableService) -> PublishedService { PublishedService(service, core: core) }

    private func flaw(_ service: CBMutableService) -> CBError? {
        published(service).flaw(allowsSystemServices: false)
    }

    private func flaw(_ characteristic: CBMutableCharacteristic) -> CBError? {
        flaw(localService(0x100, [local(0x10F, .read), characteristic]))
    }

    // MARK: Validation

    @Test("PB-8 PB-9 services that BlueZ and Apple accept are not refused")
    func right() {
        #expect(flaw(CBMutableService(type: sinkUUID(0x100), primary: true)) == nil)
        #expect(flaw(CBMutableService(type: sinkUUID(0x100), primary: false)) == nil)
        let properties: [CBCharacteristicProperties] = [
            .read, .writeWithoutResponse, .write, .notify, .indicate, .authenticatedSignedWrites,
            .notifyEncryptionRequired, .indicateEncryptionRequired, [.read, .write, .notify, .indicate],
        ]
        for properties in properties { #expect(flaw(local(0x110, properties)) == nil, "\(properties.rawValue)") }
        #expect(flaw(local(0x110, .read, value: Data())) == nil)
        #expect(flaw(local(0x110, .read, value: Data(count: 512))) == nil)
        let described = local(0x110, .read)
        described.descriptors = [
            CBMutableDescriptor(type: CBUUID(string: "2901"), value: "text"),
            CBMutableDescriptor(type: CBUUID(string: "2904"), value: Data(count: 7)),
            CBMutableDescriptor(type: sinkUUID(0x120), value: Data(count: 512)),
            CBMutableDescriptor(type: sinkUUID(0x121), value: nil),
        ]
        #expect(flaw(described) == nil)
    }

    @Test("PB-8 PB-9 services that BlueZ or Apple does not accept are refused, and the reason names the characteristic")
    func wrong() {
        func described(_ uuid: CBUUID, _ value: Any?) -> CBMutableCharacteristic {
            let characteristic = local(0x110, .read)
            characteristic.descriptors = [CBMutableDescriptor(type: uuid, value: value)]
            return characteristic
        }
        let wrong: [(CBMutableCharacteristic, String)] = [
            (local(0x110, []), "no properties"), (local(0x110, .broadcast), "broadcast"),
            (local(0x110, [.read, .extendedProperties]), "extendedProperties"),
            (local(0x110, .read, value: Data(count: 513)), "513"),
            (described(CBUUID(string: "2902"), Data([0, 0])), "the system makes itself"),
            (described(sinkUUID(0x120), 5), "neither Data nor String"),
            (described(sinkUUID(0x120), Data(count: 513)), "more than 512"),
            (described(sinkUUID(0x120), String(repeating: "ä", count: 257)), "more than 512"),
        ]
        for (characteristic, reason) in wrong {
            let error = flaw(characteristic)
            #expect(error?.code == .invalidParameters, "\(reason)")
            #expect(error?.localizedDescription.contains(reason) == true, "\(reason)")
            #expect(error?.localizedDescription.contains(characteristic.uuid.uuidString) == true, "\(reason)")
        }
    }

    @Test("PB-7 services of the system are refused in their short form, but for apps that ask")
    func systemServices() {
        func flaw(_ uuid: String, _ allows: Bool) -> CBError.Code? {
            published(CBMutableService(type: CBUUID(string: uuid), primary: true)).flaw(allowsSystemServices: allows)?
                .code
        }
        for uuid in ["1800", "1801", "1805", "180A", "180F", "1812", "181E"] {
            #expect(flaw(uuid, false) == .uuidNotAllowed, "\(uuid)")
            #expect(flaw(uuid, true) == nil, "\(uuid)")
        }
        #expect(flaw("0000180F-0000-1000-8000-00805F9B34FB", false) == nil)
        #expect(flaw("180D", false) == nil)
    }

    // MARK: For BlueZ

    @Test("PB-10 properties and permissions become BlueZ's flags")
    func flags() {
        func flags(_ properties: CBCharacteristicProperties, _ permissions: CBAttributePermissions) -> [String] {
            PublishedCharacteristic(local(0x110, properties, permissions), core: core).flags
        }
        #expect(flags([], [.readable, .writeable]) == [])
        #expect(flags([.read, .write], [.readable, .writeable]) == ["read", "write"])
        #expect(
            flags([.read, .write], [.readEncryptionRequired, .writeEncryptionRequired]) == [
                "encrypt-read", "encrypt-write",
            ])
        #expect(flags([.writeWithoutResponse], .writeable) == ["write-without-response"])
        #expect(
            flags([.writeWithoutResponse], .writeEncryptionRequired) == ["write-without-response", "encrypt-write"])
        #expect(
            flags([.write, .writeWithoutResponse], .writeEncryptionRequired) == [
                "encrypt-write", "write-without-response",
            ])
        #expect(flags([.notify, .indicate], []) == ["notify", "indicate"])
        #expect(
            flags([.notifyEncryptionRequired, .indicateEncryptionRequired], []) == [
                "encrypt-notify", "encrypt-indicate",
            ])
        #expect(flags([.notify, .notifyEncryptionRequired], []) == ["encrypt-notify"])
        #expect(flags(.authenticatedSignedWrites, .writeable) == ["authenticated-signed-writes"])
    }

    // BlueZ takes a plain write as well where signed ones are allowed, and `authenticated-signed-writes` alone asks for
    // no encryption: a value that may only be written over an encrypted link was written without. Now BlueZ refuses.
    @Test("RQ-7 PB-10 whatever kind of write it allows, a characteristic that requires encryption has BlueZ demand it")
    func guardedWrites() {
        let kinds: [CBCharacteristicProperties] = [.write, .writeWithoutResponse, .authenticatedSignedWrites]
        for bits in 1..<1 << kinds.count {
            let properties = CBCharacteristicProperties(kinds.indices.filter { bits >> $0 & 1 == 1 }.map { kinds[$0] })
            let characteristic = PublishedCharacteristic(
                local(0x110, properties, .writeEncryptionRequired), core: core)
            #expect(characteristic.flags.count { $0 == "encrypt-write" } == 1, "\(characteristic.flags)")
        }
    }

    @Test("RQ-7 a read or write needs the property and the permission")
    func access() {
        func access(_ properties: CBCharacteristicProperties, _ permissions: CBAttributePermissions) -> [Bool] {
            let characteristic = PublishedCharacteristic(local(0x110, properties, permissions), core: core)
            return [characteristic.canBeRead, characteristic.canBeWritten]
        }
        #expect(access([.read, .write], [.readable, .writeable]) == [true, true])
        #expect(access([.read, .write], [.readEncryptionRequired, .writeEncryptionRequired]) == [true, true])
        #expect(access([.read, .write], []) == [false, false])
        #expect(access(.notify, [.readable, .writeable]) == [false, false])
        #expect(access([.read, .write], .writeable) == [false, true])
        for properties in [CBCharacteristicProperties.write, .writeWithoutResponse, .authenticatedSignedWrites] {
            #expect(access(properties, .writeable) == [false, true])
            #expect(access(properties, .readable) == [false, false])
        }
    }

    @Test("PB-5 paths lie below each other, and what is included is found among the services that are there")
    func places() {
        let described = local(0x110, .read)
        described.descriptors = [CBMutableDescriptor(type: CBUUID(string: "2901"), value: "text")]
        let included = localService(0x100, [described, local(0x111, .notify)])
        let including = localService(0x101, [])
        including.includedServices = [included, localService(0x102, [])]
        let root: ObjectPath = "/app"
        let services = [
            PublishedService(included, core: core, call: 1),
            PublishedService(including, core: core, call: 2) { $0 === included ? 1 : 0 },
        ]
        for (number, service) in services.enumerated() { service.place(at: root.child("service", number)) }
        for service in services { service.placeIncluded(among: services) }
        #expect(
            services.flatMap { $0.objects.map(\.path.rawValue) } == [
                "/app/service0", "/app/service0/char0", "/app/service0/char0/desc0", "/app/service0/char1",
                "/app/service1",
            ])
        let descriptor = services[0].characteristics[0].descriptors[0]
        #expect(descriptor.characteristicPath == "/app/service0/char0" && descriptor.value == Array("text".utf8))
        #expect(services[0].includedPaths == [] && services[1].includedPaths == ["/app/service0"])
        #expect(services[0].characteristics[1].service === services[0])
        services[0].withdraw()
        #expect(!services[0].isPublished && services[1].isPublished)
    }
}
