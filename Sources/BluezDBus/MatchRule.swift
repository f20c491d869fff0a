/// The broadcast signals that the bus should send to this process. Every rule costs the bus work for each signal of its
/// sender, so few and broad rules are best; ``Connection`` counts the users of equal rules.
///
/// `path_namespace` is not supported: dbus-daemon (observed with 1.14.10) treats rules that differ only in that as
/// equal, and removes the wrong one.
public struct MatchRule: Hashable, Sendable {
    /// The rule as the bus accepts it.
    let text: String

    /// - Parameters:
    ///   - path: One object.
    ///   - argument0: The first argument, a string: an interface name, for PropertiesChanged.
    public init(
        sender: String, interface: String? = nil, member: String? = nil, path: ObjectPath? = nil,
        argument0: String? = nil
    ) {
        var parts = ["type='signal'", "sender='\(sender)'"]
        if let interface { parts.append("interface='\(interface)'") }
        if let member { parts.append("member='\(member)'") }
        if let path { parts.append("path='\(path)'") }
        if let argument0 { parts.append("arg0='\(argument0)'") }
        text = parts.joined(separator: ",")
    }
}
