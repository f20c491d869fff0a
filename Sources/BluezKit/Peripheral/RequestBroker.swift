import BluezDBus
import Foundation

/// A read or write that the app has been asked about.
struct PendingRequest {
    let call: IncomingCall
    let characteristic: PublishedCharacteristic
    let central: ObjectPath
    let offset: Int
    let isRead: Bool
}

/// Reads and writes by centrals. What permissions forbid, and what a fixed value answers, the app does not hear of.
/// Confined to the bus queue.
final class RequestBroker {
    private static let longestValue = 512

    private let bus: BlueZBus
    private let remoteCentrals: RemoteCentrals
    /// By their tickets, which the app's answers carry.
    private var requests: [UInt64: PendingRequest] = [:]
    /// From a number that another process is unlikely to have given: an app may outlive its keeper.
    private var lastTicket = UInt64.random(in: 0..<1 << 48)

    init(_ bus: BlueZBus, _ remoteCentrals: RemoteCentrals) { (self.bus, self.remoteCentrals) = (bus, remoteCentrals) }

    /// How many have yet to be answered.
    var count: Int { requests.count }

    /// Of those.
    var tickets: Set<UInt64> { Set(requests.keys) }

    // MARK: BlueZ's calls

    func answerRead(_ call: IncomingCall, of characteristic: PublishedCharacteristic) {
        bus.assertOnQueue()
        guard let server = bus.exportedObjects else { return }
        guard characteristic.service?.isPublished == true, characteristic.canBeRead else {
            return server.refuse(call, .readNotPermitted)
        }
        if let value = characteristic.value { return Self.answerRead(call, from: value, on: server) }
        var reader = call.reader
        guard let options = try? RequestOptions(&reader), let device = options.device else {
            return server.refuse(call, .unlikelyError)
        }
        ask(call, characteristic, device, options, value: nil)
    }

    /// A read of a fixed value.
    static func answerRead(_ call: IncomingCall, from value: [UInt8], on server: ObjectServer) {
        var reader = call.reader
        guard let options = try? RequestOptions(&reader) else { return server.refuse(call, .unlikelyError) }
        guard options.offset <= value.count else { return server.refuse(call, .invalidOffset) }
        server.reply(to: call) { (writer) throws(BusError) in
            try writer.write(.bytes(Array(value[options.offset...])))
        }
    }

    func answerWrite(_ call: IncomingCall, to characteristic: PublishedCharacteristic) {
        bus.assertOnQueue()
        guard let server = bus.exportedObjects else { return }
        var reader = call.reader
        guard let value = try? reader.readBytes(), let options = try? RequestOptions(&reader),
            let device = options.device
        else { return server.refuse(call, .unlikelyError) }
        guard characteristic.service?.isPublished == true, characteristic.canBeWritten else {
            return server.refuse(call, .writeNotPermitted)
        }
        // A prepared write comes, as a write, when it is executed.
        if options.isProbe { return server.reply(to: call) }
        guard options.offset + value.count <= Self.longestValue else {
            return server.refuse(call, .invalidAttributeValueLength)
        }
        ask(call, characteristic, device, options, value: Data(value))
    }

    // MARK: The app

    /// - Parameter value: What is to be written; nil: it is a read.
    private func ask(
        _ call: IncomingCall, _ characteristic: PublishedCharacteristic, _ device: ObjectPath,
        _ options: RequestOptions,
        value: Data?
    ) {
        var ticket: UInt64 = 0
        if call.expectsReply {
            lastTicket += 1
            ticket = lastTicket
            requests[ticket] = PendingRequest(
                call: call, characteristic: characteristic, central: device, offset: options.offset,
                isRead: value == nil)
            expire(ticket)
        }
        remoteCentrals.withCentral(device, mtuBytes: options.mtuBytes) { central in
            characteristic.core.post(
                .access(
                    AttributeAccess(
                        ticket: ticket, central: central, characteristic: characteristic.id, offset: options.offset,
                        value: value)))
        }
    }

    /// BlueZ answers the central itself, and what the app says later has no effect.
    private func expire(_ ticket: UInt64) {
        let deadline = bus.timing.server.request
        bus.after(deadline) { [weak self] in
            guard let self, let request = requests.removeValue(forKey: ticket) else { return }
            let kind = request.isRead ? "read" : "write"
            Log.warning(
                from: "\(kind) \(request.characteristic.path)",
                "the app has not answered a \(kind) of \(request.characteristic.uuid) within "
                    + "\(deadline): BlueZ waits no longer, and has told the central that it failed")
            bus.exportedObjects?.refuse(request.call, .unlikelyError)
        }
    }

    /// `respond(to:withResult:)`.
    /// - Parameter core: Whose app answers.
    func respond(_ ticket: UInt64, _ result: CBATTError.Code, _ value: Data?, by core: PeripheralManagerCore) {
        bus.assertOnQueue()
        guard requests[ticket]?.characteristic.core === core, let request = requests.removeValue(forKey: ticket),
            let server = bus.exportedObjects
        else {
            // Its central has gone meanwhile, or BlueZ waited no longer.
            return Log.debug("an answer to a request that is over is ignored")
        }
        guard result == .success else { return server.refuse(request.call, result) }
        server.reply(to: request.call) { (writer) throws(BusError) in
            guard request.isRead else { return }
            // What does not fit is cut (RQ-2).
            let rest = (value ?? Data()).prefix(max(0, Self.longestValue - request.offset))
            try writer.write(.bytes([UInt8](rest)))
        }
    }

    /// These answers are not needed any more.
    func end(where isOver: (PendingRequest) -> Bool) {
        for (ticket, request) in requests where isOver(request) {
            requests[ticket] = nil
            bus.exportedObjects?.refuse(request.call, .unlikelyError)
        }
    }
}

extension ObjectServer {
    /// Refuses a central's request in the words that BlueZ translates to the ATT code (ERR-9).
    fileprivate func refuse(_ call: IncomingCall, _ code: CBATTError.Code) {
        let (name, message) = ErrorMapping.answer(code)
        refuse(call, name: name, message: message)
    }
}
