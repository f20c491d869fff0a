/// What a link has carried, and how long that took in the virtual time of its ``LinkModel``.
public struct LinkUsage: Hashable, Sendable {
    /// The time since the link was made. Only operations take time: waiting does not.
    public let time: Duration
    /// The number of connection events.
    public let events: Int
    /// The bytes of written values, and of channels, without any headers.
    public let bytesToPeripheral: Int
    /// The bytes of read, notified and indicated values, and of channels, without any headers.
    public let bytesToCentral: Int

    /// What was carried since an earlier moment of the same link.
    public static func - (later: LinkUsage, earlier: LinkUsage) -> LinkUsage {
        LinkUsage(
            time: later.time - earlier.time, events: later.events - earlier.events,
            bytesToPeripheral: later.bytesToPeripheral - earlier.bytesToPeripheral,
            bytesToCentral: later.bytesToCentral - earlier.bytesToCentral)
    }
}

/// A peripheral's link parameters, and how its last link was used.
struct LinkAir {
    var parameters: LinkParameters?
    var lastUsage: LinkUsage?
}

extension Link {
    var usage: LinkUsage? {
        model.map {
            LinkUsage(
                time: $0.elapsed, events: $0.events, bytesToPeripheral: $0.bytesSent(by: .central),
                bytesToCentral: $0.bytesSent(by: .peripheral))
        }
    }
}

extension VirtualPeripheral {
    /// How fast its links are; nil: as ``SimulatorOptions/linkParameters`` say. Links that are up are changed as well,
    /// apart from their MTU, as a connection parameter update does.
    public var linkParameters: LinkParameters? {
        get { sync { air.parameters } }
        set {
            sync {
                air.parameters = newValue
                guard var new = newValue else { return }
                for link in links where link.model != nil {
                    new.mtu = Int(link.mtu)
                    link.model?.parameters = new
                }
            }
        }
    }

    /// What its link has carried, or if none is up its last one; nil: there was none, or time is not calculated.
    public var linkUsage: LinkUsage? { sync { links.isEmpty ? air.lastUsage : links.last?.usage } }
}

extension VirtualCentral {
    /// What its link has carried, or if none is up its last one; nil: there was none, or time is not calculated.
    public var linkUsage: LinkUsage? { (try? simulator)?.sync { link == nil ? lastUsage : link?.usage } }
}
