public import Foundation
import Synchronization

/// A read or a write by a central. Respond to it with ``CBPeripheralManager/respond(to:withResult:)``.
/// - SeeAlso: Apple, `CBATTRequest`.
open class CBATTRequest: NSObject, @unchecked Sendable {  // holds: the value is under a lock, the rest is constant
    private let storedCentral: CBCentral
    private let storedCharacteristic: CBCharacteristic
    private let storedOffset: Int
    private let storedValue: Mutex<Data?>

    /// Identifies the call that waits for the response. 0: none.
    let ticket: UInt64

    init(central: CBCentral, characteristic: CBCharacteristic, offset: Int, value: Data?, ticket: UInt64 = 0) {
        self.ticket = ticket
        (storedCentral, storedCharacteristic, storedOffset) = (central, characteristic, offset)
        storedValue = Mutex(value)
        super.init()
    }

    /// The central that sent the request.
    open var central: CBCentral { storedCentral }

    /// The characteristic: the same ``CBMutableCharacteristic`` object that was added.
    open var characteristic: CBCharacteristic { storedCharacteristic }

    /// The offset into the value, in bytes.
    open var offset: Int { storedOffset }

    /// For a read: set it to the value from `offset` on before responding. For a write: the value to write.
    open var value: Data? {
        get { storedValue.withLock { $0 } }
        set { storedValue.withLock { $0 = newValue } }
    }
}
