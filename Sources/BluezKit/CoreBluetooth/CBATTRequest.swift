public import Foundation
import Synchronization

/// A read or a write by a central. Respond to it with ``CBPeripheralManager/respond(to:withResult:)``, where both are
/// shown. It may be kept and used on any thread until then.
/// - SeeAlso: Apple, `CBATTRequest`.
open class CBATTRequest: NSObject, @unchecked Sendable {  // holds: the value is under a lock, the rest is constant
    private let storedCentral: CBCentral
    private let storedCharacteristic: CBCharacteristic
    private let storedOffset: Int
    private let storedValue: Mutex<Data?>
    private let isAnswered = Atomic(false)

    /// Identifies the call that waits for the response. 0: none.
    let ticket: UInt64

    init(central: CBCentral, characteristic: CBCharacteristic, offset: Int, value: Data?, ticket: UInt64 = 0) {
        self.ticket = ticket
        (storedCentral, storedCharacteristic, storedOffset) = (central, characteristic, offset)
        storedValue = Mutex(value)
        super.init()
    }

    /// - Returns: Whether this is the first answer.
    func answer() -> Bool { !isAnswered.exchange(true, ordering: .relaxed) }

    /// The central that sent the request.
    open var central: CBCentral { storedCentral }

    /// The characteristic: the same ``CBMutableCharacteristic`` object that was added.
    open var characteristic: CBCharacteristic { storedCharacteristic }

    /// The offset into the value, in bytes. A value that does not fit into one packet is read in several requests, with
    /// rising offsets. A central may send any: respond with `.invalidOffset` to a read beyond the end.
    open var offset: Int { storedOffset }

    /// For a read: nil; set it to the value from `offset` on before responding. For a write: the bytes to write, from
    /// `offset` on.
    open var value: Data? {
        get { storedValue.withLock { $0 } }
        set { storedValue.withLock { $0 = newValue } }
    }
}
