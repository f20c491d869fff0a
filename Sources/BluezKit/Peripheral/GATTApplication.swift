import BluezDBus

/// Services that one registration with BlueZ has, and their objects on the bus. Confined to the bus queue.
final class GATTApplication {
    struct Key: Hashable {
        let service: PublishedService
        static func == (a: Key, b: Key) -> Bool { a.service === b.service }
        func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(service)) }
    }

    typealias Machine = ApplicationStateMachine<Key>

    /// The adapter whose table it is in.
    let adapter: ObjectPath
    private let bus: BlueZBus
    /// An object manager, with the services below it.
    private let root: ObjectPath
    private(set) var services: [PublishedService] = []
    private var machine = Machine()
    /// Answers `RegisterApplication`, while it is under way: BlueZ never does if `UnregisterApplication` comes before.
    private var registered: ((Result<Message, BusError>) -> Void)?
    /// What is on the bus, in the order in which it was put there.
    private var exported: [ObjectPath] = []
    /// BlueZ has lost it, or is made to: what it answers to earlier calls does not matter.
    private var isAbandoned = false

    init(_ bus: BlueZBus, adapter: ObjectPath) {
        (self.bus, self.adapter, root) = (bus, adapter, bus.newPath("app"))
    }

    // MARK: Services

    func contains(call: UInt64) -> Bool { services.contains { $0.call == call } }

    func add(_ service: PublishedService) -> [Machine.Action] {
        services.append(service)
        return machine.add(Key(service: service))
    }

    /// Takes services over that another application had.
    func adopt(_ services: [PublishedService]) -> [Machine.Action] {
        self.services += services
        return machine.adopt(services.map { Key(service: $0) })
    }

    func remove(_ service: PublishedService) -> [Machine.Action] {
        services.removeAll { $0 === service }
        return machine.remove(Key(service: service))
    }

    func registerReplied(_ succeeded: Bool) -> [Machine.Action] {
        let actions = machine.registerReplied(succeeded)
        for case .fail(let key) in actions { services.removeAll { $0 === key.service } }
        return actions
    }

    func withdrawReplied() -> [Machine.Action] { machine.withdrawReplied() }

    // MARK: Registration

    private var manager: BlueZProxy? { bus.proxy(adapter, BlueZ.gattManager) }

    /// - Parameter completion: Called unless this is abandoned before.
    func register(_ services: [PublishedService], completion: @escaping (Result<Message, BusError>) -> Void) {
        guard let manager, let server = bus.exportObjects() else { return }
        export(services, by: server)
        registered = { [weak self] result in
            self?.registered = nil
            completion(result)
        }
        manager.registerApplication(root) { [weak self] in self?.registered?($0) }
    }

    /// - Parameter completion: As for ``register(_:completion:)``.
    func unregister(completion: @escaping () -> Void) {
        manager?.unregisterApplication(root) { [self] _ in
            guard !isAbandoned else { return }
            unexport()
            completion()
        }
    }

    /// Withdraws it, whatever is under way.
    func abandon() {
        if bus.owner != nil, machine.phase != .idle {
            // Follows a registration that is under way; the objects must stay until that is done.
            manager?.unregisterApplication(root) { [self] _ in unexport() }
        } else {
            unexport()
        }
        machine.lost()
        (isAbandoned, registered) = (true, nil)
    }

    // MARK: Objects

    /// The order of the handles is that of the answer to GetManagedObjects, which lists the newest first. What is there
    /// before its manager is not announced by signals: BlueZ asks.
    private func export(_ services: [PublishedService], by server: ObjectServer) {
        for (number, service) in services.enumerated() { service.place(at: root.child("service", number)) }
        for service in services { service.placeIncluded(among: services) }
        let objects = services.flatMap(\.objects)
        for object in objects.reversed() { server.add(object.interface, to: object.path, owner: object.owner) }
        server.addManager(at: root)
        exported = objects.map(\.path)
    }

    func unexport() {
        let server = bus.exportedObjects
        for path in exported.reversed() { server?.remove(path) }
        server?.removeManager(at: root)
        exported = []
    }
}

extension ObjectPath {
    /// The path of one of several objects of a kind below this one.
    func child(_ kind: String, _ number: Int) -> ObjectPath { appending("\(kind)\(number)") ?? self }
}
