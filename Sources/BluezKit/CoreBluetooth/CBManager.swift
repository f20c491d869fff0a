import Foundation

/// What the central and the peripheral manager have in common: the state of Bluetooth.
/// - SeeAlso: Apple, `CBManager`.
open class CBManager: NSObject, @unchecked Sendable {  // holds: the state is under a lock
    private let protectedState = Protected(CBManagerState.unknown)

    // No public initialiser: apps make central and peripheral managers.
    init(state: CBManagerState) { super.init() }

    /// The state of Bluetooth: `.unknown` from `init` until the first `…DidUpdateState`, and then what that
    /// announced. It changes on the delegate's queue, right before the callback.
    open var state: CBManagerState { protectedState.withLock { $0 } }

    /// Whether this process may use Bluetooth. Linux has no prompt: `.allowedAlways` unless the bus has refused to let
    /// this process talk to BlueZ, then `.denied`.
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
