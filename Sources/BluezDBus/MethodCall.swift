/// A call to be made: its destination, its method, and a closure that writes the arguments directly into the message.
public struct MethodCall {
    /// The bus name to call, well-known or unique.
    public var destination: String
    /// The object to call.
    public var path: ObjectPath
    /// The interface that has the method.
    public var interface: String
    /// The name of the method.
    public var member: String
    /// Whether the bus may start the destination if it is not running.
    public var mayStartDestination: Bool
    /// Whether it precedes other waiting calls; but never those to the same object.
    public var isUrgent: Bool
    /// Whether the receiver keeps something for its caller until that leaves the bus: ``Connection/close()`` waits
    /// until it is handled.
    public var bindsCaller: Bool
    /// Writes the arguments when the call is made; nil: there are none.
    public var arguments: ((inout MessageWriter) throws(BusError) -> Void)?

    /// A call to be made with ``Connection/call(_:deadline:completion:)``.
    public init(
        destination: String, path: ObjectPath, interface: String, member: String, mayStartDestination: Bool = false,
        isUrgent: Bool = false, bindsCaller: Bool = false,
        arguments: ((inout MessageWriter) throws(BusError) -> Void)? = nil
    ) {
        self.destination = destination
        self.path = path
        self.interface = interface
        self.member = member
        self.mayStartDestination = mayStartDestination
        self.isUrgent = isUrgent
        self.bindsCaller = bindsCaller
        self.arguments = arguments
    }

    /// `org.freedesktop.DBus.Properties.Get`.
    public static func getProperty(
        _ name: String, of interface: String, at path: ObjectPath, on destination: String
    ) -> MethodCall {
        MethodCall(
            destination: destination, path: path, interface: "org.freedesktop.DBus.Properties", member: "Get"
        ) { (writer) throws(BusError) in
            try writer.write(interface)
            try writer.write(name)
        }
    }

    /// `org.freedesktop.DBus.Properties.GetAll`.
    public static func getAllProperties(
        of interface: String, at path: ObjectPath, on destination: String, mayStartDestination: Bool = false
    ) -> MethodCall {
        MethodCall(
            destination: destination, path: path, interface: "org.freedesktop.DBus.Properties", member: "GetAll",
            mayStartDestination: mayStartDestination
        ) { (writer) throws(BusError) in try writer.write(interface) }
    }

    /// The name of the bus itself.
    static let busName = "org.freedesktop.DBus"

    /// A method of the bus itself.
    static func bus(
        _ member: String, arguments: ((inout MessageWriter) throws(BusError) -> Void)? = nil
    ) -> MethodCall {
        MethodCall(
            destination: busName, path: "/org/freedesktop/DBus", interface: busName, member: member,
            arguments: arguments)
    }
}

/// A call from another program to this process. Answer it once, now or later, with
/// ``Connection/reply(to:_:)`` or ``Connection/refuse(_:name:message:)``.
public typealias IncomingCall = Message
