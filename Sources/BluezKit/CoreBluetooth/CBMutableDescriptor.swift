import Foundation

/// A descriptor of this app, in a ``CBMutableCharacteristic``.
/// - SeeAlso: Apple, `CBMutableDescriptor`.
open class CBMutableDescriptor: CBDescriptor, @unchecked Sendable {  // holds: the base class keeps it all, under a lock
    /// A descriptor with a value that never changes.
    ///
    /// The system creates 2900, 2902 and 2903, and refuses them in `add`.
    /// - Parameters:
    ///   - UUID: The type of the descriptor.
    ///   - value: A `String` for Characteristic User Description (2901), `Data` for every other; a `String` is
    ///     published as UTF-8.
    /// - Precondition: The value for 2901 is a `String`, that for Characteristic Presentation Format (2904) is `Data`.
    public init(type UUID: CBUUID, value: Any?) {
        switch (UUID.numberOnBase, value) {
        case (_, nil), (0x2901, is String): break
        case (0x2901, _):
            preconditionFailure("Characteristic User Description descriptors (2901) must have a String as value")
        case (0x2904, is Data): break
        case (0x2904, _):
            preconditionFailure("Characteristic Presentation Format descriptors (2904) must have Data as value")
        default: break
        }
        super.init(uuid: UUID, value: value)
    }
}
