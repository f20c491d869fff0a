import BluezKit
import Foundation

/// Shared by the commands in the peripheral role: they publish services, and then advertise.
class PeripheralCommand: ManagerCommand, CBPeripheralManagerDelegate {
    private(set) var manager: CBPeripheralManager?
    private var unpublished = 0

    // MARK: For subclasses

    /// The services to publish, in this order.
    var services: [CBMutableService] { [] }
    /// The data for `startAdvertising`.
    var advertisement: [String: Any] { [:] }
    /// Services and advertisement are active; for the first time, or again after ``bluetoothWentOff()``.
    func isOnAir() {}
    func didSubscribe(_ central: CBCentral, to characteristic: CBCharacteristic) {}
    func didUnsubscribe(_ central: CBCentral, from characteristic: CBCharacteristic) {}
    func answer(_ request: CBATTRequest, of manager: CBPeripheralManager) -> Bool { false }
    func answer(_ requests: [CBATTRequest], of manager: CBPeripheralManager) -> Bool { false }
    /// There is room for updates again.
    func hasRoom() {}
    func didPublishChannel(_ psm: CBL2CAPPSM, error: (any Error)?) {}
    func didOpen(_ channel: CBL2CAPChannel) {}

    // MARK: Publishing

    override func makeManager(_ options: [String: Any]) {
        manager = CBPeripheralManager(delegate: self, queue: .main, options: options)
    }

    func peripheralManagerDidUpdateState(_ manager: CBPeripheralManager) { take(manager.state) }

    override func bluetoothIsOn() {
        unpublished = services.count
        for service in services { manager?.add(service) }
    }

    func peripheralManager(_ manager: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
        guard ending == nil else { return }
        if let error { return fail("the service \(service.uuid) cannot be published", error) }
        unpublished -= 1
        if unpublished == 0 { manager.startAdvertising(advertisement) }
    }

    func peripheralManagerDidStartAdvertising(_ manager: CBPeripheralManager, error: (any Error)?) {
        guard ending == nil else { return }
        if let error { return fail("this machine cannot advertise", error) }
        let uuids = advertisement[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID] ?? []
        let name = advertisement[CBAdvertisementDataLocalNameKey] as? String
        output.report(.advertising(name: name, services: uuids.map(\.uuidString)))
        isOnAir()
    }

    private func fail(_ what: String, _ error: any Error) {
        output.complain("\(what): \(error.sentence). `bluez-demo doctor` may show the cause.")
        stop(.failure)
    }

    override func end() -> Bool {
        guard let manager, manager.state == .poweredOn else { return false }
        manager.stopAdvertising()
        manager.removeAllServices()
        return false
    }

    // MARK: Centrals

    func peripheralManager(
        _ manager: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
    ) {
        guard ending == nil else { return }
        output.report(.subscribed(central.identifier, characteristic.uuid.uuidString))
        didSubscribe(central, to: characteristic)
    }

    func peripheralManager(
        _ manager: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
    ) {
        guard ending == nil else { return }
        output.report(.unsubscribed(central.identifier, characteristic.uuid.uuidString))
        didUnsubscribe(central, from: characteristic)
    }

    func peripheralManager(_ manager: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
        if !answer(request, of: manager) { manager.respond(to: request, withResult: .attributeNotFound) }
    }

    func peripheralManager(_ manager: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
        guard !answer(requests, of: manager), let first = requests.first else { return }
        manager.respond(to: first, withResult: .requestNotSupported)
    }

    func peripheralManager(
        _ manager: CBPeripheralManager, didPublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) {
        if ending == nil { didPublishChannel(PSM, error: error) }
    }

    func peripheralManager(_ manager: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
        if ending == nil, let channel { didOpen(channel) }
    }

    func peripheralManagerIsReady(toUpdateSubscribers manager: CBPeripheralManager) {
        if ending == nil { hasRoom() }
    }
}
