import CoreBluetooth
import Testing

/// Mostly a matter of compiling: this file imports nothing but `CoreBluetooth`, and warnings are errors.
@Suite struct ModuleTests {
    @Test("MOD-1 importing CoreBluetooth makes Foundation and Dispatch visible")
    func reexports() {
        let queue: DispatchQueue? = nil
        let (data, number, object) = (Data([1]), NSNumber(value: true), NSObject())
        #expect(queue == nil && data.count == 1 && number.boolValue && object.isEqual(object))
    }

    @Test("MOD-7 functions that return a value may be called without using it")
    func discardableResults() {
        let manager = CBPeripheralManager(delegate: nil, queue: DispatchQueue(label: "test"))
        let characteristic = CBMutableCharacteristic(
            type: CBUUID(string: "2A37"), properties: .notify, value: nil, permissions: [])
        manager.updateValue(Data(), for: characteristic, onSubscribedCentrals: nil)
        CBCentralManager.supports([])
        let central = CBCentralManager(
            delegate: nil, queue: DispatchQueue(label: "test"),
            options: [BluezManagerOptionBusAddressKey: "unix:path=/nonexistent/bluezkit"])
        central.retrievePeripherals(withIdentifiers: [])
        central.retrieveConnectedPeripherals(withServices: [])
        #expect(central.state == .unknown || central.state == .unsupported)
    }

    @MainActor private final class Isolated: NSObject, CBPeripheralManagerDelegate {
        nonisolated func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {}
    }

    @Test("MOD-9 delegate protocols bind no actor, and the classes may cross to another")
    func isolation() async {
        let uuid = CBUUID(string: "180D")
        let (name, delegate) = await Task { @MainActor in (uuid.uuidString, Isolated()) }.value
        #expect(name == "180D")
        let any: any CBPeripheralManagerDelegate = delegate
        #expect(!((any as Any) is any Actor))
    }
}
