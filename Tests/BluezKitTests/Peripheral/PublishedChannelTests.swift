import CoreBluetooth
import Foundation
import Testing

@Suite struct PublishedChannelTests {
    @Test(
        "L2-1 RS-4 a request to publish a channel gets its own answer, beside restored ones and those of the delegate")
    func answers() async throws {
        let world = try await SimulatedWorld()
        let directory = try TemporaryDirectory()
        let first = Publisher(world, options: directory.centralOptions)
        try await first.powerOn()
        _ = try await first.publishChannel()
        _ = try await first.publishChannel(encrypted: true)
        let before = first.manager.publishedChannels
        #expect(before.map(\.isEncryptionRequired) == [false, true])
        let copy = try TemporaryDirectory(copying: directory)
        first.release()
        let again = Publisher(world, options: copy.centralOptions)
        try await again.powerOn()
        let answers = EventLog<Result<CBL2CAPPSM, CBError>>()
        again.manager.publishL2CAPChannel(withEncryption: true) { answers.append($0) }
        again.manager.publishL2CAPChannel(withEncryption: false)
        let psm = try await answers.next("the answer") { $0 }.get()
        var told: [CBL2CAPPSM] = []
        while told.count < 3 {
            told.append(
                try await again.next("didPublish") { if case .published(let psm, nil) = $0 { psm } else { nil } })
        }
        #expect(!told.contains(psm) && Set(told).count == 3)
        let channels = again.manager.publishedChannels
        #expect(channels.map(\.psm) == [told[0], told[1], psm, told[2]])
        #expect(channels.map(\.isEncryptionRequired) == [false, true, true, false])
    }

    @Test("L2-1 MIS-1 before Bluetooth is on, the answer is that it is not")
    func notOn() async throws {
        let world = try await SimulatedWorld()
        let publisher = Publisher(world)
        let answers = EventLog<Result<CBL2CAPPSM, CBError>>()
        publisher.queue.suspend()  // where the first state would arrive
        publisher.manager.publishL2CAPChannel(withEncryption: false) { answers.append($0) }
        publisher.queue.resume()
        let error = try await answers.next("the answer") { $0 }.failure
        #expect(error?.code == .notConnected)
    }
}
