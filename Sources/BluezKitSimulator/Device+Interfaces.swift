import BluezDBus

/// The interfaces of a device object.
extension Device {
    static let interface = ExportedInterface(
        "org.bluez.Device1", of: Device.self,
        properties: [
            .init("Address", "s") { .string($0.identityAddress) },
            .init("AddressType", "s") { .string($0.addressType) },
            .init("Name", "s") { $0.name.map { .string($0) } },
            .init("Alias", "s", get: { .string($0.shownAlias) }) { device, change in
                let text = change.value.stringValue ?? ""
                device.alias = text.isEmpty ? nil : text
                change.accept()
                device.changed("Alias")
            },
            .init("Appearance", "q") { $0.appearance.map { .uint16($0) } },
            .init("Paired", "b") { .bool($0.isPaired) },
            .init("Bonded", "b") { $0.simulator.optionsState.exposesBonded ? .bool($0.isBonded) : nil },
            .init("Trusted", "b", get: { .bool($0.isTrusted) }) { device, change in
                let on = change.value.boolValue ?? false
                change.accept()
                guard on != device.isTrusted else { return }
                device.isTrusted = on
                device.changed("Trusted")
            },
            .init("Blocked", "b", get: { .bool($0.isBlocked) }) { device, change in
                let on = change.value.boolValue ?? false
                change.accept()
                guard on != device.isBlocked else { return }
                device.isBlocked = on
                device.changed("Blocked")
                if on { device.link?.end(reason: 0x16) }
            },
            .init("LegacyPairing", "b") { _ in .bool(false) },
            .init("RSSI", "n") { $0.rssi.map { .int16($0) } },
            .init("Connected", "b") { .bool($0.isConnected) },
            .init("UUIDs", "as") { .strings($0.uuids) },
            .init("Adapter", "o") { .path($0.adapter.path) },
            .init("ManufacturerData", "a{qv}") { device in
                guard !device.manufacturerData.isEmpty else { return nil }
                return .dictionary(
                    key: "q", value: "v",
                    device.manufacturerData.map { .init(.uint16($0.0), .variant(.bytes($0.1))) })
            },
            .init("ServiceData", "a{sv}") { device in
                guard !device.serviceData.isEmpty else { return nil }
                return .properties(device.serviceData.map { ($0.0, .bytes($0.1)) })
            },
            .init("TxPower", "n") { $0.txPower.map { .int16($0) } },
            .init("ServicesResolved", "b") { .bool($0.isResolved) },
            .init("AdvertisingFlags", "ay") { device in
                let options = device.simulator.optionsState
                guard options.isExperimental || options.version >= .v5_79, let flags = device.flags else { return nil }
                return .bytes([flags])
            },
            .init("AdvertisingData", "a{yv}") { device in
                guard !device.unparsed.isEmpty else { return nil }
                return .dictionary(
                    key: "y", value: "v",
                    device.unparsed.sorted { $0.key < $1.key }.map { .init(.byte($0.key), .variant(.bytes($0.value))) })
            },
        ],
        methods: [
            .init("Disconnect") { device, call, server in device.disconnect { server.reply(to: call) } },
            .init("Connect") { device, call, _ in device.connect(call) },
            .init("ConnectProfile", takes: [.init("UUID", "s")]) { device, call, server in
                server.refuse(call, BlueZError("NotAvailable", "br-connection-profile-unavailable"))
            },
            .init("DisconnectProfile", takes: [.init("UUID", "s")]) { device, call, server in
                server.refuse(call, .invalidArguments)
            },
            .init("Pair") { device, call, _ in device.pair(call) },
            .init("CancelPairing") { device, call, _ in device.cancelPairing(call) },
        ])

    static let batteryInterface = ExportedInterface(
        "org.bluez.Battery1", of: Device.self,
        properties: [.init("Percentage", "y") { $0.battery.map { .byte($0) } }])

    private var shownAlias: String { alias ?? name ?? String(address.map { $0 == ":" ? "-" : $0 }) }
}
