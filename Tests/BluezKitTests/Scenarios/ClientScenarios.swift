import CoreBluetooth
import Foundation
import Testing

/// A second independent client library (bleak, `Tests/Rig/client.py`) on another adapter.
extension Scenarios {
    @Suite(.enabled(if: Worlds.isRig)) struct ClientScenarios {
        // Slow: in the rig, bleak scans, connects, subscribes and pairs on another adapter, and BlueZ ends its link two
        // to three seconds after it was asked to.
        @Test("PB-1 PB-10 RQ-3 UP-1 another client library finds, reads, writes, subscribes and pairs")
        func bleak() async throws {
            let world = try await Worlds.make()
            let agent = try await PairingAgent(world)
            let publisher = Publisher(world)
            try await publisher.powerOn()
            let dynamic = local(0x121, [.read, .write])
            let command = local(0x122, .writeWithoutResponse)
            let updated = [local(0x123, .notify), local(0x124, .indicate)]
            let guarded = local(0x125, .read, [.readEncryptionRequired])
            let service = localService(
                0x11F, [local(0x120, .read, value: Data("fixed".utf8)), dynamic, command] + updated + [guarded])
            let kept = ProtectedBox(Data())
            let commands = ProtectedBox(Data())
            publisher.onEvent { manager, event in
                switch event {
                case .read(let request):
                    let value = request.characteristic === guarded ? Data("secret".utf8) : kept.withLock { $0 }
                    request.value = value.dropFirst(request.offset)
                    manager.respond(to: request, withResult: .success)
                case .write(let requests):
                    let value = requests[0].value ?? Data()
                    let isRefused = value == Data("no".utf8)
                    if requests[0].characteristic === command {
                        commands.withLock { $0 += value }
                    } else if !isRefused {
                        kept.withLock { $0 = $0.prefix(requests[0].offset) + value }
                    }
                    manager.respond(to: requests[0], withResult: isRefused ? .insufficientAuthorization : .success)
                case .subscribed(_, let characteristic):
                    guard let characteristic = characteristic as? CBMutableCharacteristic else { return }
                    for number in UInt8(0)..<3 {
                        manager.updateValue(Data([number]), for: characteristic, onSubscribedCentrals: nil)
                    }
                default: break
                }
            }
            #expect(try await publisher.add(service) == nil)
            #expect(try await publisher.advertise([CBAdvertisementDataServiceUUIDsKey: [service.uuid]]) == nil)
            try await world.control("rig adapters 2")
            let script = ProcessInfo.processInfo.environment["RIG_DIR", default: "Tests/Rig"] + "/client.py"
            #expect(try await run(["/usr/bin/env", "python", script, "hci1", "11f"]) == 0)
            #expect(commands.withLock { $0 } == Data([0, 1, 2]))
            #expect(publisher.count { if case .subscribed = $0 { true } else { false } } == 2)
            _ = try await publisher.nextUnsubscription()
            try await world.forget("00:B1:5E:00:00:01", on: "hci1")
            try await world.control("rig adapters 1")
            try await world.forget("00:B1:5E:00:00:02")
            withExtendedLifetime(agent) {}
        }
    }
}
