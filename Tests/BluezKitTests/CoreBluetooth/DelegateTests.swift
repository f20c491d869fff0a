import Testing

@testable import BluezKit

/// A manager for tests of what needs one as a parameter: it looks for a bus that does not exist.
private func manager() -> CBCentralManager {
    CBCentralManager(
        delegate: nil, queue: DispatchQueue(label: "test"),
        options: [BluezManagerOptionBusAddressKey: "unix:path=/nonexistent/bluezkit"])
}

private func peripheral(of manager: CBCentralManager) -> CBPeripheral {
    CBPeripheral(identity: DeviceIdentity(address: 0x0011_2233_4455, isRandom: false), manager: manager)
}

private final class OldDelegate: NSObject, CBCentralManagerDelegate {
    var calls: [String] = []
    func centralManagerDidUpdateState(_ central: CBCentralManager) {}
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) {
        calls.append("old \((error as? CBError)?.code.rawValue ?? -1)")
    }
}

private final class BothDelegate: NSObject, CBCentralManagerDelegate {
    var calls: [String] = []
    func centralManagerDidUpdateState(_ central: CBCentralManager) {}
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) {
        calls.append("old")
    }
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        calls.append("new \(isReconnecting)")
    }
}

private final class SmallestDelegate: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate,
    CBPeripheralManagerDelegate
{
    func centralManagerDidUpdateState(_ central: CBCentralManager) {}
    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {}
}

@Suite struct DelegateTests {
    @Test("AR-5 AR-6 MOD-8 the default of the newer disconnect callback calls the older one")
    func olderCallback() {
        let manager = manager()
        let delegate = OldDelegate()
        let any: any CBCentralManagerDelegate = delegate
        any.centralManager(
            manager, didDisconnectPeripheral: peripheral(of: manager), timestamp: 0, isReconnecting: false,
            error: CBError(.connectionTimeout))
        #expect(delegate.calls == ["old 6"])
    }

    @Test("AR-5 AR-6 a delegate with both disconnect callbacks gets the newer one only")
    func newerCallback() {
        let manager = manager()
        let delegate = BothDelegate()
        let any: any CBCentralManagerDelegate = delegate
        any.centralManager(
            manager, didDisconnectPeripheral: peripheral(of: manager), timestamp: 0, isReconnecting: true,
            error: nil)
        #expect(delegate.calls == ["new true"])
    }

    @Test("MOD-4 MOD-5 every callback except the state callback is optional")
    func defaults() {
        let manager = manager()
        let peripheral = peripheral(of: manager)
        let smallest = SmallestDelegate()
        let central: any CBCentralManagerDelegate = smallest
        central.centralManager(manager, willRestoreState: [:])
        central.centralManager(manager, didDiscover: peripheral, advertisementData: [:], rssi: -40)
        central.centralManager(manager, didConnect: peripheral)
        central.centralManager(manager, didFailToConnect: peripheral, error: nil)
        central.centralManager(
            manager, didDisconnectPeripheral: peripheral, timestamp: 0, isReconnecting: false, error: nil)
        central.centralManager(manager, connectionEventDidOccur: .peerConnected, for: peripheral)
        central.centralManager(manager, didUpdateANCSAuthorizationFor: peripheral)

        let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
        let characteristic = CBMutableCharacteristic(
            type: CBUUID(string: "2A37"), properties: .notify, value: nil, permissions: [])
        let descriptor = CBMutableDescriptor(type: CBUUID(string: "2901"), value: "name")
        let link: any CBPeripheralDelegate = smallest
        link.peripheralDidUpdateName(peripheral)
        link.peripheral(peripheral, didModifyServices: [service])
        link.peripheralDidUpdateRSSI(peripheral, error: nil)
        link.peripheral(peripheral, didReadRSSI: -40, error: nil)
        link.peripheral(peripheral, didDiscoverServices: nil)
        link.peripheral(peripheral, didDiscoverIncludedServicesFor: service, error: nil)
        link.peripheral(peripheral, didDiscoverCharacteristicsFor: service, error: nil)
        link.peripheral(peripheral, didDiscoverDescriptorsFor: characteristic, error: nil)
        link.peripheral(peripheral, didUpdateValueFor: characteristic, error: nil)
        link.peripheral(peripheral, didUpdateValueFor: descriptor, error: nil)
        link.peripheral(peripheral, didWriteValueFor: characteristic, error: nil)
        link.peripheral(peripheral, didWriteValueFor: descriptor, error: nil)
        link.peripheral(peripheral, didUpdateNotificationStateFor: characteristic, error: nil)
        link.peripheralIsReady(toSendWriteWithoutResponse: peripheral)
        link.peripheral(peripheral, didOpen: nil, error: nil)
        #expect(characteristic.value == nil)
    }

    @Test("MOD-3 MOD-6 delegates are NSObjectProtocol and held weakly")
    func weakDelegates() {
        let manager = manager()
        let peripheralManager = CBPeripheralManager(delegate: nil, queue: DispatchQueue(label: "test"))
        var delegate: SmallestDelegate? = SmallestDelegate()
        manager.delegate = delegate
        peripheralManager.delegate = delegate
        #expect(manager.delegate?.isEqual(delegate) == true)
        #expect(peripheralManager.delegate === delegate)
        delegate = nil
        #expect(manager.delegate == nil)
        #expect(peripheralManager.delegate == nil)
    }
}
