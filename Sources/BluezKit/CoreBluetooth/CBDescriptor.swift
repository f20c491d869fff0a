import BluezKitRestore
import Foundation
import Synchronization

/// A descriptor: additional information about a characteristic.
///
/// A remote one is valid until its link ends or `didModifyServices` lists its service. Compared by identity.
/// - SeeAlso: Apple, `CBDescriptor`; Core Spec 5.4, Vol 3, Part G, 3.3.3.
open class CBDescriptor: CBAttribute, @unchecked Sendable {  // holds: what changes is under `shared`'s lock
    // holds: `value` is a String, NSNumber or Data, or what the app provided
    private struct Shared: @unchecked Sendable {
        weak var characteristic: CBCharacteristic?
        var value: Any?
    }

    private let shared: Mutex<Shared>

    init(
        uuid: CBUUID, id: AttributeID = .none, element: PathElement? = nil, characteristic: CBCharacteristic?
    ) {
        shared = Mutex(Shared(characteristic: characteristic))
        super.init(uuid: uuid, id: id, element: element)
    }

    /// A local one.
    init(uuid: CBUUID, value: Any?) {
        shared = Mutex(Shared(value: value))
        super.init(uuid: uuid)
    }

    /// The characteristic that contains it; nil if the characteristic was released.
    open var characteristic: CBCharacteristic? { shared.withLock { $0.characteristic } }

    /// The value last read. Its type depends on the UUID: `NSNumber` for 2900, 2902 and 2903, `String` for 2901, `Data`
    /// for every other, and for a text that is not UTF-8 or a number that is empty. Nil until it is read.
    open var value: Any? { shared.withLock { $0 }.value }

    override var fields: [String] { ["UUID = \(uuid)", "value = \(value.map { "\($0)" } ?? "(null)")"] }

    func setCharacteristic(_ characteristic: CBCharacteristic?) {
        shared.withLock { $0.characteristic = characteristic }
    }

    /// Stores the value that was read.
    func setValue(_ data: Data) {
        let value: Any
        switch uuid.numberOnBase {
        case 0x2900, 0x2902, 0x2903:
            // Two bytes, little-endian; a single byte is accepted.
            value = data.isEmpty ? data : NSNumber(value: data.prefix(2).reversed().reduce(0) { $0 << 8 | Int($1) })
        case 0x2901: value = String(data: data, encoding: .utf8) ?? data
        default: value = data
        }
        let shown = Shared(value: value)
        shared.withLock { $0.value = shown.value }
    }
}
