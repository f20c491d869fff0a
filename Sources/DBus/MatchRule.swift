/// Which broadcast signals the bus should send here. Every rule costs the bus work for each signal of its sender, so
/// few and wide ones are right; ``Connection`` counts the users of equal rules.
public struct MatchRule: Hashable, Sendable {
    /// The rule as the bus takes it.
    let text: String

    /// - Parameters:
    ///   - path: One object.
    ///   - within: One object and all below it (`path_namespace`).
    ///   - argument0: The first argument, a string: an interface name, for PropertiesChanged.
    public init(
        sender: String, interface: String? = nil, member: String? = nil, path: ObjectPath? = nil,
        within: ObjectPath? = nil, argument0: String? = nil
    ) {
        var parts = ["type='signal'", "sender='\(sender)'"]
        if let interface { parts.append("interface='\(interface)'") }
        if let member { parts.append("member='\(member)'") }
        if let path { parts.append("path='\(path)'") }
        if let within { parts.append("path_namespace='\(within)'") }
        if let argument0 { parts.append("arg0='\(argument0)'") }
        text = parts.joined(separator: ",")
    }
}
