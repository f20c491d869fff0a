// What apps add to CoreBluetooth's types. The first is there already, so the compiler warns; it must not be an error.
import CoreBluetooth

extension CBPeripheral: @unchecked @retroactive Sendable {}

extension CBPeripheral: @retroactive Identifiable {
    public var id: UUID { identifier }
}

extension CBManagerState: @retroactive CustomStringConvertible {
    public var description: String { self == .poweredOn ? "on" : "off" }
}

extension CBUUID: @retroactive Comparable {
    public static func < (a: CBUUID, b: CBUUID) -> Bool { a.uuidString < b.uuidString }
}

extension CBCharacteristicProperties: @retroactive Hashable {}

extension CBPeripheralState: @retroactive CaseIterable {
    public static var allCases: [CBPeripheralState] { [.disconnected, .connecting, .connected, .disconnecting] }
}
