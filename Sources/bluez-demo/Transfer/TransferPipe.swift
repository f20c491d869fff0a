import BluezKitProfiles
import Foundation

/// The bytes of a session between an end of a transfer and a link: in values of characteristics, or in a channel.
///
/// The central begins a session. The peripheral follows when the first value of it arrives, and begins one itself only
/// when it is lost, as after a restart; then the central begins again.
struct TransferPipe {
    let end: any TransferEnd
    let isPeripheral: Bool
    private let encoder = MessageEncoder(limit: TransferProtocol.messageLimit)
    private var decoder = MessageDecoder(limit: TransferProtocol.messageLimit)
    private var outgoing = Data()
    private var numbering = ValueNumbering()
    private var order = ValueNumbering.Order()
    /// A value that there was no room for.
    private var waiting: Data?
    /// What arrives belongs to a session that this end knows nothing of, until the next one begins.
    private var isLost = false

    init(_ end: any TransferEnd, isPeripheral: Bool) { (self.end, self.isPeripheral) = (end, isPeripheral) }

    /// Whether everything that this end had to say has been sent.
    var isIdle: Bool { waiting == nil && outgoing.isEmpty }

    /// Whether values wait for one that has not arrived. If nothing arrives for ``gapLimit``, it was lost.
    var hasGap: Bool { order.hasGap }
    /// In seconds.
    static let gapLimit = 3.0

    /// Begins a session.
    mutating func begin() {
        self = TransferPipe(end, isPeripheral: isPeripheral)
        end.begin()
    }

    /// Makes the central begin again.
    mutating func askAgain() {
        begin()
        isLost = true
        (end as? TransferReceiver)?.askAgain()
    }

    // MARK: In values

    /// Sends values as long as there is room.
    /// - Parameters:
    ///   - length: The longest value in bytes.
    ///   - send: Sends a value; false: there is no room, and it was not sent.
    mutating func sendValues(upTo length: Int, by send: (Data) -> Bool) throws(TransferError) {
        let lengths = TransferProtocol.valueLengths
        let length = min(max(length, lengths.lowerBound), lengths.upperBound)
        while true {
            if waiting == nil { waiting = try nextValue(upTo: length) }
            guard let value = waiting, send(value) else { return }
            waiting = nil
        }
    }

    private mutating func nextValue(upTo length: Int) throws(TransferError) -> Data? {
        let piece = try nextBytes(upTo: length - ValueNumbering.headerLength)
        return piece.isEmpty ? nil : numbering.number(piece)
    }

    /// A value has arrived.
    mutating func take(value: Data) throws(TransferError) {
        if ValueNumbering.Order.beginsSession(value) {
            if isPeripheral {
                begin()
            } else if order.hasBegun {
                // The first such value was the answer. With another one the peripheral says that it is lost.
                return begin()
            }
        } else if isLost {
            return
        }
        for piece in try order.take(value) { try take(bytes: piece) }
    }

    // MARK: In a channel

    /// The next bytes to send; none: there is nothing to say now.
    mutating func nextBytes(upTo length: Int) throws(TransferError) -> Data {
        while outgoing.count < length, let message = try end.nextMessage() {
            do {
                outgoing += try encoder.encode(message.bytes)
            } catch {
                throw .framing(error)
            }
        }
        defer { outgoing = outgoing.dropFirst(length) }
        return outgoing.prefix(length)
    }

    mutating func take(bytes: Data) throws(TransferError) {
        decoder.append(bytes)
        while let message = try next() { try end.take(try TransferMessage(message)) }
    }

    private mutating func next() throws(TransferError) -> Data? {
        do {
            return try decoder.next()
        } catch {
            throw .framing(error)
        }
    }
}
