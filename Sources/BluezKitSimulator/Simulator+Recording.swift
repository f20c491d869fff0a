package import BluezDBus
import Foundation

/// A method call that the simulated bluetoothd received.
public struct RecordedCall: Hashable, Sendable {
    /// The caller's unique name, `:1.7`.
    public let sender: String
    /// The object path of the call.
    public let path: String
    /// The interface named in the call; empty if there was none.
    public let interface: String
    /// The method, such as `StartDiscovery`.
    public let member: String
}

/// What happens to matching calls, instead of or before the normal handling.
public struct SimulatorFault: Sendable {
    /// The effect on a matching call.
    public struct Effect: Sendable {
        enum Kind {
            case fail(name: String, message: String)
            case answer([Value])
            case ignore
            case delay(Duration)
        }

        let kind: Kind

        /// The call fails with this error, and has no effect.
        public static func fail(name: String, message: String) -> Effect {
            Effect(kind: .fail(name: name, message: message))
        }
        /// The call is answered with these arguments, whatever their types, and has no effect.
        package static func answer(_ arguments: [Value]) -> Effect { Effect(kind: .answer(arguments)) }
        /// The call is never answered, and has no effect.
        public static let ignore = Effect(kind: .ignore)
        /// The call is handled normally, but later.
        public static func delay(_ delay: Duration) -> Effect { Effect(kind: .delay(delay)) }
    }

    /// Nil: any.
    public var interface: String?
    /// Nil: any.
    public var member: String?
    /// Nil: any.
    public var path: String?
    /// The effect on the call.
    public var effect: Effect
    /// The number of calls that it affects; nil: all.
    public var times: Int?

    /// - Parameters:
    ///   - member: `Connect`, or `org.bluez.Device1.Connect`; nil: any.
    ///   - path: Of the object that is called; nil: any.
    ///   - times: The number of calls that it affects; nil: all.
    ///   - effect: What happens to them.
    public init(_ member: String? = nil, path: String? = nil, times: Int? = 1, _ effect: Effect) {
        if let member, let dot = member.lastIndex(of: ".") {
            interface = String(member[..<dot])
            self.member = String(member[member.index(after: dot)...])
        } else {
            self.member = member
        }
        (self.path, self.times, self.effect) = (path, times, effect)
    }

    /// Every call is refused, as by a bus policy for users who are not in the right group.
    public static let accessDenied = SimulatorFault(
        times: nil,
        .fail(
            name: "org.freedesktop.DBus.Error.AccessDenied",
            message: "Rejected send message, 2 matched rules; type=\"method_call\""))

    func matches(_ call: RecordedCall) -> Bool {
        (interface ?? call.interface) == call.interface && (member ?? call.member) == call.member
            && (path ?? call.path) == call.path
    }
}

/// A test waits for something.
struct Waiter {
    let id: UUID
    /// Lets the test go on if that is so now.
    let isMet: () -> Bool
    let giveUp: () -> Void
}

extension Simulator {
    /// The method calls received so far, of all clients and on all interfaces: the last
    /// ``SimulatorOptions/rememberedCalls``, and possibly some more. Earlier calls are discarded.
    public var calls: [RecordedCall] { sync { recorded } }

    /// The calls of one method so far.
    /// - Parameters:
    ///   - member: `StartDiscovery`.
    ///   - path: Of the object that is called; nil: any.
    public func calls(_ member: String, path: String? = nil) -> [RecordedCall] {
        sync { matching(member, path) }
    }

    private func matching(_ member: String, _ path: String?) -> [RecordedCall] {
        recorded.filter { $0.member == member && (path ?? $0.path) == $0.path }
    }

    /// Discards the calls received so far.
    public func forgetCalls() { sync { recorded = [] } }

    /// Waits until a method has been called `count` times.
    /// - Returns: All its calls so far; nil if the time limit was reached.
    @discardableResult
    public func waitForCalls(
        _ member: String, path: String? = nil, count: Int = 1, timeout: Duration = .seconds(20)
    ) async -> [RecordedCall]? {
        await wait(timeout) { [weak self] in
            guard let found = self?.matching(member, path), found.count >= count else { return nil }
            return found
        }
    }

    /// Waits until `look` finds something. It looks on the simulator's queue, after each call and each event.
    /// - Returns: Nil if the time limit was reached.
    func wait<Found: Sendable>(_ timeout: Duration, for look: @escaping @Sendable () -> Found?) async -> Found? {
        let found = try? await clock.run { [self] in await awaitFinding(timeout, look) }
        return found ?? nil
    }

    private func awaitFinding<Found: Sendable>(
        _ timeout: Duration, _ look: @escaping @Sendable () -> Found?
    ) async -> Found? {
        await withCheckedContinuation { continuation in
            sync {
                let isMet = {
                    guard let found = look() else { return false }
                    continuation.resume(returning: found)
                    return true
                }
                if isMet() { return }
                let id = UUID()
                waiters.append(Waiter(id: id, isMet: isMet) { continuation.resume(returning: nil) })
                afterAlways(timeout) { [weak self] in
                    guard let self, let index = waiters.firstIndex(where: { $0.id == id }) else { return }
                    waiters.remove(at: index).giveUp()
                }
            }
        }
    }

    func checkWaiters() {
        guard !waiters.isEmpty else { return }
        let met = Set(waiters.filter { $0.isMet() }.map(\.id))
        waiters.removeAll { met.contains($0.id) }
    }

    /// Adds a fault. Faults apply in the order in which they were added.
    public func inject(_ fault: SimulatorFault) { sync { faults.append(fault) } }

    /// Removes all faults.
    public func clearFaults() { sync { faults = [] } }

    /// Sends any signal from the daemon, true or not.
    package func emit(
        path: String, interface: String, member: String, to destination: String? = nil, arguments: [Value] = []
    ) throws {
        try sync {
            guard let path = ObjectPath(path) else { throw BusError.invalid("not an object path: \(path)") }
            try server?.emit(path: path, interface: interface, member: member, to: destination) {
                (writer) throws(BusError) in
                for argument in arguments { try writer.write(argument) }
            }
        }
    }

    /// Calls `handler`, on the simulator's queue, with each event of the peripherals: `lamp connected …`,
    /// `lamp written 2a56 01`, `lamp subscribed 2a37 10`, `lamp disconnected 0x13`. Each begins with the device's key.
    public func onEvent(_ handler: @escaping @Sendable (String) -> Void) { sync { eventHandlers.append(handler) } }

    func tell(_ event: String) {
        for handler in eventHandlers { handler(event) }
        checkWaiters()
    }

    /// Called for an app's call when bluetoothd handles it.
    func handle(_ call: IncomingCall) { if !intercept(call) { server?.dispatch(call) } }

    /// Called first for every call of an app.
    private func intercept(_ call: IncomingCall) -> Bool {
        let record = RecordedCall(
            sender: call.sender ?? "", path: call.path?.rawValue ?? "", interface: call.interface ?? "",
            member: call.member ?? "")
        recorded.append(record)
        let kept = max(0, optionsState.rememberedCalls)
        if recorded.count > 2 * kept { recorded.removeFirst(recorded.count - kept) }
        checkWaiters()
        guard let index = faults.firstIndex(where: { $0.matches(record) }) else { return false }
        let fault = faults[index]
        if let times = fault.times {
            if times <= 1 { faults.remove(at: index) } else { faults[index].times = times - 1 }
        }
        switch fault.effect.kind {
        case .fail(let name, let message): server?.refuse(call, name: name, message: message)
        case .answer(let values):
            server?.reply(to: call) { (writer) throws(BusError) in for value in values { try writer.write(value) } }
        case .ignore: break
        case .delay(let delay): after(delay) { [weak self] in self?.server?.dispatch(call) }
        }
        return true
    }
}
