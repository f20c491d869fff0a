// Subclasses of CoreBluetooth's classes, as tests of apps have them.
import CoreBluetooth

class CentralManagerMock: CBCentralManager, @unchecked Sendable {
    var scans = 0
    var connected: [UUID] = []
    override var state: CBManagerState { .poweredOn }
    override var isScanning: Bool { scans > 0 }
    override class var authorization: CBManagerAuthorization { .allowedAlways }
    override class func supports(_ features: CBCentralManager.Feature) -> Bool { false }
    override init(delegate: CBCentralManagerDelegate?, queue: DispatchQueue?, options: [String: Any]? = nil) {
        super.init(delegate: delegate, queue: queue, options: options)
    }
    override func scanForPeripherals(withServices serviceUUIDs: [CBUUID]?, options: [String: Any]? = nil) {
        scans += 1
    }
    override func stopScan() { scans = 0 }
    override func connect(_ peripheral: CBPeripheral, options: [String: Any]? = nil) {
        connected.append(peripheral.identifier)
    }
    override func cancelPeripheralConnection(_ peripheral: CBPeripheral) {}
    override func retrievePeripherals(withIdentifiers identifiers: [UUID]) -> [CBPeripheral] { [] }
    override func retrieveConnectedPeripherals(withServices serviceUUIDs: [CBUUID]) -> [CBPeripheral] { [] }
    override func registerForConnectionEvents(options: [CBConnectionEventMatchingOption: Any]? = nil) {}
}

class PeripheralManagerMock: CBPeripheralManager, @unchecked Sendable {
    override var isAdvertising: Bool { true }
    override func startAdvertising(_ advertisementData: [String: Any]?) {}
    override func stopAdvertising() {}
    override func add(_ service: CBMutableService) {
        delegate?.peripheralManager(self, didAdd: service, error: nil)
    }
    override func remove(_ service: CBMutableService) {}
    override func removeAllServices() {}
    override func respond(to request: CBATTRequest, withResult result: CBATTError.Code) {}
    override func updateValue(
        _ value: Data, for characteristic: CBMutableCharacteristic, onSubscribedCentrals centrals: [CBCentral]?
    ) -> Bool { true }
    override func setDesiredConnectionLatency(
        _ latency: CBPeripheralManagerConnectionLatency, for central: CBCentral
    ) {}
    override func publishL2CAPChannel(withEncryption encryptionRequired: Bool) {}
    override func unpublishL2CAPChannel(_ PSM: CBL2CAPPSM) {}
}

/// Never made, as on Apple platforms: a peripheral has no public initialiser. What matters is that it can be
/// overridden.
class PeripheralMock: CBPeripheral, @unchecked Sendable {
    override var name: String? { "mock" }
    override var state: CBPeripheralState { .connected }
    override var services: [CBService]? { [] }
    override var canSendWriteWithoutResponse: Bool { true }
    override var identifier: UUID { UUID() }
    override func readRSSI() { delegate?.peripheral(self, didReadRSSI: -40, error: nil) }
    override func discoverServices(_ serviceUUIDs: [CBUUID]?) { delegate?.peripheral(self, didDiscoverServices: nil) }
    override func discoverIncludedServices(_ includedServiceUUIDs: [CBUUID]?, for service: CBService) {}
    override func discoverCharacteristics(_ characteristicUUIDs: [CBUUID]?, for service: CBService) {}
    override func discoverDescriptors(for characteristic: CBCharacteristic) {}
    override func readValue(for characteristic: CBCharacteristic) {}
    override func readValue(for descriptor: CBDescriptor) {}
    override func maximumWriteValueLength(for type: CBCharacteristicWriteType) -> Int { 20 }
    override func writeValue(_ data: Data, for characteristic: CBCharacteristic, type: CBCharacteristicWriteType) {}
    override func writeValue(_ data: Data, for descriptor: CBDescriptor) {}
    override func setNotifyValue(_ enabled: Bool, for characteristic: CBCharacteristic) {}
    override func openL2CAPChannel(_ PSM: CBL2CAPPSM) {}
}

class ServiceMock: CBMutableService, @unchecked Sendable {
    override var peripheral: CBPeripheral? { nil }
    init() { super.init(type: CBUUID(string: "180D"), primary: true) }
}

class CharacteristicMock: CBMutableCharacteristic, @unchecked Sendable {
    var notifies = false
    override var isNotifying: Bool { notifies }
    override var subscribedCentrals: [CBCentral]? { [] }
    override var service: CBService? { nil }
    override var properties: CBCharacteristicProperties {
        get { .notify }
        set { super.properties = newValue }
    }
}

class DescriptorMock: CBMutableDescriptor, @unchecked Sendable {
    override var value: Any? { Data() }
    override var characteristic: CBCharacteristic? { nil }
    override var uuid: CBUUID { CBUUID(string: "2901") }
}

class ChannelMock: CBL2CAPChannel, @unchecked Sendable {
    let input = InputStream(data: Data())
    override init() { super.init() }
    override var inputStream: InputStream! { input }
    override var outputStream: OutputStream! { nil }
    override var psm: CBL2CAPPSM { 0x80 }
}

/// What apps put in front of CoreBluetooth so that they can test.
protocol PeripheralProtocol: AnyObject {
    var name: String? { get }
    var identifier: UUID { get }
    var state: CBPeripheralState { get }
    func discoverServices(_ serviceUUIDs: [CBUUID]?)
    func writeValue(_ data: Data, for characteristic: CBCharacteristic, type: CBCharacteristicWriteType)
}
extension CBPeripheral: PeripheralProtocol {}

protocol CentralManagerProtocol: AnyObject {
    var delegate: CBCentralManagerDelegate? { get set }
    var isScanning: Bool { get }
    func scanForPeripherals(withServices serviceUUIDs: [CBUUID]?, options: [String: Any]?)
    func connect(_ peripheral: CBPeripheral, options: [String: Any]?)
}
extension CBCentralManager: CentralManagerProtocol {}
