import BluezDBus
import Foundation

/// A central that uses what this process publishes. Confined to the bus queue.
final class RemoteCentral {
    let path: ObjectPath
    /// Follows its link.
    let rule: MatchRule
    /// Nil until BlueZ has told its address.
    private(set) var central: CentralInfo?
    /// What was asked for before that, in order.
    private var waiting: [(CentralInfo) -> Void] = []
    private var mtuBytes = 23
    private var bond = Bond()
    private let identity: DeviceIdentity?

    /// - Parameter identity: If it is known already.
    init(_ path: ObjectPath, identity: DeviceIdentity? = nil) {
        (self.path, self.identity) = (path, identity)
        rule = MatchRule(
            sender: BlueZ.busName, interface: "org.freedesktop.DBus.Properties", member: "PropertiesChanged", path: path
        )
    }

    /// Whether BlueZ keeps its subscriptions over the end of its link.
    var isBonded: Bool { bond.exists }

    /// Does `body` with it, in the order of the calls; at once if its address is known.
    func perform(_ body: @escaping (CentralInfo) -> Void) {
        guard let central else { return waiting.append(body) }
        body(central)
    }

    private var maximumUpdateValueLength: Int { min(max(mtuBytes - 3, 20), 512) }

    func setMTU(_ bytes: Int) {
        mtuBytes = bytes
        central?.maximumUpdateValueLength = maximumUpdateValueLength
    }

    /// BlueZ has told who it is.
    func introduce(_ properties: DeviceProperties) {
        // The address is in the path; that it is a random one is most likely.
        let identity = properties.identity ?? identity ?? DeviceIdentity(pathElement: path.lastElement)
        let central = CentralInfo(
            identifier: identity?.identifier ?? UUID(), maximumUpdateValueLength: maximumUpdateValueLength)
        bond = properties.bond
        self.central = central
        let bodies = waiting
        waiting = []
        for body in bodies { body(central) }
    }

    /// Takes over what has changed. - Returns: `Connected`, if it is among it.
    func apply(_ changes: inout MessageReader) throws(BusError) -> Bool? {
        var isConnected: Bool?
        try changes.readProperties { (key, value) throws(BusError) in
            try bond.apply(key, &value)
            if key.matches("Connected") { isConnected = try value.readBool() }
        }
        return isConnected
    }

    /// BlueZ has forgotten it.
    func removeBond() { bond = Bond() }
}

extension DeviceIdentity {
    /// From the last element of a device's path, `dev_F0_F1_F2_00_00_01`. The type of the address is not in it.
    init?(pathElement: Substring) {
        let address = pathElement.dropFirst(4).replacing("_", with: ":")
        self.init(address: String(address), isRandom: true)
    }
}
