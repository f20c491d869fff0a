/// Follows the Attribute Protocol on one link, as a client's side of it: Core Specification, Vol 3, Part F, 3.4.
///
/// What the peer asks of this end is left out: it says nothing of the peer's attributes.
struct CapturedAttributes {
    /// Something that moved, by the handle of the attribute.
    enum Event {
        case notification(UInt16, [UInt8])
        case write(UInt16, [UInt8])
        case mtu(UInt16)
    }

    private var request: ArraySlice<UInt8> = []
    private var mtu: UInt16 = 23
    /// The attribute whose value may continue, as its last part was as long as an answer can be.
    private var growing: UInt16?
    private var prepared: [UInt16: [UInt8]] = [:]

    /// Takes one packet.
    /// - Returns: What it tells besides the table.
    mutating func take(_ packet: ArraySlice<UInt8>, isReceived: Bool, _ table: inout CapturedTable) -> [Event] {
        var bytes = CapturedBytes(packet)
        guard let opcode = bytes.byte() else { return [] }
        guard isReceived else { return sent(opcode, packet, bytes) }
        switch opcode {
        case 0x1B, 0x1D:
            guard let handle = bytes.word() else { return [] }
            return [.notification(handle, Self.value(bytes.rest))]
        case 0x23: return Self.values(bytes).map { .notification($0, $1) }
        // Requests and commands of the peer, and its confirmations.
        case _ where opcode % 2 == 0: return []
        default:
            let asked = request
            request = []
            guard let question = asked.first else { return [] }
            if opcode == 0x01 {
                takeError(&bytes, asked, &table)
                return []
            }
            guard opcode == question + 1 else { return [] }
            return answered(CapturedBytes(asked.dropFirst()), opcode, bytes, &table)
        }
    }

    private mutating func sent(_ opcode: UInt8, _ packet: ArraySlice<UInt8>, _ rest: CapturedBytes) -> [Event] {
        var bytes = rest
        switch opcode {
        case 0x52, 0xD2:
            guard let handle = bytes.word() else { return [] }
            // A signature has twelve bytes.
            return [.write(handle, Self.value(opcode == 0xD2 ? bytes.rest.dropLast(12) : bytes.rest))]
        case 0x02, 0x04, 0x06, 0x08, 0x0A, 0x0C, 0x0E, 0x10, 0x12, 0x16, 0x18, 0x20: request = packet
        default: break
        }
        return []
    }

    private func takeError(_ bytes: inout CapturedBytes, _ asked: ArraySlice<UInt8>, _ table: inout CapturedTable) {
        // A read of one value; that others are refused says less.
        guard bytes.byte() == 0x0A, asked.first == 0x0A, let handle = bytes.word(), let code = bytes.byte() else {
            return
        }
        if table.values[handle] == nil { table.errors[handle] = code }
    }

    /// - Parameter question: What was asked, after its first byte.
    private mutating func answered(
        _ question: CapturedBytes, _ opcode: UInt8, _ answer: CapturedBytes, _ table: inout CapturedTable
    ) -> [Event] {
        var (question, answer) = (question, answer)
        switch opcode {
        case 0x03:
            guard let mine = question.word(), let theirs = answer.word() else { return [] }
            mtu = min(max(min(mine, theirs), 23), 517)
            return [.mtu(mtu)]
        case 0x05: Self.takeInformation(&answer, &table)
        case 0x07: Self.takeServices(question, &answer, &table)
        case 0x09, 0x11: takeList(question, &answer, &table)
        case 0x0B:
            guard let handle = question.word() else { return [] }
            begin(handle, answer.rest, &table)
        case 0x0D:
            guard let handle = question.word(), let offset = question.word() else { return [] }
            proceed(handle, Int(offset), answer.rest, &table)
        case 0x21:
            for value in Self.parts(&answer) {
                guard let handle = question.word() else { break }
                begin(handle, value, &table)
            }
        case 0x13:
            guard let handle = question.word() else { return [] }
            return [.write(handle, Self.value(question.rest))]
        case 0x17:
            guard let handle = question.word(), let offset = question.word() else { return [] }
            prepare(handle, Int(offset), question.rest)
        case 0x19:
            defer { prepared = [:] }
            guard question.byte() == 1 else { return [] }
            return prepared.sorted { $0.key < $1.key }.map { .write($0.key, $0.value) }
        default: break
        }
        return []
    }

    // MARK: The table

    private static func takeInformation(_ answer: inout CapturedBytes, _ table: inout CapturedTable) {
        guard let format = answer.byte(), format == 1 || format == 2 else { return }
        while let handle = answer.word(), let uuid = answer.take(format == 1 ? 2 : 16) {
            table.types[handle] = UUIDText.read(uuid)
        }
    }

    /// Find By Type Value: services with the UUID that was asked for.
    private static func takeServices(
        _ question: CapturedBytes, _ answer: inout CapturedBytes, _ table: inout CapturedTable
    ) {
        var question = question
        guard question.take(4) != nil, question.word() == 0x2800, let uuid = UUIDText.read(question.rest) else {
            return
        }
        while let handle = answer.word(), let end = answer.word() {
            table.services[handle] = .init(end: end, uuid: uuid, isPrimary: true)
        }
    }

    /// Read By Type and Read By Group Type: entries of equal length.
    private mutating func takeList(
        _ question: CapturedBytes, _ answer: inout CapturedBytes, _ table: inout CapturedTable
    ) {
        var question = question
        guard question.take(4) != nil, let type = UUIDText.read(question.rest), let length = answer.byte(), length >= 2
        else { return }
        while let entry = answer.take(Int(length)) {
            var bytes = CapturedBytes(entry)
            guard let handle = bytes.word() else { return }
            switch type {
            case UUIDText.full("2800"), UUIDText.full("2801"):
                guard let end = bytes.word(), let uuid = UUIDText.read(bytes.rest) else { return }
                table.services[handle] = .init(end: end, uuid: uuid, isPrimary: type == UUIDText.full("2800"))
            case UUIDText.full("2802"):
                guard let included = bytes.word() else { return }
                table.includes[handle] = included
            case UUIDText.full("2803"):
                guard let flags = bytes.byte(), let value = bytes.word(), let uuid = UUIDText.read(bytes.rest) else {
                    return
                }
                table.characteristics[handle] = .init(flags: flags, valueHandle: value, uuid: uuid)
            default:
                table.types[handle] = type
                begin(handle, bytes.rest, &table)
            }
        }
    }

    // MARK: Values

    /// The first value that is read counts: it is what the recording begins with.
    private mutating func begin(_ handle: UInt16, _ part: ArraySlice<UInt8>, _ table: inout CapturedTable) {
        growing = nil
        guard table.values[handle] == nil else { return }
        table.values[handle] = Self.value(part)
        growing = handle
    }

    private mutating func proceed(
        _ handle: UInt16, _ offset: Int, _ part: ArraySlice<UInt8>, _ table: inout CapturedTable
    ) {
        guard growing == handle, let value = table.values[handle], value.count == offset else { return }
        table.values[handle] = Self.value(value + part)
    }

    private mutating func prepare(_ handle: UInt16, _ offset: Int, _ part: ArraySlice<UInt8>) {
        guard prepared.count < 64 || prepared[handle] != nil, prepared[handle]?.count ?? 0 == offset else { return }
        prepared[handle] = Self.value((prepared[handle] ?? []) + part)
    }

    private static func value(_ bytes: some Sequence<UInt8>) -> [UInt8] {
        Array(bytes.prefix(Recording.mostValueBytes))
    }

    /// Values with their lengths before them.
    private static func parts(_ bytes: inout CapturedBytes) -> [ArraySlice<UInt8>] {
        var parts: [ArraySlice<UInt8>] = []
        while let length = bytes.word(), let part = bytes.take(Int(length)) { parts.append(part) }
        return parts
    }

    /// Values with their handles and lengths before them.
    private static func values(_ bytes: CapturedBytes) -> [(UInt16, [UInt8])] {
        var (bytes, values) = (bytes, [(UInt16, [UInt8])]())
        while let handle = bytes.word(), let length = bytes.word(), let part = bytes.take(Int(length)) {
            values.append((handle, value(part)))
        }
        return values
    }
}
