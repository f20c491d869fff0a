import DBus
import Foundation

/// A central that uses what this process publishes. Confined to the bus queue.
final class Guest {
    let path: ObjectPath
    /// Follows its link.
    let rule: MatchRule
    /// Nil until BlueZ has told its address.
    var central: CBCentral?
    /// What was asked for before that, in order.
    var waiting: [(CBCentral) -> Void] = []
    var mtuBytes = 23
    var bond = Bond()
    var isBonded: Bool { bond.exists }

    init(_ path: ObjectPath) {
        self.path = path
        rule = MatchRule(
            sender: BlueZ.busName, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged", path: path
        )
    }
}

/// Centrals, by the paths that BlueZ names them with.
extension Session {
    /// Does `body` with the central at `path`, in the order of the calls; at once, but for the first time.
    func withCentral(_ path: ObjectPath, mtuBytes: Int?, _ body: @escaping (CBCentral) -> Void) {
        let guest = guest(path)
        if let mtuBytes {
            guest.mtuBytes = mtuBytes
            guest.central?.setMTU(mtuBytes)
        }
        guard let central = guest.central else { return guest.waiting.append(body) }
        body(central)
    }

    private func guest(_ path: ObjectPath) -> Guest {
        if let guest = guests[path.rawValue] { return guest }
        let guest = Guest(path)
        guests[path.rawValue] = guest
        guard let bus else { return guest }
        bus.addMatch(guest.rule)
        blueZ.insist {
            BlueZProxy(bus: bus, path: path, interface: BlueZ.device).getAll(completion: $0)
        } answered: {
            [weak self, weak guest] result in
            guard let self, let guest, guests[path.rawValue] === guest else { return }
            var fields = DeviceProperties()
            if case .success(let reply) = result {
                var reader = reply.reader
                _ = try? fields.apply(&reader, of: path, uuids: central.store.uuids)
            }
            introduce(guest, fields)
        }
        return guest
    }

    private func introduce(_ guest: Guest, _ fields: DeviceProperties) {
        // The address is in the path; that it is a random one is most likely.
        let identity = fields.identity ?? DeviceIdentity(pathElement: guest.path.lastElement)
        let central = CBCentral(identifier: identity?.identifier ?? UUID())
        central.setMTU(guest.mtuBytes)
        guest.bond = fields.bond
        guest.central = central
        let waiting = guest.waiting
        guest.waiting = []
        for body in waiting { body(central) }
        // It may have come and gone while BlueZ was asked.
        if !fields.isConnected { disconnected(guest) }
    }

    // MARK: Its link

    func receiveChange(_ message: Message, of guest: Guest) throws(BusError) {
        var reader = message.reader
        guard try reader.readCString().matches("org.bluez.Device1") else { return }
        var isConnected: Bool?
        try reader.readProperties { (key, value) throws(BusError) in
            try guest.bond.apply(key, &value)
            if key.matches("Connected") { isConnected = try value.readBool() }
        }
        guard guest.central != nil, let isConnected else { return }
        if isConnected { connected(guest) } else { disconnected(guest) }
    }

    func receiveRemoval(_ message: Message, of guest: Guest) throws(BusError) {
        var reader = message.reader
        _ = try reader.readPathC()
        var isDevice = false
        try reader.readArray { (name) throws(BusError) in
            if try name.readCString().matches("org.bluez.Device1") { isDevice = true }
        }
        guard isDevice else { return }
        guest.bond = Bond()
        disconnected(guest)
    }

    private var publishedCharacteristics: [PublishedCharacteristic] {
        publishers.flatMap { $0.services.flatMap(\.characteristics) }
    }

    /// BlueZ keeps the subscriptions of a bonded central, and says nothing when they count again.
    private func connected(_ guest: Guest) {
        for characteristic in publishedCharacteristics {
            tell(characteristic.book.connected(guest.path.rawValue), about: characteristic)
        }
    }

    private func disconnected(_ guest: Guest) {
        let path = guest.path.rawValue
        endRequests { _ in
            false
        } ofCentral: {
            $0 == guest.path
        }
        var isAway = false
        for characteristic in publishedCharacteristics {
            tell(characteristic.book.disconnected(path, isBonded: guest.isBonded), about: characteristic)
            isAway = isAway || characteristic.book.away.contains(path)
        }
        if !isAway { forget(guest) }
    }

    private func forget(_ guest: Guest) {
        guests[guest.path.rawValue] = nil
        bus?.removeMatch(guest.rule)
    }

    func dropGuests() {
        for guest in guests.values { forget(guest) }
    }
}

extension DeviceIdentity {
    /// From the last element of a device's path, `dev_F0_F1_F2_00_00_01`. The type of the address is not in it.
    init?(pathElement: Substring) {
        let address = pathElement.dropFirst(4).replacing("_", with: ":")
        self.init(address: String(address), isRandom: true)
    }
}
