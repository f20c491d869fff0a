import Foundation
import Synchronization

/// A characteristic of this app, in a ``CBMutableService``. Once that is added it must not be changed any more.
/// - SeeAlso: Apple, `CBMutableCharacteristic`.
open class CBMutableCharacteristic: CBCharacteristic, @unchecked Sendable {  // holds: what changes is under a lock
    private struct Local: Sendable {
        var permissions: CBAttributePermissions
        var subscribedCentrals: [CBCentral]?
    }

    private let local: Mutex<Local>

    /// A characteristic.
    /// - Parameters:
    ///   - UUID: What kind of characteristic it is.
    ///   - properties: What it declares to centrals.
    ///   - value: Not nil: the value never changes, centrals read it without the app being asked, and `properties` must
    ///     be `.read` alone. Nil: each read and write is a request to the app.
    ///   - permissions: What centrals may do with the value.
    public init(
        type UUID: CBUUID, properties: CBCharacteristicProperties, value: Data?, permissions: CBAttributePermissions
    ) {
        local = Mutex(Local(permissions: permissions))
        super.init(uuid: UUID, properties: properties, objectPath: "", service: nil)
        setValue(value)
    }

    /// What centrals may do with the value.
    open var permissions: CBAttributePermissions {
        get { local.withLock { $0.permissions } }
        set { local.withLock { $0.permissions = newValue } }
    }

    /// The centrals that are subscribed, up to date inside the callbacks that tell of it.
    open var subscribedCentrals: [CBCentral]? { local.withLock { $0.subscribedCentrals } }

    /// What can be done with it.
    open override var properties: CBCharacteristicProperties {
        get { super.properties }
        set { setProperties(newValue) }
    }

    /// The fixed value; nil: the app is asked. `updateValue` does not change it.
    open override var value: Data? {
        get { super.value }
        set { setValue(newValue) }
    }

    /// Its descriptors. Each one's `characteristic` is set to this characteristic.
    open override var descriptors: [CBDescriptor]? {
        get { super.descriptors }
        set {
            for old in reveal(descriptors: newValue) ?? [] where old.characteristic === self {
                old.setCharacteristic(nil)
            }
            for new in newValue ?? [] { new.setCharacteristic(self) }
        }
    }

    /// On the app's queue, right before the callback that tells of it (UP-7).
    func setSubscribed(_ isSubscribed: Bool, _ central: CBCentral) {
        local.withLock { local in
            let others = (local.subscribedCentrals ?? []).filter { $0.identifier != central.identifier }
            local.subscribedCentrals = isSubscribed ? others + [central] : others
        }
    }

    /// Bluetooth is off: nobody is subscribed, and nobody is told.
    func forgetSubscribers() { local.withLock { $0.subscribedCentrals = nil } }
}
