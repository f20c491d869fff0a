import Testing

@testable import BluezKit

@Suite struct AttributeTests {
    private func service(_ uuid: String = "180D") -> CBService {
        CBService(uuid: CBUUID(string: uuid), isPrimary: true, peripheral: nil)
    }

    private func descriptor(_ uuid: String, _ bytes: [UInt8]) -> Any? {
        let descriptor = CBDescriptor(uuid: CBUUID(string: uuid), characteristic: nil)
        descriptor.setValue(Data(bytes))
        return descriptor.value
    }

    @Test("GD-1 attributes are nil before discovery, then those found, possibly none")
    func revealing() {
        let service = service()
        #expect(service.characteristics == nil)
        #expect(service.includedServices == nil)
        let characteristic = CBCharacteristic(
            uuid: CBUUID(string: "2A37"), properties: [.notify], service: service)
        service.addDiscovered(characteristics: [characteristic])
        service.addDiscovered(includedServices: [])
        #expect(service.characteristics == [characteristic])
        #expect(service.includedServices == [])
        #expect(characteristic.descriptors == nil)
        characteristic.addDiscovered(descriptors: [])
        #expect(characteristic.descriptors == [])
        #expect(characteristic.service === service)
        #expect(characteristic.value == nil)
        #expect(!characteristic.isNotifying)
        characteristic.setValue(Data([1]))
        characteristic.setNotifying(true)
        #expect(characteristic.value == Data([1]))
        #expect(characteristic.isNotifying)
    }

    @Test("GD-12 back references of attributes are weak")
    func weakReferences() {
        var owner: CBService? = service()
        let characteristic = CBCharacteristic(
            uuid: CBUUID(string: "2A37"), properties: [], service: owner)
        #expect(characteristic.service != nil)
        owner = nil
        #expect(characteristic.service == nil)
    }

    @Test("MOD-11 attributes compare by identity, and make dictionary keys")
    func identity() {
        let (one, other) = (service(), service())
        #expect(one == one)
        #expect(one != other)
        #expect(Set([one, other, one]).count == 2)
        #expect([one: 1, other: 2][other] == 2)
    }

    @Test("the value of a descriptor has the type for its UUID")
    func descriptorValues() {
        #expect(descriptor("2900", [3, 0]) as? NSNumber == 3)
        #expect(descriptor("2901", Array("Höhe".utf8)) as? String == "Höhe")
        #expect(descriptor("2902", [1, 0]) as? NSNumber == 1)
        #expect((descriptor("2902", [2, 0]) as? NSNumber)?.intValue == 2)
        #expect(descriptor("00002902-0000-1000-8000-00805F9B34FB", [0, 1]) as? NSNumber == 256)
        #expect(descriptor("2903", [1]) as? NSNumber == 1)
        #expect(descriptor("2904", [4, 0, 0, 0x27, 1, 0, 0]) as? Data == Data([4, 0, 0, 0x27, 1, 0, 0]))
        #expect(descriptor("2905", [1]) as? Data == Data([1]))
        #expect(descriptor("2908", [1]) as? Data == Data([1]))
        #expect(descriptor("ABDD3056-28FA-441D-A470-55A75A52553A", []) as? Data == Data())
    }

    @Test("malformed descriptor values from a peer are delivered as data")
    func oddDescriptorValues() {
        #expect(descriptor("2901", [0xFF, 0xFE]) as? Data == Data([0xFF, 0xFE]))
        #expect(descriptor("2902", []) as? Data == Data())
        #expect(descriptor("2902", [1, 0, 7]) as? NSNumber == 1)
    }

    @Test("descriptions of attributes have Apple's format")
    func descriptions() {
        let service = service("180F")
        #expect(service.description.wholeMatch(of: /<CBService: 0x[0-9a-f]+, isPrimary = YES, UUID = Battery>/) != nil)
        let characteristic = CBCharacteristic(
            uuid: CBUUID(string: "FFF1"), properties: [.read, .notify], service: service)
        #expect(
            characteristic.description.hasSuffix(
                "UUID = FFF1, properties = 0x12, value = (null), notifying = NO>"))
        characteristic.setValue(Data([1, 0xAB]))
        characteristic.setNotifying(true)
        #expect("\(characteristic)".hasSuffix("value = {length = 2, bytes = 0x01ab}, notifying = YES>"))
        let descriptor = CBDescriptor(uuid: CBUUID(string: "2902"), characteristic: characteristic)
        #expect(descriptor.description.hasSuffix("UUID = Client Characteristic Configuration, value = (null)>"))
        descriptor.setValue(Data([1, 0]))
        #expect(descriptor.description.hasSuffix("value = 1>"))
    }

    @Test("PB-13 a local service has no peripheral, and its tree points back once assigned")
    func localTree() {
        let service = CBMutableService(type: CBUUID(string: "FFF0"), primary: false)
        #expect(service.peripheral == nil)
        #expect(!service.isPrimary)
        #expect(service.characteristics == nil)
        let characteristic = CBMutableCharacteristic(
            type: CBUUID(string: "FFF1"), properties: [.read], value: nil, permissions: [.readable])
        #expect(characteristic.service == nil)
        service.characteristics = [characteristic]
        #expect(characteristic.service === service)
        let descriptor = CBMutableDescriptor(type: CBUUID(string: "2901"), value: "name")
        characteristic.descriptors = [descriptor]
        #expect(descriptor.characteristic === characteristic)
        service.characteristics = nil
        #expect(characteristic.service == nil)
        characteristic.descriptors = []
        #expect(descriptor.characteristic == nil)
    }

    @Test("local attributes can be changed until they are added")
    func mutating() {
        let characteristic = CBMutableCharacteristic(
            type: CBUUID(string: "FFF1"), properties: [.read], value: Data([1]), permissions: [.readable])
        #expect(characteristic.value == Data([1]))
        #expect(characteristic.permissions == .readable)
        #expect(characteristic.subscribedCentrals == nil)
        characteristic.value = nil
        characteristic.properties.insert(.notify)
        characteristic.permissions = [.readable, .writeable]
        #expect(characteristic.value == nil)
        #expect(characteristic.properties == [.read, .notify])
        #expect(characteristic.permissions.contains(.writeable))
        let service = CBMutableService(type: CBUUID(string: "FFF0"), primary: true)
        let included = CBMutableService(type: CBUUID(string: "FFF2"), primary: false)
        service.includedServices = [included]
        #expect(service.includedServices == [included])
    }

    @Test("PB-8 descriptors take the value type of their UUID")
    func localDescriptors() {
        #expect(CBMutableDescriptor(type: CBUUID(string: "2901"), value: "name").value as? String == "name")
        #expect(CBMutableDescriptor(type: CBUUID(string: "2901"), value: NSString("name")).value as? String == "name")
        #expect(CBMutableDescriptor(type: CBUUID(string: "2904"), value: Data(count: 7)).value as? Data != nil)
        #expect(CBMutableDescriptor(type: CBUUID(), value: Data([1])).value as? Data == Data([1]))
        #expect(CBMutableDescriptor(type: CBUUID(string: "2901"), value: nil).value == nil)
    }

    #if compiler(>=6.2)  // exit tests
    @Test("PB-8 MIS-15 a descriptor value of the wrong type stops the process")
    func wrongDescriptorValues() async {
        await #expect(processExitsWith: .failure) {
            _ = CBMutableDescriptor(type: CBUUID(string: "2901"), value: Data([1]))
        }
        await #expect(processExitsWith: .failure) {
            _ = CBMutableDescriptor(type: CBUUID(string: "2904"), value: "text")
        }
    }

    @Test("NT-5 MIS-11 writing the configuration descriptor stops the process")
    func writingTheConfiguration() async {
        await #expect(processExitsWith: .failure) {
            let manager = CBCentralManager(
                delegate: nil, queue: DispatchQueue(label: "test"),
                options: [BluezManagerOptionBusAddressKey: "unix:path=/nonexistent/bluezkit"])
            let peripheral = CBPeripheral(
                identity: DeviceIdentity(address: 0x0011_2233_4455, isRandom: false), manager: manager)
            let descriptor = CBDescriptor(
                uuid: CBUUID(string: CBUUIDClientCharacteristicConfigurationString),
                characteristic: nil)
            peripheral.writeValue(Data([1, 0]), for: descriptor)
        }
    }
    #endif

    @Test("MOD-3 MOD-11 peers are NSObjects whose copy is the same object")
    func peers() {
        let identifier = UUID()
        let central = CBCentral(identifier: identifier)
        #expect(central.identifier == identifier)
        #expect(central.maximumUpdateValueLength == 20)
        #expect((central as NSObject).copy() as? CBPeer === central)
    }

    @Test("a request carries the central's parameters")
    func requests() {
        let central = CBCentral(identifier: UUID())
        let characteristic = CBMutableCharacteristic(
            type: CBUUID(string: "FFF1"), properties: [.write], value: nil, permissions: [.writeable])
        let request = CBATTRequest(central: central, characteristic: characteristic, offset: 3, value: nil)
        #expect(request.central === central)
        #expect(request.characteristic === characteristic)
        #expect(request.offset == 3)
        #expect(request.value == nil)
        request.value = Data([1])
        #expect(request.value == Data([1]))
    }

    @Test("a bare L2CAP channel is legal and empty")
    func channel() {
        let channel = CBL2CAPChannel()
        #expect(channel.peer == nil)
        #expect(channel.inputStream == nil)
        #expect(channel.outputStream == nil)
        #expect(channel.psm == 0)
    }

    @Test("MOD-10 types do not have conformances that apps add themselves")
    func conformances() {
        let objects: [Any] = [
            CBCentral(identifier: UUID()), CBUUID(string: "180D"), service(), CBManagerState.poweredOn,
            CBPeripheralState.connected, CBManagerAuthorization.denied, CBCharacteristicProperties.read,
        ]
        for object in objects {
            #expect(!(object is any Identifiable))
            #expect(!(object is any Codable))
            #expect(!(object is any Comparable))
            #expect(!(object is any CaseIterable))
        }
        #expect(!(CBManagerState.poweredOn as Any is any CustomStringConvertible))
        #expect(!(CBPeripheralState.connected as Any is any CustomStringConvertible))
    }

    @Test("MOD-12 attributes can be subclassed by test doubles")
    func doubles() {
        final class Double: CBMutableCharacteristic, @unchecked Sendable {
            override var isNotifying: Bool { true }
            override var value: Data? {
                get { Data([42]) }
                set { _ = newValue }
            }
        }
        let double: CBCharacteristic = Double(
            type: CBUUID(string: "FFF1"), properties: [], value: nil, permissions: [])
        #expect(double.isNotifying)
        #expect(double.value == Data([42]))
    }
}
