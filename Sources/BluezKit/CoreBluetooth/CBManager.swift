public import Foundation

/// The common base class of the central and the peripheral manager: the state of Bluetooth.
/// - SeeAlso: Apple, `CBManager`.
open class CBManager: NSObject, @unchecked Sendable {  // holds: the state is under a lock
    private let protectedState = Protected(CBManagerState.unknown)

    // No public initialiser: apps create central and peripheral managers.
    init(state: CBManagerState) { super.init() }

    /// The state of Bluetooth: `.unknown` from `init` until the first `…DidUpdateState`, then the announced state. It
    /// changes on the delegate's queue, just before the callback.
    open var state: CBManagerState { protectedState.withLock { $0 } }

    /// Whether this process may use Bluetooth. Linux has no prompt: `.allowedAlways`, or `.denied` if the bus has
    /// refused this process access to BlueZ.
    open class var authorization: CBManagerAuthorization {
        deniedByBus.withLock { $0 } ? .denied : .allowedAlways
    }

    /// The same as the class property.
    @available(*, deprecated, message: "Use the class property CBManager.authorization")
    open var authorization: CBManagerAuthorization { Self.authorization }

    private static let deniedByBus = Protected(false)

    func setState(_ state: CBManagerState) {
        protectedState.withLock { $0 = state }
        if state == .unauthorized || state == .poweredOn { Self.deniedByBus.withLock { $0 = state == .unauthorized } }
    }
}
