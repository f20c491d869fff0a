/// Which broadcast signals the bus should send here. Every rule costs the bus work for each signal of its sender, so
/// few and wide ones are right; ``Connection`` counts the users of equal rules.
///
/// There is no `path_namespace` here: dbus-daemon (seen with 1.14.10) takes rules that differ only in that for equal,
/// and removes the wrong one.
public struct MatchRule: Hashable, Sendable {
    /// The rule as the bus takes it.
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
