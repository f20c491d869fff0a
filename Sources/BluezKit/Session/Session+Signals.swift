import DBus
import Foundation

/// Where each signal goes. The common ones are decided by their header: a report that nobody asked for is dropped
/// before it is decoded.
extension Session {
    func receive(_ message: Message) {
        // Anybody on the bus can send signals that look like BlueZ's.
        guard let bus, bus.isFromOwner(message, of: BlueZ.busName) else { return noteForgery(message) }
        do throws(BusError) {
            if message.memberC.matches("PropertiesChanged") {
                try receivePropertiesChanged(message)
            } else if message.memberC.matches("InterfacesAdded") {
                try receiveInterfacesAdded(message)
            } else if message.memberC.matches("InterfacesRemoved") {
                try receiveInterfacesRemoved(message)
            } else if message.isSignal("org.bluez.Device1", "Disconnected") {
                try receiveDisconnected(message)
            }
        } catch {
            Log.warning(
                "ignored a signal of BlueZ that is not as documented: \(error.message) "
                    + "(\(message.member ?? "?") of \(message.path?.rawValue ?? "?"))")
        }
    }

    private func noteForgery(_ message: Message) {
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
        if let subscription = subscriptions[path] { return try receiveChange(message, of: subscription) }
        guard let length = BlueZ.devicePathLength(path) else {
            var reader = message.reader
            guard try reader.readCString().matches("org.bluez.Adapter1") else { return }
            return try adapter.receiveChange(message, &reader)
        }
        if guests.count > 0, path[length] == 0, let guest = guests[path] { try receiveChange(message, of: guest) }
        let device = devicesByPath.find(path, length)
        if path[length] != 0 {
            guard let link = device?.link else { return }
            return try receiveAttributeChange(message, path, link)
        }
        guard isFollowingDevices || device?.link != nil || hasConnectionRule else { return }
        var reader = message.reader
        guard try reader.readCString().matches("org.bluez.Device1") else { return }
        if hasConnectionRule {
            try noteConnection(at: ObjectPath(at: path), reader)
            guard isFollowingDevices || device?.link != nil else { return }
        }
        if let device { return try receiveChange(of: device, &reader) }
        // It was there before the scan: BlueZ tells only what changes.
        unknownPaths.add(String(cString: path))
        readUnknownDevices()
    }

    private func receiveInterfacesAdded(_ message: Message) throws(BusError) {
        var reader = message.reader
        let path = try reader.readPathC()
        guard let length = BlueZ.devicePathLength(path) else {
            guard strncmp(path, "/org/bluez/hci", 14) == 0 else { return }
            return try adapter.added(ObjectPath(at: path), &reader)
        }
        if path[length] != 0 {
            guard let device = devicesByPath.find(path, length), let link = device.link else { return }
            guard let service = try link.tree.add(ObjectPath(at: path), &reader, uuids: &uuids) else { return }
            return tableChanged(service, of: device, link)
        }
        let isOfInterest = isFollowingDevices || devicesByPath[path]?.link != nil
        guard isOfInterest || hasConnectionRule else { return }
        try reader.readDictionary { (entry) throws(BusError) in
            guard try entry.readCString().matches("org.bluez.Device1") else { return }
            if hasConnectionRule { try noteConnection(at: ObjectPath(at: path), entry) }
            guard isOfInterest else { return }
            try deviceAdded(ObjectPath(at: path), &entry)
        }
    }

    private func receiveInterfacesRemoved(_ message: Message) throws(BusError) {
        var reader = message.reader
        let path = try reader.readPathC()
        guard let length = BlueZ.devicePathLength(path) else {
            var isAdapter = false
            try reader.readArray { (name) throws(BusError) in
                if try name.readCString().matches("org.bluez.Adapter1") { isAdapter = true }
            }
            if isAdapter { adapter.removed(ObjectPath(at: path)) }
            return
        }
        if guests.count > 0, path[length] == 0, let guest = guests[path] { try receiveRemoval(message, of: guest) }
        if hasConnectionRule, path[length] == 0 { peerGone(ObjectPath(at: path)) }
        guard let device = devicesByPath.find(path, length) else { return unknownPaths.remove(path) }
        if path[length] != 0 {
            guard let link = device.link, let gone = link.tree.remove(ObjectPath(at: path)) else { return }
            for characteristic in gone.characteristics { subscriptions[characteristic] = nil }
            noteEnd(of: ObjectPath(at: path), link)
            for characteristic in gone.characteristics { link.releaseWriter(of: characteristic) }
            return tableChanged(gone.service, of: device, link)
        }
        // Battery1 comes and goes on the same object.
        var isDevice = false
        try reader.readArray { (name) throws(BusError) in
            if try name.readCString().matches("org.bluez.Device1") { isDevice = true }
        }
        if isDevice { deviceRemoved(device) }
    }

    /// BlueZ 5.83 and later say why a link ended, right before it ends.
    private func receiveDisconnected(_ message: Message) throws(BusError) {
        guard let path = message.pathC, let device = devicesByPath[path] else { return }
        var reader = message.reader
        let reason = try reader.readString()
        device.disconnectReason = (reason, try reader.readString())
    }
}

extension ObjectPath {
    /// A path in a message: libdbus has checked it.
    init(at path: UnsafePointer<CChar>) { self = ObjectPath(String(cString: path)) ?? "/" }
}
