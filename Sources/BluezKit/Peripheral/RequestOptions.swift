import BluezDBus

/// What BlueZ says with each call about a local attribute.
struct RequestOptions {
    let offset: Int
    let mtuBytes: Int?
    /// Of the central. BlueZ always tells it.
    let device: ObjectPath?
    /// Asks whether a prepared write may come.
    let isProbe: Bool

    /// An `a{sv}`. What is missing has its default; what is of a wrong type is an error.
    init(_ reader: inout MessageReader) throws(BusError) {
        var options = (offset: 0, mtu: Int?.none, device: ObjectPath?.none, probe: false)
        try reader.readProperties { (key, value) throws(BusError) in
            if key.matches("offset") { options.offset = Int(try value.readUInt16()) }
            // No link has less than 23 (Core Spec 5.4, Vol 3, Part G, 5.2.1).
            if key.matches("mtu") { options.mtu = max(23, Int(try value.readUInt16())) }
            if key.matches("device") { options.device = try value.readPath() }
            if key.matches("prepare-authorize") { options.probe = try value.readBool() }
        }
        (offset, mtuBytes, device, isProbe) = options
    }
}
