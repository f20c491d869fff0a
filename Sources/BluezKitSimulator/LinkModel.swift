/// The time that data takes on a Bluetooth LE link: a calculation, without a clock.
///
/// ```swift
/// var link = LinkModel(LinkParameters())
/// for _ in 0..<50_000 { link.write(20) }
/// link.elapsed  // 50,000 requests and responses of 30 ms each: 50 minutes
/// ```
/// Each operation is put on the air at the first opportunity after the previous one of its side, and the two sides
/// share the connection events. Time passes only by operations: an app that is always ready is assumed, so an app that
/// hesitates does not make the link slower. What a *host* answers on its own, it answers in the next event at the
/// earliest: responses, confirmations, credits. Packets are not lost.
///
/// Docs/THROUGHPUT.md has the arithmetic.
public struct LinkModel: Hashable, Sendable {
    /// An end of a link.
    public enum Side: Int, Hashable, Sendable {
        /// Sends first in each event.
        case central
        /// Answers each packet of the central.
        case peripheral

        var other: Side { self == .central ? .peripheral : .central }
    }

    /// The link's parameters. A change applies to what is sent after it.
    public var parameters: LinkParameters { didSet { parameters = parameters.valid } }

    /// A packet of the central and the peripheral's answer to it; either may be empty.
    private struct Exchange: Hashable {
        let start: Int
        var payload: SIMD2<Int> = [0, 0]  // by side, in bytes
    }

    // The event that is being filled, and the last exchange in it.
    private var event = 0
    private var eventStart = 0
    private var exchange: Exchange?
    private var exchangeCount = 0

    private struct End: Hashable {
        /// The first event in which its next request may be sent.
        var nextRequest = 0
        /// Data for the channel that do not fill an SDU yet.
        var waiting = 0
        /// K-frames that it may send, and those that it has received since it returned credits.
        var credits: Int
        var framesReceived = 0
        /// The event from which on it returns credits, and the first in which they can be used.
        var returnsCredits: Int?
        var usesCredits = 0
        var bytesSent = 0
    }
    private var ends: [End]

    /// An unused link, at the beginning of its first event.
    public init(_ parameters: LinkParameters = LinkParameters()) {
        self.parameters = parameters.valid
        ends = Array(repeating: End(credits: self.parameters.credits), count: 2)
    }

    // MARK: What has happened

    /// The time from the first event to the end of the last packet, including data that still wait for a full SDU.
    public var elapsed: Duration {
        var copy = self
        copy.flush(.central)
        copy.flush(.peripheral)
        return .microseconds(copy.now)
    }

    /// The number of connection events so far.
    public var events: Int { exchange == nil ? event : event + 1 }

    /// The bytes of values and of channels that this side has sent, without any headers.
    public func bytesSent(by side: Side) -> Int { ends[side.rawValue].bytesSent }

    /// The end of the last packet.
    private var now: Int {
        guard let exchange else { return eventStart }
        return exchange.start + length(of: exchange)
    }

    private func length(of exchange: Exchange) -> Int {
        parameters.airTime(exchange.payload[0]) + LinkParameters.interFrameSpace
            + parameters.airTime(exchange.payload[1])
    }

    // MARK: Operations

    /// A write with response: one request and its response; for a longer value than the MTU permits, prepared writes.
    public mutating func write(_ length: Int) {
        ends[0].bytesSent += length
        guard length > parameters.mtu - 3 else { return request(length + 3, response: 1) }
        var rest = length
        while rest > 0 {
            let part = min(rest, parameters.mtu - 5)
            request(part + 5, response: part + 5)
            rest -= part
        }
        request(2, response: 1)
    }

    /// A write without response. At most the MTU minus 3 bytes fit.
    public mutating func writeWithoutResponse(_ length: Int) {
        ends[0].bytesSent += length
        send(length + 3, from: .central)
    }

    /// A notification. At most the MTU minus 3 bytes fit.
    public mutating func notify(_ length: Int) {
        ends[1].bytesSent += length
        send(length + 3, from: .peripheral)
    }

    /// An indication and its confirmation.
    public mutating func indicate(_ length: Int) {
        ends[1].bytesSent += length
        request(length + 3, response: 1, from: .peripheral)
    }

    /// A read: one request and its response; further requests as long as a response is full.
    public mutating func read(_ length: Int) {
        ends[1].bytesSent += length
        let full = parameters.mtu - 1
        var rest = length
        request(3, response: min(rest, full) + 1)
        while rest >= full {
            rest -= full
            request(5, response: min(rest, full) + 1)
        }
    }

    /// A request of the Attribute Protocol: it is sent after the response to the side's previous one has arrived, and
    /// answered in the next event.
    /// - Parameters:
    ///   - length: The bytes of the request, with its opcode.
    ///   - response: The bytes of the response.
    mutating func request(_ length: Int, response: Int, from side: Side = .central) {
        send(length, from: side, after: ends[side.rawValue].nextRequest)
        send(response, from: side.other, after: event + 1)
        ends[side.rawValue].nextRequest = event + 1
    }

    /// A PDU of the Attribute Protocol, or of L2CAP's signalling.
    private mutating func send(_ length: Int, from side: Side, after first: Int = 0) {
        flush(side.other)
        put(length + 4, from: side, after: first)  // the basic L2CAP header
    }

    // MARK: Channels

    /// Bytes of an L2CAP channel. They are sent as full SDUs; a rest waits for more, until the other side sends
    /// something, so that the result does not depend on how a stream was divided.
    public mutating func stream(_ length: Int, from side: Side) {
        ends[side.rawValue].bytesSent += length
        flush(side.other)
        ends[side.rawValue].waiting += length
        while ends[side.rawValue].waiting >= parameters.sduLength {
            ends[side.rawValue].waiting -= parameters.sduLength
            send(sdu: parameters.sduLength, from: side)
        }
    }

    private mutating func flush(_ side: Side) {
        let rest = ends[side.rawValue].waiting
        guard rest > 0 else { return }
        ends[side.rawValue].waiting = 0
        send(sdu: rest, from: side)
    }

    /// An SDU, as K-frames: the first one begins with the SDU's length.
    private mutating func send(sdu length: Int, from side: Side) {
        var rest = length + 2
        while rest > 0 {
            let part = min(rest, parameters.mps)
            rest -= part
            if ends[side.rawValue].credits == 0 { awaitCredits(side) }
            ends[side.rawValue].credits -= 1
            put(part + 4, from: side, after: ends[side.rawValue].usesCredits)
            frameArrived(at: side.other)
        }
    }

    private mutating func frameArrived(at side: Side) {
        ends[side.rawValue].framesReceived += 1
        guard ends[side.rawValue].returnsCredits == nil,
            ends[side.rawValue].framesReceived >= max(parameters.credits / 2, 1)
        else { return }
        ends[side.rawValue].returnsCredits = event + 1
    }

    /// LE Flow Control Credit: 4 bytes of header and 8 of the command.
    private static let creditPacket = 12

    private mutating func awaitCredits(_ side: Side) {
        put(packet: Self.creditPacket, from: side.other, after: event + 1)
        creditsReturned(by: side.other)
        ends[side.rawValue].usesCredits = event + 1
    }

    private mutating func creditsReturned(by side: Side) {
        ends[side.other.rawValue].credits += ends[side.rawValue].framesReceived
        ends[side.rawValue].framesReceived = 0
        ends[side.rawValue].returnsCredits = nil
    }

    // MARK: Packets

    /// Sends bytes in as many packets as they need, in event `first` at the earliest.
    private mutating func put(_ length: Int, from side: Side, after first: Int) {
        var rest = length
        while rest > 0 {
            let part = min(rest, parameters.dataLength)
            rest -= part
            put(packet: part, from: side, after: first)
        }
    }

    private mutating func put(packet payload: Int, from side: Side, after first: Int) {
        if event < first { begin(first) }
        // In the exchange that has room for it, else in a new one, else in a new event, which has room for any packet.
        if !join(payload, side), !append(payload, side) {
            begin(event + 1)
            _ = append(payload, side)
        }
        // Credits that the other side owes go along.
        if let due = ends[side.other.rawValue].returnsCredits, due <= event, join(Self.creditPacket, side.other) {
            creditsReturned(by: side.other)
        }
    }

    /// Fills the side's half of the last exchange, if that is empty.
    private mutating func join(_ payload: Int, _ side: Side) -> Bool {
        guard var joined = exchange, joined.payload[side.rawValue] == 0 else { return false }
        joined.payload[side.rawValue] = payload
        guard joined.start - eventStart + length(of: joined) <= parameters.eventEnd else { return false }
        exchange = joined
        return true
    }

    private mutating func append(_ payload: Int, _ side: Side) -> Bool {
        var next = Exchange(start: exchange == nil ? eventStart : now + LinkParameters.interFrameSpace)
        next.payload[side.rawValue] = payload
        if exchange != nil {
            guard next.start - eventStart + length(of: next) <= parameters.eventEnd,
                exchangeCount < parameters.packetsPerEvent ?? .max
            else { return false }
        }
        exchange = next
        exchangeCount += 1
        return true
    }

    /// Begins event `number`; a later one, if a packet was longer than the interval.
    private mutating func begin(_ number: Int) {
        let interval = parameters.interval.microseconds
        let busy = max(0, now - eventStart - 1) / interval
        let passed = max(number - event, busy + 1)
        event += passed
        eventStart += passed * interval
        exchange = nil
        exchangeCount = 0
    }
}
