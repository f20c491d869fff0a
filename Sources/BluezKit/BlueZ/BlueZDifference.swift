/// What depends on the version of BlueZ: the only place that knows. What depends on that of Linux is in ``LinuxFault``.
/// `Docs/COMPATIBILITY.md` shows both tables, and `bluez-demo doctor` the faults of the versions that it finds.
package enum BlueZDifference: CaseIterable, Sendable {
    case mtuProperty, bondedProperty, longWrites, improperlyConfigured, subscriberSockets, emptyUpdates
    case solicitedServices, confirmations, preferredBearer, inProgressName, lateBonds, disconnectReasons
    case discoveryPattern, bearerLE, cleanAcquireNotify

    case lostBondCrash, lostBondSuccess, lostEncryptedRequest, keptOperation, returnedCentralCrash, discoveryLossCrash,
        indicationCrash, unbondedAgent, goneClient, strandedDiscovery, replacedServices, lostServices, undoneRemoval
    case classicPaging, filterCrash, temporaryCentralCrash, earlyNotifications

    package enum Kind: Sendable { case feature, fault }

    package struct Row: Sendable {
        package let kind: Kind
        /// The first version; nil: older than the oldest that is supported.
        package var since: BlueZVersion?
        /// The last version; nil: the newest has it too.
        package var until: BlueZVersion?
        package let what: String
        /// How it is known: `rig`, seen in the rig; `source`, read in BlueZ's source code.
        package let evidence: String
        /// What BluezKit does about it.
        package let handling: String
        /// What the user can do about a fault; empty: nothing is needed.
        package var cure = ""

        package func applies(to version: BlueZVersion) -> Bool {
            version >= since ?? version && version <= until ?? version
        }

        /// Such as `5.83 and later`.
        package var versions: String {
            switch (since, until) {
            case (nil, nil): "all"
            case (let since?, nil): "\(since) and later"
            case (nil, let until?): "up to \(until)"
            case (let since?, let until?): since == until ? "\(since)" : "\(since) to \(until)"
            }
        }
    }

    /// The oldest version that is supported.
    package static let oldest = BlueZVersion(5, 62)

    /// Known faults of a version, with what the user can do.
    package static func faults(of version: BlueZVersion) -> [Row] {
        allCases.map(\.row).filter { $0.kind == .fault && $0.applies(to: version) }
    }

    package var row: Row {
        switch self {
        case .mtuProperty:
            .feature(
                since: .init(5, 62), "characteristics have the property `MTU`", "rig",
                "`maximumWriteValueLength`; without it the smallest value")
        case .bondedProperty:
            .feature(
                since: .init(5, 65), "devices have the property `Bonded`", "source", "before, `Paired` counts as a bond"
            )
        case .longWrites:
            .feature(
                since: .init(5, 69), "values of 512 bytes can be written to a local characteristic", "source",
                "nothing; before, 510 bytes, or 508 by prepared writes, because the header counts")
        case .improperlyConfigured:
            .feature(
                since: .init(5, 76), "a local service can answer with the ATT error 0xfd", "source",
                "`respond(to:withResult:)` with code 0xfd; before, the central gets 0x0e")
        case .subscriberSockets:
            .feature(
                since: .init(5, 76), "each subscriber of a local characteristic gets a socket of its own", "rig",
                "`updateValue` for some of the subscribers reaches only them")
        case .emptyUpdates:
            .feature(
                since: .init(5, 76), "an empty packet ends a subscriber's socket", "rig",
                "empty values are sent by a signal, to all subscribers")
        case .solicitedServices:
            .feature(
                since: .init(5, 79), "devices have the property `AdvertisingData`", "source",
                "solicited services in the advertisement; before, only of `bluetoothd -E`")
        case .confirmations:
            .feature(
                since: .init(5, 80), "a subscriber's socket tells which indications were confirmed", "rig",
                "the next indication is sent after the confirmation of the last one; before (5.76 to 5.79), at once")
        case .preferredBearer:
            .feature(
                since: .init(5, 80), "`PreferredBearer`, only of `bluetoothd -E`", "source",
                "asked for after BlueZ has tried classic Bluetooth")
        case .inProgressName:
            .feature(
                since: .init(5, 81), "`org.bluez.Error.InProgress` has a name of its own", "source",
                "both the name and the old message are known")
        case .lateBonds:
            .feature(
                since: .init(5, 82), "`Bonded` is signalled after the value that pairing was needed for", "rig",
                "the value is delivered when the bond is known, if this program was asked about the pairing")
        case .disconnectReasons:
            .feature(
                since: .init(5, 83), "`Device1.Disconnected` tells why a link ended", "rig",
                "the error of `didDisconnectPeripheral`; before, `CBError.peripheralDisconnected`")
        case .discoveryPattern:
            .feature(
                since: .init(5, 83), "the discovery filter has `AutoConnect`, for devices that match its `Pattern`",
                "source", "not used: a pattern hides all other devices from the scans of every program")
        case .bearerLE:
            .feature(
                since: .init(5, 86), "`Bearer.LE1.Connect`, only of `bluetoothd -E`", "rig",
                "used after BlueZ has tried classic Bluetooth")
        case .cleanAcquireNotify:
            .feature(
                since: .init(5, 87),
                "`AcquireNotify` of a remote characteristic does bluetoothd no harm: it is answered if the peripheral refuses "
                    + "(5.84), and the program may exit with the socket (5.86) or lose the link (5.87)",
                "rig, 5.87; source",
                "used on request (`BluezManagerOptionNotificationSocketsKey`); before, that has a risk")
        case .earlyNotifications:
            .feature(
                since: BlueZDifference.oldest,
                "`AcquireNotify` drops notifications that the peripheral sends before it has confirmed the subscription",
                "source",
                "notifications come by signals, and by sockets only with `BluezManagerOptionNotificationSocketsKey`")
        case .lostBondCrash:
            .fault(
                until: .init(5, 81), "bluetoothd crashes when a bonded peripheral that has lost its keys is connected",
                "rig, 5.66, and no longer 5.82",
                "the next connect to it fails with `CBError.peerRemovedPairingInformation`",
                cure: "remove the bond (`removeBond(with:)`, or `bluetoothctl remove`), and pair again")
        case .lostBondSuccess:
            .fault(
                until: .init(5, 82),
                "a link to a bonded peripheral that has lost its keys ends without a reason",
                "rig, 5.66 and 5.82",
                "`CBError.peerRemovedPairingInformation` if BlueZ has answered `Connect` with success as the link ended, as it "
                    + "does at most attempts",
                cure: "remove the bond (`removeBond(with:)`, or `bluetoothctl remove`), and pair again")
        case .lostEncryptedRequest:
            .fault(
                "a busy bluetoothd may lose a request that makes it pair; up to 5.77 the link ends 30 s later",
                "rig, 5.66, 1 of 42; source",
                "`CBATTError.unlikelyError` for the request, up to 5.77 with `didDisconnectPeripheral`; the bond is made, "
                    + "and the next request succeeds")
        case .keptOperation:
            .fault(
                since: .init(5, 67),
                "an operation for which pairing began, and whose link ends before it is paired, is never answered, nor the next "
                    + "one of that attribute, at which bluetoothd may crash",
                "rig, 5.82 and 5.87; source",
                "bluetoothd is made to forget the peripheral (`RemoveDevice`) when the link has ended; not a bonded one. "
                    + "Where another program has left it so, `bluetoothctl remove` the peripheral")
        case .replacedServices:
            .fault(
                "a primary service at handles where a peripheral had another one before, as after a firmware update, has `Primary` "
                    + "false, until bluetoothd forgets the peripheral",
                "rig, 5.66; source, 5.55 to 5.87",
                "a service that no other one includes is primary; one that another includes is found as included only, until "
                    + "`bluetoothctl remove` or `removeBond(with:)`")
        case .lostServices:
            .fault(
                until: .init(5, 68),
                "if a link ends before its services are known, `UUIDs` stays empty, whatever the peripheral advertises, until "
                    + "bluetoothd forgets it",
                "rig, 5.66; source",
                "the process that had the link remembers what was advertised. Others that scan for services make bluetoothd forget "
                    + "the peripheral (`RemoveDevice`), if it is not bonded and no other program scanned before them")
        case .undoneRemoval:
            .fault(
                since: .init(5, 73),
                "`RemoveDevice` is answered, and does nothing, after a link that ended as soon as it was up, as where the "
                    + "peripheral has lost its keys: the bond is deleted only when the next link ends",
                "rig, 5.87; source", "asked again, if the device is still paired")
        case .returnedCentralCrash:
            .fault(
                since: .init(5, 82), until: .init(5, 82),
                "bluetoothd crashes when a program that publishes services exits, after the bond of a central was removed that had "
                    + "come back subscribed",
                "rig, 5.82, 3 of 3", "`.resetting`, then `.poweredOn`, in other programs",
                cure: "remove a central's bond while it is connected, or when no service is published")
        case .discoveryLossCrash:
            .fault(
                until: .init(5, 81), "bluetoothd crashes when a link is lost during service discovery",
                "rig, 5.66, and no longer 5.82",
                "`.resetting`, then `.poweredOn`; restored apps resume", cure: "a newer BlueZ")
        case .indicationCrash:
            .fault(
                "bluetoothd may use freed memory, and crash, when a service is withdrawn or a central unsubscribes while "
                    + "an indication is unconfirmed",
                "rig, 5.66; source", "one indication at a time is given to BlueZ; `.resetting`, then `.poweredOn`")
        case .unbondedAgent:
            .fault(
                "bonding is off after a pairing agent has been replaced by another", "rig, 5.66; source",
                "checked after each registration, and the agent registered again")
        case .goneClient:
            .fault(
                "what a program asks for, and ends before bluetoothd handles it, is kept until bluetoothd ends: a pairing "
                    + "agent that refuses every program's pairings, a discovery", "rig, 5.66; source",
                "a manager that is released, and `exit`, wait until it has; after `kill -9`, a crash, or a signal without "
                    + "a handler in that moment, which is longer while bluetoothd hangs, only another bluetoothd helps")
        case .strandedDiscovery:
            .fault(
                "where a scan ends within milliseconds of a change of its services, as with two managers, bluetoothd "
                    + "still believes that it discovers, and the next scan for the same hears nothing",
                "rig, 5.66; source", "another discovery is begun, and ended")
        case .classicPaging:
            .fault(
                "`Connect` tries classic Bluetooth for dual-mode peripherals with a public address", "rig, 5.66",
                "`didFailToConnect` says so after four attempts, and what helps: `ControllerMode = le` in "
                    + "/etc/bluetooth/main.conf if nothing needs classic Bluetooth, or 5.86 and later with `-E`")
        case .filterCrash:
            .fault(
                since: .init(5, 87), until: .init(5, 87),
                "bluetoothd crashes at the first advertisement of a scan with services (bluez/bluez#2282)", "rig, 5.87",
                "no service is given to BlueZ; BluezKit filters itself",
                cure:
                    "other programs' scans with services still crash it: BlueZ 5.88, or a package with the fix 82af2beaf"
            )
        case .temporaryCentralCrash:
            .fault(
                since: .init(5, 87), until: .init(5, 87),
                "bluetoothd may use a freed device when an unbonded central disconnects (bluez/bluez#2221)", "source",
                "`.resetting`, then `.poweredOn`", cure: "BlueZ 5.88, or a package with the fix 5bc6aa79e")
        }
    }
}

extension BlueZDifference.Row {
    fileprivate static func feature(since: BlueZVersion, _ what: String, _ evidence: String, _ handling: String) -> Self
    {
        Self(kind: .feature, since: since, what: what, evidence: evidence, handling: handling)
    }

    fileprivate static func fault(
        since: BlueZVersion? = nil, until: BlueZVersion? = nil, _ what: String, _ evidence: String, _ handling: String,
        cure: String = ""
    ) -> Self {
        Self(
            kind: .fault, since: since, until: until, what: what, evidence: evidence, handling: handling, cure: cure)
    }
}
