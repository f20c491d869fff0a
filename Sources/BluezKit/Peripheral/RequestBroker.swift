import DBus
import Foundation

/// A read or write that the app has been asked about. Confined to the bus queue.
struct PendingRequest {
    let call: IncomingCall
    let characteristic: PublishedCharacteristic
    let central: ObjectPath
    let offset: Int
    let isRead: Bool
}

/// What BlueZ says with each call about a local attribute.
struct RequestOptions {
    var offset = 0
    var mtuBytes: Int?
    var device: ObjectPath?
    var isProbe = false

    /// An `a{sv}`. What is missing has its default; what is of a wrong type is an error.
    init(_ reader: inout MessageReader) throws(BusError) {
        var options = (offset: 0, mtu: Int?.none, device: ObjectPath?.none, probe: false)
        try reader.readProperties { (key, value) throws(BusError) in
            if key.matches("offset") { options.offset = Int(try value.readUInt16()) }
            // No link has less than 23 (Core Spec 5.4, Vol 3, Part G, 5.2.1).
            if key.matches("mtu") { options.mtu = max(23, Int(try value.readUInt16())) }
            if key.matches("device") { options.device = try value.readPath() }
            if key.matches("prepare-authorize") { options.probe = try value.readBool() }
        }
        (offset, mtuBytes, device, isProbe) = options
    }
}

/// Reads and writes by centrals. What permissions forbid, and what a fixed value answers, the app does not hear of.
extension Session {
    /// BlueZ answers the central by itself after 5 s; what the app says later is void.
    private static let requestDeadline = Duration.seconds(5)
    private static let longestValue = 512

    func answerRead(_ call: IncomingCall, of characteristic: PublishedCharacteristic) {
        guard let server else { return }
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
        guard let server else { return }
        var reader = call.reader
        guard let value = try? reader.readBytes(), let options = try? RequestOptions(&reader),
            let device = options.device
        else { return server.refuse(call, .unlikelyError) }
        guard characteristic.service?.isPublished == true, characteristic.canBeWritten else {
            return server.refuse(call, .writeNotPermitted)
        }
        // Asks whether a prepared write may come; it does, as a write, when it is executed.
        if options.isProbe { return server.reply(to: call) }
        guard options.offset + value.count <= Self.longestValue else {
            return server.refuse(call, .invalidAttributeValueLength)
        }
        ask(call, characteristic, device, options, value: Data(value))
    }

    /// - Parameter value: What is to be written; nil: it is a read.
    private func ask(
        _ call: IncomingCall, _ characteristic: PublishedCharacteristic, _ device: ObjectPath,
        _ options: RequestOptions,
        value: Data?
    ) {
        var ticket: UInt64 = 0
        if call.expectsReply {
            requestCount += 1
            ticket = requestCount
            requests[ticket] = PendingRequest(
                call: call, characteristic: characteristic, central: device, offset: options.offset,
                isRead: value == nil)
            expire(ticket)
        }
        withCentral(device, mtuBytes: options.mtuBytes) { central in
            let request = CBATTRequest(
                central: central, characteristic: characteristic.characteristic, offset: options.offset, value: value,
                ticket: ticket)
            characteristic.core.post { manager in
                if value == nil {
                    manager.delegate?.peripheralManager(manager, didReceiveRead: request)
                } else {
                    manager.delegate?.peripheralManager(manager, didReceiveWrite: [request])
                }
            }
        }
    }

    private func expire(_ ticket: UInt64) {
        blueZ.after(Self.requestDeadline) { [weak self] in
            guard let self, let request = requests.removeValue(forKey: ticket) else { return }
            let kind = request.isRead ? "read" : "write"
            Log.warning(
                from: "\(kind) \(request.characteristic.path)",
                "the app has not answered a \(kind) of \(request.characteristic.characteristic.uuid) within "
                    + "\(Self.requestDeadline): BlueZ waits no longer, and has told the central that it failed")
            server?.refuse(request.call, .unlikelyError)
        }
    }

    /// `respond(to:withResult:)`.
    func respond(_ ticket: UInt64, _ result: CBATTError.Code, _ value: Data?) {
        guard let request = requests.removeValue(forKey: ticket), let server else {
            return Log.misuse("CBPeripheralManager respond: the request was answered already, or is gone; ignored")
        }
        guard result == .success else { return server.refuse(request.call, result) }
        server.reply(to: request.call) { (writer) throws(BusError) in
            guard request.isRead else { return }
            // What does not fit is cut (RQ-2).
            let rest = (value ?? Data()).prefix(max(0, Self.longestValue - request.offset))
            try writer.write(.bytes([UInt8](rest)))
        }
    }

    /// Nobody waits for these answers any more.
    func endRequests(
        _ isOfCharacteristic: (PublishedCharacteristic) -> Bool,
        ofCentral isOfCentral: (ObjectPath) -> Bool = { _ in false }
    ) {
        for (ticket, request) in requests
        where isOfCharacteristic(request.characteristic) || isOfCentral(request.central) {
            requests[ticket] = nil
            server?.refuse(request.call, .unlikelyError)
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
