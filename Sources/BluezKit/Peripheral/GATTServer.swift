import DBus
import Foundation

/// The services that one registration with BlueZ has. Confined to the bus queue.
final class Application {
    /// An object manager, with the services below it.
    let root: ObjectPath
    /// The adapter whose table it is in.
    let adapter: ObjectPath
    var machine = ApplicationStateMachine<Key>()
    var services: [PublishedService] = []
    /// Counts the losses of BlueZ: answers to what was asked before are void.
    var life = 0
    /// Answers `RegisterApplication`, while it is under way: BlueZ never does if it is told to unregister before.
    var registered: ((Result<Message, BusError>) -> Void)?
    /// What is on the bus, in the order in which it was put there.
    var exported: [ObjectPath] = []

    struct Key: Hashable {
        let service: PublishedService
        static func == (a: Key, b: Key) -> Bool { a.service === b.service }
        func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(service)) }
    }

    init(root: ObjectPath, adapter: ObjectPath) { (self.root, self.adapter) = (root, adapter) }
}

/// Services of this process in BlueZ's table.
extension Session {
    // MARK: Commands, in the order of the app's calls

    func perform(_ command: PublisherCore.Command, for core: PublisherCore) {
        core.commands.append(command)
        performNext(of: core)
    }

    private func performNext(of core: PublisherCore) {
        while !core.isAdding, !core.commands.isEmpty {
            switch core.commands.removeFirst() {
            case .add(let service): publish(service)
            case .remove(let service): core.services.first { $0.service === service }.map { withdraw($0) }
            case .removeAll: core.services.reversed().forEach { withdraw($0) }
            case .advertise(let content, let start, let isResumed):
                if start.era == adapter.generation {
                    startAdvertising(content, core, token: start.token, isResumed: isResumed)
                }
            }
        }
    }

    private func publish(_ service: PublishedService) {
        let core = service.core
        guard adapter.state == .poweredOn, let adapterPath else {
            // Bluetooth has gone since the app asked, and the app hears of that (MIS-1).
            if !service.isResumed { core.post { $0.forget(service) } }
            return
        }
        if let flaw = service.flaw(allowsSystemServices: core.allowsSystemServices) { return answer(service, flaw) }
        var homes: [Application] = []
        for included in service.includes {
            guard let home = core.applications.first(where: { $0.services.contains { $0.service === included } }) else {
                let reason = "the included service \(included.uuid) was not added before"
                return answer(service, CBError(.invalidParameters, reason: reason))
            }
            if !homes.contains(where: { $0 === home }) { homes.append(home) }
        }
        core.isAdding = true
        let application = homes.first ?? newApplication(of: core, on: adapterPath)
        for other in homes.dropFirst() { move(other, into: application) }
        application.services.append(service)
        apply(application.machine.add(.init(service: service)), to: application, of: core)
    }

    private func newApplication(of core: PublisherCore, on adapter: ObjectPath) -> Application {
        let application = Application(root: blueZ.newPath("app"), adapter: adapter)
        core.applications.append(application)
        return application
    }

    /// BlueZ looks for included services in the same application only.
    private func move(_ other: Application, into application: Application) {
        guard let core = other.services.first?.core else { return }
        let services = other.services
        for service in services {
            apply(other.machine.remove(.init(service: service)), to: other, of: core)
        }
        other.services = []
        core.applications.removeAll { $0 === other }
        application.services += services
        apply(application.machine.adopt(services.map { .init(service: $0) }), to: application, of: core)
    }

    private func withdraw(_ service: PublishedService) {
        let core = service.core
        guard let application = core.applications.first(where: { $0.services.contains { $0 === service } }) else {
            return
        }
        service.isPublished = false
        application.services.removeAll { $0 === service }
        if application.services.isEmpty { core.applications.removeAll { $0 === application } }
        for characteristic in service.characteristics { allUnsubscribed(from: characteristic) }
        endRequests { $0.service === service }
        apply(application.machine.remove(.init(service: service)), to: application, of: core)
    }

    private func answer(_ service: PublishedService, _ error: (any Error)?) {
        if service.isResumed {
            guard let error else { return }
            Log.warning("the service \(service.service.uuid) cannot be published again: \(error)")
            return service.core.post { $0.forget(service) }
        }
        service.core.post { manager in
            if error != nil { manager.forget(service) }
            manager.delegate?.peripheralManager(manager, didAdd: service.service, error: error)
        }
    }

    // MARK: Registration

    private func apply(
        _ actions: [ApplicationStateMachine<Application.Key>.Action], to application: Application,
        of core: PublisherCore, error: (any Error)? = nil
    ) {
        for action in actions {
            switch action {
            case .register(let keys): register(keys.map(\.service), application, core)
            case .withdraw: unregister(application, core)
            case .confirm(let key):
                core.isAdding = false
                answer(key.service, nil)
            case .fail(let key):
                core.isAdding = false
                application.services.removeAll { $0 === key.service }
                if application.services.isEmpty { core.applications.removeAll { $0 === application } }
                answer(key.service, error)
            }
        }
        performNext(of: core)
    }

    private func register(_ services: [PublishedService], _ application: Application, _ core: PublisherCore) {
        guard let bus, let server = blueZ.exportObjects() else { return }
        learnAboutSockets(on: application.adapter)
        export(services, of: application, by: server)
        let proxy = BlueZProxy(bus: bus, path: application.adapter, interface: BlueZ.gattManager)
        let life = application.life
        application.registered = { [weak self] result in
            application.registered = nil
            guard let self, life == application.life else { return }
            let error = result.failure.map {
                coreBluetoothError(name: $0.name, message: $0.message, context: .publish, isBonded: false)
            }
            if error != nil { unexport(application) }
            apply(application.machine.registerReplied(error == nil), to: application, of: core, error: error)
        }
        proxy.registerApplication(application.root) { [weak application] in application?.registered?($0) }
    }

    private func unregister(_ application: Application, _ core: PublisherCore) {
        guard let bus else { return }
        let proxy = BlueZProxy(bus: bus, path: application.adapter, interface: BlueZ.gattManager)
        let life = application.life
        proxy.unregisterApplication(application.root) { [weak self] _ in
            guard let self, life == application.life else { return }
            unexport(application)
            apply(application.machine.withdrawReplied(), to: application, of: core)
        }
    }

    /// BlueZ 5.76 and later send what comes by an acquired socket to one central. No property tells that; `Connectable`
    /// came a little later (5.79). The answer is there long before a central can subscribe.
    private func learnAboutSockets(on adapter: ObjectPath) {
        guard givesSockets == nil, let bus else { return }
        givesSockets = false
        BlueZProxy(bus: bus, path: adapter, interface: BlueZ.adapter).get("Connectable") { [weak self] result in
            if case .success = result { self?.givesSockets = true }
        }
    }

    // MARK: Objects

    /// The order of the handles is that of the answer to GetManagedObjects, which lists the newest first. What is there
    /// before its manager is not announced by signals: BlueZ asks.
    private func export(_ services: [PublishedService], of application: Application, by server: ObjectServer) {
        place(services, below: application.root)
        var objects: [(ObjectPath, ExportedInterface, AnyObject)] = []
        for service in services {
            objects.append((service.path, PublishedInterface.service, service))
            for characteristic in service.characteristics {
                objects.append((characteristic.path, PublishedInterface.characteristic, characteristic))
                for descriptor in characteristic.descriptors {
                    objects.append((descriptor.path, PublishedInterface.descriptor, descriptor))
                }
            }
        }
        for (path, interface, owner) in objects.reversed() { server.add(interface, to: path, owner: owner) }
        server.addManager(at: application.root)
        application.exported = objects.map(\.0)
    }

    private func place(_ services: [PublishedService], below root: ObjectPath) {
        func child(_ path: ObjectPath, _ kind: String, _ number: Int) -> ObjectPath {
            path.appending("\(kind)\(number)") ?? path
        }
        for (number, service) in services.enumerated() {
            service.path = child(root, "service", number)
            for (number, characteristic) in service.characteristics.enumerated() {
                characteristic.service = service
                characteristic.path = child(service.path, "char", number)
                for (number, descriptor) in characteristic.descriptors.enumerated() {
                    descriptor.characteristicPath = characteristic.path
                    descriptor.path = child(characteristic.path, "desc", number)
                }
            }
        }
        for service in services {
            service.includedPaths = service.includes.compactMap { included in
                services.first { $0.service === included }?.path
            }
        }
    }

    private func unexport(_ application: Application) {
        for path in application.exported.reversed() { server?.remove(path) }
        server?.removeManager(at: application.root)
        application.exported = []
    }

    // MARK: The end

    /// Bluetooth is not on any more. Off: BlueZ keeps the services and has dropped the links. Below that: it has
    /// forgotten everything, and so does the manager (ST-6). The state callback alone tells of it.
    func dropPublications(keepingServices: Bool) {
        endRequests { _ in true }
        for core in publishers {
            core.epoch += 1
            core.windows.withLock { $0.reset() }
            for characteristic in core.services.flatMap(\.characteristics) { forgetSubscribers(of: characteristic) }
            stopAdvertising(core)
            if !keepingServices { withdrawAll(of: core) }
        }
        dropGuests()
        awaitingPing = []
        if !keepingServices { givesSockets = nil }
    }

    /// Withdraws everything of a manager at once, in silence.
    func withdrawAll(of core: PublisherCore) {
        core.epoch += 1
        (core.commands, core.isAdding) = ([], false)
        stopAdvertising(core)
        endRequests { $0.service?.core === core }
        for application in core.applications {
            for service in application.services {
                service.isPublished = false
                service.characteristics.forEach { forgetSubscribers(of: $0) }
            }
            if let bus, bus.owner(of: BlueZ.busName) != nil, application.machine.phase != .idle {
                let proxy = BlueZProxy(bus: bus, path: application.adapter, interface: BlueZ.gattManager)
                // Follows a registration that is under way; the objects must stay until that is done.
                proxy.unregisterApplication(application.root) { [weak self] _ in self?.unexport(application) }
            } else {
                unexport(application)
            }
            application.machine.lost()
            (application.life, application.registered) = (application.life + 1, nil)
        }
        core.applications = []
    }
}
