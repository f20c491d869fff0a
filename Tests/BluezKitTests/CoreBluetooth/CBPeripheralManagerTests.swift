import Testing

@testable import BluezKit

/// Collects what a peripheral manager reports, with the queue it was reported on.
private final class Recorder: NSObject, CBPeripheralManagerDelegate, @unchecked Sendable {
    // holds: constants
    static let key = DispatchSpecificKey<Bool>()
    private let events: AsyncStream<String>.Continuation
    let queue = DispatchQueue(label: "test.peripheral-manager", attributes: .concurrent)
    var iterator: AsyncStream<String>.Iterator

    override init() {
        let (stream, events) = AsyncStream.makeStream(of: String.self)
        (self.events, iterator) = (events, stream.makeAsyncIterator())
        queue.setSpecific(key: Self.key, value: true)
    }

    private func report(_ event: String) {
        events.yield(DispatchQueue.getSpecific(key: Self.key) == true ? event : "\(event) on another queue")
    }

    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
        report("state \(peripheral.state.rawValue)")
    }
    func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
        report("advertising \((error as? CBError)?.code.rawValue ?? -1)")
    }
    func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
        report("add \(service.uuid.uuidString) \((error as? CBError)?.code.rawValue ?? -1)")
    }
    func peripheralManager(
        _ peripheral: CBPeripheralManager, didPublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) {
        report("publish \(PSM) \((error as? CBError)?.code.rawValue ?? -1)")
    }
    func peripheralManager(
        _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) {
        report("unpublish \(PSM) \((error as? CBError)?.code.rawValue ?? -1)")
    }
}

@Suite struct CBPeripheralManagerTests {
    @Test("ST-1 DL-1 the state goes from unknown to unsupported, with one callback on the queue given")
    func state() async {
        let recorder = Recorder()
        let manager = CBPeripheralManager(delegate: recorder, queue: recorder.queue, options: nil)
        #expect(await recorder.iterator.next() == "state 2")
        #expect(manager.state == .unsupported)
        #expect(!manager.isAdvertising)
        manager.startAdvertising(nil)
        #expect(await recorder.iterator.next() == "advertising 13")
    }

    @Test("every command is answered with an error, in order")
    func commands() async {
        let recorder = Recorder()
        let manager = CBPeripheralManager(delegate: recorder, queue: recorder.queue)
        let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
        let characteristic = CBMutableCharacteristic(
            type: CBUUID(string: "2A37"), properties: .read, value: Data([1]), permissions: .readable)
        service.characteristics = [characteristic]
        manager.add(service)
        manager.startAdvertising([CBAdvertisementDataLocalNameKey: "name"])
        manager.publishL2CAPChannel(withEncryption: false)
        manager.unpublishL2CAPChannel(129)
        var events: [String?] = []
        for _ in 0..<5 { events.append(await recorder.iterator.next()) }
        #expect(events == ["state 2", "add 180D 13", "advertising 13", "publish 0 13", "unpublish 129 13"])
        #expect(manager.updateValue(Data(), for: characteristic, onSubscribedCentrals: nil) == false)
        let central = CBCentral(identifier: UUID())
        manager.respond(
            to: CBATTRequest(central: central, characteristic: characteristic, offset: 0, value: nil),
            withResult: .success)
        manager.setDesiredConnectionLatency(.low, for: central)
        manager.remove(service)
        manager.removeAllServices()
        manager.stopAdvertising()
    }

    @Test("CN-15 a manager that is gone reports nothing")
    func released() async {
        let recorder = Recorder()
        recorder.queue.suspend()
        _ = CBPeripheralManager(delegate: recorder, queue: recorder.queue)
        recorder.queue.resume()
        let second = CBPeripheralManager(delegate: nil, queue: recorder.queue)
        second.delegate = recorder
        second.startAdvertising(nil)
        var events: [String?] = []
        for _ in 0..<2 { events.append(await recorder.iterator.next()) }
        #expect(events == ["state 2", "advertising 13"])
    }

    @Test("PB-3 MIS-14 a fixed value that can be written or subscribed to stops the process")
    func fixedValues() async {
        await #expect(processExitsWith: .failure) {
            let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
            service.characteristics = [
                CBMutableCharacteristic(
                    type: CBUUID(string: "2A37"), properties: [.read, .notify], value: Data([1]),
                    permissions: .readable)
            ]
            CBPeripheralManager(delegate: nil, queue: DispatchQueue(label: "test")).add(service)
        }
    }
}
