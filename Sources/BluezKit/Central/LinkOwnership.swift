import Foundation

/// This process's part in the link of one device, or in the attempt to make it. BlueZ does not count the users of a
/// link, so programs with BluezKit do, by a ``LinkLease``; where there is no directory for leases, each link is this
/// process's.
struct LinkOwnership {
    private let identifier: UUID
    private var lease: LinkLease?
    /// The link has ended, or has seemed to: if BlueZ has a link after all it is the same one.
    private var isInDoubt = false

    /// - Parameter identifier: As of `CBPeripheral`.
    init(of identifier: UUID) { self.identifier = identifier }

    var isOurs: Bool { lease != nil }

    // MARK: Taking part

    /// Takes this process's part in a link that programs with BluezKit have made, if they have.
    /// - Parameters:
    ///   - name: Of the lease; nil: there is none now.
    ///   - statePaths: Preserved state that wants the link.
    mutating func share(_ name: String?, for statePaths: [String]) throws(LinkLease.IsEnding) {
        guard let name else { return lease = nil }
        lease = try LinkLease.share(name, in: LinkLease.directory, for: identifier)
        statePaths.forEach(claim)
    }

    /// Likewise, or as who makes the link.
    /// - Returns: Whether another process has made an attempt, or a link. It may have died since.
    mutating func take(_ name: String?, for statePaths: [String]) throws(LinkLease.IsEnding) -> Bool {
        try share(name, for: statePaths)
        if isOurs { return true }
        if let name { lease = try LinkLease.make(name, in: LinkLease.directory, for: identifier) }
        statePaths.forEach(claim)
        return false
    }

    /// Takes over what a process has left that has died.
    mutating func inherit(_ lease: LinkLease) { self.lease = lease }

    /// The lease says that this preserved state wants the link.
    func claim(_ statePath: String) { lease?.claim(in: statePath) }

    // MARK: The end

    /// Whether this process may end the link, also once more: it gives up its part if others use it, and a link after
    /// the end of its lease is another program's.
    mutating func beginEnding() -> Bool {
        if lease?.beginEnding() ?? (LinkLease.directory == nil) { return true }
        lease = nil
        return false
    }

    /// What this process has of an attempt that another one has made, for the caller to end. Nil: others use it, or
    /// there is none.
    mutating func leftByOthers() -> LinkLease? {
        guard let lease, lease.beginEnding() else { return nil }
        self.lease = nil
        return lease
    }

    /// The link has ended, or the attempt has.
    mutating func ended() {
        lease?.end()
        (lease, isInDoubt) = (nil, false)
    }

    /// The link stays, as far as is known, and so does its file.
    mutating func abandon() { (lease, isInDoubt) = (nil, false) }

    /// The link has seemed to end.
    mutating func doubt() { isInDoubt = true }

    /// BlueZ has said whether there is a link, after one has seemed to end.
    mutating func settle(isConnected: Bool) {
        if isInDoubt, !isConnected { ended() }
        isInDoubt = false
    }
}
