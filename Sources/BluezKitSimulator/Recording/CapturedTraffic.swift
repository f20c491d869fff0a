/// The devices in a capture, from the HCI packets: Core Specification, Vol 4, Part E, 5.4 and 7.7.
struct CapturedTraffic {
    /// What is kept of one device.
    final class Device {
        let address: String
        var addressType = "random"
        var table = CapturedTable()
        var mtu: UInt16?
        var advertisements: [Recording.Advertisement] = []
        var notifications: [(time: Double, handle: UInt16, value: [UInt8])] = []
        var writes: [(time: Double, handle: UInt16, value: [UInt8])] = []
        var isConnected = false
        /// The newest bytes of each kind.
        var data: [UInt8] = []
        var response: [UInt8] = []
        /// Of an extended advertisement that comes in parts.
        var parts: [UInt8] = []

        init(_ address: String) { self.address = address }
    }

    private struct Link {
        let device: Device
        var attributes = CapturedAttributes()
        /// Of the L2CAP frame that is being received, and sent; nil: it does not matter.
        var received: [UInt8]?
        var sent: [UInt8]?
    }

    private static let mostDevices = 4_096
    /// Advertisements of all devices: 100,000 of each would be too many for the memory of a small computer.
    private static let mostKept = 500_000
    /// An advertisement in parts, at most: Core Specification, Vol 6, Part B, 2.3.4.9.
    private static let mostAdvertisedBytes = 1_650

    private(set) var devices: [String: Device] = [:]
    private var links: [UInt32: Link] = [:]
    /// How many advertisements of all devices.
    private var kept = 0

    mutating func take(_ packet: CapturedPacket) {
        var bytes = CapturedBytes(packet.bytes)
        switch packet.kind {
        case .event:
            guard let code = bytes.byte(), bytes.byte() != nil else { return }
            if code == 0x3E { takeLowEnergy(&bytes, packet) }
            if code == 0x05, bytes.byte() == 0, let handle = bytes.word() { links[key(handle, packet)] = nil }
        case .data: takeData(&bytes, packet)
        }
    }

    private func key(_ handle: UInt16, _ packet: CapturedPacket) -> UInt32 {
        UInt32(packet.adapter) << 16 | UInt32(handle & 0x0FFF)
    }

    private mutating func device(_ address: String, _ type: UInt8) -> Device? {
        if let known = devices[address] { return known }
        guard devices.count < Self.mostDevices else { return nil }
        let device = Device(address)
        // 2 and 3 are identity addresses that the controller has resolved.
        device.addressType = type & 1 == 0 ? "public" : "random"
        devices[address] = device
        return device
    }

    // MARK: Events

    private mutating func takeLowEnergy(_ bytes: inout CapturedBytes, _ packet: CapturedPacket) {
        switch bytes.byte() {
        case 0x01, 0x0A, 0x29:
            guard bytes.byte() == 0, let handle = bytes.word(), bytes.byte() != nil, let type = bytes.byte(),
                let address = bytes.address(), let device = device(address, type)
            else { return }
            device.isConnected = true
            links[key(handle, packet)] = Link(device: device)
        case 0x02:
            var count = bytes.byte() ?? 0
            while count > 0, takeReport(&bytes, packet.time) { count -= 1 }
        case 0x0D:
            var count = bytes.byte() ?? 0
            while count > 0, takeExtendedReport(&bytes, packet.time) { count -= 1 }
        default: break
        }
    }

    private mutating func takeReport(_ bytes: inout CapturedBytes, _ time: Double) -> Bool {
        guard let type = bytes.byte(), let addressType = bytes.byte(), let address = bytes.address(),
            let length = bytes.byte(), let data = bytes.take(Int(length)), let rssi = bytes.byte()
        else { return false }
        guard let device = device(address, addressType) else { return true }
        // 0 and 1 are connectable, 4 is a scan response.
        heard(device, Array(data), isResponse: type == 4, isConnectable: type < 2, rssi: rssi, time)
        return true
    }

    private mutating func takeExtendedReport(_ bytes: inout CapturedBytes, _ time: Double) -> Bool {
        // Between the address and the strength: two PHYs, the set and the transmit power; after that the interval of
        // periodic ones, and another address.
        guard let type = bytes.word(), let addressType = bytes.byte(), let address = bytes.address(),
            bytes.take(4) != nil, let rssi = bytes.byte(), bytes.take(9) != nil, let length = bytes.byte(),
            let data = bytes.take(Int(length))
        else { return false }
        // 0xFF: an advertisement without an address.
        guard addressType != 0xFF, let device = device(address, addressType) else { return true }
        let whole = device.parts + data
        guard whole.count <= Self.mostAdvertisedBytes else {
            device.parts = []
            return true
        }
        guard type >> 5 & 3 != 1 else {
            device.parts = whole
            return true
        }
        device.parts = []
        heard(device, whole, isResponse: type & 8 != 0, isConnectable: type & 1 != 0, rssi: rssi, time)
        return true
    }

    private mutating func heard(
        _ device: Device, _ data: [UInt8], isResponse: Bool, isConnectable: Bool, rssi: UInt8, _ time: Double
    ) {
        if isResponse {
            // It belongs to the advertisement before it.
            device.response = data
            guard let last = device.advertisements.last else { return }
            device.advertisements[device.advertisements.count - 1].content = VirtualAdvertisement(
                data: [device.data, data], isConnectable: last.content.isConnectable)
            return
        }
        device.data = data
        guard device.advertisements.count < Recording.mostAdvertisements, kept < Self.mostKept else { return }
        kept += 1
        let strength = Int16(Int8(bitPattern: rssi))
        device.advertisements.append(
            .init(
                time: time, rssi: strength == 127 ? nil : strength,
                content: VirtualAdvertisement(data: [data, device.response], isConnectable: isConnectable)))
    }

    // MARK: Data

    private mutating func takeData(_ bytes: inout CapturedBytes, _ packet: CapturedPacket) {
        guard let header = bytes.word(), let length = bytes.word() else { return }
        let part = bytes.rest.prefix(Int(length))
        let key = key(header, packet)
        // A link that was made before the capture began has an address that is not known.
        guard var link = links[key] ?? device(Self.stranger(header & 0x0FFF), 1).map({ Link(device: $0) }) else {
            return
        }
        var frame = packet.isReceived ? link.received : link.sent
        if header >> 12 & 3 == 1 { frame? += part } else { frame = Array(part) }
        if let whole = frame, whole.count >= 4 {
            let size = 4 + Int(whole[0]) + Int(whole[1]) << 8
            // The channel of the Attribute Protocol is 4.
            if whole[2] != 4 || whole[3] != 0 {
                frame = nil
            } else if whole.count >= size {
                frame = nil
                let events = link.attributes.take(
                    whole[4..<size], isReceived: packet.isReceived, &link.device.table)
                for event in events { note(event, link.device, packet.time) }
                link.device.isConnected = true
            }
        }
        if packet.isReceived { link.received = frame } else { link.sent = frame }
        links[key] = link
    }

    /// Stands for the address of a device whose link has this number.
    private static func stranger(_ handle: UInt16) -> String {
        "00:00:00:00:" + Hex.byte(UInt8(handle >> 8)).uppercased() + ":" + Hex.byte(UInt8(handle & 0xFF)).uppercased()
    }

    private func note(_ event: CapturedAttributes.Event, _ device: Device, _ time: Double) {
        switch event {
        case .mtu(let mtu): device.mtu = mtu
        case .notification(let handle, let value):
            guard device.notifications.count < Recording.mostEvents else { return }
            device.notifications.append((time, handle, value))
        case .write(let handle, let value):
            guard device.writes.count < Recording.mostEvents else { return }
            device.writes.append((time, handle, value))
        }
    }
}
