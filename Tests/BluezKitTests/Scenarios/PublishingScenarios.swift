import CoreBluetooth
import Foundation
import Testing

/// What an independent central finds, reads and writes. In the simulator and against the real bluetoothd.
extension Scenarios {
    @Suite(.enabled(if: Worlds.isRig)) struct PublishingScenarios {
        @Test("PB-1 PB-13 O-33 AD-3 AD-5 RQ-8 a central finds what was added, reads and writes it")
        func endToEnd() async throws {
            let world = try await Worlds.make()
            let publisher = Publisher(world)
            try await publisher.powerOn()
            let dynamic = local(0x111, [.read, .write])
            let service = localService(0x100, [local(0x110, .read, value: Data("fixed".utf8)), dynamic])
            #expect(try await publisher.add(service) == nil)
            #expect(service.peripheral == nil)
            #expect(dynamic.service === service)
            #expect(
                try await publisher.advertise([
                    CBAdvertisementDataLocalNameKey: "Kit", CBAdvertisementDataServiceUUIDsKey: [service.uuid],
                ]) == nil)
            #expect(publisher.manager.isAdvertising)
            let heard = try await world.control("central advertisement \(world.adapterAddress)")
            #expect(heard.contains("connectable=1"))
            #expect(heard.contains("uuids=\(service.uuid.line)"))
            #expect(heard.hasSuffix("name=Kit"))
            #expect(try await world.connect().contains(service.uuid.line))
            #expect(try await world.control("central read \(sinkUUID(0x110).line)") == "6669786564")
            async let read = world.control("central read \(dynamic.uuid.line)")
            let request = try await publisher.nextRead()
            #expect(request.characteristic === dynamic)
            #expect(request.offset == 0)
            #expect(request.central.identifier.uuidString == "426C7A4B-0100-8000-8000-F0F1F2000004")
            #expect(request.central.maximumUpdateValueLength == 512)
            request.value = Data([1, 2, 3])
            publisher.manager.respond(to: request, withResult: .success)
            #expect(try await read == "010203")
            async let written = world.control("central write \(dynamic.uuid.line) 0a0b")
            let requests = try await publisher.nextWrite()
            #expect(requests.count == 1)
            #expect(requests[0].value == Data([10, 11]))
            #expect(requests[0].central.identifier == request.central.identifier)
            publisher.manager.respond(to: requests[0], withResult: .success)
            _ = try await written
            #expect(publisher.manager.isAdvertising)
        }
    }
}
