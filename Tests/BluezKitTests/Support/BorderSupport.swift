import Foundation

@testable import BluezKit

extension ConnectionID: ExpressibleByIntegerLiteral {
    public init(integerLiteral request: UInt32) { self.init(request: request) }
}

extension PeripheralCore {
    /// A connect of the app's, as far as the core is concerned.
    func begin() -> ConnectionID {
        let connectionID = ConnectionID(request: newest.request + 1)
        begin(connectionID)
        return connectionID
    }
}

extension CBPeripheral {
    /// What the core knows of it. On the bus queue.
    var peripheralCore: PeripheralCore? { core.known(identity) }

    /// BlueZ's path of one of its attributes. Not on the bus queue.
    func path(of attribute: CBAttribute) -> String {
        core.central.bus.queue.sync { peripheralCore?.attributes[attribute.id]?.path ?? "none" }
    }
}

extension PublishedService {
    /// As the app's only call would add it.
    convenience init(
        _ service: CBMutableService, core: PeripheralManagerCore, call: UInt64 = 1, isResumed: Bool = false,
        included: (CBService) -> UInt64 = { _ in 0 }
    ) {
        self.init(
            PublishMirror().publish(service, call: call, included: included), core: core, isResumed: isResumed)
    }
}

extension PublishedCharacteristic {
    convenience init(_ characteristic: CBMutableCharacteristic, core: PeripheralManagerCore) {
        self.init(LocalCharacteristic(characteristic), id: LocalAttributeID(call: 1, index: 0), core: core)
    }
}
