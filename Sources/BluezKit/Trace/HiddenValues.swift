import BluezKitRestore
import Foundation

/// Messages without what may be secret: values of attributes and passkeys are zeros, as many as there were. `Data` is
/// not looked at: the encoder of ``TraceFile`` replaces all of it.
extension TraceMessage {
    var hidingValues: TraceMessage {
        switch self {
        case .centralRequest(let message):
            .centralRequest(CentralMessage(request: message.request.hidingValues, generation: message.generation))
        case .centralEvent(let event): .centralEvent(event.hidingValues)
        case .peripheralRequest(let message):
            .peripheralRequest(PublishMessage(request: message.request.hidingValues, generation: message.generation))
        case .peripheralEvent(let event): .peripheralEvent(event.hidingValues)
        case .began, .made, .released, .daemon, .noRoom, .query, .devices, .bytes, .log, .omitted, .full: self
        }
    }
}

extension CentralRequest {
    fileprivate var hidingValues: CentralRequest {
        switch self {
        case .perform(let request, let identity, let connectionID):
            .perform(request.hidingValues, identity, connectionID)
        case .answerQuestion(let ticket, let accepts, let passkey):
            .answerQuestion(ticket: ticket, accepts: accepts, passkey: passkey.map { _ in 0 })
        case .startScan, .endScan, .setPairing, .setConnectionEvents, .connect, .connectAgain, .resume, .cancel,
            .release, .openChannel, .channelEnded, .removeBond:
            self
        }
    }
}

extension AttributeRequest {
    fileprivate var hidingValues: AttributeRequest {
        switch self {
        case .write(let value, let id): .write(value.hidden, id)
        case .writeWithoutResponse(let value, let id): .writeWithoutResponse(value.hidden, id)
        case .writeDescriptor(let value, let id): .writeDescriptor(value.hidden, id)
        case .discoverServices, .discoverIncludedServices, .discoverCharacteristics, .discoverDescriptors, .read,
            .readDescriptor, .setNotify, .resubscribe, .readRSSI:
            self
        }
    }
}

extension CentralEvent {
    fileprivate var hidingValues: CentralEvent {
        switch self {
        case .peripheral(let identity, .answer(.failed(let request, let error), let connectionID)):
            .peripheral(identity, .answer(.failed(request.hidingValues, error), connectionID))
        case .peripheral(let identity, .answer(.characteristics(let found, let service), let connectionID)):
            .peripheral(
                identity, .answer(.characteristics(found.map(\.hidingValue), of: service), connectionID))
        case .peripheral(let identity, .question(let question, let ticket)):
            .peripheral(identity, .question(question.hidingPasskey, ticket: ticket))
        // A central's restoration has no values.
        case .value, .peripheral, .discovered, .state, .restored, .handedOver, .connectionEvent, .checkpoint,
            .bondRemoved:
            self
        }
    }
}

extension PairingQuestion {
    fileprivate var hidingPasskey: PairingQuestion {
        switch self {
        case .passkey, .consent: self
        case .display: .display(0)
        case .comparison: .comparison(0)
        }
    }
}

extension FoundCharacteristic {
    fileprivate var hidingValue: FoundCharacteristic {
        FoundCharacteristic(id: id, element: element, uuid: uuid, properties: properties, value: value?.hidden)
    }
}

extension PublishRequest {
    fileprivate var hidingValues: PublishRequest {
        switch self {
        case .add(let service, let isResumed): .add(service.hidingValues, isResumed: isResumed)
        case .update(let id, let value, let centrals): .update(id, value.hidden, centrals: centrals)
        case .remove, .removeAll, .advertise, .stopAdvertising, .respond, .publishChannel, .unpublishChannel,
            .channelReleased:
            self
        }
    }
}

extension LocalService {
    fileprivate var hidingValues: LocalService {
        LocalService(
            call: call, uuid: uuid, isPrimary: isPrimary, includes: includes,
            characteristics: characteristics.map { known in
                LocalCharacteristic(
                    uuid: known.uuid, properties: known.properties, permissions: known.permissions,
                    value: known.value?.hidden,
                    descriptors: known.descriptors.map { LocalDescriptor(uuid: $0.uuid, value: $0.value?.hidden) })
            }, placement: placement)
    }
}

extension PublishEvent {
    fileprivate var hidingValues: PublishEvent {
        switch self {
        case .restored(var plan):
            plan.services = plan.services.map(\.hidingTexts)
            return .restored(plan)
        case .handedOver(var snapshot, let handOver):
            snapshot.services = snapshot.services.map(\.hidingTexts)
            return .handedOver(snapshot, handOver)
        case .access, .subscribed, .unsubscribed, .centralChanged, .centralForgotten, .ready, .sent, .checkpoint,
            .forgetSubscribers, .state, .added, .placed, .withdrawn, .advertising, .notAdvertised, .advertisingReleased,
            .channelPublished, .channelNotPublished, .channelUnpublished, .channelOpened, .endChannels:
            return self
        }
    }
}

extension Snapshot.LocalService {
    fileprivate var hidingTexts: Snapshot.LocalService {
        var copy = self
        for characteristic in copy.characteristics.indices {
            for descriptor in copy.characteristics[characteristic].descriptors.indices {
                let text = copy.characteristics[characteristic].descriptors[descriptor].text
                copy.characteristics[characteristic].descriptors[descriptor].text = text.map {
                    String(repeating: "0", count: $0.utf8.count)
                }
            }
        }
        return copy
    }
}

extension [UInt8] {
    fileprivate var hidden: [UInt8] { [UInt8](repeating: 0, count: count) }
}
