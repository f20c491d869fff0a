import BluezKitRestore
import Foundation

/// **BluezKit addition.** What was brought back of an earlier process, what was not, and why.
public struct BluezRestoration: Sendable, CustomStringConvertible {
    /// What became of a peripheral.
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
        /// As of `CBPeripheral`.
        public let identifier: UUID
        /// Its name, where that was known.
        public let name: String?
        /// What became of it.
        public let outcome: Outcome
        /// Why, in words.
        public let reason: String
        /// The characteristics that are subscribed to again.
        public let subscriptions: [CBUUID]
    }

    /// Whether the scan goes on.
    public let isScanning: Bool
    /// All that were preserved, in the order in which the app connected to them.
    public let peripherals: [Peripheral]
    /// The services that are published again, in the order in which the app added them.
    public let services: [CBUUID]
    /// Whether the advertisement is on air again.
    public let isAdvertising: Bool
    /// The centrals that were subscribed. BlueZ has ended that together with the process: they have to subscribe again,
    /// and connected ones are told that services have changed.
    public let lostSubscribers: [UUID]

    init(_ plan: RestorationPlan) {
        isScanning = plan.scan != nil
        services = plan.services.map(\.uuid.cbUUID)
        isAdvertising = plan.advertisement != nil
        let subscribers = plan.services.flatMap(\.characteristics).flatMap(\.subscribers)
        lostSubscribers = Set(subscribers).sorted { $0.uuidString < $1.uuidString }
        peripherals = plan.items.map { item in
            let outcome: Outcome =
                switch item.fate {
                case .adopted: .connected
                case .connecting: .connecting
                case .lost: .disconnected
                case .dropped: .dropped
                }
            return Peripheral(
                identifier: item.peripheral.identifier, name: item.peripheral.name, outcome: outcome,
                reason: item.reason, subscriptions: item.fate == .adopted ? item.peripheral.subscriptions : [])
        }
    }

    /// A line for the scan, for each peripheral, for each service, for the advertisement and for each lost subscriber.
    public var description: String {
        var lines = isScanning ? ["scan: goes on"] : []
        lines += peripherals.map { "\($0.name ?? $0.identifier.uuidString): \($0.outcome), as \($0.reason)" }
        lines += services.map { "\($0): published again" }
        if isAdvertising { lines.append("advertisement: on air again") }
        lines += lostSubscribers.map { "central \($0): not subscribed any more, as BlueZ ended that with the process" }
        return lines.joined(separator: "\n")
    }
}

/// **BluezKit addition.** State that is preserved for this app, and that no manager has claimed yet or is using now.
public struct BluezPreservedState: Sendable {
    /// Which kind of manager it is of.
    public enum Role: String, Sendable, CaseIterable {
        /// Of a `CBCentralManager`.
        case central
        /// Of a `CBPeripheralManager`.
        case peripheral
    }

    /// Which kind of manager it is of.
    public let role: Role
    /// The restore identifier; nil if the file cannot be read.
    public let identifier: String?
    /// The file.
    public let path: String
    /// When it was written; nil if the file cannot be read.
    public let saved: Date?
    /// The program that wrote it.
    public let app: String?
    /// What is in it, in lines for a person; or what is wrong with it.
    public let lines: [String]

    /// The restore identifiers of all managers with preserved state: those to create again, as
    /// `UIApplication.LaunchOptionsKey.bluetoothCentrals` has them on iOS.
    /// - Parameters:
    ///   - role: Of which kind of manager.
    ///   - options: As for the managers: ``BluezManagerOptionStateDirectoryKey`` counts.
    public static func identifiers(_ role: Role, options: [String: Any]? = nil) -> [String] {
        all(options: options).filter { $0.role == role }.compactMap(\.identifier)
    }

    /// Everything that is preserved, in the order of the files' names. Reads files; asks no bus.
    /// - Parameter options: As for the managers: ``BluezManagerOptionStateDirectoryKey`` counts.
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

    /// Forgets the state of one manager: it will not be restored.
    /// - Parameters:
    ///   - identifier: The restore identifier.
    ///   - role: Of which kind of manager.
    ///   - options: As for the managers: ``BluezManagerOptionStateDirectoryKey`` counts.
    /// - Returns: False if there was none, or a living manager uses it; what stands in the way otherwise is logged.
    @discardableResult
    public static func discard(_ identifier: String, _ role: Role, options: [String: Any]? = nil) -> Bool {
        guard let directory = StateDirectory(options: options),
            access(directory.file(role.snapshotRole, identifier), F_OK) == 0
        else { return false }
        do throws(SnapshotStore.Failure) {
            try SnapshotStore(directory, role.snapshotRole, identifier).remove()
            return true
        } catch {
            Log.warning("the preserved state of \"\(identifier)\" is not discarded: \(error)")
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
            if peripheral.reconnects { parts.append("connects again by itself") }
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
        return lines
    }
}

extension Snapshot.Peripheral {
    fileprivate var subscriptions: [CBUUID] {
        (services ?? []).flatMap { $0.characteristics ?? [] }.filter(\.isNotifying).map(\.uuid.cbUUID)
    }
}
