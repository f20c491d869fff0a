/// A rung of the ladder in Apple's "What's New in Core Bluetooth" (WWDC 2017, session 712): a way to send data, and the
/// throughput that the talk gives for it.
///
/// Docs/THROUGHPUT.md has the source or the reason of each parameter.
package struct ThroughputRung: Sendable {
    /// How the data are sent.
    package enum Way: Sendable { case write, writeWithoutResponse, channel }

    package let name: String
    /// What the talk says, in kbit/s.
    package let published: Double
    package let way: Way
    package let parameters: LinkParameters
    /// What keeps it from being faster.
    package let limit: String

    /// The bytes of one operation.
    package var length: Int { way == .channel ? parameters.sduLength : min(parameters.mtu - 3, 512) }

    /// Sends at least this many bytes, and returns what the link has carried.
    package func send(_ bytes: Int) -> LinkUsage {
        var link = LinkModel(parameters)
        while link.bytesSent(by: .central) < bytes {
            switch way {
            case .write: link.write(length)
            case .writeWithoutResponse: link.writeWithoutResponse(length)
            case .channel: link.stream(length, from: .central)
            }
        }
        return LinkUsage(
            time: link.elapsed, events: link.events, bytesToPeripheral: link.bytesSent(by: .central), bytesToCentral: 0)
    }

    /// The seven rungs, the slowest one first.
    package static let talk2017: [ThroughputRung] = {
        // 30 ms, 27 bytes in a packet, encrypted. Events have room for 7 packets of 708 µs, as an MTU of 185 shows.
        var link = LinkParameters()
        link.eventLength = .milliseconds(5)
        var rungs: [ThroughputRung] = []
        func rung(_ name: String, _ published: Double, _ way: Way, _ limit: String) {
            rungs.append(
                ThroughputRung(name: name, published: published, way: way, parameters: link, limit: limit))
        }
        rung("write with response", 2.5, .write, "two intervals for each 20 bytes")
        link.packetsPerEvent = 1
        rung("write without response, one per interval", 5, .writeWithoutResponse, "one packet in an interval")
        link.packetsPerEvent = nil
        rung("write without response", 37, .writeWithoutResponse, "7 of 27 bytes in a packet are headers")
        link.mtu = 185
        rung("larger MTU", 48, .writeWithoutResponse, "27 bytes in a packet")
        // A value of 512 bytes in one event, says the talk: three packets. Three of full length take 7.5 ms.
        link.mtu = 517
        link.dataLength = 251
        link.eventLength = .microseconds(7500)
        rung("data length extension", 135, .writeWithoutResponse, "values of at most 512 bytes")
        // SDUs fill an event, as values do with an MTU of 185: three frames of 247 bytes less the SDU's length.
        link.sduLength = 739
        rung("L2CAP channel", 197, .channel, "three packets in an interval of 30 ms")
        link.interval = .milliseconds(15)
        rung("interval of 15 ms", 394, .channel, "the phone gives the link half of the time")
        return rungs
    }()
}
