import Foundation

/// What carries out what the app asks of one manager, and reports to its mirror: the core in this process, or a
/// keeper's. Any thread.
protocol Backend<Request, Event>: AnyObject, Sendable {
    associatedtype Request: Codable & Sendable
    associatedtype Event

    /// - Parameter generation: That of Bluetooth or of services, as far as the app knows, for what their end undoes.
    ///   The app hears of that next.
    func send(_ request: Request, generation: UInt64?)
    /// An event of which only the app's side knows comes after what has happened before it.
    func report(_ event: Event)
    /// The app has released the manager: everything that it asked for ends, and no event follows.
    func release()
    /// The app's process has ended, as a simulator has it: what it asked for stays as it is, and no event follows.
    func die()
    var timing: BlueZTiming { get }
    /// Whether it is a keeper's, and continues when this process has died: what is preserved has its numbers.
    var isKept: Bool { get }
    /// Tells the version of BlueZ, on any thread; nothing where it is not known. For a trace.
    func daemonVersion(_ answer: @escaping @Sendable (String) -> Void)
    /// What writes down what a channel's streams move; nil: nothing does.
    func channelTrace(_ number: UInt32) -> ChannelTrace?
}

extension Backend {
    func send(_ request: Request) { send(request, generation: nil) }
    func daemonVersion(_ answer: @escaping @Sendable (String) -> Void) {}
    func channelTrace(_ number: UInt32) -> ChannelTrace? { nil }
}

/// That of a central manager.
protocol CentralBackend: Backend where Request == CentralRequest, Event == CentralEvent {
    /// The same in the calling thread, if nothing waits before it: what is asked of BlueZ is sent when this returns.
    func sendHere(_ request: CentralRequest, generation: UInt64?)
    /// The same for a write without response.
    /// - Returns: What has become of it by then; nil: an event will tell.
    func write(_ request: CentralRequest, on connectionID: ConnectionID) -> CommandProgress?
    /// Devices that BlueZ knows. Waits for its answer.
    func knownDevices(_ query: DeviceQuery) -> [KnownDevice]
    /// Whether callbacks are made on the main queue.
    var isOnMainQueue: Bool { get }
}

/// That of a peripheral manager.
protocol PublishBackend: Backend where Request == PublishRequest, Event == PublishEvent {
    /// - Parameter centrals: To whom; nil: all subscribers.
    /// - Returns: Whether there is room for the update: if not, ``PublishEvent/ready`` follows.
    func update(_ characteristic: LocalAttributeID, _ value: [UInt8], centrals: Set<UUID>?) -> Bool
}
