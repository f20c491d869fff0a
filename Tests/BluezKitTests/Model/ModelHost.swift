import CoreBluetooth
import Foundation

@testable import BluezKit

/// One app in the peripheral role, with one manager, as ``ModelApp`` is one in the central role.
// holds: what changes is touched on the queue, or while it is held
final class ModelHost: NSObject, @unchecked Sendable {
    private let turn: HeldQueue
    private var manager: CBPeripheralManager?
    private let report: @Sendable (String) -> Void
    /// Called with each callback.
    private let trace: (String) -> Void
    /// Its services by their number: the same objects, however often they are added.
    let services: [CBMutableService]

    /// What is added, as the app knows.
    private var added: Set<Int> = []
    /// Services whose `didAdd` is due, in this order, and those whose `didAdd` Bluetooth that went off may have kept
    /// back.
    private var owed: [Int] = []
    private var doubtful: [Int] = []
    /// Starts that are due an answer, and whether the last answer was that it is on air.
    private var starts = 0
    private var isOnAir = false
    private var subscribers: [CBUUID: Set<UUID>] = [:]
    /// An update did not get in.
    private var isFull = false
    private var count: UInt8 = 0

    init(
        _ world: ModelWorld, number: Int, report: @escaping @Sendable (String) -> Void,
        trace: @escaping (String) -> Void
    ) {
        turn = HeldQueue("host \(number)")
        self.report = { report("host \(number): \($0)") }
        self.trace = { trace("host \(number): \($0)") }
        services = (0..<Script.services).map { service in
            let place = 16 * number + service
            return localService(0x200 + place, [local(0x280 + place, [.read, .notify])])
        }
        super.init()
        // On its queue: no callback comes before it is known.
        turn.queue.sync {
            manager = CBPeripheralManager(delegate: self, queue: turn.queue, options: world.managerOptions)
        }
    }

    var isBusy: Bool { turn.isBusy }
    func setBusy(_ busy: Bool) async { await turn.setBusy(busy) }

    /// Runs `body` while nothing else runs on the queue.
    func act<T>(_ body: (ModelHost) -> T) async -> T { await turn.run { body(self) } }

    // MARK: Calls

    func perform(_ step: Script.Step) {
        guard let manager else { return }
        let isOn = manager.state == .poweredOn
        let service = step.numbers.count > 1 ? step.numbers[1] : 0
        switch step.verb {
        case .publish where !isAdded(service):
            manager.add(services[service])
            guard isOn else { return }
            added.insert(service)
            owed.append(service)
        case .withdraw:
            manager.remove(services[service])
            if isOn { added.remove(service) }
        case .withdrawAll:
            manager.removeAllServices()
            if isOn { added = [] }
        case .advertise:
            manager.startAdvertising([CBAdvertisementDataLocalNameKey: "Host"])
            if isOn { starts += 1 }
        case .hush:
            manager.stopAdvertising()
            if isOn { (starts, isOnAir) = (0, false) }
            if isOn, manager.isAdvertising { report("AD-5 it advertises after stopAdvertising") }
        case .update: update(service)
        default: break
        }
    }

    /// Whether the manager has it; and whether that is what the app knows.
    private func isAdded(_ number: Int) -> Bool {
        guard let manager else { return false }
        let has = manager.shared.withLock { $0.added.contains { $0.service === services[number] } }
        if has != added.contains(number) {
            if doubtful.contains(number) {
                if has { added.insert(number) } else { added.remove(number) }
            } else {
                report("PB-1 the manager \(has ? "has" : "does not have") service \(number)")
            }
        }
        return has
    }

    /// - Returns: What was sent to the subscribers; nil if there was no room.
    @discardableResult
    func update(_ number: Int) -> [UInt8]? {
        guard let manager, manager.state == .poweredOn, isAdded(number) else { return nil }
        count &+= 1
        let value = [UInt8(number), count]
        guard manager.updateValue(Data(value), for: characteristic(number), onSubscribedCentrals: nil) else {
            isFull = true
            return nil
        }
        return value
    }

    private func characteristic(_ number: Int) -> CBMutableCharacteristic {
        services[number].characteristics?.first as? CBMutableCharacteristic ?? local(1, .read)
    }

    func free() { manager = nil }

    // MARK: How it is going

    /// Differences from the required final state, in a world without failures.
    var complaint: String? {
        guard let manager else { return nil }
        if manager.state != .poweredOn { return "the state is \(manager.state)" }
        if let owed = owed.first { return "owed: didAdd of service \(owed)" }
        if starts > 0 { return "owed: \(starts) didStartAdvertising" }
        if manager.isAdvertising != isOnAir { return "isAdvertising is \(manager.isAdvertising)" }
        for number in services.indices {
            let characteristic = characteristic(number)
            let known = Set((characteristic.subscribedCentrals ?? []).map(\.identifier))
            if known != subscribers[characteristic.uuid, default: []] {
                return "subscribedCentrals of service \(number) are \(known.count)"
            }
        }
        return nil
    }

    /// Numbers of the services that are published.
    var published: [Int] { services.indices.filter { isAdded($0) } }
    var isAdvertising: Bool { manager?.isAdvertising == true }
    /// How many centrals are subscribed, by characteristic.
    var audience: [CBUUID: Int] { subscribers.mapValues(\.count).filter { $0.value > 0 } }
    func uuid(_ number: Int) -> CBUUID { characteristic(number).uuid }
}

extension ModelHost: CBPeripheralManagerDelegate {
    private func note(_ text: String) {
        trace(text)
        dispatchPrecondition(condition: .onQueue(turn.queue))
        if manager == nil { report("CN-15 \(text) without a manager") }
    }

    func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
        note("state \(peripheral.state)")
        guard peripheral.state != .poweredOn else { return }
        doubtful += owed
        (owed, starts, isOnAir, isFull) = ([], 0, false, false)
        subscribers = [:]
        if peripheral.isAdvertising { report("AD-3 it advertises in the state \(peripheral.state)") }
        // Services outlive Bluetooth being off, and nothing else.
        if peripheral.state != .poweredOff { (added, doubtful) = ([], []) }
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
        note("didAdd \(service.uuid) \(error.map { "\($0)" } ?? "")")
        guard let number = services.firstIndex(where: { $0 === service }) else {
            return report("PB-1 didAdd of another object")
        }
        // If it was requested twice it may be either answer.
        if owed.first == number {
            owed.removeFirst()
        } else if let place = doubtful.firstIndex(of: number) {
            doubtful.remove(at: place)
        } else {
            return report("PB-1 didAdd of service \(number); due are \(owed)")
        }
        // It may have been added again in the meantime.
        if error != nil, !owed.contains(number) { added.remove(number) }
    }

    func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
        note("didStartAdvertising \(error.map { "\($0)" } ?? "")")
        guard starts > 0 else { return report("AD-3 didStartAdvertising without a start") }
        starts -= 1
        let isOnAir = error == nil || (error as? CBError)?.code == .alreadyAdvertising
        self.isOnAir = isOnAir
        if peripheral.isAdvertising != isOnAir { report("AD-3 isAdvertising is \(!isOnAir) in didStartAdvertising") }
    }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
    ) {
        note("didSubscribe \(characteristic.uuid) \(central.identifier)")
        if !subscribers[characteristic.uuid, default: []].insert(central.identifier).inserted {
            report("UP-1 didSubscribe twice")
        }
        check(characteristic, has: central, true)
    }

    func peripheralManager(
        _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
    ) {
        note("didUnsubscribe \(characteristic.uuid) \(central.identifier)")
        if subscribers[characteristic.uuid, default: []].remove(central.identifier) == nil {
            report("UP-1 didUnsubscribe of one who is not subscribed")
        }
        check(characteristic, has: central, false)
    }

    private func check(_ characteristic: CBCharacteristic, has central: CBCentral, _ isSubscribed: Bool) {
        let known = (characteristic as? CBMutableCharacteristic)?.subscribedCentrals ?? []
        if known.contains(where: { $0.identifier == central.identifier }) != isSubscribed {
            report("UP-1 subscribedCentrals \(isSubscribed ? "lack" : "have") the central in the callback")
        }
    }

    func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
        note("didReceiveRead \(request.characteristic.uuid)")
        request.value = Data("answered".utf8)
        peripheral.respond(to: request, withResult: .success)
    }

    func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) {
        note("isReady")
        if !isFull { report("UP-3 isReady without a refused update") }
        isFull = false
    }
}
