/// Errors between this process and an object on the bus, as data, so that no text needs to be parsed.
public enum BusError: Error, Hashable, Sendable {
    /// The other side answered with an error. Name and message are unchanged.
    case remote(name: String, message: String)
    /// No answer within the deadline. The other side may still be working on the call.
    case timedOut
    /// The connection to the bus was lost, or could not be made. `name` is libdbus' error name.
    case disconnected(name: String, message: String)
    /// A received message does not have the types it should have.
    case malformed(String)
    /// A path, name, signature or text that D-Bus does not allow; nothing was sent.
    case invalid(String)
    /// libdbus is out of memory, or a limit of the protocol is exceeded.
    case limit(String)

    /// The D-Bus name of the error: the remote's own, or the standard name that corresponds.
    public var name: String {
        switch self {
        case .remote(let name, _), .disconnected(let name, _): name
        case .timedOut: "org.freedesktop.DBus.Error.NoReply"
        case .malformed: "org.freedesktop.DBus.Error.InvalidSignature"
        case .invalid: "org.freedesktop.DBus.Error.InvalidArgs"
        case .limit: "org.freedesktop.DBus.Error.LimitsExceeded"
        }
    }

    /// The message that belongs to the name.
    public var message: String {
        switch self {
        case .remote(_, let message), .disconnected(_, let message): message
        case .timedOut: "no reply within the deadline"
        case .malformed(let what), .invalid(let what), .limit(let what): what
        }
    }
}
