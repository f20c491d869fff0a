/// Exports objects on a connection: answers calls for their properties, methods and introspection, and signals changes.
///
/// Behaves like BlueZ's own D-Bus library (gdbus). Changes are queued and merged into one PropertiesChanged for each
/// interface; pending signals are sent before any reply, error or other signal, so that the changes that a call causes
/// arrive before its answer. Parent objects are announced first. The order of the keys in a signal is that of the
/// changes.
///
/// Confined to the connection's queue. Sets ``Connection/onCall``.
public final class ObjectServer {
    /// The connection on which the objects are exported.
    public let connection: Connection

    /// Called with each call before the objects. True: it has been handled.
    public var intercept: ((IncomingCall) -> Bool)?

    var objects: [String: ExportedObject] = [:]
    var queued: [ExportedObject] = []
    private var isFlushScheduled = false
    private let later: (@escaping () -> Void) -> Void

    /// A server without objects.
    /// - Parameter later: Runs its argument on the connection's queue, after the current work, or not at all if the
    ///   owners of the objects can no longer be asked for values. Nil: always.
    public init(connection: Connection, later: ((@escaping () -> Void) -> Void)? = nil) {
        self.connection = connection
        self.later = later ?? { [queue = connection.queue] body in queue.later(body) }
        connection.onCall = { [weak self] call in self?.receive(call) }
    }

    /// Discards all objects without signals, and answers no more calls. For the end of the connection.
    public func close() {
        connection.assertOnQueue()
        intercept = nil
        connection.onCall = nil
        queued = []
        objects = [:]
    }

    // MARK: The tree

    /// Makes `path` an object manager: it lists the objects below it and announces them.
    public func addManager(at path: ObjectPath) {
        connection.assertOnQueue()
        object(at: path).isManager = true
    }

    /// Undoes ``addManager(at:)``.
    public func removeManager(at path: ObjectPath) {
        connection.assertOnQueue()
        guard let object = objects[path.rawValue] else { return }
        object.isManager = false
        prune(object)
    }

    /// Adds an interface to the object at `path`, which is created if necessary.
    public func add(_ interface: ExportedInterface, to path: ObjectPath, owner: AnyObject) {
        connection.assertOnQueue()
        precondition(interface.accepts(owner), "\(interface.name) does not belong to a \(type(of: owner))")
        let object = object(at: path)
        guard object.slotIndex(interface.name) == nil else { return }
        object.slots.append(.init(interface: interface, owner: owner))
        if object.manager == nil {
            object.slots[object.slots.count - 1].isAnnounced = true
        } else {
            enqueue(object)
        }
    }

    /// Removes an interface from an object; with the last one the object is removed, as by ``remove(_:)``.
    public func remove(_ interface: String, from path: ObjectPath) {
        connection.assertOnQueue()
        guard let object = objects[path.rawValue], let index = object.slotIndex(interface) else { return }
        guard object.slots.count > 1 || object.isManager else { return remove(path) }
        signalChanges(of: object, slot: index)
        if object.slots.remove(at: index).isAnnounced, object.manager != nil {
            object.removed.append(interface)
            enqueue(object)
        }
    }

    /// Removes an object at once: first its pending changes are signalled, then its removal; nothing is signalled if it
    /// was never announced. Remove the objects below it first.
    public func remove(_ path: ObjectPath) {
        connection.assertOnQueue()
        guard let object = objects[path.rawValue], !object.slots.isEmpty else { return }
        if object.isQueued { signalPropertyChanges(of: object) }
        if object.isAnnounced {
            var names = object.hasProperties ? [StandardInterface.properties] : []
            names.append(StandardInterface.introspectable)
            names += object.slots.filter(\.isAnnounced).map(\.interface.name)
            object.removed = names + object.removed
            signalRemoval(of: object)
        }
        object.slots = []
        object.isAnnounced = false
        prune(object)
    }

    /// Whether there is an object with this interface.
    public func has(_ interface: String, at path: ObjectPath) -> Bool {
        objects[path.rawValue]?.slotIndex(interface) != nil
    }

    private func object(at path: ObjectPath) -> ExportedObject {
        if let known = objects[path.rawValue] { return known }
        let new = ExportedObject(path: path)
        objects[path.rawValue] = new
        if let parent = path.parent { new.link(under: object(at: parent)) }
        return new
    }

    /// Removes intermediate nodes that are no longer needed.
    private func prune(_ object: ExportedObject) {
        guard !object.isExported, object.firstChild == nil else { return }
        let parent = object.parent
        object.unlink()
        objects[object.path.rawValue] = nil
        if let parent { prune(parent) }
    }

    // MARK: Changes

    /// Marks a property as changed; its value is read when the signal is sent. Does nothing if the object or the
    /// interface does not exist, or has not been announced yet.
    public func propertyChanged(_ name: String, of interface: String, at path: ObjectPath) {
        connection.assertOnQueue()
        guard let object = objects[path.rawValue], let slot = object.slotIndex(interface),
            object.slots[slot].isAnnounced,
            let property = object.slots[slot].interface.propertyIndex(name)
        else { return }
        if !object.slots[slot].changed.contains(property) { object.slots[slot].changed.append(property) }
        if object.slots[slot].interface.properties[property].flushes {
            signalPropertyChanges(of: object)
        } else {
            enqueue(object)
        }
    }

    private func enqueue(_ object: ExportedObject) {
        if !object.isQueued {
            object.isQueued = true
            queued.append(object)
        }
        guard !isFlushScheduled else { return }
        isFlushScheduled = true
        later { [weak self] in
            guard let self else { return }
            isFlushScheduled = false
            flush()
        }
    }

    /// Sends all pending signals.
    public func flush() {
        connection.assertOnQueue()
        while !queued.isEmpty {
            let batch = queued
            queued = []
            for object in batch {
                object.isQueued = false
                signalChanges(of: object)
            }
        }
    }

    // MARK: Answers and signals

    /// Answers a call, after all pending signals.
    public func reply(to call: IncomingCall, _ arguments: ((inout MessageWriter) throws(BusError) -> Void)? = nil) {
        flush()
        connection.reply(to: call, arguments)
    }

    /// Answers a call with an error, after all pending signals.
    public func refuse(_ call: IncomingCall, name: String, message: String) {
        flush()
        connection.refuse(call, name: name, message: message)
    }

    /// Sends a signal of an object, after all pending signals.
    public func emit(
        path: ObjectPath, interface: String, member: String, to destination: String? = nil,
        _ arguments: (inout MessageWriter) throws(BusError) -> Void
    ) throws(BusError) {
        flush()
        try connection.emit(path: path, interface: interface, member: member, to: destination, arguments)
    }
}
