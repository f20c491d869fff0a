/// Bytes of captures, as the formats' documents have them: RFC 1761, and Core Specification, Vol 4, Part E, and Vol 3,
/// Part F.
struct CaptureBuilder {
    enum Link: UInt32 { case bare = 1001, uart = 1002, monitor = 2001 }

    let link: Link
    private(set) var bytes: [UInt8]
    /// In microseconds.
    private var clock: UInt64 = 0x00E0_3AB4_4A67_6000

    init(_ link: Link) {
        self.link = link
        bytes = Array("btsnoop\0".utf8) + Self.big(1, 4) + Self.big(UInt64(link.rawValue), 4)
    }

    static let peer: [UInt8] = [0x01, 0x00, 0x00, 0x22, 0x11, 0xF0]  // F0:11:22:00:00:01
    static let peerAddress = "F0:11:22:00:00:01"

    private static func big(_ number: UInt64, _ count: Int) -> [UInt8] {
        (0..<count).reversed().map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }
    }

    static func little(_ number: UInt16) -> [UInt8] { [UInt8(number & 0xFF), UInt8(number >> 8)] }

    mutating func wait(milliseconds: UInt64) { clock += milliseconds * 1000 }

    private mutating func record(_ content: [UInt8], flags: UInt64) {
        bytes += Self.big(UInt64(content.count), 4) + Self.big(UInt64(content.count), 4) + Self.big(flags, 4)
        bytes += Self.big(0, 4) + Self.big(clock, 8) + content
    }

    mutating func event(_ code: UInt8, _ parameters: [UInt8]) {
        let packet = [code, UInt8(parameters.count)] + parameters
        switch link {
        case .bare: record(packet, flags: 3)
        case .uart: record([4] + packet, flags: 3)
        case .monitor: record(packet, flags: 3)
        }
    }

    /// An ACL packet.
    /// - Parameter isContinued: A fragment that continues a frame.
    mutating func data(_ payload: [UInt8], isReceived: Bool, isContinued: Bool = false, handle: UInt16 = 0x40) {
        let boundary: UInt16 = isContinued ? 1 : isReceived ? 2 : 0
        let packet = Self.little(handle | boundary << 12) + Self.little(UInt16(payload.count)) + payload
        switch link {
        case .bare: record(packet, flags: isReceived ? 1 : 0)
        case .uart: record([2] + packet, flags: isReceived ? 1 : 0)
        case .monitor: record(packet, flags: isReceived ? 5 : 4)
        }
    }

    private static func frame(_ packet: [UInt8]) -> [UInt8] { little(UInt16(packet.count)) + [4, 0] + packet }

    mutating func sends(_ packet: [UInt8]) { data(Self.frame(packet), isReceived: false) }
    mutating func receives(_ packet: [UInt8]) { data(Self.frame(packet), isReceived: true) }

    /// In two fragments.
    mutating func receivesInParts(_ packet: [UInt8]) {
        let frame = Self.frame(packet)
        data(Array(frame.prefix(7)), isReceived: true)
        data(Array(frame.dropFirst(7)), isReceived: true, isContinued: true)
    }

    mutating func connects(handle: UInt16 = 0x40, to peer: [UInt8] = peer) {
        event(
            0x3E,
            [0x01, 0] + Self.little(handle) + [0, 1] + peer + [0x18, 0, 0, 0, 0x48, 0, 0])
    }

    mutating func advertises(_ data: [UInt8], rssi: Int8 = -60, type: UInt8 = 0, from peer: [UInt8] = peer) {
        event(0x3E, [0x02, 1, type, 1] + peer + [UInt8(data.count)] + data + [UInt8(bitPattern: rssi)])
    }

    /// A session with a heart-rate sensor: it advertises, is discovered, read, written to, and notifies.
    static func session(_ link: Link, discovers: Bool = true) -> [UInt8] {
        var capture = CaptureBuilder(link)
        let name = Array("Pulse".utf8)
        capture.advertises([2, 0x01, 0x06, 3, 0x03, 0x0D, 0x18])
        capture.advertises([6, 0x09] + name, type: 4)
        capture.wait(milliseconds: 100)
        capture.advertises([2, 0x01, 0x06, 3, 0x03, 0x0D, 0x18], rssi: -55)
        capture.wait(milliseconds: 400)
        capture.connects()
        capture.sends([0x02, 0x05, 0x02])
        capture.receives([0x03, 0xF7, 0x00])
        if discovers { capture.discovery() }
        capture.sends([0x0A, 0x09, 0x00])
        capture.receives([0x0B, 0x01])
        capture.sends([0x0A, 0x0B, 0x00])
        capture.receives([0x01, 0x0A, 0x0B, 0x00, 0x05])
        capture.sends([0x12, 0x07, 0x00, 0x01, 0x00])
        capture.receives([0x13])
        capture.wait(milliseconds: 500)
        capture.receives([0x1B, 0x06, 0x00, 0x00, 0x48])
        capture.wait(milliseconds: 1000)
        capture.receivesInParts([0x1B, 0x06, 0x00, 0x00, 0x49])
        capture.sends([0x12, 0x0D, 0x00, 0x01])
        capture.receives([0x13])
        capture.event(0x05, [0, 0x40, 0, 0x13])
        return capture.bytes
    }

    /// Generic Access (1 to 3) and Heart Rate (4 to 0x10): 2A37 at 6, 2A38 at 9, 2A19 at 0x0B, 2A39 at 0x0D.
    private mutating func discovery() {
        sends([0x10, 0x01, 0x00, 0xFF, 0xFF, 0x00, 0x28])
        receives([0x11, 6, 0x01, 0x00, 0x03, 0x00, 0x00, 0x18, 0x04, 0x00, 0x10, 0x00, 0x0D, 0x18])
        sends([0x10, 0x11, 0x00, 0xFF, 0xFF, 0x00, 0x28])
        receives([0x01, 0x10, 0x11, 0x00, 0x0A])
        sends([0x08, 0x04, 0x00, 0x10, 0x00, 0x03, 0x28])
        receives(
            [0x09, 7, 0x05, 0x00, 0x10, 0x06, 0x00, 0x37, 0x2A] + [0x08, 0x00, 0x02, 0x09, 0x00, 0x38, 0x2A]
                + [0x0A, 0x00, 0x02, 0x0B, 0x00, 0x19, 0x2A] + [0x0C, 0x00, 0x08, 0x0D, 0x00, 0x39, 0x2A])
        sends([0x04, 0x07, 0x00, 0x07, 0x00])
        receives([0x05, 1, 0x07, 0x00, 0x02, 0x29])
        sends([0x08, 0x01, 0x00, 0x03, 0x00, 0x00, 0x2A])
        receives([0x09, 7, 0x03, 0x00] + Array("Pulse".utf8))
    }
}
