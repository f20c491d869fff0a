public import Foundation

/// The common base class of the central and the peripheral manager: the state of Bluetooth.
/// - SeeAlso: Apple, `CBManager`.
open class CBManager: NSObject, @unchecked Sendable {  // holds: the state is under a lock
    private let protectedState = Protected((state: CBManagerState.unknown, isDead: false))

    // No public initialiser: apps create central and peripheral managers.
    init(state: CBManagerState) { super.init() }

    /// The state of Bluetooth: `.unknown` from `init` until the first `…DidUpdateState`, then the announced state. It
    /// changes on the delegate's queue, just before the callback.
    open var state: CBManagerState { protectedState.withLock { $0.state } }

    /// Whether this process may use Bluetooth. Linux has no prompt: `.allowedAlways`, or `.denied` if the bus has
    /// refused this process access to BlueZ.
    open class var authorization: CBManagerAuthorization {
        deniedByBus.withLock { $0 } ? .denied : .allowedAlways
    }

    /// The same as the class property.
    @available(*, deprecated, message: "Use the class property CBManager.authorization")
    open var authorization: CBManagerAuthorization { Self.authorization }

    private static let deniedByBus = Protected(false)

    /// Whether a simulator has ended the app, as the end of its process would.
    final var isDead: Bool { protectedState.withLock { $0.isDead } }

    final func markDead() { protectedState.withLock { $0 = (.unknown, true) } }

    /// MIS-1.
    final func logRefusal(_ command: StaticString) {
        Log.misuse(
            isDead
                ? "\(Self.self) \(command): the simulator has ended this manager's app; make another one"
                : "\(Self.self) \(command): can only accept this command while in the powered on state")
    }

    func setState(_ state: CBManagerState) {
        protectedState.withLock { if !$0.isDead { $0.state = state } }
        if state == .unauthorized || state == .poweredOn { Self.deniedByBus.withLock { $0 = state == .unauthorized } }
    }
}
