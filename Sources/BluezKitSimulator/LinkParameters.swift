/// What determines how fast data moves on a Bluetooth LE link.
///
/// The defaults are those of a link without any of the extensions that came after Bluetooth 4.0: 20 bytes in a packet.
/// Values out of range are replaced by the nearest one that the Core Specification permits.
public struct LinkParameters: Hashable, Sendable {
    /// How a packet is modulated.
    public enum PHY: String, CaseIterable, Sendable {
        /// 1 Mbit/s, which every device supports.
        case le1M = "1M"
        /// 2 Mbit/s.
        case le2M = "2M"
        /// 500 kbit/s, for twice the range.
        case codedS2 = "coded S=2"
        /// 125 kbit/s, for four times the range.
        case codedS8 = "coded S=8"
    }

    /// The time from one connection event to the next: 7.5 ms to 4 s.
    public var interval = Duration.milliseconds(30)
    /// How long an event lasts at most. Nil: until 150 µs before the next one, as the specification allows.
    public var eventLength: Duration?
    /// How many packets each side sends at most in an event, as some controllers limit it. Nil: as many as fit.
    public var packetsPerEvent: Int?
    /// The modulation, in both directions.
    public var phy = PHY.le1M
    /// The payload of a packet in bytes: 27, or with the Data Length Extension up to 251.
    public var dataLength = 27
    /// Whether each packet with a payload carries a message integrity check of 4 bytes.
    public var isEncrypted = true
    /// The ATT_MTU: 23 to 517. A value of this minus 3 bytes fits into one write or notification.
    public var mtu = 23
    /// The longest SDU of an L2CAP channel in bytes, from 23 on; longer data are several SDUs. The default is that of
    /// Linux.
    public var sduLength = 672
    /// The largest payload of a K-frame (MPS), in bytes. Nil: 4 less than ``dataLength``, so that a frame with its
    /// header is one packet; at least 23.
    public var framePayload: Int?
    /// How many K-frames the receiver of a channel allows the sender in advance, from 1 on. It returns them when half
    /// of them are used.
    public var credits = 64

    /// A link of Bluetooth 4.0, with an interval of 30 ms.
    public init() {}

    /// The MPS.
    var mps: Int { framePayload ?? max(dataLength - 4, 23) }

    /// The nearest that is in range.
    var valid: LinkParameters {
        var valid = self
        valid.interval = min(max(interval, .microseconds(7500)), .seconds(4))
        valid.dataLength = min(max(dataLength, 27), 251)
        valid.mtu = min(max(mtu, 23), 517)
        valid.sduLength = min(max(sduLength, 23), 65_535)
        valid.framePayload = framePayload.map { min(max($0, 23), 65_533) }
        valid.credits = min(max(credits, 1), 65_535)
        return valid
    }

    // MARK: Times on the air, in microseconds (Core Specification, Vol 6, Part B, 2.1, 2.2 and 4.1)

    /// T_IFS: between two packets.
    static let interFrameSpace = 150

    /// The time that a packet with a payload of this many bytes takes. An empty packet has no integrity check.
    func airTime(_ payload: Int) -> Int {
        let integrityCheck = isEncrypted && payload > 0 ? 4 : 0
        let (accessAddress, header, crc) = (4, 2, 3)
        let coded = header + payload + integrityCheck + crc
        switch phy {
        case .le1M: return (1 + accessAddress + coded) * 8  // a preamble of 1 byte
        case .le2M: return (2 + accessAddress + coded) * 4  // a preamble of 2 bytes
        // Preamble 80 µs, access address 256, coding indicator 16, TERM1 24; then each bit takes S µs, and TERM2 3 × S.
        case .codedS2: return 376 + (coded * 8 + 3) * 2
        case .codedS8: return 376 + (coded * 8 + 3) * 8
        }
    }

    /// When the last packet of an event must have ended.
    var eventEnd: Int {
        let latest = interval.microseconds - Self.interFrameSpace
        return min(eventLength?.microseconds ?? latest, latest)
    }
}

extension Duration {
    /// In whole microseconds.
    var microseconds: Int { Int(clamping: Int64(self / .microseconds(1))) }
}
