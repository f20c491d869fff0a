public import BluezKit
import Foundation

/// The server side of a standard service: the service to publish, and the answers to requests. BluezKit addition.
///
/// ```swift
/// let battery = BatteryService(level: BatteryLevel(percent: 80))
/// manager.add(battery.service)
///
/// func peripheralManager(_ manager: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
///     if battery.answer(request, of: manager) { return }
///     manager.respond(to: request, withResult: .attributeNotFound)
/// }
/// ```
///
/// Use one object with one manager, and only on that manager's queue.
public protocol StandardService: AnyObject {
    /// Names the service, for scans, advertisements and discovery.
    static var uuid: CBUUID { get }

    /// The service, complete, for `CBPeripheralManager.add(_:)`. Set by ``restore(from:)``.
    var service: CBMutableService { get set }

    /// The value that a central reads now; nil: reading is not permitted.
    func value(of characteristic: CBCharacteristic) -> Data?

    /// Handles a write.
    /// - Returns: The result to respond with; `.success` if it was accepted.
    func write(_ value: Data, to characteristic: CBCharacteristic) -> CBATTError.Code
}

extension StandardService {
    /// No characteristic can be read.
    public func value(of characteristic: CBCharacteristic) -> Data? { nil }

    /// No characteristic can be written.
    public func write(_ value: Data, to characteristic: CBCharacteristic) -> CBATTError.Code { .writeNotPermitted }

    /// Responds to a read request, from `peripheralManager(_:didReceiveRead:)`.
    /// - Returns: False if the request is for another service. It is not responded to then.
    public func answer(_ request: CBATTRequest, of manager: CBPeripheralManager) -> Bool {
        guard has(request.characteristic) else { return false }
        guard let value = value(of: request.characteristic) else {
            manager.respond(to: request, withResult: .readNotPermitted)
            return true
        }
        guard (0...value.count).contains(request.offset) else {
            manager.respond(to: request, withResult: .invalidOffset)
            return true
        }
        request.value = Data(value.dropFirst(request.offset))
        manager.respond(to: request, withResult: .success)
        return true
    }

    /// Responds to write requests, from `peripheralManager(_:didReceiveWrite:)`.
    /// - Returns: False if any of them is for another service. They are not responded to then.
    public func answer(_ requests: [CBATTRequest], of manager: CBPeripheralManager) -> Bool {
        guard let first = requests.first, requests.allSatisfy({ has($0.characteristic) }) else { return false }
        // All or nothing: no standard service here has values that are written in parts, or several at a time.
        guard requests.count == 1, first.offset == 0 else {
            manager.respond(to: first, withResult: .requestNotSupported)
            return true
        }
        manager.respond(to: first, withResult: write(first.value ?? Data(), to: first.characteristic))
        return true
    }

    /// Continues with the service that an earlier process published, instead of adding it again.
    ///
    /// ```swift
    /// func peripheralManager(_ manager: CBPeripheralManager, willRestoreState dict: [String: Any]) {
    ///     isPublished = battery.restore(from: dict)
    /// }
    /// ```
    /// - Parameter state: From `peripheralManager(_:willRestoreState:)`.
    /// - Returns: False if there is no such service, or only with other contents, as an earlier version of the app can
    ///   have published: other characteristics, permissions or fixed values. Add ``service`` then, which has not
    ///   changed, when Bluetooth is on; the earlier one is withdrawn. See `CBMutableService.restored(from:)`.
    public func restore(from state: [String: Any]) -> Bool {
        guard let restored = service.restored(from: state) else { return false }
        service = restored
        return true
    }

    func characteristic(_ uuid: CBUUID) -> CBMutableCharacteristic? {
        service.characteristics?.first { $0.uuid == uuid } as? CBMutableCharacteristic
    }

    /// Apple's API reserves Battery, Device Information and Current Time for the system, and refuses them to apps in
    /// their short form, `180F`. It accepts the long form, which denotes the same service.
    static func makeService() -> CBMutableService {
        let isShort = uuid.data.count == 2
        let long = isShort ? CBUUID(string: "0000\(uuid.uuidString)-0000-1000-8000-00805F9B34FB") : uuid
        return CBMutableService(type: long, primary: true)
    }

    private func has(_ characteristic: CBCharacteristic) -> Bool {
        service.characteristics?.contains { $0 === characteristic } ?? false
    }
}
