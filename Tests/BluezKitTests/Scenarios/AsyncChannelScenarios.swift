import CoreBluetooth
import CoreBluetoothAsync
import Foundation
import Testing

extension Scenarios {
    /// L2CAP channels with `async`, of both roles.
    @Suite struct AsyncChannelScenarios {
        @Test("L2-2 L2-6 L2-11 a channel is opened, carries bytes both ways, and ends when the peer closes it")
        func echoes() async throws {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            let central = CentralManager(options: world.managerOptions)
            let device = try await AsyncCentralScenarios.find("Rig CoC", sinkUUID(0x40), central)
            try await within { try await central.connect(device) }
            await #expect(throws: (any Error).self) { try await within { try await device.openL2CAPChannel(0x99) } }
            let channel = try await within { try await device.openL2CAPChannel(0x80) }
            #expect(channel.psm == 0x80 && channel.peerIdentifier == device.identifier)
            let sent = Data((0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 7) })
            let received = try await within {
                async let written: Void = channel.write(sent)
                var received = Data()
                while received.count < sent.count, let bytes = try await channel.read() { received += bytes }
                try await written
                return received
            }
            #expect(received == sent)
            // However much may be read, what is there is returned.
            try await within { try await channel.write(Data([1, 2, 3])) }
            #expect(try await within { try await channel.read(upToCount: .max) }?.isEmpty == false)
            // A read that is cancelled takes nothing.
            let cancelled = Task { try await channel.read() }
            cancelled.cancel()
            await #expect(throws: CancellationError.self) { try await within { try await cancelled.value } }
            try await world.control("coc channel close")
            #expect(try await within { try await channel.read() } == nil)
            await #expect(throws: CBError.self) { try await within { try await channel.write(Data([1])) } }
            let second = try await within { try await device.openL2CAPChannel(0x80) }
            try await within { try await central.cancelPeripheralConnection(device) }
            #expect(try await within { try await second.read() } == nil)
        }

        /// A channel whose peripheral is released.
        private func openedAndReleased() async throws -> (any World, CentralManager, L2CAPChannel) {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            let central = CentralManager(options: world.managerOptions)
            let device = try await AsyncCentralScenarios.find("Rig CoC", sinkUUID(0x40), central)
            try await within { try await central.connect(device) }
            return (world, central, try await within { try await device.openL2CAPChannel(0x80) })
        }

        @Test("L2-6 CN-1 an open channel keeps the connection of a peripheral that is released, until it is closed")
        func keepsConnection() async throws {
            let (world, central, open) = try await openedAndReleased()
            for number in UInt8(1)...3 {
                try await within { try await open.write(Data([number])) }
                // As many as there are: no memory is needed for more.
                #expect(try await within { try await open.read(upToCount: .max) } == Data([number]))
            }
            open.close()
            try await world.awaitConnections("coc", 0)
            withExtendedLifetime(central) {}
        }

        @Test("L2-1 L2-3 L2-7 a channel is published; what a central opens comes as an element; releasing it closes it")
        func publishes() async throws {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            let manager = PeripheralManager(options: world.managerOptions)
            let channels = manager.openedChannels
            let psm = try await within {
                try await manager.startAdvertising()
                return try await manager.publishL2CAPChannel(withEncryption: false)
            }
            try await world.connect()
            try await world.openChannel(psm)
            do {
                let channel = try #require(try await within { await channels.first { _ in true } })
                #expect(channel.psm == psm)
                try await world.control("central channel send 10000")
                let count = try await within {
                    var count = 0
                    while count < 10_000, let bytes = try await channel.read() { count += bytes.count }
                    return count
                }
                #expect(count == 10_000)
            }
            try await world.awaitChannel("central", "closed")
            try await within { try await manager.unpublishL2CAPChannel(psm) }
            // The kernel's listener is closed some moments later.
            try await eventually("the channel is refused") { (try? await world.openChannel(psm)) == nil }
            await #expect(throws: CBError.self) { try await within { try await manager.unpublishL2CAPChannel(psm) } }
        }

        @Test("L2-6 RT-1 a peripheral that is retrieved while a channel keeps its connection is connected, and usable")
        func retrievesConnected() async throws {
            let (world, central, open) = try await openedAndReleased()
            let found = await central.retrievePeripherals(withIdentifiers: [open.peerIdentifier])
            let device = try #require(found.first)
            #expect(device.state == .connected)
            _ = try await within { try await device.discoverServices() }
            open.close()
            try await within { try await central.cancelPeripheralConnection(device) }
            #expect(device.state == .disconnected)
            try await world.awaitConnections("coc", 0)
        }

        @Test("L2-6 a task that is already cancelled writes nothing to a channel")
        func cancelledBefore() async throws {
            let world = try await Worlds.make()
            try await world.prepareChannels()
            let central = CentralManager(options: world.managerOptions)
            let device = try await AsyncCentralScenarios.find("Rig CoC", sinkUUID(0x40), central)
            try await within { try await central.connect(device) }
            await expectCancelled { _ = try await device.openL2CAPChannel(0x80) }
            let channel = try await within { try await device.openL2CAPChannel(0x80) }
            for _ in 0..<10 { await expectCancelled { try await channel.write(Data([1])) } }
            try await within { try await channel.write(Data([2])) }
            #expect(try await within { try await channel.read() } == Data([2]))
            try await within { try await central.cancelPeripheralConnection(device) }
        }
    }
}
