import CoreBluetooth

/// Compares the callbacks of a central manager with the app's calls, by CoreBluetooth's rules of order and number (the
/// O- table of the contract). Pure: steps in, violations out; it holds no object.
///
/// It checks safety: no callback is made that is not allowed. Whether all due callbacks are made is for the test to
/// wait for; ``owed`` helps.
struct ContractChecker {
    /// Represents an object of the app: a peripheral, a service…
    typealias ID = String

    /// What an app asks of a peripheral and is answered.
    enum Request: Hashable {
        case services, rssi, channel
        case included(ID), characteristics(ID), descriptors(ID)
        case read(ID), write(ID), notify(ID)

        /// What it is about; nil: the peripheral.
        var attribute: ID? {
            switch self {
            case .services, .rssi, .channel: nil
            case .included(let id), .characteristics(let id), .descriptors(let id), .read(let id), .write(let id),
                .notify(let id):
                id
            }
        }
    }

    /// A call of the app. Those that end something are two steps: after the first it may have ended, after the second
    /// it has. On the manager's queue there is nothing between them; a call from elsewhere can meet a callback that is
    /// running already.
    enum Call {
        case scan(duplicates: Bool)
        case stopScan(Int), scanStopped(Int)
        case connect(ID, reconnects: Bool)
        case cancel(ID, Int), cancelled(ID, Int)
        /// With the service that the attribute is in.
        case request(ID, Request, service: ID? = nil)
        /// The app has released the manager.
        case released
        /// `willRestoreState` has handed it out: connected, or being so, and with what notifies and the services of
        /// that.
        case restored(ID, isConnected: Bool, notifying: [ID: ID?])
    }

    /// A callback.
    enum Event {
        case state(CBManagerState)
        case discovered(ID, keys: Set<String>)
        case connected(ID)
        case failed(ID, hasError: Bool)
        case disconnected(ID, isReconnecting: Bool, hasError: Bool)
        case name(ID)
        case modified(ID, services: Set<ID>)
        case answer(ID, Request)
        /// `didUpdateNotificationStateFor`, with `isNotifying` inside it.
        case notifying(ID, ID, Bool, service: ID?)
        /// `didUpdateValueFor`: a notification or the result of a read, which can only be distinguished (RW-3) by their
        /// values.
        case value(ID, ID, hasError: Bool, isNotification: Bool? = nil)
        case ready(ID, canSend: Bool)
        /// An event that this checker has no rule for.
        case other
    }

    /// What could be seen inside a callback.
    struct View {
        var peripheralState: CBPeripheralState?
        var hasServices = false
        var isOnQueue = true
        var depth = 1
        /// Whether the error, if any, is a `CBError` or a `CBATTError`.
        var isKnownError = true
        /// Whether the attribute that it is about is one of the present link.
        var isValid = true
    }

    private struct Peripheral {
        enum CancelReport: Equatable { case none, mayBeDue(Int), isDue }

        var isWanted = false
        var isConnected = false
        /// Nil: requested with and without, on one link.
        var reconnects: Bool? = false
        /// `connect` was called while connected: another `didConnect` may come (CN-4).
        var repeats = 0
        /// Cancels whose end has not been reported, the first one first.
        var cancelReports: [CancelReport] = []
        var cancelReport: CancelReport { cancelReports.first ?? .none }
        /// One of several cancels has been answered, and `connect` not been called since.
        var hasLeft = false
        var requests: [(request: Request, service: ID?)] = []
        var notifying: [ID: ID?] = [:]
        /// For a characteristic that was restored as notifying, a failure is reported without a call.
        var restored: Set<ID> = []

        /// Services that are not there any more: about their attributes there may be no answer (IV-3).
        var changed: Set<ID> = []

        /// An answer: to the first such request that is not answered. Those before it will have no answer, or they
        /// would have had it.
        /// - Parameter isExact: Whether none may be missing.
        mutating func take(_ request: Request, _ isExact: Bool) -> [String] {
            guard let index = requests.firstIndex(where: { $0.request == request }) else {
                return ["O-21 an unexpected answer: requested once and answered twice, or out of order"]
            }
            let skipped = requests[..<index].filter { !changed.contains($0.service ?? "") }
            requests.removeSubrange(...index)
            return isExact && !skipped.isEmpty ? ["O-21 no answer to \(skipped.map(\.request)), which came before"] : []
        }

        mutating func end() {
            (isConnected, repeats, requests, notifying) = (false, 0, [], [:])
            (restored, changed) = ([], [])
        }
    }

    private enum Scan: Equatable { case none, running, stopping(Int) }

    /// The manager resumes after a reset (D10).
    var resumes = false
    /// Every answer is recognized as such, so none may be missing.
    var isExact = false

    private var state = CBManagerState.unknown
    private var isReleased = false
    private var scan = Scan.none
    private var wantsDuplicates = false
    private var reported: [ID: Set<String>] = [:]
    private var peripherals: [ID: Peripheral] = [:]
    /// The requests when Bluetooth was switched off: a daemon that exits reports that first, and then they resume
    /// (D10).
    private var requestsBeforePowerOff: (scan: Scan, peripherals: [ID: Peripheral])?
    /// Peripherals from before a reset.
    private var invalid: Set<ID> = []

    /// The callbacks for which the app is still waiting.
    var owed: [String] {
        owed(to: peripherals.keys)
    }

    /// The same, without those about peripherals that it has released.
    func owed(to ids: some Collection<ID>) -> [String] {
        peripherals.filter { ids.contains($0.key) }.sorted { $0.key < $1.key }.flatMap { id, peripheral in
            peripheral.cancelReports.map { _ in "\(id): didDisconnect after a cancel" }
                + peripheral.requests.filter { !peripheral.changed.contains($0.service ?? "") }.map {
                    "\(id): answer to \($0.request)"
                }
        }
    }

    // MARK: What the app's objects must say

    // It follows from the calls and callbacks alone, as long as every call is made on the manager's queue (DL-4).

    var managerState: CBManagerState { state }
    var isScanning: Bool { scan != .none }

    /// What `state` may be.
    func states(of id: ID) -> Set<CBPeripheralState> {
        let peripheral = peripherals[id, default: Peripheral()]
        return switch (peripheral.cancelReport, peripheral.isConnected, peripheral.isWanted) {
        case (.isDue, _, true), (.none, false, true): [.connecting]
        case (.isDue, _, false): [peripheral.hasLeft ? .disconnected : .disconnecting]
        case (.mayBeDue, _, _): [.connecting, .connected, .disconnecting, .disconnected]
        case (.none, true, _): [.connected]
        case (.none, false, false): [.disconnected]
        }
    }

    /// Whether it may have services.
    func mayHaveServices(_ id: ID) -> Bool { peripherals[id]?.isConnected == true }

    func isNotifying(_ characteristic: ID, of id: ID) -> Bool { peripherals[id]?.notifying[characteristic] != nil }

    // MARK: The app

    mutating func note(_ call: Call) {
        switch call {
        case .scan(let duplicates): (scan, wantsDuplicates, reported) = (.running, duplicates, [:])
        case .stopScan(let number): if scan != .none { scan = .stopping(number) }
        case .scanStopped(let number): if scan == .stopping(number) { scan = .none }
        case .connect(let id, let reconnects):
            change(id) { peripheral in
                if peripheral.isConnected, peripheral.cancelReport == .none {
                    peripheral.repeats += 1
                    if peripheral.reconnects != reconnects { peripheral.reconnects = nil }
                } else if !peripheral.isWanted {
                    (peripheral.isWanted, peripheral.hasLeft, peripheral.reconnects) = (true, false, reconnects)
                } else if peripheral.reconnects != reconnects {
                    peripheral.reconnects = nil  // from some moment on
                }
            }
        case .cancel(let id, let number):
            change(id) { peripheral in
                guard peripheral.isWanted || peripheral.isConnected && peripheral.cancelReports.isEmpty else { return }
                peripheral.isWanted = false
                peripheral.cancelReports.append(.mayBeDue(number))
            }
        case .cancelled(let id, let number):
            change(id) { peripheral in
                for index in peripheral.cancelReports.indices where peripheral.cancelReports[index] == .mayBeDue(number)
                {
                    peripheral.cancelReports[index] = .isDue
                }
            }
        case .request(let id, let request, let service):
            change(id) { $0.requests.append((request, service)) }
        case .released: isReleased = true
        case .restored(let id, let isConnected, let notifying):
            change(id) { peripheral in
                (peripheral.isWanted, peripheral.isConnected, peripheral.reconnects) = (true, isConnected, nil)
                (peripheral.notifying, peripheral.restored) = (notifying, Set(notifying.keys))
            }
        }
    }

    /// The scan was requested again, perhaps with other parameters: reported peripherals may be reported again.
    mutating func allowRepetition() { reported = [:] }

    private mutating func change(_ id: ID, _ body: (inout Peripheral) -> Void) {
        body(&peripherals[id, default: Peripheral()])
    }

    // MARK: The library

    /// - Returns: The rules that this callback breaks, with their numbers.
    mutating func check(_ event: Event, _ view: View = View()) -> [String] {
        var broken: [String] = []
        if isReleased { broken.append("O-45 a callback after the manager was released") }
        if !view.isOnQueue { broken.append("O-4 not on the manager's queue") }
        if view.depth != 1 { broken.append("O-5 a callback inside a callback") }
        if !view.isKnownError { broken.append("O-46 an error of another domain than CoreBluetooth's") }
        if !view.isValid { broken.append("CN-11 IV-1 an attribute that is not valid any more") }
        if case .state(let new) = event { return (broken + enter(new)).map { "\($0): \(event)" } }
        guard state == .poweredOn else {
            broken.append(
                state == .unknown
                    ? "O-2 a callback before the first didUpdateState"
                    : "O-18 O-44 a callback other than didUpdateState below poweredOn")
            return broken.map { "\($0): \(event)" }
        }
        switch event {
        case .discovered(let id, let keys): broken += discovered(id, keys)
        case .connected(let id): broken += connected(id, view)
        case .failed(let id, let hasError): broken += failed(id, hasError, view)
        case .disconnected(let id, let isReconnecting, let hasError):
            broken += disconnected(id, isReconnecting, hasError, view)
        case .name(let id): if invalid.contains(id) { broken.append("O-44 a handle from before a reset") }
        default: broken += attributeEvent(event)
        }
        return broken.map { "\($0): \(event)" }
    }

    private mutating func enter(_ new: CBManagerState) -> [String] {
        defer { state = new }
        let isSwitchedOff = new == .poweredOff && state == .poweredOn
        if new == .poweredOn {
            requestsBeforePowerOff = nil
        } else if resumes, !isSwitchedOff {
            if let requestsBeforePowerOff { (scan, peripherals) = requestsBeforePowerOff }
            requestsBeforePowerOff = nil
            suspend()
        } else {
            if resumes { requestsBeforePowerOff = (scan, peripherals) }
            scan = .none
            if new != .poweredOff { invalid.formUnion(peripherals.keys) }
            peripherals = [:]
        }
        return new == state ? ["ST-3 the same state again"] : []
    }

    /// Scan and connections wait for Bluetooth; nothing of what was known is valid.
    private mutating func suspend() {
        reported = [:]
        peripherals = peripherals.filter(\.value.isWanted)
        for id in peripherals.keys {
            change(id) { peripheral in
                peripheral.end()
                (peripheral.cancelReports, peripheral.hasLeft) = ([], false)
            }
        }
    }

    private mutating func discovered(_ id: ID, _ keys: Set<String>) -> [String] {
        guard scan != .none else { return ["O-6 didDiscover without a scan"] }
        defer { reported[id, default: []].formUnion(keys) }
        guard !wantsDuplicates, let known = reported[id], keys.isSubset(of: known) else { return [] }
        return ["O-7 didDiscover again with nothing new"]
    }

    private mutating func connected(_ id: ID, _ view: View) -> [String] {
        var broken: [String] = []
        var peripheral = peripherals[id, default: Peripheral()]
        if view.peripheralState != .connected { broken.append("O-10 not connected inside didConnect") }
        if peripheral.cancelReport == .isDue {
            broken.append("O-11 didConnect after a cancel, before its didDisconnect")
        } else if peripheral.isConnected {
            if peripheral.repeats == 0 { broken.append("O-10 didConnect while connected") }
            peripheral.repeats = max(0, peripheral.repeats - 1)
        } else {
            if !peripheral.isWanted, peripheral.cancelReport == .none {
                broken.append("O-11 didConnect without a request")
            }
            if view.hasServices { broken.append("O-10 services before a discovery") }
            peripheral.isConnected = true
        }
        peripherals[id] = peripheral
        return broken + stale(id)
    }

    private mutating func failed(_ id: ID, _ hasError: Bool, _ view: View) -> [String] {
        var broken: [String] = []
        var peripheral = peripherals[id, default: Peripheral()]
        if peripheral.cancelReport == .isDue { broken.append("O-11 didFailToConnect after a cancel") }
        if peripheral.isConnected { broken.append("CN-3 didFailToConnect of a peripheral that is connected") }
        if !peripheral.isWanted, peripheral.cancelReport == .none {
            broken.append("O-11 didFailToConnect without a request")
        }
        if !hasError { broken.append("CN-13 didFailToConnect without an error") }
        if view.peripheralState != .disconnected { broken.append("CN-3 not disconnected inside didFailToConnect") }
        if case .mayBeDue = peripheral.cancelReport { peripheral.cancelReports.removeFirst() }
        peripheral.isWanted = false
        peripherals[id] = peripheral
        return broken + stale(id)
    }

    private mutating func disconnected(
        _ id: ID, _ isReconnecting: Bool, _ hasError: Bool, _ view: View
    ) -> [String] {
        var broken: [String] = []
        var peripheral = peripherals[id, default: Peripheral()]
        let wasWanted = peripheral.isWanted
        switch peripheral.cancelReport {
        case .isDue:
            if hasError { broken.append("O-11 an error after a cancel") }
            if isReconnecting { broken.append("O-17 reconnecting after a cancel") }
            peripheral.cancelReports.removeFirst()
            peripheral.hasLeft = !peripheral.isWanted
        case .mayBeDue:
            // The link may have ended unexpectedly while the cancel was called. The disconnect callback is still due if
            // the peripheral was about to connect again.
            if !isReconnecting { peripheral.cancelReports.removeFirst() }
        case .none:
            if !peripheral.isConnected {
                broken.append("O-13 didDisconnect of a peripheral that is not connected")
            } else if !hasError {
                broken.append("O-15 an unrequested disconnection without an error")
            }
            if isReconnecting == peripheral.reconnects.map({ !$0 }) {
                broken.append("O-17 isReconnecting is not what was asked for")
            }
            peripheral.isWanted = isReconnecting
        }
        peripheral.end()
        if view.hasServices { broken.append("O-15 services after the end of the link") }
        let expected: Set<CBPeripheralState?> =
            switch (isReconnecting, peripheral.isWanted && wasWanted, peripheral.cancelReport) {
            case (_, _, .mayBeDue): [.connecting, .disconnecting, .disconnected]
            case (true, _, _): [.connecting]
            case (false, true, _): [.connecting, .disconnected]  // `connect` was called since
            case (false, false, _): [.disconnected]
            }
        if !expected.contains(view.peripheralState) {
            broken.append("O-15 O-17 the state inside didDisconnect is \(view.peripheralState?.rawValue ?? -1)")
        }
        peripherals[id] = peripheral
        return broken + stale(id)
    }

    private func stale(_ id: ID) -> [String] { invalid.contains(id) ? ["O-44 a handle from before a reset"] : [] }

    // MARK: Attributes

    private mutating func attributeEvent(_ event: Event) -> [String] {
        switch event {
        case .answer(let id, let request): return onLink(id) { [isExact] in $0.take(request, isExact) }
        case .modified(let id, let services):
            return onLink(id) { peripheral in
                // They may be answered with an error, or not at all (IV-3).
                peripheral.notifying = peripheral.notifying.filter { !services.contains($0.value ?? "") }
                peripheral.changed.formUnion(services)
                return []
            }
        case .notifying(let id, let characteristic, let isNotifying, let service):
            return onLink(id) { [isExact] peripheral in
                if isNotifying {
                    peripheral.notifying[characteristic] = .some(service)
                } else {
                    peripheral.notifying[characteristic] = nil
                }
                let hasAsked = peripheral.requests.contains { $0.request == .notify(characteristic) }
                if peripheral.restored.remove(characteristic) != nil, !isNotifying, !hasAsked { return [] }
                return peripheral.take(.notify(characteristic), isExact)
            }
        case .value(let id, let characteristic, let hasError, let isNotification):
            return onLink(id) { [isExact] peripheral in
                let mayBeNotification =
                    peripheral.notifying[characteristic] != nil && !hasError && isNotification != false
                let isRead =
                    isNotification != true && peripheral.requests.contains { $0.request == .read(characteristic) }
                if mayBeNotification { return [] }
                return isRead
                    ? peripheral.take(.read(characteristic), isExact)
                    : ["O-23 a value without a subscription or a read"]
            }
        case .ready(let id, let canSend):
            return onLink(id) { _ in canSend ? [] : ["O-26 peripheralIsReady, and it is not"] }
        default: return []
        }
    }

    private mutating func onLink(_ id: ID, _ body: (inout Peripheral) -> [String]) -> [String] {
        var peripheral = peripherals[id, default: Peripheral()]
        var broken = stale(id)
        if !peripheral.isConnected {
            broken.append("O-15 an event of a peripheral that is not connected")
        } else if peripheral.cancelReport == .isDue {
            broken.append("CN-10 an event of a peripheral after it was cancelled")
        } else {
            broken += body(&peripheral)
            peripherals[id] = peripheral
        }
        return broken
    }
}
