/// One HCI packet of a capture that a recording can be made of.
struct CapturedPacket {
    enum Kind { case event, data }

    let kind: Kind
    /// From the controller.
    let isReceived: Bool
    /// The number of the adapter.
    let adapter: UInt16
    /// In seconds since the first packet of the capture; it never decreases.
    let time: Double
    /// From the packet's header on, which follows the byte for its type.
    let bytes: ArraySlice<UInt8>
}

/// Reads a capture in the format btsnoop: Android's `btsnoop_hci.log`, what `btmon -w` writes, and what others do.
///
/// RFC 1761 describes the headers; BlueZ's src/shared/btsnoop.h has the numbers of the monitor.
struct Btsnoop {
    static let magic = Array("btsnoop\0".utf8)

    /// The datalink type.
    private enum Link: UInt32 {
        /// Without a byte for the packet's type: the flags tell it.
        case bare = 1001
        /// With that byte, as on a UART (H4).
        case uart = 1002
        /// Of Linux: the flags have the adapter and the kind of the packet.
        case monitor = 2001
    }

    private var bytes: CapturedBytes
    private let link: Link
    private var first: UInt64?
    private var last = 0.0

    /// - Throws: ``RecordingError`` if it is not such a capture.
    init(_ content: [UInt8]) throws(RecordingError) {
        bytes = CapturedBytes(content[...])
        guard bytes.take(8)?.elementsEqual(Self.magic) == true, let version = bytes.big32(), let type = bytes.big32()
        else { throw RecordingError("it is not a btsnoop capture") }
        guard version == 1 else { throw RecordingError("it is a btsnoop capture of version \(version), not 1") }
        guard let link = Link(rawValue: type) else {
            throw RecordingError("it is a capture of the datalink type \(type), and not of 1001, 1002 or 2001")
        }
        self.link = link
    }

    /// The next packet; nil: none is left, or the last one is cut off.
    mutating func next() -> CapturedPacket? {
        while true {
            guard bytes.big32() != nil, let length = bytes.big32(), let flags = bytes.big32(), bytes.big32() != nil,
                let stamp = bytes.big64(), let content = bytes.take(Int(clamping: length))
            else { return nil }
            let time = seconds(stamp)
            if let packet = packet(content, flags, time) { return packet }
        }
    }

    /// Clocks are set, also backwards.
    private mutating func seconds(_ microseconds: UInt64) -> Double {
        let start = first ?? microseconds
        first = start
        let passed = microseconds > start ? Double(microseconds - start) / 1e6 : 0
        // More than a month is a clock that was set.
        if passed > last, passed < last + 2.7e6 { last = passed }
        return last
    }

    /// Nil: of a kind that tells nothing of devices.
    private func packet(_ content: ArraySlice<UInt8>, _ flags: UInt32, _ time: Double) -> CapturedPacket? {
        func packet(_ kind: CapturedPacket.Kind, isReceived: Bool, _ bytes: ArraySlice<UInt8>) -> CapturedPacket {
            let adapter = link == .monitor ? UInt16(truncatingIfNeeded: flags >> 16) : 0
            return CapturedPacket(kind: kind, isReceived: isReceived, adapter: adapter, time: time, bytes: bytes)
        }
        let isReceived = flags & 1 != 0
        switch link {
        case .bare:
            guard flags & 2 != 0 else { return packet(.data, isReceived: isReceived, content) }
            return isReceived ? packet(.event, isReceived: true, content) : nil
        case .uart:
            switch content.first {
            case 2: return packet(.data, isReceived: isReceived, content.dropFirst())
            case 4: return packet(.event, isReceived: true, content.dropFirst())
            default: return nil
            }
        case .monitor:
            switch flags & 0xFFFF {
            case 3: return packet(.event, isReceived: true, content)
            case 4: return packet(.data, isReceived: false, content)
            case 5: return packet(.data, isReceived: true, content)
            default: return nil
            }
        }
    }
}
