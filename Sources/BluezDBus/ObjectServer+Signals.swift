/// Names of the interfaces that every exported object has automatically.
enum StandardInterface {
    static let introspectable = "org.freedesktop.DBus.Introspectable"
    static let properties = "org.freedesktop.DBus.Properties"
    static let objectManager = "org.freedesktop.DBus.ObjectManager"
}

extension ObjectServer {
    /// Sends all pending signals of one object: additions, changes and removals, in this order.
    func signalChanges(of object: ExportedObject) {
        announce(object)
        signalPropertyChanges(of: object)
        signalRemoval(of: object)
    }

    /// InterfacesAdded for the new interfaces of `object`, after those of the objects above it.
    private func announce(_ object: ExportedObject) {
        guard object.slots.contains(where: { !$0.isAnnounced }), let manager = object.manager else { return }
        if let parent = object.parent { announce(parent) }
        // What cannot be sent (the connection is closed, or a value is not a D-Bus value) is discarded, as in gdbus.
        try? connection.emit(
            path: manager.path, interface: StandardInterface.objectManager, member: "InterfacesAdded"
        ) { (writer) throws(BusError) in
            try writer.write(object.path)
            try writeInterfaces(of: object, into: &writer, onlyNew: true)
        }
        for index in object.slots.indices { object.slots[index].isAnnounced = true }
        object.isAnnounced = true
    }

    func signalPropertyChanges(of object: ExportedObject) {
        for index in object.slots.indices { signalChanges(of: object, slot: index) }
    }

    /// One PropertiesChanged for all changed properties of one interface.
    func signalChanges(of object: ExportedObject, slot index: Int) {
        let slot = object.slots[index]
        guard slot.isAnnounced, !slot.changed.isEmpty else { return }
        object.slots[index].changed = []
        try? connection.emit(
            path: object.path, interface: StandardInterface.properties, member: "PropertiesChanged"
        ) { (writer) throws(BusError) in
            var invalidated: [String] = []
            try writer.write(slot.interface.name)
            try writer.array(of: "{sv}") { (array) throws(BusError) in
                for property in slot.changed.map({ slot.interface.properties[$0] }) {
                    guard let value = property.get(slot.owner) else {
                        invalidated.append(property.name)
                        continue
                    }
                    try array.writeProperty(property.name, value)
                }
            }
            try writer.array(of: "s") { (array) throws(BusError) in
                for name in invalidated { try array.write(name) }
            }
        }
    }

    /// InterfacesRemoved for the interfaces that `object` has lost.
    func signalRemoval(of object: ExportedObject) {
        guard !object.removed.isEmpty, let manager = object.manager else { return }
        let names = object.removed
        object.removed = []
        try? connection.emit(
            path: manager.path, interface: StandardInterface.objectManager, member: "InterfacesRemoved"
        ) { (writer) throws(BusError) in
            try writer.write(object.path)
            try writer.array(of: "s") { (array) throws(BusError) in for name in names { try array.write(name) } }
        }
    }

    /// The `a{sa{sv}}` of an object. Introspectable comes first and Properties after the first interface that has
    /// properties, both empty, in the order in which gdbus registers them.
    func writeInterfaces(
        of object: ExportedObject, into writer: inout MessageWriter, onlyNew: Bool
    ) throws(BusError) {
        func writeEmpty(_ name: String, _ array: inout MessageWriter) throws(BusError) {
            try array.dictEntry { (entry) throws(BusError) in
                try entry.write(name)
                try entry.array(of: "{sv}") { (_) throws(BusError) in }
            }
        }
        try writer.array(of: "{sa{sv}}") { (array) throws(BusError) in
            let withStandard = !onlyNew || !object.isAnnounced
            var propertiesAreDue = withStandard
            if withStandard { try writeEmpty(StandardInterface.introspectable, &array) }
            for slot in object.slots where !onlyNew || !slot.isAnnounced {
                try array.dictEntry { (entry) throws(BusError) in
                    try entry.write(slot.interface.name)
                    try entry.writeProperties(of: slot)
                }
                if propertiesAreDue, !slot.interface.properties.isEmpty {
                    propertiesAreDue = false
                    try writeEmpty(StandardInterface.properties, &array)
                }
            }
        }
    }
}

extension MessageWriter {
    /// The `a{sv}` of all current properties of an interface of an object.
    mutating func writeProperties(of slot: ExportedObject.Slot) throws(BusError) {
        try array(of: "{sv}") { (array) throws(BusError) in
            for property in slot.interface.properties {
                if let value = property.get(slot.owner) { try array.writeProperty(property.name, value) }
            }
        }
    }

    /// One entry of an `a{sv}`.
    public mutating func writeProperty(_ name: String, _ value: Value) throws(BusError) {
        try dictEntry { (entry) throws(BusError) in
            try entry.write(name)
            try entry.variant(value.signature) { (inner) throws(BusError) in try inner.write(value) }
        }
    }
}
