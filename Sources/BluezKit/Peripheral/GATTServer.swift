import BluezKitRestore
import BluezDBus
import Foundation

/// The services of one manager in BlueZ's table. Confined to the bus queue.
final class GATTServer {
    enum Command {
        case add(PublishedService)
        case remove(call: UInt64)
        case removeAll
        /// Once the services before it are there, so that a central that hears it finds them.
        case advertise(AdvertisementRequest, AdvertisingStart, isResumed: Bool)
    }

    /// The owner, which the answers that this waits for hold.
    private unowned let core: PeripheralManagerCore
    private let bus: BlueZBus
    private let adapter: AdapterController
    /// Commands that are answered in order, one after the other (O-33).
    private var commands: [Command] = []
    private var isAdding = false
    private(set) var applications: [GATTApplication] = []

    init(of core: PeripheralManagerCore) { (self.core, bus, adapter) = (core, core.bus, core.role.adapter) }

    var services: [PublishedService] { applications.flatMap(\.services) }
    var characteristics: [PublishedCharacteristic] { services.flatMap(\.characteristics) }

    /// Those that have added services, or are about to.
    var calls: Set<UInt64> {
        Set(services.map(\.call)).union(
            commands.compactMap { command in
                if case .add(let service) = command { service.call } else { nil }
            })
    }

    /// Whether an advertisement waits for services before it.
    var willAdvertise: Bool {
        commands.contains { command in
            if case .advertise = command { true } else { false }
        }
    }

    func characteristic(_ id: LocalAttributeID) -> PublishedCharacteristic? {
        let service = applications.lazy.flatMap(\.services).first { $0.call == id.call }
        guard let service, service.characteristics.indices.contains(id.index) else { return nil }
        return service.characteristics[id.index]
    }

    // MARK: Commands, in the order of the app's calls

    func perform(_ command: Command) {
        bus.assertOnQueue()
        commands.append(command)
        performNext()
    }

    private func performNext() {
        while !isAdding, !commands.isEmpty {
            switch commands.removeFirst() {
            case .add(let service): publish(service)
            case .remove(let call): services.first { $0.call == call }.map { withdraw($0) }
            case .removeAll: services.reversed().forEach { withdraw($0) }
            case .advertise(let content, let start, let isResumed):
                if start.adapterGeneration == adapter.generation {
                    core.advertiser.start(content, token: start.token, isResumed: isResumed)
                }
            }
        }
    }

    private func publish(_ service: PublishedService) {
        // What resumes is not asked for again: BlueZ takes it also while Bluetooth is off, and keeps what it has then.
        let isOn = adapter.state == .poweredOn || adapter.state == .poweredOff && service.isResumed
        guard isOn, let adapterPath = adapter.path else {
            // Bluetooth has gone since the app asked, and the app hears of that (MIS-1).
            return core.post(.withdrawn(call: service.call, isForgotten: !service.isResumed))
        }
        if let flaw = service.flaw(allowsSystemServices: core.configuration.allowsSystemServices) {
            return answer(service, flaw)
        }
        var homes: [GATTApplication] = []
        for included in service.includes {
            guard let home = applications.first(where: { $0.contains(call: included.call) }) else {
                let reason = "the included service \(included.uuid.uuid) was not added before"
                return answer(service, CBError(.invalidParameters, reason: reason))
            }
            if !homes.contains(where: { $0 === home }) { homes.append(home) }
        }
        isAdding = true
        service.returnToHandle(in: adapter.stackGeneration)
        let application = homes.first ?? newApplication(on: adapterPath)
        for other in homes.dropFirst() { move(other, into: application) }
        apply(application.add(service), to: application)
    }

    private func newApplication(on adapter: ObjectPath) -> GATTApplication {
        let application = GATTApplication(bus, adapter: adapter)
        applications.append(application)
        return application
    }

    /// BlueZ looks for included services in the same application only.
    private func move(_ other: GATTApplication, into application: GATTApplication) {
        let services = other.services
        for service in services { apply(other.remove(service), to: other) }
        applications.removeAll { $0 === other }
        apply(application.adopt(services), to: application)
    }

    private func withdraw(_ service: PublishedService) {
        guard let application = applications.first(where: { $0.services.contains { $0 === service } }) else { return }
        service.withdraw()
        let actions = application.remove(service)
        forgetIfEmpty(application)
        for characteristic in service.characteristics { characteristic.subscribers.allUnsubscribed() }
        core.role.requests.end { $0.characteristic.service === service }
        // Its last central may have to tell its name before it can unsubscribe.
        core.role.remoteCentrals.whenIntroduced { [core] in
            core.post(.withdrawn(call: service.call, isForgotten: false))
        }
        apply(actions, to: application)
    }

    private func forgetIfEmpty(_ application: GATTApplication) {
        if application.services.isEmpty { applications.removeAll { $0 === application } }
    }

    private func answer(_ service: PublishedService, _ error: (any Error)?) {
        if let error, service.isResumed {
            Log.warning("the service \(service.uuid) cannot be published again: \(error)")
        }
        core.post(.added(call: service.call, error.map(AppError.init), isResumed: service.isResumed))
    }

    // MARK: Registration

    private func apply(
        _ actions: [GATTApplication.Machine.Action], to application: GATTApplication, error: (any Error)? = nil
    ) {
        for action in actions {
            switch action {
            case .register(let keys): register(keys.map(\.service), application)
            case .withdraw: unregister(application)
            case .confirm(let key):
                isAdding = false
                answer(key.service, nil)
            case .fail(let key):
                isAdding = false
                forgetIfEmpty(application)
                answer(key.service, error)
            }
        }
        performNext()
    }

    private func register(_ services: [PublishedService], _ application: GATTApplication) {
        application.register(services) { [core] in core.gattServer.registered(services, application, $0) }
    }

    /// BlueZ has chosen the handle of a service. It says so before it answers the registration.
    func placed(_ service: PublishedService, at handle: UInt16) {
        guard let table = adapter.stackGeneration else { return }
        core.post(.placed(call: service.call, Snapshot.Placement(handle: handle, bluetooth: table)))
    }

    private func registered(
        _ services: [PublishedService], _ application: GATTApplication, _ result: Result<Message, BusError>
    ) {
        if case .failure = result, services.contains(where: { $0.wantedHandle != 0 }) {
            application.unexport()
            for service in services { service.acceptAnyHandle() }
            return register(services, application)
        }
        let error = result.failure.map {
            coreBluetoothError(name: $0.name, message: $0.message, context: .publish, isBonded: false)
        }
        if error != nil { application.unexport() }
        apply(application.registerReplied(error == nil), to: application, error: error)
    }

    private func unregister(_ application: GATTApplication) {
        application.unregister { [core] in
            // Those that are registered again get other handles, without subscriptions.
            for characteristic in application.services.flatMap(\.characteristics) {
                characteristic.subscribers.allUnsubscribed()
            }
            core.gattServer.apply(application.withdrawReplied(), to: application)
        }
    }

    // MARK: The end

    /// Withdraws everything at once, in silence.
    func withdrawAll() {
        for case .add(let service) in commands { core.post(.withdrawn(call: service.call, isForgotten: false)) }
        (commands, isAdding) = ([], false)
        for application in applications {
            for service in application.services {
                service.withdraw()
                service.characteristics.forEach { $0.subscribers.forget() }
                core.post(.withdrawn(call: service.call, isForgotten: false))
            }
            application.abandon()
        }
        applications = []
    }
}
