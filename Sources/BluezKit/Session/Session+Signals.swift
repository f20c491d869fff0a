import BluezDBus
import Foundation

/// Where each signal goes. The common ones are decided by their header: a report that no app asked for is dropped
/// before it is decoded.
extension Session {
    func receive(_ message: Message) {
        // Any program on the bus can send signals that look like BlueZ's.
        guard let bus, bus.isFromOwner(message, of: BlueZ.busName) else { return logForgery(message) }
        do throws(BusError) {
            if message.memberC.matches("PropertiesChanged") {
                try receivePropertiesChanged(message)
            } else if message.memberC.matches("InterfacesAdded") {
                try receiveInterfacesAdded(message)
            } else if message.memberC.matches("InterfacesRemoved") {
                try receiveInterfacesRemoved(message)
            } else if message.isSignal("org.bluez.Device1", "Disconnected") {
                try receiveDisconnected(message) { $0.recordDisconnect(reason: $1, message: $2) }
            } else if message.isSignal("org.bluez.Bearer.LE1", "Disconnected") {
                try receiveDisconnected(message) { $0.bearerEnded(reason: $1, message: $2) }
            }
        } catch {
            Log.warning(
                "ignored a malformed signal from BlueZ: \(error.message) "
                    + "(\(message.member ?? "?") of \(message.path?.rawValue ?? "?"))")
        }
    }

    private func logForgery(_ message: Message) {
        guard !message.senderC.matches("org.freedesktop.DBus"), bus?.owner(of: BlueZ.busName) != nil else { return }
        let sender = message.sender ?? "?"
        Log.warning(
            from: "\(sender) on \(blueZ.address)",
            "ignored a signal that \(sender) sent in the name of BlueZ "
                + "(\(message.member ?? "?") of \((message.path?.rawValue ?? "?").prefix(100)))")
    }

    private func receivePropertiesChanged(_ message: Message) throws(BusError) {
        guard let path = message.pathC else { return }
        // The hottest first: values of subscribed characteristics.
        if let subscription = central.subscriptions[path] { return try subscription.receiveChange(message) }
        guard let length = BlueZ.devicePathLength(path) else {
            var reader = message.reader
            guard try reader.readCString().matches("org.bluez.Adapter1") else { return }
            return try adapter.receiveChange(message, &reader)
        }
        if path[length] == 0, try peripheral.remoteCentrals.receiveChange(message, at: path) {
            central.store.linkEnded(ObjectPath(at: path))
        }
        let device = central.store.find(path, length)
        if path[length] != 0 { return try device?.connection?.client.reader.receiveChange(message, of: path) ?? () }
        let isOfInterest = central.discovery.isFollowing || device?.connection != nil
        let events = central.connectionEvents
        guard isOfInterest || events.isActive else { return }
        var reader = message.reader
        guard try reader.readCString().matches("org.bluez.Device1") else { return }
        if events.isActive { try events.handleChange(of: ObjectPath(at: path), reader) }
        guard isOfInterest else { return }
        if let device { return try central.receiveChange(of: device, &reader) }
        // It was there before the scan: BlueZ reports only what changes.
        central.discovery.readUnknown(String(cString: path))
    }

    private func receiveInterfacesAdded(_ message: Message) throws(BusError) {
        var reader = message.reader
        let path = try reader.readPathC()
        guard let length = BlueZ.devicePathLength(path) else {
            guard strncmp(path, "/org/bluez/hci", 14) == 0 else { return }
            return try adapter.added(ObjectPath(at: path), &reader)
        }
        let connection = central.store.find(path, length)?.connection
        if path[length] != 0 { return try connection?.client.reader.added(ObjectPath(at: path), &reader) ?? () }
        let isOfInterest = central.discovery.isFollowing || connection != nil
        let events = central.connectionEvents
        guard isOfInterest || events.isActive else { return }
        try reader.readDictionary { (entry) throws(BusError) in
            guard try entry.readCString().matches("org.bluez.Device1") else { return }
            if events.isActive { try events.handleChange(of: ObjectPath(at: path), entry) }
            if isOfInterest { try central.deviceAdded(ObjectPath(at: path), &entry) }
        }
    }

    private func receiveInterfacesRemoved(_ message: Message) throws(BusError) {
        var reader = message.reader
        let path = try reader.readPathC()
        guard let length = BlueZ.devicePathLength(path) else {
            if try reader.names("org.bluez.Adapter1") { adapter.removed(ObjectPath(at: path)) }
            return
        }
        let device = central.store.find(path, length)
        guard path[length] == 0 else { return device?.connection?.client.reader.removed(ObjectPath(at: path)) ?? () }
        // Battery1 appears and disappears on the same object.
        guard try reader.names("org.bluez.Device1") else { return }
        peripheral.remoteCentrals.removed(path)
        if central.connectionEvents.isActive { central.connectionEvents.peerGone(ObjectPath(at: path)) }
        central.discovery.removeUnknown(path)  // also one that is known may be read
        central.store.noteRemoval(at: path)
        if let device { central.deviceRemoved(device) }
    }

    private func receiveDisconnected(
        _ message: Message, _ hear: (DeviceConnection, _ reason: String, _ message: String) -> Void
    ) throws(BusError) {
        guard let path = message.pathC, let connection = central.store[path]?.connection else { return }
        var reader = message.reader
        let reason = try reader.readString()
        hear(connection, reason, try reader.readString())
    }
}

extension MessageReader {
    /// Whether an array of strings contains `name`.
    fileprivate mutating func names(_ name: StaticString) throws(BusError) -> Bool {
        var isFound = false
        try readArray { (element) throws(BusError) in
            if try element.readCString().matches(name) { isFound = true }
        }
        return isFound
    }
}

extension ObjectPath {
    /// A path in a message, which has been checked.
    init(at path: UnsafePointer<CChar>) { self = ObjectPath(String(cString: path)) ?? "/" }
}
