import BluezDBus
import BluezKitRestore
import Foundation

@testable import BluezKit

/// An app with one peripheral, on a bus that does not exist: the test does what BlueZ would have led to. Or on one
/// where the test is BlueZ (``ScriptedBus``).
// holds: constants; the log is safe
final class DetachedApp: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
    let log = EventLog<String>()
    let manager: CBCentralManager
    private(set) var peripheral: CBPeripheral
    let queue = DispatchQueue(label: "test.app")
    let device: Device
    let core: PeripheralCore
    /// Inside `didConnect`.
    var onConnect: (@Sendable () -> Void)?
    /// The errors of links that have ended.
    let ends = EventLog<CBError.Code?>()

    init(on bus: BusAddress? = nil, options: [String: Any] = [:], isRandom: Bool = true) {
        let address = bus?.rawValue ?? "unix:path=/nonexistent/\(UUID().uuidString)"
        manager = CBCentralManager(
            delegate: nil, queue: queue,
            options: options.merging([BluezManagerOptionBusAddressKey: address]) { $1 })
        device = DetachedCentral.device(0x77, isRandom: isRandom)
        peripheral = manager.peripheral(device.identity)
        core = manager.session.queue.sync { [manager, device] in manager.core.peripheral(device.identity) }
        super.init()
        manager.delegate = self
        peripheral.delegate = self
    }

    /// Does `body` in a turn of the bus queue.
    @discardableResult
    func turn<Result>(_ body: () throws -> Result) rethrows -> Result {
        try manager.session.queue.sync {
            defer { manager.session.blueZ.flush() }
            return try body()
        }
    }

    /// The app's call, and what the bus queue makes of it.
    @discardableResult
    func connect(reconnects: Bool = false) -> ConnectionID {
        let request = ConnectRequest.test(reconnects: reconnects)
        let token = peripheral.beginConnecting(request).connectionID
        turn {
            core.begin(token)
            core.connect(request, connectionID: token, to: device)
        }
        return token
    }

    /// The app's call, before the bus queue knows of it.
    func cancel() {
        guard let connectionID = peripheral.beginDisconnecting() else { return }
        turn { _ = core.cancel(connectionID) }
    }

    /// The app hears of `state`. In a turn.
    func enter(_ state: CBManagerState) {
        manager.core.post(.state(Coded(state), generation: 1, stack: nil, adapter: nil))
    }

    /// All that has been posted is delivered.
    func settle() async throws {
        let mark = UUID().uuidString
        let ticket = manager.mirror.await { [log] _ in log.append(mark) }
        turn { manager.core.post(.bondRemoved(ticket: ticket, nil)) }
        try await log.next("the mark") { $0 == mark ? true : nil }
    }

    /// Callbacks since the last time, in order.
    func callbacks() async throws -> [String] {
        try await settle()
        defer { log.forget() }
        return log.all.filter { UUID(uuidString: $0) == nil }
    }

    func centralManagerDidUpdateState(_ central: CBCentralManager) {}
    func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
        log.append("connected")
        onConnect?()
    }
    func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) {
        ends.append((error as? CBError)?.code)
        log.append("disconnected\(isReconnecting ? ", reconnecting" : "")\(error == nil ? "" : ", error")")
    }
    func centralManager(
        _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
    ) {
        log.append("failed\(error == nil ? "" : ", error")")
    }
    func peripheralDidUpdateName(_ peripheral: CBPeripheral) { log.append("name \(peripheral.name ?? "none")") }
    func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        if let error { return log.append("value error \(Self.code(error))") }
        log.append("value \((characteristic.value ?? Data()).map { String($0) }.joined(separator: " "))")
    }
    func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        log.append("notifying \(characteristic.isNotifying)\(error.map { " error \(Self.code($0))" } ?? "")")
    }
    func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        log.append("services \(error.map { "error \(Self.code($0))" } ?? "\(peripheral.services?.count ?? 0)")")
    }
    func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        log.append("characteristics \(service.characteristics?.count ?? 0)")
    }
    func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        log.append("wrote\(error.map { " error \(Self.code($0))" } ?? "")")
    }
    func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) {
        log.append("ready \(peripheral.canSendWriteWithoutResponse)")
    }
    func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        log.append("modified \(invalidatedServices.count)")
    }

    private static func code(_ error: any Error) -> String {
        switch error {
        case let error as CBError: "\(error.code)"
        case let error as CBATTError: "ATT \(error.code.rawValue)"
        default: "\(error)"
        }
    }
}

extension ConnectRequest {
    static func test(reconnects: Bool = false) -> ConnectRequest {
        ConnectRequest([CBConnectPeripheralOptionEnableAutoReconnect: reconnects])
    }
}
