import BluezDBus

/// What BlueZ says of devices.
extension CentralRole {
    /// InterfacesAdded of a device: a new one, or one that is wanted and has come.
    func deviceAdded(_ path: ObjectPath, _ properties: inout MessageReader) throws(BusError) {
        guard store.isOurs(path) else { return }
        var fields = DeviceProperties()
        var changes = try fields.apply(&properties, of: path, uuids: store.uuids)
        // Cached properties are not an advertisement; `RSSI` is there only while the device is being received.
        if fields.rssiDBm == nil { changes.remove(.advertisement) }
        guard let identity = fields.identity else { throw .malformed("\(path) has no address") }
        let device = store.device(identity, at: path)
        let old = (device.properties.isConnected, device.properties.areServicesResolved)
        changes = store.links.leaveOutClassic(of: &fields, changes, old: old)
        device.found(fields, scan: discovery.scanGeneration)
        process(changes, of: device)
    }

    /// PropertiesChanged of a device, after its interface name.
    func receiveChange(of device: Device, _ reader: inout MessageReader) throws(BusError) {
        if device.connection == nil {
            guard discovery.isFollowing else { return }
            // Reported already, and no scan wants repetitions: look at the keys, decode nothing.
            if try discovery.isOldNews(device, reader) { return }
            if device.scanGeneration != discovery.scanGeneration { return discovery.readUnknown(device.path.rawValue) }
        }
        var changes = try device.apply(&reader, uuids: store.uuids, links: store.links)
        try device.invalidate(&reader)
        if changes.contains(.connected), !device.properties.isConnected { store.linkEnded(device.path) }
        // BlueZ does not signal an RSSI that has not changed; without any link names and services are from the air too.
        let hasLink =
            device.connection != nil || device.properties.isConnected || device.properties.hasOnlyClassicLink
        if !hasLink, !changes.isDisjoint(with: [.name, .services]) { changes.insert(.advertisement) }
        // In the link of a dead process it may advertise, and nothing but its address is known: it is reported when it
        // was read. A connection that is being checked is read already.
        let isChecked = device.connection?.phase == .checking
        if !device.isInBlueZ, discovery.isFollowing, changes.contains(.advertisement), !isChecked {
            discovery.readUnknown(device.path.rawValue)
            changes.remove(.advertisement)
        }
        process(changes, of: device)
    }

    /// What the changes of a device lead to, whichever message has brought them.
    private func process(_ changes: DeviceProperties.Changes, of device: Device) {
        AdvertisedServices.recall(device)
        var changes = changes
        if device.properties.isOnlyClassic(for: adapter.daemon) { changes.remove(.advertisement) }
        if changes.contains(.advertisement) {
            device.heard()
            discovery.report(device)
        }
        guard let connection = device.connection else { return }
        store.adoptIdentity(of: device)
        connection.process(changes)
    }

    /// The object is gone: BlueZ has forgotten the device, and with it the link.
    func deviceRemoved(_ device: Device) {
        device.removed()
        device.connection?.deviceRemoved()
        if device.connection == nil { store.forget(device) }
    }
}
