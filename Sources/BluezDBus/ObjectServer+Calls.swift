extension ObjectServer {
    /// Answers a call that ``intercept`` did not handle. Public so that it can be deferred: keep the call, and dispatch
    /// it later.
    public func dispatch(_ call: IncomingCall) {
        connection.assertOnQueue()
        if call.isPing { return reply(to: call) }
        guard let path = call.path, let object = objects[path.rawValue] else {
            return refuseUnknown(call, "org.freedesktop.DBus.Error.UnknownObject")
        }
        switch call.interface {
        case StandardInterface.introspectable? where call.memberC.matches("Introspect"):
            return reply(to: call) { (writer) throws(BusError) in try writer.write(self.introspection(of: object)) }
        case StandardInterface.properties? where object.hasProperties: return answerProperties(call, object)
        case StandardInterface.objectManager?
        where object.isManager && call.memberC.matches("GetManagedObjects") && call.signature.isEmpty:
            return answerManagedObjects(call, object)
        case let interface?:
            guard let slot = object.slots.first(where: { $0.interface.name == interface }) else { break }
            return invoke(call, [slot])
        case nil: return invoke(call, object.slots)
        }
        refuseUnknown(call, "org.freedesktop.DBus.Error.UnknownMethod")
    }

    func receive(_ call: IncomingCall) {
        if intercept?(call) == true { return }
        dispatch(call)
    }

    private func invoke(_ call: IncomingCall, _ slots: [ExportedObject.Slot]) {
        let signature = call.signature
        for slot in slots {
            for method in slot.interface.methods where method.signature == signature {
                if method.name == call.member { return method.handler(slot.owner, call, self) }
            }
        }
        refuseUnknown(call, "org.freedesktop.DBus.Error.UnknownMethod")
    }

    private func refuseUnknown(_ call: IncomingCall, _ name: String) {
        // The name and text are those of libdbus.
        let member = call.member ?? "", interface = call.interface ?? "(null)"
        refuse(
            call, name: name,
            message: "Method \"\(member)\" with signature \"\(call.signature)\" on interface \"\(interface)\" "
                + "doesn't exist\n")
    }

    // MARK: Properties

    private func answerProperties(_ call: IncomingCall, _ object: ExportedObject) {
        var reader = call.reader
        switch (call.member, call.signature) {
        case ("Get", "ss"):
            guard let interface = try? reader.readString(), let name = try? reader.readString() else { return }
            guard let slot = slot(interface, of: object, for: call) else { return }
            guard let index = slot.interface.propertyIndex(name),
                let value = slot.interface.properties[index].get(slot.owner)
            else { return refuseArguments(call, "No such property '\(name)'") }
            reply(to: call) { (writer) throws(BusError) in
                try writer.variant(value.signature) { (inner) throws(BusError) in try inner.write(value) }
            }
        case ("GetAll", "s"):
            guard let interface = try? reader.readString() else { return }
            if Self.standardNames.contains(interface) {
                return reply(to: call) { (writer) throws(BusError) in
                    try writer.array(of: "{sv}") { (_) throws(BusError) in }
                }
            }
            guard let slot = slot(interface, of: object, for: call) else { return }
            reply(to: call) { (writer) throws(BusError) in try writer.writeProperties(of: slot) }
        case ("Set", "ssv"): answerSet(call, object, &reader)
        default: refuseUnknown(call, "org.freedesktop.DBus.Error.UnknownMethod")
        }
    }

    private static var standardNames: [String] { [StandardInterface.properties, StandardInterface.introspectable] }

    private func answerSet(_ call: IncomingCall, _ object: ExportedObject, _ reader: inout MessageReader) {
        guard let interface = try? reader.readString(), let name = try? reader.readString(),
            let value = try? reader.readValue().unwrapped
        else { return refuse(call, name: "org.freedesktop.DBus.Error.InvalidArgs", message: "Invalid arguments") }
        guard let slot = slot(interface, of: object, for: call) else { return }
        guard let index = slot.interface.propertyIndex(name) else {
            return refuse(
                call, name: "org.freedesktop.DBus.Error.UnknownProperty", message: "No such property '\(name)'")
        }
        let property = slot.interface.properties[index]
        guard let set = property.set else {
            return refuse(
                call, name: "org.freedesktop.DBus.Error.PropertyReadOnly",
                message: "Property '\(name)' is not writable")
        }
        guard value.signature == property.signature else {
            return refuse(
                call, name: "org.freedesktop.DBus.Error.InvalidSignature", message: "Invalid signature for '\(name)'")
        }
        set(slot.owner, PropertyChange(value: value, call: call, server: self))
    }

    private func slot(_ interface: String, of object: ExportedObject, for call: IncomingCall) -> ExportedObject.Slot? {
        if let index = object.slotIndex(interface) { return object.slots[index] }
        refuseArguments(call, "No such interface '\(interface)'")
        return nil
    }

    private func refuseArguments(_ call: IncomingCall, _ message: String) {
        refuse(call, name: "org.freedesktop.DBus.Error.InvalidArgs", message: message)
    }

    // MARK: The tree

    private func answerManagedObjects(_ call: IncomingCall, _ manager: ExportedObject) {
        reply(to: call) { (writer) throws(BusError) in
            try writer.array(of: "{oa{sa{sv}}}") { (array) throws(BusError) in
                try self.writeObjects(below: manager, into: &array)
            }
        }
    }

    /// All objects below `top`, parents before children. Not recursive over siblings, because there may be thousands.
    private func writeObjects(below top: ExportedObject, into array: inout MessageWriter) throws(BusError) {
        var next = top.firstChild
        while let object = next {
            if !object.slots.isEmpty {
                try array.dictEntry { (entry) throws(BusError) in
                    try entry.write(object.path)
                    try writeInterfaces(of: object, into: &entry, onlyNew: false)
                }
            }
            try writeObjects(below: object, into: &array)
            next = object.nextSibling
        }
    }

    private func introspection(of object: ExportedObject) -> String {
        var xml = """
            <!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN"
            "http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd">
            <node>
            """
        xml += """
            <interface name="org.freedesktop.DBus.Introspectable"><method name="Introspect">\
            <arg name="xml" type="s" direction="out"/></method></interface>
            """
        if object.isManager { xml += Self.objectManagerXML }
        for (index, slot) in object.slots.enumerated() {
            xml += slot.interface.xml
            if index == 0, object.hasProperties { xml += Self.propertiesXML }
        }
        object.forEachChild { xml += "<node name=\"\($0.path.lastElement)\"/>" }
        return xml + "</node>"
    }

    private static let propertiesXML = """
        <interface name="org.freedesktop.DBus.Properties"><method name="Get"><arg name="interface" type="s" \
        direction="in"/><arg name="name" type="s" direction="in"/><arg name="value" type="v" direction="out"/>\
        </method><method name="Set"><arg name="interface" type="s" direction="in"/><arg name="name" type="s" \
        direction="in"/><arg name="value" type="v" direction="in"/></method><method name="GetAll"><arg \
        name="interface" type="s" direction="in"/><arg name="properties" type="a{sv}" direction="out"/></method>\
        <signal name="PropertiesChanged"><arg name="interface" type="s"/><arg name="changed_properties" \
        type="a{sv}"/><arg name="invalidated_properties" type="as"/></signal></interface>
        """

    private static let objectManagerXML = """
        <interface name="org.freedesktop.DBus.ObjectManager"><method name="GetManagedObjects"><arg name="objects" \
        type="a{oa{sa{sv}}}" direction="out"/></method><signal name="InterfacesAdded"><arg name="object" type="o"/>\
        <arg name="interfaces" type="a{sa{sv}}"/></signal><signal name="InterfacesRemoved"><arg name="object" \
        type="o"/><arg name="interfaces" type="as"/></signal></interface>
        """
}
