import Foundation
import Synchronization

/// A central that reads, writes or subscribes to what this app publishes.
/// - SeeAlso: Apple, `CBCentral`.
open class CBCentral: CBPeer, @unchecked Sendable {  // holds: the length is under a lock
    private let maximumLength: Mutex<Int>

    init(identifier: UUID, maximumUpdateValueLength: Int = 20) {
        maximumLength = Mutex(maximumUpdateValueLength)
        super.init(identifier: identifier)
    }

    /// The longest value, in bytes, that one notification or indication to it carries: ATT_MTU - 3, 20 to 512. It may
    /// grow after connecting: ask before each update.
    open var maximumUpdateValueLength: Int { maximumLength.withLock { $0 } }

    /// Takes over the ATT_MTU that BlueZ has told.
    func setMTU(_ mtuBytes: Int) { maximumLength.withLock { $0 = min(max(mtuBytes - 3, 20), 512) } }
}
