import Foundation
import Synchronization

/// What the streams of a channel have moved, in one call of the app. Any thread.
typealias ChannelTrace = @Sendable (ChannelEndpoint.Side, UnsafeRawBufferPointer) -> Void

/// The trace of one manager. It stands between the app's side and the backend, in both directions; a manager without a
/// trace has nothing there.
final class ManagerTrace: Sendable {
    private static let last = Atomic<Int>(0)

    private let file: TraceFile
    private let number = ManagerTrace.last.wrappingAdd(1, ordering: .relaxed).newValue
    private let hasAskedVersion = Atomic<Bool>(false)

    init(_ file: TraceFile, _ manager: TraceManager) {
        self.file = file
        write(.made(manager))
    }

    func write(_ message: TraceMessage) { file.write(message, of: number) }

    /// - Returns: What writes events down before it passes them to `receive`. One by one: what an app asks for in a
    ///   callback comes after it, and if the app ends in one, that is the last line.
    func receiving<Event: Sendable>(
        _ receive: @escaping @Sendable ([Event]) -> Void, as message: @escaping @Sendable (Event) -> TraceMessage
    ) -> @Sendable ([Event]) -> Void {
        { [self] events in
            for event in events {
                write(message(event))
                receive([event])
            }
        }
    }

    /// - Returns: What writes requests down before it passes them on.
    func tracing(_ backend: some CentralBackend) -> any CentralBackend {
        TracedBackend(backend, self) { .centralRequest($0) }
    }

    func tracing(_ backend: some PublishBackend) -> any PublishBackend {
        TracedBackend(backend, self) { .peripheralRequest($0) }
    }

    /// Whether it is the first request: BlueZ has been found by then.
    func asksVersion() -> Bool { !hasAskedVersion.exchange(true, ordering: .relaxed) }
}

/// Passes on what an app asks for, and writes it down before that.
private final class TracedBackend<Base: Backend>: Backend {
    typealias Request = Base.Request
    typealias Event = Base.Event

    fileprivate let base: Base
    fileprivate let trace: ManagerTrace
    private let message: @Sendable (RequestMessage<Request>) -> TraceMessage

    init(_ base: Base, _ trace: ManagerTrace, as message: @escaping @Sendable (RequestMessage<Request>) -> TraceMessage)
    {
        (self.base, self.trace, self.message) = (base, trace, message)
    }

    fileprivate func note(_ request: Request, _ generation: UInt64?) {
        if trace.asksVersion() { base.daemonVersion { [trace] in trace.write(.daemon($0)) } }
        trace.write(message(RequestMessage(request: request, generation: generation)))
    }

    func send(_ request: Request, generation: UInt64?) {
        note(request, generation)
        base.send(request, generation: generation)
    }

    /// Written down when it comes.
    func report(_ event: Event) { base.report(event) }

    func release() {
        trace.write(.released)
        base.release()
    }

    func die() { base.die() }
    var timing: BlueZTiming { base.timing }
    var isKept: Bool { base.isKept }
    func daemonVersion(_ answer: @escaping @Sendable (String) -> Void) { base.daemonVersion(answer) }

    func channelTrace(_ number: UInt32) -> ChannelTrace? {
        { [trace] side, bytes in
            trace.write(
                .bytes(
                    TraceBytes(
                        channel: number, isInput: side == .input, count: bytes.count,
                        first: Data(bytes.prefix(TraceBytes.limit)))))
        }
    }
}

extension TracedBackend: CentralBackend where Base: CentralBackend {
    func sendHere(_ request: CentralRequest, generation: UInt64?) {
        note(request, generation)
        base.sendHere(request, generation: generation)
    }

    func write(_ request: CentralRequest, on connectionID: ConnectionID) -> CommandProgress? {
        note(request, nil)
        let progress = base.write(request, on: connectionID)
        // The event that there would be if it had come later.
        if let progress, progress != CommandProgress(), case .perform(_, let identity, _) = request {
            trace.write(.centralEvent(.peripheral(identity, .written(progress, connectionID))))
        }
        return progress
    }

    func knownDevices(_ query: DeviceQuery) -> [KnownDevice] {
        trace.write(.query(query))
        let devices = base.knownDevices(query)
        trace.write(.devices(devices))
        return devices
    }

    var isOnMainQueue: Bool { base.isOnMainQueue }
}

extension TracedBackend: PublishBackend where Base: PublishBackend {
    func update(_ characteristic: LocalAttributeID, _ value: [UInt8], centrals: Set<UUID>?) -> Bool {
        note(.update(characteristic, value, centrals: centrals), nil)
        let hasRoom = base.update(characteristic, value, centrals: centrals)
        if !hasRoom { trace.write(.noRoom(characteristic)) }
        return hasRoom
    }
}
