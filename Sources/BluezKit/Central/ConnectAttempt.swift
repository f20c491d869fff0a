import BluezDBus

/// One `Connect`, until it is answered: by BlueZ, or in its place where it never does. What it changes of the discovery
/// ends with it, however it ends. Confined to the bus queue.
final class ConnectAttempt {
    /// Whether another process had made an attempt, or a link, before.
    let hasExistingLease: Bool
    /// What BlueZ was asked.
    let call = OperationCall()
    private(set) var isAnswered = false
    /// bluetoothd may have lost it, and would then never answer.
    var mayBeLost = false
    // BlueZ may never answer: until it does, an attempt keeps nothing but itself.
    private weak var device: Device?
    private weak var central: CentralRole?
    private var discoveryChange = DiscoveryChange.none

    private enum DiscoveryChange {
        case none
        case pause
        /// It runs so that the kernel connects.
        case run
        /// The attempt makes no change any more.
        case over
    }

    init(to device: Device, in central: CentralRole, hasExistingLease: Bool) {
        (self.device, self.central, self.hasExistingLease) = (device, central, hasExistingLease)
    }

    /// Calls `Connect`.
    /// - Parameters:
    ///   - lane: Lasts as long as the call.
    ///   - caller: For a `Disconnect` that must not overtake it.
    ///   - answered: Called unless ``answer()`` was called before.
    func begin(
        by proxy: BlueZProxy, on lane: CallLane, caller: BlueZProxy, answered: @escaping BlueZProxy.Completion
    ) {
        guard let device, let central else { return }
        let (bus, identity, linkIdentity) = (central.bus, device.identity, device.linkIdentity)
        change(.pause)
        let timing = bus.timing.connect
        let needsDiscovery = timing.bondsNeedDiscovery && device.properties.isBonded
        bus.after(needsDiscovery ? timing.bondedPause : timing.discoveryPause) { [weak self] in
            self?.change(needsDiscovery ? .run : .none)
        }
        let replied: BlueZProxy.Completion = { [self, lane, weak bus] result in
            call.ended(result.failure)
            if call.isOverdue { self.central?.unanswered.record(call, about: identity, on: lane) }
            guard isAnswered else { return answered(result) }
            guard result.failure == nil else { return }
            // BlueZ had forgotten the device, so that the `Connect` had failed, and heard it again before it came to
            // that call: the link is this process's. The app may have cancelled since, and connected again.
            let connection = { [weak central = self.central, weak device = self.device] in
                (central?.store.known(identity) ?? device)?.connection
            }
            if let connection = connection(), connection.isWanted { return connection.claimLateLink() }
            let mayCall = { [weak central = self.central] in
                connection()?.isWanted != true && central?.store.links.hasClassicLink(to: linkIdentity) != true
            }
            bus?.disconnect(caller, mayCall: mayCall)
        }
        device.connect(by: proxy, completion: lane.inOrder(replied))
    }

    /// - Returns: Whether this is the first answer.
    func answer() -> Bool {
        endDiscoveryChanges()
        defer { isAnswered = true }
        return !isAnswered
    }

    func endDiscoveryChanges() { change(.over) }

    private func change(_ new: DiscoveryChange) {
        guard let discovery = central?.discovery, discoveryChange != .over else { return }
        let old = discoveryChange
        discoveryChange = new
        if (old == .pause) != (new == .pause) { discovery.pause(new == .pause) }
        if let device, (old == .run) != (new == .run) { discovery.listen(new == .run, for: device) }
    }

    /// Whether the lease ends with the attempt, which has failed: the next link is another program's then. But BlueZ
    /// may still be at the attempt that it gave no answer to, or at that of a process that has died.
    /// - Parameter isWanted: Whether the attempt was not called off; BlueZ's answer to that ends the lease.
    func endsLease(after error: BusError, isWanted: Bool) -> Bool {
        ConnectFailure.classify(name: error.name, message: error.message) == .inProgress
            ? !hasExistingLease : isWanted && error != .timedOut
    }
}
