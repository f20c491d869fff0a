import BluezKitRestore
public import Foundation

/// **BluezKit addition.** What was restored from an earlier process, what was not, and why. From
/// `willRestoreState` on it is in ``CBCentralManager/restoration`` and ``CBPeripheralManager/restoration``:
///
/// ```swift
/// if let restoration = central.restoration {
///     print(restoration)  // a line for each thing, with the reason
///     let lost = restoration.peripherals.filter { $0.outcome == .dropped }.map(\.identifier)
///     print("to be found again:", lost)
/// }
/// ```
public struct BluezRestoration: Sendable, CustomStringConvertible {
    /// The outcome for a peripheral.
    public enum Outcome: String, Sendable {
        /// The link outlived the process: it was restored as `.connected`.
        case connected
        /// It was restored as `.connecting`.
        case connecting
        /// The link had ended: it was restored as `.connected`, and `didDisconnectPeripheral` followed.
        case disconnected
        /// It was not restored.
        case dropped
    }

    /// One peripheral.
    public struct Peripheral: Sendable {
        /// The identifier of the `CBPeripheral`.
        public let identifier: UUID
        /// Its name, if known.
        public let name: String?
        /// The outcome.
        public let outcome: Outcome
        /// The reason in words.
        public let reason: String
        /// The characteristics to which it was subscribed again.
        public let subscriptions: [CBUUID]
        /// The PSMs of its L2CAP channels, which ended with the process.
        public let endedChannels: [CBL2CAPPSM]
    }

    /// What a keeper has done for the manager while the app was not running (``BluezManagerOptionKeeperKey``).
    public struct Kept: Sendable {
        /// How many events follow that the app has missed.
        public let missedEvents: Int
        /// How many values, requests of centrals and reports of a scan did not fit, and are not delivered.
        public let droppedEvents: Int
        /// Whether the first event is one whose callback was running when the app ended.
        public let repeatsFirst: Bool
    }

    /// Nil: there was no keeper, or it had nothing of the manager.
    public let kept: Kept?
    /// Whether the scan resumes.
    public let isScanning: Bool
    /// All preserved peripherals, in the order in which the app connected to them.
    public let peripherals: [Peripheral]
    /// The services that are published again, in the order in which the app added them.
    public private(set) var services: [CBUUID]
    /// The services that are not, because this version of the app has other contents for them; see
    /// ``CBMutableService/restored(from:)``.
    public private(set) var outdatedServices: [CBUUID] = []
    /// Whether advertising resumes.
    public let isAdvertising: Bool
    /// The centrals that were subscribed, and are not: BlueZ ended the subscriptions together with the process.
    /// They must subscribe again, and connected ones are informed that services have changed. With a keeper they stay
    /// subscribed.
    public let lostSubscribers: [UUID]
    /// The PSMs of the L2CAP channels that are published again, under the same PSM where that is free.
    public let channels: [CBL2CAPPSM]

    init(_ plan: RestorationPlan, kept: Kept? = nil) {
        self.kept = kept
        isScanning = plan.scan != nil
        services = plan.services.map(\.uuid.cbUUID)
        isAdvertising = plan.advertisement != nil
        let subscribers = kept == nil ? plan.services.flatMap(\.characteristics).flatMap(\.subscribers) : []
        lostSubscribers = Set(subscribers).sorted { $0.uuidString < $1.uuidString }
        peripherals = plan.items.map { item in
            Peripheral(
                identifier: item.peripheral.identifier, name: item.peripheral.name, outcome: Outcome(item.outcome),
                reason: item.reason, subscriptions: item.outcome == .connected ? item.peripheral.subscriptions : [],
                endedChannels: item.peripheral.channels ?? [])
        }
        channels = plan.channels.map(\.psm)
    }

    /// A keeper has continued.
    init(_ snapshot: Snapshot, _ handOver: HandOver) {
        var links: Set<UUID> = []
        if case .central(let work) = handOver.work {
            links = Set(work.peripherals.filter(\.isUp).map(\.identity.identifier))
        }
        let bluetooth = snapshot.bluetooth ?? ""
        let live = snapshot.peripherals.map { record in
            (
                record.identifier,
                RestorationPlan.Peripheral(isConnected: links.contains(record.identifier), isBonded: record.isBonded)
            )
        }
        var same = snapshot
        same.bluetooth = bluetooth
        let plan = RestorationPlan(
            same, .init(bluetooth: bluetooth, adapter: nil, peripherals: Dictionary(live) { first, _ in first }))
        self.init(
            plan,
            kept: Kept(
                missedEvents: handOver.missed, droppedEvents: handOver.dropped, repeatsFirst: handOver.repeatsFirst))
    }

    mutating func withdraw(_ outdated: [CBUUID]) {
        for uuid in outdated { services.firstIndex(of: uuid).map { _ = services.remove(at: $0) } }
        outdatedServices += outdated
    }

    /// A line for the keeper, for the scan, for each peripheral and its channels, for each service, for the
    /// advertisement, for each lost subscriber and for each published channel.
    public var description: String {
        let (resumes, isBack) = kept == nil ? ("resumes", "published again") : ("continues", "still published")
        var lines = isScanning ? ["scan: \(resumes)"] : []
        if let kept {
            lines.insert(
                "a keeper has continued; \(kept.missedEvents) events follow, \(kept.droppedEvents) did not fit", at: 0)
            if kept.repeatsFirst { lines.insert("the first event is repeated: the app ended in its callback", at: 1) }
        }
        for peripheral in peripherals {
            let name = peripheral.name ?? peripheral.identifier.uuidString
            lines.append("\(name): \(peripheral.outcome), because \(peripheral.reason)")
            lines += peripheral.endedChannels.map {
                "\(name): the channel with the PSM \($0.hex) ended with the process"
            }
        }
        lines += services.map { "\($0): \(isBack)" }
        lines += outdatedServices.map {
            "\($0): not published again, because this version of the app has other contents"
        }
        if isAdvertising { lines.append("advertisement: \(resumes)") }
        lines += lostSubscribers.map {
            "central \($0): no longer subscribed, because BlueZ ended the subscription with the process"
        }
        lines += channels.map { "L2CAP channel \($0.hex): \(isBack)" }
        return lines.joined(separator: "\n")
    }
}

/// **BluezKit addition.** Preserved state of this app that no manager has claimed yet, or that a manager is using.
///
/// There is one for each restore identifier and role, and it does not expire (RS-18). It is a file; what is here reads
/// files only, on the calling thread, and needs neither a manager nor BlueZ.
///
/// ```swift
/// for state in BluezPreservedState.all() {
///     print("\(state.role) \(state.identifier ?? state.path), written by \(state.app ?? "another program")")
///     for line in state.lines { print("    \(line)") }
/// }
/// ```
/// - SeeAlso: <doc:StateRestoration>.
public struct BluezPreservedState: Sendable {
    /// The two kinds of managers.
    public enum Role: String, Sendable, CaseIterable {
        /// A `CBCentralManager`.
        case central
        /// A `CBPeripheralManager`.
        case peripheral
    }

    /// The kind of the manager.
    public let role: Role
    /// The restore identifier; nil if the file cannot be read.
    public let identifier: String?
    /// The path of the file.
    public let path: String
    /// When it was written; nil if the file cannot be read.
    public let saved: Date?
    /// The program that wrote it.
    public let app: String?
    /// Its contents, in human-readable lines; or what is wrong with the file.
    public let lines: [String]

    /// The restore identifiers of all managers with preserved state, which the app should create again, like
    /// `UIApplication.LaunchOptionsKey.bluetoothCentrals` on iOS.
    ///
    /// ```swift
    /// for identifier in BluezPreservedState.identifiers(.central) {
    ///     let options = [CBCentralManagerOptionRestoreIdentifierKey: identifier]
    ///     centrals.append(CBCentralManager(delegate: self, queue: queue, options: options))
    /// }
    /// ```
    /// Create all of them at the start: the links of those that do not exist within
    /// ``BluezManagerOptionClaimPeriodKey`` are ended.
    /// - Parameters:
    ///   - role: The kind of managers.
    ///   - options: As for the managers: ``BluezManagerOptionStateDirectoryKey`` has an effect.
    public static func identifiers(_ role: Role, options: [String: Any]? = nil) -> [String] {
        all(options: options).filter { $0.role == role }.compactMap(\.identifier)
    }

    /// All preserved state, sorted by file name. Reads files; does not use the bus.
    /// - Parameter options: As for the managers: ``BluezManagerOptionStateDirectoryKey`` has an effect.
    public static func all(options: [String: Any]? = nil) -> [BluezPreservedState] {
        (StateDirectory(options: options)?.files() ?? []).compactMap { path in
            do {
                return try SnapshotStore.content(of: path).map {
                    BluezPreservedState(path: path, try Snapshot(fileContent: $0))
                }
            } catch {
                return BluezPreservedState(path: path, problem: "\(error)")
            }
        }
    }

    /// Discards the state of one manager: it will not be restored. Call it before that manager is created, for a part
    /// of the app that is not used any more, or to begin from nothing:
    ///
    /// ```swift
    /// if CommandLine.arguments.contains("--forget") { BluezPreservedState.discard("heart", .central) }
    /// central = CBCentralManager(
    ///     delegate: self, queue: queue, options: [CBCentralManagerOptionRestoreIdentifierKey: "heart"])
    /// ```
    /// What a keeper does for the manager ends as well. A manager that exists keeps its state: to end its work, cancel
    /// its connections and stop its scan, or release it.
    /// Links that BlueZ still has are ended when a process makes its first manager, as those of a program without a
    /// restore identifier.
    /// - Parameters:
    ///   - identifier: The restore identifier.
    ///   - role: The kind of the manager.
    ///   - options: As for the managers: ``BluezManagerOptionStateDirectoryKey`` has an effect.
    /// - Returns: False if there was none, if a live manager uses it, or if it cannot be removed, which is logged.
    @discardableResult
    public static func discard(_ identifier: String, _ role: Role, options: [String: Any]? = nil) -> Bool {
        guard let directory = StateDirectory(options: options),
            access(directory.file(role.snapshotRole, identifier), F_OK) == 0
        else { return false }
        do throws(SnapshotStore.Failure) {
            let store = try SnapshotStore(directory, role.snapshotRole, identifier)
            Keeper.leave(store.path)
            try store.remove()
            return true
        } catch {
            Log.warning("the preserved state of \"\(identifier)\" could not be discarded: \(error)")
            return false
        }
    }

    private init(path: String, _ snapshot: Snapshot) {
        self.path = path
        role = snapshot.role == .central ? .central : .peripheral
        (identifier, saved, app) = (snapshot.identifier, snapshot.saved, snapshot.app)
        lines = snapshot.lines
    }

    private init(path: String, problem: String) {
        self.path = path
        role = path.contains("/peripheral-") ? .peripheral : .central
        (identifier, saved, app) = (nil, nil, nil)
        lines = ["cannot be used: \(problem)"]
    }
}

extension BluezPreservedState.Role {
    fileprivate var snapshotRole: Snapshot.Role { self == .central ? .central : .peripheral }
}

extension Snapshot {
    fileprivate var lines: [String] {
        var lines: [String] = []
        if let scan {
            let services = scan.services.map { "for " + $0.map(\.cbUUID.description).joined(separator: ", ") }
            lines.append(
                "scans \(services ?? "for everything")" + (scan.allowsDuplicates == true ? ", with duplicates" : ""))
        }
        for peripheral in peripherals {
            var parts = ["\(peripheral.state.rawValue): \(peripheral.name ?? "no name") (\(peripheral.identifier))"]
            if let services = peripheral.services { parts.append("\(services.count) services known") }
            let subscriptions = peripheral.subscriptions.map(\.description)
            if !subscriptions.isEmpty { parts.append("subscribed to " + subscriptions.joined(separator: ", ")) }
            let channels = (peripheral.channels ?? []).map(\.hex)
            if !channels.isEmpty { parts.append("L2CAP channels \(channels.joined(separator: ", "))") }
            if peripheral.options.reconnects { parts.append("reconnects automatically") }
            lines.append(parts.joined(separator: "; "))
        }
        for service in services {
            let names = service.characteristics.map(\.uuid.cbUUID.description).joined(separator: ", ")
            let subscribers = Set(service.characteristics.flatMap(\.subscribers)).count
            lines.append(
                "publishes \(service.uuid.cbUUID)" + (names.isEmpty ? "" : " with \(names)")
                    + (subscribers == 0 ? "" : "; \(subscribers) subscribed"))
        }
        if let advertisement {
            let services = (advertisement.services ?? []).map(\.cbUUID.description).joined(separator: ", ")
            lines.append(
                "advertises" + (advertisement.localName.map { " as \($0)" } ?? "")
                    + (services.isEmpty ? "" : ", with " + services))
        }
        for channel in channels ?? [] {
            lines.append(
                "publishes the L2CAP channel \(channel.psm.hex)"
                    + (channel.isEncrypted ? ", on encrypted links only" : ""))
        }
        return lines
    }
}

extension Snapshot.Peripheral {
    fileprivate var subscriptions: [CBUUID] {
        (services ?? []).flatMap { $0.characteristics ?? [] }.filter(\.isNotifying).map(\.uuid.cbUUID)
    }
}

extension BluezRestoration.Outcome {
    fileprivate init(_ outcome: RestorationPlan.Outcome) {
        self =
            switch outcome {
            case .connected: .connected
            case .connecting: .connecting
            case .disconnected: .disconnected
            case .dropped: .dropped
            }
    }
}
