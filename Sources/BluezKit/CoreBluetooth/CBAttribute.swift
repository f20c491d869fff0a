import BluezKitRestore
public import Foundation

/// The common base class of services, characteristics and descriptors. Compared by identity.
/// - SeeAlso: Apple, `CBAttribute`; Core Spec 5.4, Vol 3, Part F, 3.2.
open class CBAttribute: NSObject, @unchecked Sendable {  // holds: immutable; subclasses keep what changes under a lock
    private let storedUUID: CBUUID

    /// Its number in the peripheral's present link; none for what this app publishes.
    let id: AttributeID
    /// Its place in the table of a peripheral, `char000b`.
    let element: PathElement?

    init(uuid: CBUUID, id: AttributeID = .none, element: PathElement? = nil) {
        storedUUID = uuid
        (self.id, self.element) = (id, element)
        super.init()
    }

    /// The type of the attribute. Several attributes may have the same.
    open var uuid: CBUUID { storedUUID }

    // Here and not in the subclasses: with Swift 6.0, an override of a member of Foundation must be in a file that
    // imports Foundation publicly, or other modules get the layout of the class wrong.
    /// `<class: address, field, field…>`, as in Apple's log lines.
    open override var description: String {
        let address = String(UInt(bitPattern: ObjectIdentifier(self)), radix: 16)
        return "<\(type(of: self)): 0x\(address), \(fields.joined(separator: ", "))>"
    }

    /// What ``description`` says about it.
    var fields: [String] { ["UUID = \(uuid)"] }
}
