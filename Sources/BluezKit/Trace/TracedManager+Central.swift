import BluezKitRestore
import Foundation

/// Of the central role: each message by the method that an app calls, or that is called.
extension TracedManager {
    mutating func describe(_ request: CentralRequest, _ entry: inout TraceEntry) {
        switch request {
        case .startScan(let scan, _):
            entry.name = "scanForPeripherals"
            entry.facts = [Self.list(scan.services)] + (scan.wantsDuplicates ? ["with duplicates"] : [])
        case .endScan: entry.name = "stopScan"
        case .setPairing(let abilities): (entry.name, entry.facts) = ("pairing is set", abilities.words)
        case .setConnectionEvents(let filter):
            (entry.name, entry.facts) = ("registerForConnectionEvents", filter == nil ? ["none"] : [])
        case .connect(let identity, let connectionID, let options):
            connect(identity, connectionID, options, isAnswered: true, &entry)
        case .connectAgain(let identity, let connectionID, let options, let isAnswered):
            connect(identity, connectionID, options, isAnswered: isAnswered, &entry)
            entry.facts.append("again")
        case .resume(let identity, let connectionID, let options):
            connect(identity, connectionID, options, isAnswered: true, &entry)
            entry.facts.append("resumed")
        case .cancel(let identity, let connectionID):
            about(identity, &entry)
            entry.name = "cancelPeripheralConnection"
            newest[identity] = connectionID
            entry.asks = question("didDisconnectPeripheral", entry.peripheral)
        case .release(let identity, _):
            about(identity, &entry)
            (entry.name, entry.link) = ("the app releases", .down(reason: nil))
        case .perform(let request, let identity, _): describe(request, identity, &entry)
        case .openChannel(let psm, let identity, _):
            about(identity, &entry)
            (entry.name, entry.facts) = ("openL2CAPChannel", ["PSM \(psm)"])
            entry.asks = question("didOpen \(psm)", entry.peripheral)
        case .channelEnded(let number, let identity):
            about(identity, &entry)
            entry.name = "channel \(number) has ended"
        case .answerQuestion(let ticket, let accepts, let passkey):
            (entry.name, entry.facts) = ("pairing", [accepts ? "accepted" : "refused"])
            if let passkey, !hidesValues { entry.facts.append(PairingQuestion.digits(passkey)) }
            entry.answers = question("pairing \(ticket)")
        case .removeBond(let identity, let ticket):
            about(identity, &entry)
            (entry.name, entry.asks) = ("removeBond", question("bond \(ticket)"))
        }
    }

    private mutating func connect(
        _ identity: DeviceIdentity, _ connectionID: ConnectionID, _ request: ConnectRequest, isAnswered: Bool,
        _ entry: inout TraceEntry
    ) {
        about(identity, &entry)
        entry.name = "connect"
        if newest[identity] != connectionID { attributes[identity] = nil }
        newest[identity] = connectionID
        entry.facts = request.options.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
        if isAnswered { entry.asks = question("didConnect", entry.peripheral) }
    }

    private func describe(_ request: AttributeRequest, _ identity: DeviceIdentity, _ entry: inout TraceEntry) {
        about(identity, &entry)
        entry.name = request.methods.call
        entry.attribute = request.attribute.map { uuid(of: $0, of: identity) }
        switch request {
        case .discoverServices(let uuids), .discoverIncludedServices(let uuids, _),
            .discoverCharacteristics(let uuids, _):
            entry.facts = [Self.list(uuids)]
        case .write(let bytes, _), .writeDescriptor(let bytes, _): entry.value = value(bytes)
        case .writeWithoutResponse(let bytes, _):
            (entry.value, entry.facts) = (value(bytes), ["without response"])
        case .setNotify(let isOn, _): entry.facts = [isOn ? "true" : "false"]
        case .resubscribe: entry.facts = ["true", "restored"]
        case .discoverDescriptors, .read, .readDescriptor, .readRSSI: break
        }
        if let callback = request.methods.callback { entry.asks = question(callback, request.attribute, identity) }
    }

    private func question(
        _ callback: String, _ id: AttributeID?, _ identity: DeviceIdentity
    ) -> TraceEntry.Question {
        question("\(callback) \(id?.rawValue ?? 0)", identity.identifier)
    }

    // MARK: Events

    mutating func describe(_ event: CentralEvent, _ entry: inout TraceEntry) {
        switch event {
        case .value(let bytes, let id, let identity, let connectionID):
            about(identity, &entry)
            entry.name = "didUpdateValueFor"
            (entry.attribute, entry.value) = (uuid(of: id, of: identity), value(bytes))
            check(connectionID, identity, &entry)
        case .peripheral(let identity, let event):
            if case .name(let name, _) = event { learn(name, of: identity) }
            about(identity, &entry)
            describe(event, identity, &entry)
        case .discovered(let identity, let properties, _):
            learn(properties.name, of: identity)
            about(identity, &entry)
            entry.name = "didDiscover"
            entry.facts = [properties.rssiDBm.map { "\($0) dBm" }].compactMap { $0 }
            if !properties.services.isEmpty { entry.facts.append(Self.list(properties.services.map(CodableUUID.init))) }
        case .state(let state, _, _, let adapter):
            entry.name = "centralManagerDidUpdateState"
            entry.facts = ["\(state.value)", adapter].compactMap { $0 }
            if state.value != .poweredOn { entry.link = .off }
        case .restored(let plan, let adapter):
            for (index, item) in plan.items.enumerated() where item.outcome != .dropped {
                restore(item.peripheral, RestorationPlan.connectionID(at: index), isKept: false, &entry)
            }
            (entry.name, entry.facts) = ("willRestoreState", entry.facts + [adapter].compactMap { $0 })
        case .handedOver(let snapshot, let handOver):
            for peripheral in snapshot.peripherals { restore(peripheral, nil, isKept: true, &entry) }
            entry.name = "willRestoreState"
            entry.facts += ["from a keeper", "\(handOver.missed) events follow", "\(handOver.dropped) dropped"]
        case .connectionEvent(let event, let identity, let name):
            learn(name, of: identity)
            about(identity, &entry)
            (entry.name, entry.facts) = ("connectionEventDidOccur", ["\(event.value)"])
        case .checkpoint: break
        case .bondRemoved(let ticket, let error):
            (entry.name, entry.error) = ("removeBond has ended", error.map(Self.words))
            entry.answers = question("bond \(ticket)")
        }
    }

    /// The app has begun another connection, or ended this one: it does not hear of it.
    private func check(_ connectionID: ConnectionID, _ identity: DeviceIdentity, _ entry: inout TraceEntry) {
        guard let newest = newest[identity], newest != connectionID else { return }
        entry.facts.append("dropped: of an earlier connection")
    }

    private mutating func restore(
        _ record: Snapshot.Peripheral, _ connectionID: ConnectionID?, isKept: Bool, _ entry: inout TraceEntry
    ) {
        guard let identity = DeviceIdentity(identifier: record.identifier) else { return }
        learn(record.name, of: identity)
        entry.facts.append("\(label(of: identity)) \(record.state.rawValue)")
        newest[identity] = connectionID
        var known: [AttributeID: String] = [:]
        var last: UInt32 = 0
        // As `CBPeripheral` numbers them.
        func add(_ uuid: AttributeUUID, _ number: UInt32?) {
            last &+= 1
            known[AttributeID(rawValue: isKept ? number ?? last : last)] = uuid.cbUUID.uuidString
        }
        for service in record.services ?? [] {
            add(service.uuid, service.number)
            for characteristic in service.characteristics ?? [] {
                add(characteristic.uuid, characteristic.number)
                for descriptor in characteristic.descriptors ?? [] { add(descriptor.uuid, descriptor.number) }
            }
        }
        attributes[identity] = known
    }

    private mutating func describe(
        _ event: PeripheralEvent, _ identity: DeviceIdentity, _ entry: inout TraceEntry
    ) {
        switch event {
        case .connected(let connectionID, let mtuBytes, _):
            (entry.name, entry.link) = ("didConnect", .up)
            entry.facts = [mtuBytes.map { "ATT_MTU \($0)" }].compactMap { $0 }
            entry.answers = question("didConnect", entry.peripheral)
            check(connectionID, identity, &entry)
        case .cancelled:
            entry.name = "didDisconnectPeripheral"
            (entry.facts, entry.link) = (["the app has cancelled"], .down(reason: "the app has cancelled"))
            entry.answers = question("didDisconnectPeripheral", entry.peripheral)
        case .lost(let connectionID, let next, let error, _):
            (entry.name, entry.error) = ("didDisconnectPeripheral", Self.words(error))
            entry.link = .down(reason: Self.words(error))
            check(connectionID, identity, &entry)
            if let next {
                entry.facts.append("reconnects")
                newest[identity] = next
            }
            attributes[identity] = nil
        case .failed(let connectionID, let error):
            (entry.name, entry.error) = ("didFailToConnect", Self.words(error))
            entry.answers = question("didConnect", entry.peripheral)
            check(connectionID, identity, &entry)
        case .name(let name, let isNews):
            (entry.name, entry.facts) = (isNews ? "peripheralDidUpdateName" : "name", [name])
        case .mtu(let bytes, _): (entry.name, entry.facts) = ("ATT_MTU", ["\(bytes)"])
        case .bonded(let isBonded, _): (entry.name, entry.facts) = ("isBonded", ["\(isBonded)"])
        case .identity(let identity): (entry.name, entry.facts) = ("identity address", [identity.addressText])
        case .answer(let answer, let connectionID):
            describe(answer, identity, &entry)
            check(connectionID, identity, &entry)
        case .servicesChanged(let ids, _):
            entry.name = "didModifyServices"
            entry.facts = [ids.map { uuid(of: $0, of: identity) }.joined(separator: ", ")]
        case .written(let progress, _):
            entry.name = "writes without response"
            entry.facts = ["\(progress.writes) taken"]
            if progress.dropped > 0 { entry.facts.append("\(progress.dropped) of them dropped") }
            if progress.isSocketFull { entry.facts.append("no room") }
        case .room: entry.name = "peripheralIsReady"
        case .question(let question, let ticket):
            entry.name = "pairing question"
            entry.facts = [question.words(hidesPasskey: hidesValues)]
            entry.asks = self.question("pairing \(ticket)")
        case .questionEnded: entry.name = "the pairing question has ended"
        case .channelOpened(let number, let psm, _, _):
            (entry.name, entry.facts) = ("didOpen", ["channel \(number)", "PSM \(psm)"])
            entry.answers = question("didOpen \(psm)", entry.peripheral)
        case .channelRefused(let psm, let error, _):
            (entry.name, entry.facts, entry.error) = ("didOpen", ["PSM \(psm)"], Self.words(error))
            entry.answers = question("didOpen \(psm)", entry.peripheral)
        case .endChannel(let number): entry.name = "channel \(number) ends"
        case .channelEnded(let number): entry.name = "channel \(number) has ended"
        }
    }

    private mutating func describe(
        _ answer: AttributeAnswer, _ identity: DeviceIdentity, _ entry: inout TraceEntry
    ) {
        func answers(_ callback: String, _ id: AttributeID? = nil) {
            entry.name = callback
            entry.attribute = id.map { uuid(of: $0, of: identity) }
            entry.answers = question(callback, id, identity)
        }
        switch answer {
        case .services(let found):
            answers("didDiscoverServices")
            entry.facts = [learn(found.map { ($0.id, $0.uuid) }, of: identity)]
        case .includedServices(let found, let id):
            answers("didDiscoverIncludedServicesFor", id)
            entry.facts = [learn(found.map { ($0.id, $0.uuid) }, of: identity)]
        case .characteristics(let found, let id):
            answers("didDiscoverCharacteristicsFor", id)
            entry.facts = [learn(found.map { ($0.id, $0.uuid) }, of: identity)]
        case .descriptors(let found, let id):
            answers("didDiscoverDescriptorsFor", id)
            entry.facts = [learn(found.map { ($0.id, $0.uuid) }, of: identity)]
        case .value(let bytes, let id), .descriptorValue(let bytes, let id):
            answers("didUpdateValueFor", id)
            entry.value = value(bytes)
        case .written(let id), .descriptorWritten(let id): answers("didWriteValueFor", id)
        case .notifying(let isNotifying, let id):
            answers("didUpdateNotificationStateFor", id)
            entry.facts = [isNotifying ? "notifying" : "not notifying"]
        case .rssi(let dBm):
            answers("didReadRSSI")
            entry.facts = [dBm.map { "\($0) dBm" } ?? "not known"]
        case .failed(let request, let error):
            answers(request.methods.callback ?? request.methods.call, request.attribute)
            entry.error = Self.words(error)
        }
    }

    private mutating func learn(_ found: [(AttributeID, CodableUUID)], of identity: DeviceIdentity) -> String {
        for (id, uuid) in found { attributes[identity, default: [:]][id] = uuid.uuid.uuidString }
        return found.isEmpty ? "none" : found.map(\.1.uuid.uuidString).joined(separator: ", ")
    }
}

extension AttributeRequest {
    /// What the app has called, and what is called with the answer; nil: there is none, if nothing fails.
    fileprivate var methods: (call: String, callback: String?) {
        switch self {
        case .discoverServices: ("discoverServices", "didDiscoverServices")
        case .discoverIncludedServices: ("discoverIncludedServices", "didDiscoverIncludedServicesFor")
        case .discoverCharacteristics: ("discoverCharacteristics", "didDiscoverCharacteristicsFor")
        case .discoverDescriptors: ("discoverDescriptors", "didDiscoverDescriptorsFor")
        case .read, .readDescriptor: ("readValue", "didUpdateValueFor")
        case .write, .writeDescriptor: ("writeValue", "didWriteValueFor")
        case .writeWithoutResponse: ("writeValue", nil)
        case .setNotify: ("setNotifyValue", "didUpdateNotificationStateFor")
        case .resubscribe: ("setNotifyValue", nil)
        case .readRSSI: ("readRSSI", "didReadRSSI")
        }
    }
}

extension PairingAbilities {
    fileprivate var words: [String] {
        let all: [(PairingAbilities, String)] = [
            (.justWorks, "without being asked"), (.consents, "consents"), (.entersPasskey, "enters passkeys"),
            (.displaysPasskey, "displays passkeys"), (.comparesPasskeys, "compares passkeys"),
        ]
        return isEmpty ? ["none"] : all.filter { contains($0.0) }.map(\.1)
    }
}

extension PairingQuestion {
    fileprivate func words(hidesPasskey: Bool) -> String {
        func digits(_ passkey: UInt32) -> String { hidesPasskey ? "" : " " + Self.digits(passkey) }
        return switch self {
        case .passkey: "enter the passkey"
        case .display(let passkey): "display the passkey" + digits(passkey)
        case .comparison(let passkey): "compare" + digits(passkey)
        case .consent: "pair?"
        }
    }
}
