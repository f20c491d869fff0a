/// An interface of exported objects: its properties, methods and signals, described once and shared by all objects that
/// have it.
///
/// The closures receive the registered object and capture nothing, so an object costs no closure.
public final class ExportedInterface: Sendable {
    /// The interface's name, `org.example.Thing1`.
    public let name: String
    let properties: [AnyProperty]
    let methods: [AnyMethod]
    let accepts: @Sendable (AnyObject) -> Bool
    /// This interface as introspection data.
    let xml: String

    /// - Parameter owner: The type of the objects that have this interface. Registering an object of another type is a
    ///   programming error.
    public init<Owner: AnyObject>(
        _ name: String, of owner: Owner.Type, properties: [ExportedProperty<Owner>] = [],
        methods: [ExportedMethod<Owner>] = [], signals: [ExportedSignal] = []
    ) {
        self.name = name
        self.properties = properties.map(AnyProperty.init)
        self.methods = methods.map(AnyMethod.init)
        accepts = { $0 is Owner }
        xml = Self.introspection(name, self.properties, self.methods, signals)
    }

    func propertyIndex(_ name: String) -> Int? { properties.firstIndex { $0.name == name } }

    private static func introspection(
        _ name: String, _ properties: [AnyProperty], _ methods: [AnyMethod], _ signals: [ExportedSignal]
    ) -> String {
        var xml = "<interface name=\"\(name)\">"
        for method in methods {
            xml += "<method name=\"\(method.name)\">"
            for argument in method.takes { xml += argument.xml(direction: "in") }
            for argument in method.gives { xml += argument.xml(direction: "out") }
            xml += "</method>"
        }
        for signal in signals {
            xml += "<signal name=\"\(signal.name)\">"
            for argument in signal.arguments { xml += argument.xml(direction: nil) }
            xml += "</signal>"
        }
        for property in properties {
            let access = property.set == nil ? "read" : "readwrite"
            xml += "<property name=\"\(property.name)\" type=\"\(property.signature)\" access=\"\(access)\"></property>"
        }
        return xml + "</interface>"
    }
}

/// An argument of a method or signal, for introspection and for refusing calls with other types.
public struct ExportedArgument: Sendable {
    let name: String
    let signature: String

    /// An argument with its name and D-Bus signature.
    public init(_ name: String, _ signature: String) { (self.name, self.signature) = (name, signature) }

    func xml(direction: String?) -> String {
        let direction = direction.map { " direction=\"\($0)\"" } ?? ""
        return "<arg name=\"\(name)\" type=\"\(signature)\"\(direction)/>"
    }
}

/// A property of an ``ExportedInterface``.
public struct ExportedProperty<Owner: AnyObject>: Sendable {
    let name: String
    let signature: String
    let flushes: Bool
    let get: @Sendable (Owner) -> Value?
    let set: (@Sendable (Owner, PropertyChange) -> Void)?

    /// - Parameters:
    ///   - flushes: Every change is signalled at once, never merged with a later one.
    ///   - get: The current value. Nil: the object does not have the property now; a change to nil is signalled as
    ///     invalidated.
    ///   - set: Handles a new value, whose type has been checked, and answers the change, now or later. Nil:
    ///     read-only. It does not signal anything.
    public init(
        _ name: String, _ signature: String, flushes: Bool = false, get: @escaping @Sendable (Owner) -> Value?,
        set: (@Sendable (Owner, PropertyChange) -> Void)? = nil
    ) {
        (self.name, self.signature, self.flushes, self.get, self.set) = (name, signature, flushes, get, set)
    }
}

/// A method of an ``ExportedInterface``.
public struct ExportedMethod<Owner: AnyObject>: Sendable {
    let name: String
    let takes: [ExportedArgument]
    let gives: [ExportedArgument]
    let handler: @Sendable (Owner, IncomingCall, ObjectServer) -> Void

    /// - Parameter handler: Answers the call once, now or later, with ``ObjectServer/reply(to:_:)`` or
    ///   ``ObjectServer/refuse(_:name:message:)``. The types of its arguments have been checked.
    public init(
        _ name: String, takes: [ExportedArgument] = [], gives: [ExportedArgument] = [],
        handler: @escaping @Sendable (Owner, IncomingCall, ObjectServer) -> Void
    ) {
        (self.name, self.takes, self.gives, self.handler) = (name, takes, gives, handler)
    }
}

/// A signal of an ``ExportedInterface``; only introspection needs it.
public struct ExportedSignal: Sendable {
    let name: String
    let arguments: [ExportedArgument]

    /// A signal with its arguments.
    public init(_ name: String, _ arguments: [ExportedArgument] = []) {
        (self.name, self.arguments) = (name, arguments)
    }
}

/// A request to set a property. Answer it once, now or later.
public struct PropertyChange {
    /// The requested value; it has the type of the property.
    public let value: Value
    /// The call that requests it.
    public let call: IncomingCall
    let server: ObjectServer

    /// Answers that the property was set.
    public func accept() { server.reply(to: call) }
    /// Answers with an error.
    public func refuse(name: String, message: String) { server.refuse(call, name: name, message: message) }
}

/// ``ExportedProperty`` without the type of its owner.
struct AnyProperty: Sendable {
    let name: String
    let signature: String
    let flushes: Bool
    let get: @Sendable (AnyObject) -> Value?
    let set: (@Sendable (AnyObject, PropertyChange) -> Void)?

    init<Owner>(_ property: ExportedProperty<Owner>) {
        (name, signature, flushes) = (property.name, property.signature, property.flushes)
        let get = property.get
        // The downcasts hold: registering checks the owner's type.
        self.get = { get(unsafeDowncast($0, to: Owner.self)) }
        if let set = property.set {
            self.set = { set(unsafeDowncast($0, to: Owner.self), $1) }
        } else {
            set = nil
        }
    }
}

/// ``ExportedMethod`` without the type of its owner.
struct AnyMethod: Sendable {
    let name: String
    let takes: [ExportedArgument]
    let gives: [ExportedArgument]
    let signature: String
    let handler: @Sendable (AnyObject, IncomingCall, ObjectServer) -> Void

    init<Owner>(_ method: ExportedMethod<Owner>) {
        (name, takes, gives) = (method.name, method.takes, method.gives)
        signature = method.takes.map(\.signature).joined()
        let handler = method.handler
        self.handler = { handler(unsafeDowncast($0, to: Owner.self), $1, $2) }  // holds: see AnyProperty
    }
}
