import BluezKitRestore
import BluezDBus
import Foundation

/// What the core knows of one peripheral of one manager. Confined to the bus queue.
final class PeripheralCore: @unchecked Sendable {  // holds: confined to the bus queue, but for constants
    let identity: DeviceIdentity
    let manager: CentralManagerCore

    /// `connect(_:options:)` of the app, until it is cancelled or the connection has ended for good.
    struct CurrentRequest {
        fileprivate var request: ConnectRequest
        /// Which connect; and, where it reconnects automatically, which of its links.
        let connectionID: ConnectionID
        /// Whether the app was connected: then it hears of the end of the link.
        fileprivate(set) var wasUp = false

        var reconnects: Bool { request.reconnects }
    }

    private(set) var request: CurrentRequest?
    /// The last connect or cancel that has come from the app.
    private(set) var newest = ConnectionID.none
    /// The last cancel.
    private(set) var lastCancel = ConnectionID.none

    /// A connect whose start delay is not over.
    final class DelayedStart {
        let connectionID: ConnectionID
        init(connectionID: ConnectionID) { self.connectionID = connectionID }
    }

    /// The last one; an earlier one with the same link does not begin any more.
    var delayedStart: DelayedStart?
    /// Whether the app was told that it is connected.
    private(set) var isUp = false
    /// How many cancels wait for the end of the link.
    private(set) var pendingCancels = 0
    private(set) weak var device: Device?
    /// What has become of writes without response in this turn.
    var gathered = GatheredProgress()
    /// The attributes that the app knows on this link.
    private(set) var attributes = AttributeNumbers()
    /// Services that are known from an earlier process, with what was in them; nil: nothing has to be compared.
    private var restoredLayouts: [String: String]?
    private var postponedComparisons = 0
    /// The versions of those of them that have not changed since.
    private(set) var restoredVersions: [String: Int] = [:]

    init(identity: DeviceIdentity, manager: CentralManagerCore) {
        (self.identity, self.manager) = (identity, manager)
    }

    // MARK: What the app asks for

    /// A connect has come from the app.
    func begin(_ connectionID: ConnectionID) { (newest, delayedStart) = (connectionID, nil) }

    /// A cancel has come from the app: a connect that waits for its start delay is over.
    /// - Returns: Whether the app has not begun to connect since.
    func cancel(_ connectionID: ConnectionID) -> Bool {
        lastCancel = connectionID
        guard newest.request < connectionID.request else { return false }
        begin(connectionID)
        return true
    }

    func connect(_ request: ConnectRequest, connectionID: ConnectionID, to device: Device) {
        self.device = device
        self.request = CurrentRequest(request: request, connectionID: connectionID)
    }

    /// A repeated connect of one that is connecting or connected.
    func renew(_ request: ConnectRequest) { self.request?.request = request }

    /// A connection of an earlier process is this one's.
    /// - Parameter link: What the app knew on its link, if that is still there.
    func restore(_ request: ConnectRequest, connectionID: ConnectionID, link: RestoredLink?) {
        newest = connectionID
        self.request = CurrentRequest(request: request, connectionID: connectionID, wasUp: true)
        guard let link else { return }
        isUp = true
        (attributes, restoredLayouts, postponedComparisons) = (link.attributes, link.layouts, 0)
    }

    func attach(_ device: Device) { self.device = device }

    /// The app has cancelled, or let go of it: nothing that it asked for is wanted any longer.
    func endRequest() { (request, isUp, restoredLayouts) = (nil, false, nil) }

    func awaitEndOfLink() { pendingCancels += 1 }

    func forgetCancels() { pendingCancels = 0 }

    // MARK: What happens

    func connected() {
        if !isUp { attributes = AttributeNumbers() }
        isUp = true
        request?.wasUp = true
    }

    func linkEnded() { (pendingCancels, isUp) = (0, false) }

    /// The link is lost.
    /// - Returns: The request that it was for, and the identifier of the next link, if it reconnects automatically.
    func lost() -> (request: CurrentRequest, next: ConnectionID?)? {
        guard let request else { return nil }
        restoredLayouts = nil
        // Requests of the old link are not meant for the next one.
        let next = request.reconnects ? request.connectionID.next : nil
        self.request = next.map { CurrentRequest(request: request.request, connectionID: $0) }
        return (request, next)
    }

    /// No attempt will succeed.
    func failed() -> CurrentRequest? {
        defer { request = nil }
        return request
    }

    /// Bluetooth is off, or was reset.
    func drop() { (request, isUp, pendingCancels, device, restoredLayouts) = (nil, false, 0, nil, nil) }

    /// Whether what an earlier process knew should not be compared with a table that lacks something: reading it again
    /// may give the rest. Not without a limit, as the app's operations wait for it.
    func postponeComparison() -> Bool {
        guard restoredLayouts?.isEmpty == false, postponedComparisons < 3 else { return false }
        postponedComparisons += 1
        return true
    }

    /// Compares what an earlier process knew with the table, once.
    /// - Parameter layout: Of a service in the table, with its version; nil: it has changed.
    /// - Returns: The services that have changed.
    func reconcile(_ layout: (_ service: String) -> (text: String?, version: Int)?) -> Set<String> {
        guard let known = restoredLayouts else { return [] }
        restoredLayouts = nil
        var changed: Set<String> = []
        for (service, text) in known {
            if let found = layout(service), found.text == text {
                restoredVersions[service] = found.version
            } else {
                changed.insert(service)
            }
        }
        return changed
    }

    // MARK: Attributes

    /// What the app hears of services in the table, with the numbers that they have for it.
    func found(_ services: [AttributeTable.Service]) -> [FoundService] {
        services.compactMap { service in
            PathElement(String(service.path.lastElement)).map { element in
                FoundService(
                    id: attributes.id(of: service.path.rawValue, version: service.version), element: element,
                    uuid: CodableUUID(service.uuid), isPrimary: service.isPrimary, layout: service.layout)
            }
        }
    }

    func found(_ characteristics: [AttributeTable.Characteristic], version: Int?) -> [FoundCharacteristic] {
        characteristics.compactMap { characteristic in
            PathElement(String(characteristic.path.lastElement)).map { element in
                FoundCharacteristic(
                    id: attributes.id(of: characteristic.path.rawValue, version: version), element: element,
                    uuid: CodableUUID(characteristic.uuid), properties: Coded(characteristic.properties),
                    value: characteristic.value)
            }
        }
    }

    func found(_ descriptors: [AttributeTable.Descriptor], version: Int?) -> [FoundDescriptor] {
        descriptors.compactMap { descriptor in
            PathElement(String(descriptor.path.lastElement)).map { element in
                FoundDescriptor(
                    id: attributes.id(of: descriptor.path.rawValue, version: version), element: element,
                    uuid: CodableUUID(descriptor.uuid))
            }
        }
    }

    /// `didModifyServices`: these services have changed, and have these versions now.
    func servicesChanged(_ versions: [String: Int]) {
        guard let connectionID = request?.connectionID else { return }
        post(.servicesChanged(attributes.remove(before: versions), connectionID))
    }
}

/// What has become of writes without response in one turn of the bus queue: one event tells of all.
struct GatheredProgress {
    private var progress: CommandProgress?
    private var connectionID = ConnectionID.none

    mutating func add(_ next: CommandProgress, _ connectionID: ConnectionID) {
        // What belongs to an earlier link is of no interest.
        if self.connectionID != connectionID { progress = nil }
        self.connectionID = connectionID
        progress = progress ?? CommandProgress()
        progress?.add(next)
    }

    mutating func take() -> (CommandProgress, ConnectionID)? {
        defer { progress = nil }
        return progress.map { ($0, connectionID) }
    }
}

/// What an app knew on a link that has outlived its process.
struct RestoredLink {
    private(set) var attributes = AttributeNumbers()
    /// The contents of its services, by path.
    private(set) var layouts: [String: String] = [:]
    /// The characteristics that it was subscribed to, in table order.
    private(set) var subscribed: [AttributeID] = []

    /// The app's objects get the same numbers: ``RestorationPlan`` is all that it needs for that.
    /// - Parameter path: The device's, as BlueZ has it now.
    init(_ record: Snapshot.Peripheral, at path: ObjectPath) {
        for service in record.services ?? [] {
            let path = "\(path.rawValue)/\(service.element.text)"
            _ = attributes.id(of: path, version: nil)
            layouts[path] = service.layout
            for characteristic in service.characteristics ?? [] {
                let path = "\(path)/\(characteristic.element.text)"
                let id = attributes.id(of: path, version: nil)
                if characteristic.isNotifying { subscribed.append(id) }
                for descriptor in characteristic.descriptors ?? [] {
                    _ = attributes.id(of: "\(path)/\(descriptor.element.text)", version: nil)
                }
            }
        }
    }
}
