import Foundation
import Testing

@testable import BluezKit

/// What a new version of an app can change in a service.
@Suite struct RestoredServiceTests {
    private let uuid = CBUUID(string: "BB1E0111-5D3B-4C6F-9A5E-000000000000")

    private func service(
        _ set: (CBMutableService, CBMutableCharacteristic, CBMutableCharacteristic) -> Void = { _, _, _ in }
    ) -> CBMutableService {
        let service = CBMutableService(type: uuid, primary: true)
        let dynamic = CBMutableCharacteristic(
            type: CBUUID(string: "0111"), properties: [.read, .write], value: nil, permissions: [.readable, .writeable])
        dynamic.descriptors = [CBMutableDescriptor(type: CBUUID(string: "2901"), value: "Level")]
        let fixed = CBMutableCharacteristic(
            type: CBUUID(string: "0110"), properties: .read, value: Data([1]), permissions: .readable)
        service.characteristics = [dynamic, fixed]
        set(service, dynamic, fixed)
        return service
    }

    private func state(_ services: [CBMutableService]) -> [String: Any] {
        [CBPeripheralManagerRestoredStateServicesKey: services]
    }

    @Test("R-19 a service with the same contents is continued, once, and is its own continuation then")
    func same() {
        let (restored, mine) = (service(), service())
        #expect(mine.restored(from: state([restored])) === restored)
        #expect(restored.restored(from: state([restored])) === restored)
        #expect(service().restored(from: state([restored])) == nil)
        #expect(service().restored(from: [:]) == nil)
    }

    @Test("R-19 each change of a service makes it another one: its earlier version is not continued", arguments: 0..<9)
    func changed(_ change: Int) {
        let included = CBMutableService(type: CBUUID(string: "0101"), primary: false)
        let mine = service { service, dynamic, fixed in
            switch change {
            case 0: dynamic.permissions = [.readable, .writeEncryptionRequired]
            case 1: dynamic.properties = [.read, .write, .notify]
            case 2: dynamic.descriptors = nil
            case 3: dynamic.descriptors = [CBMutableDescriptor(type: CBUUID(string: "2901"), value: "Other")]
            case 4: fixed.value = Data([2])
            case 5: fixed.permissions = .readEncryptionRequired
            case 6: service.characteristics = [dynamic]
            case 7: service.characteristics = [fixed, dynamic]
            default: service.includedServices = [included]
            }
        }
        let restored = service()
        #expect(mine.restored(from: state([restored])) == nil)
        #expect(service().restored(from: state([restored])) === restored)
    }

    @Test("R-19 a service that is primary is not continued by a secondary one")
    func primary() {
        let secondary = CBMutableService(type: uuid, primary: false)
        #expect(secondary.restored(from: state([CBMutableService(type: uuid, primary: true)])) == nil)
    }
}
