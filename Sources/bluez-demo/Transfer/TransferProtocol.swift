import BluezKit
import BluezKitProfiles
import Foundation

/// The transfer of a file from one machine to another. Docs/DEMO.md describes it for other programs.
///
/// Both directions carry messages, each with its length before it (`MessageEncoder`). Over an L2CAP channel that is
/// all; over GATT each value is a piece of that stream (`ValueNumbering`).
enum TransferProtocol {
    /// What a receiver advertises; its sender is the central.
    static let receiver = CBUUID(string: "0E9C0003-6B1A-4C57-8D3F-5A1E2B7C9D40")
    /// What a sender advertises, for `--via notify`; its receiver is the central.
    static let sender = CBUUID(string: "0E9C0004-6B1A-4C57-8D3F-5A1E2B7C9D40")
    /// What a sender of a business card advertises.
    static let card = CBUUID(string: "0E9C0001-6B1A-4C57-8D3F-5A1E2B7C9D40")
    /// To the peripheral, by write with or without response.
    static let toPeripheral = CBUUID(string: "0E9C0005-6B1A-4C57-8D3F-5A1E2B7C9D40")
    /// To the central, by notification.
    static let toCentral = CBUUID(string: "0E9C0006-6B1A-4C57-8D3F-5A1E2B7C9D40")

    /// The answer to a write of a central that has to wait for its turn: an application error, because bluetoothd turns
    /// other codes for this into "unlikely error".
    static let busy = CBATTError.Code(rawValue: 0x80) ?? .unlikelyError

    /// Who is in the way of a write that failed; nil: no one. bluetoothd sends one write at a time to a characteristic.
    static func rival(_ error: any Error, isSending: Bool) -> String? {
        let (other, same) = isSending ? ("receiver", "sender") : ("sender", "receiver")
        if (error as? CBATTError)?.code == busy { return "the \(other) is busy with another \(same)" }
        let cause = (error as NSError).userInfo[NSUnderlyingErrorKey] as? NSError
        guard cause?.userInfo[BluezErrorNameKey] as? String == "org.bluez.Error.InProgress" else { return nil }
        return "the \(other) is busy with another program on this machine"
    }

    static let version: UInt8 = 1
    /// The content of a `data` message, at most, in bytes.
    static let blockSize = 4096
    /// The longest message in bytes.
    static let messageLimit = 8192
    /// The lengths of values: what every link carries, and what fills two packets of 251 bytes with their headers. A
    /// third one would be almost empty, and bluetoothd 5.66 does not accept more than 510 bytes.
    static let valueLengths = 20...495
}

/// How the bytes of the file travel.
enum TransferWay: String, CaseIterable {
    case write
    case writeWithoutResponse = "write-without-response"
    case notify
    case l2cap

    var label: String {
        switch self {
        case .write: "writes with response"
        case .writeWithoutResponse: "writes without response"
        case .notify: "notifications"
        case .l2cap: "an L2CAP channel"
        }
    }
}

/// What is sent: its name, its length, and the SHA-256 by which it is recognized.
struct TransferOffer: Equatable {
    var name: String
    var size: Int
    var digest: [UInt8]

    func isSameFile(as other: TransferOffer) -> Bool { size == other.size && digest == other.digest }
}

/// One message.
enum TransferMessage: Equatable {
    /// From the receiver: offer it again, from the start of a session.
    case again
    /// From the sender, first.
    case offer(TransferOffer)
    /// From the receiver: it has everything before this offset.
    case accept(offset: Int)
    /// From the sender: the next bytes.
    case data(Data)
    /// From the receiver: it has everything, and the digest is right.
    case done
    /// From the receiver: it does not want it, or not any more. The text is for people.
    case refuse(String)
    /// From a sender that is the central, last: it has heard `done`, so the receiver need not wait for it.
    case confirm

    private enum Kind: UInt8 { case again = 1, offer, accept, data, done, refuse, confirm }

    var bytes: Data {
        func number(_ value: Int) -> [UInt8] { (0..<8).map { UInt8(truncatingIfNeeded: UInt64(value) >> (8 * $0)) } }
        switch self {
        case .again: return Data([Kind.again.rawValue])
        case .offer(let offer):
            return Data([Kind.offer.rawValue, TransferProtocol.version] + number(offer.size) + offer.digest)
                + offer.name.utf8.prefix(255)
        case .accept(let offset): return Data([Kind.accept.rawValue] + number(offset))
        case .data(let block): return Data([Kind.data.rawValue]) + block
        case .done: return Data([Kind.done.rawValue])
        case .refuse(let reason): return Data([Kind.refuse.rawValue]) + reason.utf8.prefix(255)
        case .confirm: return Data([Kind.confirm.rawValue])
        }
    }

    /// Any bytes are accepted.
    init(_ bytes: Data) throws(TransferError) {
        guard let kind = bytes.first.flatMap(Kind.init) else { throw .unknownMessage(bytes.first) }
        var rest = bytes.dropFirst()
        func number() throws(TransferError) -> Int {
            guard rest.count >= 8 else { throw .malformedMessage(kind.rawValue) }
            let value = rest.prefix(8).reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
            rest = rest.dropFirst(8)
            guard let number = Int(exactly: value) else { throw .malformedMessage(kind.rawValue) }
            return number
        }
        switch kind {
        case .again: self = .again
        case .offer:
            guard let version = rest.popFirst() else { throw .malformedMessage(kind.rawValue) }
            guard version == TransferProtocol.version else { throw .otherVersion(version) }
            let size = try number()
            guard rest.count >= 32 else { throw .malformedMessage(kind.rawValue) }
            let name = String(decoding: rest.dropFirst(32), as: UTF8.self)
            self = .offer(TransferOffer(name: name, size: size, digest: [UInt8](rest.prefix(32))))
        case .accept: self = .accept(offset: try number())
        case .data: self = .data(Data(rest))
        case .done: self = .done
        case .refuse: self = .refuse(String(decoding: rest, as: UTF8.self))
        case .confirm: self = .confirm
        }
    }
}

/// Why a transfer cannot go on: over this link, or at all.
enum TransferError: Error, Equatable {
    case unknownMessage(UInt8?)
    case malformedMessage(UInt8)
    case otherVersion(UInt8)
    case unexpected(String)
    case framing(MessageError)
    case gap
    case changed(String)
    case file(String)
    case refused(String)
    case damaged

    /// Whether another attempt would end in the same way.
    var isFinal: Bool {
        switch self {
        case .otherVersion, .changed, .file, .refused, .damaged: true
        case .unknownMessage, .malformedMessage, .unexpected, .framing, .gap: false
        }
    }
}

extension TransferError: LocalizedError {
    /// One sentence, without a full stop.
    var errorDescription: String? {
        switch self {
        case .unknownMessage, .malformedMessage, .unexpected, .framing:
            "the other end sent something that is not part of the protocol"
        case .otherVersion(let version):
            "the other end uses version \(version) of the protocol; use the same bluez-demo at both ends"
        case .gap: "a part was lost on the way"
        case .changed(let path): "'\(path)' was changed during the transfer; start again"
        case .file(let reason): reason
        case .refused(let reason): "the other end refuses it: \(reason.harmless.clipped(to: 200))"
        case .damaged: "the file was damaged on the way: its SHA-256 is wrong. Nothing of it was kept; start again"
        }
    }
}
