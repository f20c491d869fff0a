import BluezDBus
import BluezKit
import Dispatch
import Foundation

/// Findings from the bus and bluetoothd.
extension Surroundings {
    /// Collects all findings, and then calls `completion` on the main queue.
    /// - Parameter onlyBus: Leaves out checks that take long and do not prevent programs from working, and waits for an
    ///   answer no longer than a program that is about to end should.
    static func examine(
        _ address: BusAddress = .system, adapter: String?, onlyBus: Bool,
        completion: @escaping (Surroundings) -> Void
    ) {
        var found = Surroundings()
        found.isChosenByEnvironment = adapter == nil
        found.chosenAdapter = (adapter ?? environment("BLUEZKIT_ADAPTER")).map(AdapterChoice.init)
        found.busAddress = address.rawValue
        found.isBusChosenByEnvironment = address == .system && environment("DBUS_SYSTEM_BUS_ADDRESS") != nil
        found.lookAround(onlyBus: onlyBus)
        do {
            let bus = try Connection(address: address, queue: .main)
            Examination(bus, found, onlyBus: onlyBus, completion).begin()
        } catch {
            found.busFailure = .unreachable(message: error.message)
            completion(found)
        }
    }

    /// One query after the other, on the main queue.
    private final class Examination {
        private let bus: Connection
        private var found: Surroundings
        private let onlyBus: Bool
        private let completion: (Surroundings) -> Void

        init(_ bus: Connection, _ found: Surroundings, onlyBus: Bool, _ completion: @escaping (Surroundings) -> Void) {
            (self.bus, self.found, self.onlyBus, self.completion) = (bus, found, onlyBus, completion)
        }

        private func deadline(_ usual: Duration) -> Duration { onlyBus ? .seconds(3) : usual }

        func begin() {
            ask("GetId") { [self] result in
                switch result {
                case .success: askObjects()
                case .failure(let error):
                    found.busFailure = .refused(message: error.message, user: Surroundings.user)
                    finish()
                }
            }
        }

        /// Starts bluetoothd if it is activated by a call, as it is for every program.
        private func askObjects() {
            let question = MethodCall(
                destination: "org.bluez", path: "/", interface: "org.freedesktop.DBus.ObjectManager",
                member: "GetManagedObjects", mayStartDestination: true)
            bus.call(question, deadline: deadline(.seconds(30))) { [self] result in
                switch result {
                case .success(let reply):
                    found.daemon = .running
                    let adapters = (try? reply.values().first).map(Surroundings.adapters) ?? []
                    found.adapters = adapters
                    found.daemonVersion = adapters.lazy.compactMap(\.daemonVersion).first
                    if onlyBus { finish() } else { askProcess() }
                case .failure(let error):
                    found.daemon = Surroundings.daemon(error)
                    finish()
                }
            }
        }

        private func askProcess() {
            ask("GetConnectionUnixProcessID", of: "org.bluez") { [self] result in
                if case .success(let reply) = result {
                    var reader = reply.reader
                    if let process = try? reader.readUInt32() { found.lookAtDaemon(process: process) }
                }
                finish()
            }
        }

        /// Queries the bus itself.
        private func ask(
            _ member: String, of name: String? = nil, completion: @escaping (Result<Message, BusError>) -> Void
        ) {
            let question = MethodCall(
                destination: "org.freedesktop.DBus", path: "/org/freedesktop/DBus", interface: "org.freedesktop.DBus",
                member: member
            ) { (writer) throws(BusError) in
                if let name { try writer.write(name) }
            }
            bus.call(question, deadline: deadline(.seconds(10)), completion: completion)
        }

        private func finish() {
            bus.close()
            completion(found)
        }
    }

    static func daemon(_ error: BusError) -> Daemon {
        switch error.name {
        case "org.freedesktop.DBus.Error.AccessDenied": .denied(message: error.message)
        case "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.Timeout",
            "org.freedesktop.DBus.Error.Disconnected":
            .silent(message: error.message)
        default: .notRunning(message: error.message)
        }
    }

    /// The adapters in the answer to `GetManagedObjects`.
    static func adapters(_ objects: Value) -> [Adapter] {
        guard let objects = objects.dictionaryValue else { return [] }
        let adapters = objects.compactMap { path, interfaces -> Adapter? in
            guard let interfaces = interfaces.dictionaryValue,
                let properties = interfaces["org.bluez.Adapter1"]?.dictionaryValue,
                let name = path.split(separator: "/").last
            else { return nil }
            var adapter = Adapter(name: String(name))
            adapter.address = properties["Address"]?.stringValue
            adapter.isPowered = properties["Powered"]?.boolValue ?? false
            adapter.powerState = properties["PowerState"]?.stringValue
            adapter.roles = properties["Roles"]?.stringsValue
            adapter.experimentalFeatures = properties["ExperimentalFeatures"]?.stringsValue?.count ?? 0
            adapter.daemonVersion = properties["Modalias"]?.stringValue.flatMap(BlueZVersion.init(modalias:))
            adapter.hasGattManager = interfaces["org.bluez.GattManager1"] != nil
            adapter.hasAdvertisingManager = interfaces["org.bluez.LEAdvertisingManager1"] != nil
            return adapter
        }
        // hci2 comes before hci10.
        return adapters.sorted { ($0.name.count, $0.name) < ($1.name.count, $1.name) }
    }
}
