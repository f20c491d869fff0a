import BluezKitRestore
import Foundation

/// Of the peripheral role.
extension TracedManager {
    mutating func describe(_ request: PublishRequest, _ entry: inout TraceEntry) {
        switch request {
        case .add(let service, let isResumed):
            (entry.name, entry.attribute) = ("add", service.uuid.uuid.uuidString)
            let uuids = service.characteristics.map(\.uuid.uuid.uuidString)
            published[service.call] = uuids
            entry.facts = uuids.isEmpty ? [] : [uuids.joined(separator: ", ")]
            if isResumed { entry.facts.append("restored") } else { entry.asks = question("added \(service.call)") }
        case .remove(let call): (entry.name, entry.facts) = ("remove", ["service \(call)"])
        case .removeAll: entry.name = "removeAllServices"
        case .advertise(let request, let start, let isResumed):
            entry.name = "startAdvertising"
            entry.facts = [request.localName.map { "\"\($0)\"" }].compactMap { $0 }
            if request.services != nil { entry.facts.append(Self.list(request.services)) }
            if isResumed {
                entry.facts.append("restored")
            } else {
                entry.asks = question("advertising \(start.token)")
            }
        case .stopAdvertising: entry.name = "stopAdvertising"
        case .update(let id, let bytes, let centrals):
            (entry.name, entry.attribute, entry.value) = ("updateValue", uuid(of: id), value(bytes))
            if let centrals { entry.facts = ["for \(centrals.count) of the subscribers"] }
        case .respond(let ticket, let code, let bytes):
            (entry.name, entry.value) = ("respond", bytes.map { value($0) })
            entry.facts = ["\(code.value)"]
            entry.answers = question("access \(ticket)")
        case .publishChannel(let isEncrypted, let psm, let ticket):
            entry.name = "publishL2CAPChannel"
            entry.facts = [psm.map { "PSM \($0)" }, isEncrypted ? "encrypted" : nil].compactMap { $0 }
            entry.asks = question("published \(ticket ?? 0)")
        case .unpublishChannel(let psm): (entry.name, entry.facts) = ("unpublishL2CAPChannel", ["PSM \(psm)"])
        case .channelReleased(let number): entry.name = "channel \(number) is released"
        }
    }

    mutating func describe(_ event: PublishEvent, _ entry: inout TraceEntry) {
        switch event {
        case .access(let access):
            entry.name = access.value == nil ? "didReceiveRead" : "didReceiveWrite"
            about(central: access.central.identifier, &entry)
            (entry.attribute, entry.value) = (uuid(of: access.characteristic), access.value.map { value($0) })
            if access.offset != 0 { entry.facts = ["offset \(access.offset)"] }
            if access.ticket != 0 { entry.asks = question("access \(access.ticket)") }
        case .subscribed(let central, let id): describe("didSubscribeTo", central, id, &entry)
        case .unsubscribed(let central, let id): describe("didUnsubscribeFrom", central, id, &entry)
        case .centralChanged(let central):
            about(central: central.identifier, &entry)
            (entry.name, entry.facts) = ("maximumUpdateValueLength", ["\(central.maximumUpdateValueLength)"])
        case .centralForgotten(let identifier):
            about(central: identifier, &entry)
            entry.name = "forgotten"
        case .ready: entry.name = "peripheralManagerIsReady"
        case .sent, .checkpoint: break
        case .forgetSubscribers(let id): (entry.name, entry.attribute) = ("no subscribers any more of", uuid(of: id))
        case .state(let state, _, _):
            (entry.name, entry.facts) = ("peripheralManagerDidUpdateState", ["\(state.value)"])
            if state.value != .poweredOn { entry.link = .off }
        case .restored(let plan):
            entry.name = "willRestoreState"
            // Their calls are counted from 1 on, in this order.
            restore(plan.services.enumerated().map { ($1, UInt64($0) + 1) }, &entry)
        case .handedOver(let snapshot, let handOver):
            entry.name = "willRestoreState"
            restore(snapshot.services.enumerated().map { ($1, $1.call ?? UInt64($0) + 1) }, &entry)
            entry.facts += ["from a keeper", "\(handOver.missed) events follow", "\(handOver.dropped) dropped"]
        case .added(let call, let error, _):
            (entry.name, entry.facts, entry.error) = ("didAdd", ["service \(call)"], error.map(Self.words))
            entry.answers = question("added \(call)")
        case .placed(let call, let placement):
            (entry.name, entry.facts) = ("service \(call)", ["handle \(placement.handle)"])
        case .withdrawn(let call, _): entry.name = "service \(call) is withdrawn"
        case .advertising(let isOnAir, let token, let error, _):
            entry.name = "peripheralManagerDidStartAdvertising"
            if !isOnAir, error == nil { entry.facts = ["not on the air"] }
            (entry.error, entry.answers) = (error.map(Self.words), question("advertising \(token)"))
        case .notAdvertised(let error, let token):
            (entry.name, entry.error) = ("peripheralManagerDidStartAdvertising", Self.words(error))
            entry.answers = question("advertising \(token)")
        case .advertisingReleased: entry.name = "BlueZ has ended the advertisement"
        case .channelPublished(let channel, _, let ticket):
            (entry.name, entry.facts) = ("didPublishL2CAPChannel", ["PSM \(channel.psm)"])
            entry.answers = question("published \(ticket ?? 0)")
        case .channelNotPublished(let error, let ticket):
            (entry.name, entry.error) = ("didPublishL2CAPChannel", Self.words(error))
            entry.answers = question("published \(ticket ?? 0)")
        case .channelUnpublished(let psm, let error):
            entry.name = "didUnpublishL2CAPChannel"
            (entry.facts, entry.error) = (["PSM \(psm)"], error.map(Self.words))
        case .channelOpened(let number, let psm, let central, _):
            about(central: central.identifier, &entry)
            (entry.name, entry.facts) = ("didOpen", ["channel \(number)", "PSM \(psm)"])
        case .endChannels(let psm): entry.name = psm.map { "channels of PSM \($0) end" } ?? "all channels end"
        }
    }

    private func describe(
        _ callback: String, _ central: CentralInfo, _ id: LocalAttributeID, _ entry: inout TraceEntry
    ) {
        about(central: central.identifier, &entry)
        (entry.name, entry.attribute) = (callback, uuid(of: id))
        entry.facts = ["up to \(central.maximumUpdateValueLength) bytes"]
    }

    private mutating func restore(_ services: [(Snapshot.LocalService, call: UInt64)], _ entry: inout TraceEntry) {
        for (service, call) in services {
            published[call] = service.characteristics.map(\.uuid.cbUUID.uuidString)
            entry.facts.append("service \(service.uuid.cbUUID.uuidString)")
        }
    }
}
