// CoreBluetooth as Apple's SDK declares it for Swift, as far as CoreBluetoothAsync and AppCode.swift use it: no more
// members than there, and no class is Sendable. `scripts/check-apple` type-checks the module with this in place of
// BluezKit. Nothing of it is ever called.
@_exported import Dispatch
@_exported import Foundation

public typealias CFAbsoluteTime = Double
public typealias CBL2CAPPSM = UInt16

// Of Core Foundation, to whose types streams are bridged.
public typealias CFReadStream = InputStream
public typealias CFWriteStream = OutputStream
public func CFReadStreamSetDispatchQueue(_ stream: CFReadStream!, _ q: DispatchQueue!) {}
public func CFWriteStreamSetDispatchQueue(_ stream: CFWriteStream!, _ q: DispatchQueue!) {}

// MARK: Constants

public let CBCentralManagerScanOptionAllowDuplicatesKey = ""
public let CBCentralManagerScanOptionSolicitedServiceUUIDsKey = ""
public let CBCentralManagerRestoredStatePeripheralsKey = ""
public let CBCentralManagerRestoredStateScanServicesKey = ""
public let CBCentralManagerRestoredStateScanOptionsKey = ""
public let CBPeripheralManagerRestoredStateServicesKey = ""
public let CBPeripheralManagerRestoredStateAdvertisementDataKey = ""
public let CBAdvertisementDataLocalNameKey = ""
public let CBAdvertisementDataServiceUUIDsKey = ""
public let CBAdvertisementDataManufacturerDataKey = ""
public let CBAdvertisementDataServiceDataKey = ""
public let CBAdvertisementDataTxPowerLevelKey = ""
public let CBAdvertisementDataOverflowServiceUUIDsKey = ""
public let CBAdvertisementDataSolicitedServiceUUIDsKey = ""
public let CBAdvertisementDataIsConnectable = ""
public let CBUUIDClientCharacteristicConfigurationString = ""

// MARK: Values

public enum CBManagerState: Int, Sendable { case unknown, resetting, unsupported, unauthorized, poweredOff, poweredOn }
public enum CBPeripheralState: Int, Sendable { case disconnected, connecting, connected, disconnecting }
public enum CBCharacteristicWriteType: Int, Sendable { case withResponse, withoutResponse }
public enum CBConnectionEvent: Int, Sendable { case peerDisconnected, peerConnected }
public enum CBPeripheralManagerConnectionLatency: Int, Sendable { case low, medium, high }

public struct CBConnectionEventMatchingOption: RawRepresentable, Hashable, Sendable {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }
    public static let serviceUUIDs = Self(rawValue: "")
    public static let peripheralUUIDs = Self(rawValue: "")
}

public struct CBCharacteristicProperties: OptionSet, Sendable {
    public let rawValue: UInt
    public init(rawValue: UInt) { self.rawValue = rawValue }
    public static let read = Self(rawValue: 2)
    public static let writeWithoutResponse = Self(rawValue: 4)
    public static let notify = Self(rawValue: 16)
}

public struct CBAttributePermissions: OptionSet, Sendable {
    public let rawValue: UInt
    public init(rawValue: UInt) { self.rawValue = rawValue }
    public static let readable = Self(rawValue: 1)
}

public struct CBError: Error {
    public enum Code: Int, Sendable {
        case unknown, invalidParameters, invalidHandle, notConnected, outOfSpace, operationCancelled, connectionTimeout
        case peripheralDisconnected, uuidNotAllowed, alreadyAdvertising, connectionFailed, connectionLimitReached
        case unknownDevice, operationNotSupported
    }
    public init(_ code: Code, userInfo: [String: Any] = [:]) {}
}

public struct CBATTError: Error {
    public enum Code: Int, Sendable {
        case success, invalidHandle, readNotPermitted, writeNotPermitted, invalidPdu, insufficientAuthentication
        case requestNotSupported, invalidOffset, insufficientAuthorization, prepareQueueFull, attributeNotFound
        case attributeNotLong, insufficientEncryptionKeySize, invalidAttributeValueLength, unlikelyError
        case insufficientEncryption, unsupportedGroupType, insufficientResources
    }
    public init(_ code: Code, userInfo: [String: Any] = [:]) {}
}

// MARK: Objects

open class CBUUID: NSObject {
    open var data: Data { fatalError() }
    open var uuidString: String { fatalError() }
    public init(string: String) {}
    public init(data: Data) {}
}

open class CBPeer: NSObject {
    open var identifier: UUID { fatalError() }
}
open class CBCentral: CBPeer {
    open var maximumUpdateValueLength: Int { fatalError() }
}
open class CBAttribute: NSObject {
    open var uuid: CBUUID { fatalError() }
}
open class CBService: CBAttribute {
    open var isPrimary: Bool { fatalError() }
    open var includedServices: [CBService]? { fatalError() }
    open var characteristics: [CBCharacteristic]? { fatalError() }
}
open class CBMutableService: CBService {
    open override var includedServices: [CBService]? {
        get { fatalError() }
        set {}
    }
    open override var characteristics: [CBCharacteristic]? {
        get { fatalError() }
        set {}
    }
    public init(type UUID: CBUUID, primary isPrimary: Bool) {}
}
open class CBCharacteristic: CBAttribute {
    open var properties: CBCharacteristicProperties { fatalError() }
    open var value: Data? { fatalError() }
    open var descriptors: [CBDescriptor]? { fatalError() }
    open var isNotifying: Bool { fatalError() }
}
open class CBMutableCharacteristic: CBCharacteristic {
    open var subscribedCentrals: [CBCentral]? { fatalError() }
    public init(
        type UUID: CBUUID, properties: CBCharacteristicProperties, value: Data?, permissions: CBAttributePermissions
    ) {}
}
open class CBDescriptor: CBAttribute {
    open var value: Any? { fatalError() }
}
open class CBL2CAPChannel: NSObject {
    open var peer: CBPeer! { fatalError() }
    open var inputStream: InputStream! { fatalError() }
    open var outputStream: OutputStream! { fatalError() }
    open var psm: CBL2CAPPSM { fatalError() }
}
open class CBATTRequest: NSObject {
    open var central: CBCentral { fatalError() }
    open var characteristic: CBCharacteristic { fatalError() }
    open var offset: Int { fatalError() }
    open var value: Data?
}

open class CBPeripheral: CBPeer {
    open weak var delegate: (any CBPeripheralDelegate)?
    open var name: String? { fatalError() }
    open var state: CBPeripheralState { fatalError() }
    open var services: [CBService]? { fatalError() }
    open var canSendWriteWithoutResponse: Bool { fatalError() }
    open func readRSSI() {}
    open func discoverServices(_ serviceUUIDs: [CBUUID]?) {}
    open func discoverIncludedServices(_ includedServiceUUIDs: [CBUUID]?, for service: CBService) {}
    open func discoverCharacteristics(_ characteristicUUIDs: [CBUUID]?, for service: CBService) {}
    open func discoverDescriptors(for characteristic: CBCharacteristic) {}
    open func readValue(for characteristic: CBCharacteristic) {}
    open func readValue(for descriptor: CBDescriptor) {}
    open func maximumWriteValueLength(for type: CBCharacteristicWriteType) -> Int { fatalError() }
    open func writeValue(_ data: Data, for characteristic: CBCharacteristic, type: CBCharacteristicWriteType) {}
    open func writeValue(_ data: Data, for descriptor: CBDescriptor) {}
    open func setNotifyValue(_ enabled: Bool, for characteristic: CBCharacteristic) {}
    open func openL2CAPChannel(_ PSM: CBL2CAPPSM) {}
}

open class CBManager: NSObject {
    open var state: CBManagerState { fatalError() }
}
open class CBCentralManager: CBManager {
    open weak var delegate: (any CBCentralManagerDelegate)?
    open var isScanning: Bool { fatalError() }
    public init(delegate: (any CBCentralManagerDelegate)?, queue: DispatchQueue?, options: [String: Any]? = nil) {}
    open func retrievePeripherals(withIdentifiers identifiers: [UUID]) -> [CBPeripheral] { fatalError() }
    open func retrieveConnectedPeripherals(withServices serviceUUIDs: [CBUUID]) -> [CBPeripheral] { fatalError() }
    open func scanForPeripherals(withServices serviceUUIDs: [CBUUID]?, options: [String: Any]? = nil) {}
    open func stopScan() {}
    open func connect(_ peripheral: CBPeripheral, options: [String: Any]? = nil) {}
    open func cancelPeripheralConnection(_ peripheral: CBPeripheral) {}
    open func registerForConnectionEvents(options: [CBConnectionEventMatchingOption: Any]? = nil) {}
}
open class CBPeripheralManager: CBManager {
    open weak var delegate: (any CBPeripheralManagerDelegate)?
    open var isAdvertising: Bool { fatalError() }
    public init(delegate: (any CBPeripheralManagerDelegate)?, queue: DispatchQueue?, options: [String: Any]? = nil) {}
    open func startAdvertising(_ advertisementData: [String: Any]?) {}
    open func stopAdvertising() {}
    open func setDesiredConnectionLatency(_ latency: CBPeripheralManagerConnectionLatency, for central: CBCentral) {}
    open func add(_ service: CBMutableService) {}
    open func remove(_ service: CBMutableService) {}
    open func removeAllServices() {}
    open func respond(to request: CBATTRequest, withResult result: CBATTError.Code) {}
    open func updateValue(
        _ value: Data, for characteristic: CBMutableCharacteristic, onSubscribedCentrals centrals: [CBCentral]?
    ) -> Bool { fatalError() }
    open func publishL2CAPChannel(withEncryption encryptionRequired: Bool) {}
    open func unpublishL2CAPChannel(_ PSM: CBL2CAPPSM) {}
}

// MARK: Delegates

public protocol CBCentralManagerDelegate: NSObjectProtocol {
    func centralManagerDidUpdateState(_ central: CBCentralManager)
    func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any])
    func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber)
    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral)
    func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?)
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?)
    func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral)
}

public protocol CBPeripheralDelegate: NSObjectProtocol {
    func peripheralDidUpdateName(_ peripheral: CBPeripheral)
    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService])
    func peripheral(_ peripheral: CBPeripheral, didReadRSSI RSSI: NSNumber, error: (any Error)?)
    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?)
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?)
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?)
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?)
    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?)
    func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?)
    func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?)
    func peripheral(_ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?)
    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?)
    func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral)
    func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?)
}

public protocol CBPeripheralManagerDelegate: NSObjectProtocol {
    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager)
    func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any])
    func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?)
    func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?)
    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic)
    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic)
    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest)
    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest])
    func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager)
    func peripheralManager(
        _ peripheral: CBPeripheralManager, didPublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?)
    func peripheralManager(
        _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?)
    func peripheralManager(_ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?)
}

// Optional there.
extension CBCentralManagerDelegate {
    public func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {}
    public func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
    ) {}
    public func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {}
    public func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {}
    public func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {}
    public func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral
    ) {}
}
extension CBPeripheralDelegate {
    public func peripheralDidUpdateName(_ peripheral: CBPeripheral) {}
    public func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {}
    public func peripheral(_ peripheral: CBPeripheral, didReadRSSI RSSI: NSNumber, error: (any Error)?) {}
    public func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {}
    public func peripheral(
        _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?
    ) {}
    public func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {}
    public func peripheral(
        _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
    ) {}
    public func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {}
    public func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?)
    {}
    public func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {}
    public func peripheral(_ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?) {
    }
    public func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
    ) {}
    public func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) {}
    public func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {}
}
extension CBPeripheralManagerDelegate {
    public func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any]) {}
    public func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {}
    public func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {}
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
    ) {}
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
    ) {}
    public func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {}
    public func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {}
    public func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) {}
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, didPublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) {}
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    ) {}
    public func peripheralManager(
        _ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?
    ) {}
}
