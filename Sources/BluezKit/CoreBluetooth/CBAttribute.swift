import Foundation

/// What services, characteristics and descriptors have in common. Compared by identity.
/// - SeeAlso: Apple, `CBAttribute`; Core Spec 5.4, Vol 3, Part F, 3.2.
open class CBAttribute: NSObject, @unchecked Sendable {  // holds: immutable; subclasses keep what changes under a lock
    private let storedUUID: CBUUID

    /// BlueZ's object; empty for what this app publishes.
    let objectPath: String
    /// Of its service, when it was found (`AttributeTree.version(of:)`): another attribute may have got its path since. Nil:
    /// an earlier process found it.
    let version: Int?

    init(uuid: CBUUID, objectPath: String, version: Int? = nil) {
        storedUUID = uuid
        (self.objectPath, self.version) = (objectPath, version)
        super.init()
    }

    /// What the attribute is. There may be several with the same.
    open var uuid: CBUUID { storedUUID }

    /// `<class: address, field, field…>`, as Apple's log lines have it.
    func describe(_ fields: String...) -> String {
        let address = String(UInt(bitPattern: ObjectIdentifier(self)), radix: 16)
        return "<\(type(of: self)): 0x\(address), \(fields.joined(separator: ", "))>"
    }
}
