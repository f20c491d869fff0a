import Foundation
import Synchronization

/// A central that reads, writes or subscribes to a characteristic that this app publishes.
/// - SeeAlso: Apple, `CBCentral`.
open class CBCentral: CBPeer, @unchecked Sendable {  // holds: the length is under a lock
    private let maximumLength: Mutex<Int>

    init(identifier: UUID, maximumUpdateValueLength: Int = 20) {
        maximumLength = Mutex(maximumUpdateValueLength)
        super.init(identifier: identifier)
    }

    /// The longest value, in bytes, that one notification or indication to it can carry: ATT_MTU - 3, 20 to 512. It may
    /// grow after connecting: check it before each update.
    open var maximumUpdateValueLength: Int { maximumLength.withLock { $0 } }

    func setMaximumUpdateValueLength(_ length: Int) { maximumLength.withLock { $0 = length } }
}
