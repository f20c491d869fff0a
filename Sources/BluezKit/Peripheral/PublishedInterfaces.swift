import BluezDBus

/// The interfaces that BlueZ finds on the objects of a published application. Only BlueZ may call them: ``BlueZBus``
/// refuses other callers.
enum PublishedInterface {
    /// - SeeAlso: BlueZ doc/org.bluez.GattService.rst.
    static let service = ExportedInterface(
        BlueZ.service, of: PublishedService.self,
        properties: [
            ExportedProperty("UUID", "s") { .string($0.uuid.bluezString) },
            ExportedProperty("Primary", "b") { .bool($0.isPrimary) },
            ExportedProperty("Includes", "ao") {
                $0.includedPaths.isEmpty ? nil : .array(element: "o", $0.includedPaths.map { .path($0) })
            },
            // Where it is 0, BlueZ sets the handle that it has chosen.
            ExportedProperty("Handle", "q") {
                .uint16($0.wantedHandle)
            } set: { service, change in
                if case .uint16(let handle) = change.value { service.core.gattServer.placed(service, at: handle) }
                change.accept()
            },
        ])

    /// - SeeAlso: BlueZ doc/org.bluez.GattCharacteristic.rst; src/gatt-database.c.
    static let characteristic = ExportedInterface(
        BlueZ.characteristic, of: PublishedCharacteristic.self,
        properties: [
            ExportedProperty("UUID", "s") { .string($0.uuid.bluezString) },
            ExportedProperty("Service", "o") { $0.service.map { .path($0.path) } },
            ExportedProperty("Flags", "as") { .strings($0.flags) },
            // Its presence makes BlueZ call AcquireNotify, which names the central; StartNotify does not.
            ExportedProperty("NotifyAcquired", "b") { $0.notifies || $0.indicates ? .bool(false) : nil },
        ],
        methods: [
            ExportedMethod(
                "ReadValue", takes: [ExportedArgument("options", "a{sv}")], gives: [ExportedArgument("value", "ay")]
            ) { characteristic, call, _ in characteristic.core.role.requests.answerRead(call, of: characteristic) },
            ExportedMethod(
                "WriteValue", takes: [ExportedArgument("value", "ay"), ExportedArgument("options", "a{sv}")]
            ) { characteristic, call, _ in characteristic.core.role.requests.answerWrite(call, to: characteristic) },
            ExportedMethod(
                "AcquireNotify", takes: [ExportedArgument("options", "a{sv}")],
                gives: [ExportedArgument("fd", "h"), ExportedArgument("mtu", "q")]
            ) { characteristic, call, _ in characteristic.core.role.updates.answerAcquire(call, of: characteristic) },
            // Called after each refused AcquireNotify, with less information.
            ExportedMethod("StartNotify") { characteristic, call, server in
                characteristic.subscribers.started()
                server.reply(to: call)
            },
            ExportedMethod("StopNotify") { characteristic, call, server in
                characteristic.subscribers.stopped()
                server.reply(to: call)
            },
            ExportedMethod("Confirm") { characteristic, call, server in
                characteristic.subscribers.confirmed()
                server.reply(to: call)
            },
        ])

    /// - SeeAlso: BlueZ doc/org.bluez.GattDescriptor.rst.
    static let descriptor = ExportedInterface(
        BlueZ.descriptor, of: PublishedDescriptor.self,
        properties: [
            ExportedProperty("UUID", "s") { .string($0.uuid.bluezString) },
            ExportedProperty("Characteristic", "o") { .path($0.characteristicPath) },
            ExportedProperty("Flags", "as") { _ in .strings(["read"]) },
        ],
        methods: [
            ExportedMethod(
                "ReadValue", takes: [ExportedArgument("options", "a{sv}")], gives: [ExportedArgument("value", "ay")]
            ) { RequestBroker.answerRead($1, from: $0.value, on: $2) }
        ])
}

extension PublishedService {
    /// It and what is in it, in the order of the handles.
    var objects: [(path: ObjectPath, interface: ExportedInterface, owner: AnyObject)] {
        var objects: [(path: ObjectPath, interface: ExportedInterface, owner: AnyObject)] = []
        objects.append((path, PublishedInterface.service, self))
        for characteristic in characteristics {
            objects.append((characteristic.path, PublishedInterface.characteristic, characteristic))
            for descriptor in characteristic.descriptors {
                objects.append((descriptor.path, PublishedInterface.descriptor, descriptor))
            }
        }
        return objects
    }
}
