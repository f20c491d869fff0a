import Foundation
import Synchronization

/// A read or a write by a central. Answer it with ``CBPeripheralManager/respond(to:withResult:)``.
/// - SeeAlso: Apple, `CBATTRequest`.
open class CBATTRequest: NSObject, @unchecked Sendable {  // holds: the value is under a lock, the rest is constant
    private let storedCentral: CBCentral
    private let storedCharacteristic: CBCharacteristic
    private let storedOffset: Int
    private let storedValue: Mutex<Data?>

    /// By which the session finds the call that waits for the answer. 0: none does.
    let ticket: UInt64

    init(central: CBCentral, characteristic: CBCharacteristic, offset: Int, value: Data?, ticket: UInt64 = 0) {
        self.ticket = ticket
        (storedCentral, storedCharacteristic, storedOffset) = (central, characteristic, offset)
        storedValue = Mutex(value)
        super.init()
    }

    /// Who asks.
    open var central: CBCentral { storedCentral }

    /// What is asked for: the very ``CBMutableCharacteristic`` that was added.
    open var characteristic: CBCharacteristic { storedCharacteristic }

    /// Where in the value to start, in bytes.
    open var offset: Int { storedOffset }

    /// Of a read: to be set to the value from `offset` on, before answering. Of a write: what is to be written.
    open var value: Data? {
        get { storedValue.withLock { $0 } }
        set { storedValue.withLock { $0 = newValue } }
    }
}
