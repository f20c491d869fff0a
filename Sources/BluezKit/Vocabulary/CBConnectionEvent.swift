/// A peer's connection to the system, by any program, as reported by `centralManager(_:connectionEventDidOccur:for:)`.
/// - SeeAlso: Apple, `CBConnectionEvent`.
public enum CBConnectionEvent: Int, Sendable {
    /// The peer has disconnected from this system.
    case peerDisconnected = 0
    /// The peer has connected to this system. To use it, this app must `connect` to it as well.
    case peerConnected = 1
}

/// Keys of the dictionary that `registerForConnectionEvents(options:)` accepts.
/// - SeeAlso: Apple, `CBConnectionEventMatchingOption`.
public struct CBConnectionEventMatchingOption: RawRepresentable, Hashable, Sendable {
    /// The key's text.
    public let rawValue: String

    /// A key from its text.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// Peers with one of these services: `[CBUUID]`, at most four.
    public static let serviceUUIDs = Self(rawValue: "kCBConnectionEventMatchingOptionServiceUUIDs")

    /// Peers with one of these identifiers: `[UUID]`.
    public static let peripheralUUIDs = Self(rawValue: "kCBConnectionEventMatchingOptionPeripheralUUIDs")
}
