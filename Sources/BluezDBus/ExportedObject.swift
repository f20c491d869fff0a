/// A node in the tree of exported objects: an object with interfaces, or only an intermediate node.
final class ExportedObject {
    /// One interface of the object.
    struct Slot {
        let interface: ExportedInterface
        let owner: AnyObject
        /// Whether InterfacesAdded has announced it, or the object is the manager itself.
        var isAnnounced = false
        /// Indices of properties whose change has not been signalled yet, in the order of the changes.
        var changed: [Int] = []
    }

    let path: ObjectPath
    var slots: [Slot] = []
    /// Names of interfaces that were removed, not signalled yet.
    var removed: [String] = []
    var isManager = false
    /// Whether it is in the server's list of changes.
    var isQueued = false
    /// Whether Introspectable (and Properties) have been announced.
    var isAnnounced = false

    // The tree. The server's table owns all objects; a list of siblings that owned each other would be freed
    // recursively, which would overflow the stack with 10,000 of them. Newest first, as gdbus lists them.
    unowned(unsafe) var parent: ExportedObject?
    unowned(unsafe) var firstChild: ExportedObject?
    unowned(unsafe) var nextSibling: ExportedObject?
    unowned(unsafe) var previousSibling: ExportedObject?

    init(path: ObjectPath) { self.path = path }

    var isExported: Bool { !slots.isEmpty || isManager }
    var hasProperties: Bool { slots.contains { !$0.interface.properties.isEmpty } }

    func slotIndex(_ interface: String) -> Int? { slots.firstIndex { $0.interface.name == interface } }

    func link(under parent: ExportedObject) {
        self.parent = parent
        nextSibling = parent.firstChild
        parent.firstChild?.previousSibling = self
        parent.firstChild = self
    }

    func unlink() {
        if let previousSibling { previousSibling.nextSibling = nextSibling } else { parent?.firstChild = nextSibling }
        nextSibling?.previousSibling = previousSibling
        (parent, nextSibling, previousSibling) = (nil, nil, nil)
    }

    func forEachChild(_ body: (ExportedObject) -> Void) {
        var child = firstChild
        while let current = child {
            child = current.nextSibling
            body(current)
        }
    }

    /// The nearest object manager above this object.
    var manager: ExportedObject? {
        var candidate = parent
        while let current = candidate {
            if current.isManager { return current }
            candidate = current.parent
        }
        return nil
    }
}
