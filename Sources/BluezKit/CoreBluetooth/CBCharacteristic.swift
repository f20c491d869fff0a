import BluezKitRestore
public import Foundation
import Synchronization

/// A characteristic: a value that can be read, written or subscribed to.
///
/// A remote one is valid until its link ends or `didModifyServices` lists its service. Its properties change on the
/// delegate's queue, just before the callback that announces the change. Compared by identity.
/// - SeeAlso: Apple, `CBCharacteristic`; Core Spec 5.4, Vol 3, Part G, 3.3.
open class CBCharacteristic: CBAttribute, @unchecked Sendable {  // holds: what changes is under `shared`'s lock
    private struct Shared: Sendable {
        weak var service: CBService?
        var properties: CBCharacteristicProperties
        var value: Data?
        var descriptors: [CBDescriptor]?
        var isNotifying = false
    }

    private let shared: Mutex<Shared>

    init(
        uuid: CBUUID, properties: CBCharacteristicProperties, value: Data? = nil, id: AttributeID = .none,
        element: PathElement? = nil, service: CBService?
    ) {
        shared = Mutex(Shared(service: service, properties: properties, value: value))
        super.init(uuid: uuid, id: id, element: element)
    }

    /// The service that contains it; nil if the service was released.
    open var service: CBService? { shared.withLock { $0.service } }

    /// The operations that it supports.
    open var properties: CBCharacteristicProperties { shared.withLock { $0.properties } }

    /// The value last read or notified: inside `didUpdateValueFor`, the value of this event. Writing does not change
    /// it.
    ///
    /// It may be present at discovery if it was read on an earlier connection, for a bonded peripheral or one whose
    /// table never changes (it has no Service Changed characteristic); never for a characteristic that notifies.
    open var value: Data? { shared.withLock { $0.value } }

    /// The descriptors that were discovered; nil until then.
    open var descriptors: [CBDescriptor]? { shared.withLock { $0.descriptors } }

    /// Always false: broadcasts are not supported.
    @available(*, deprecated)
    open var isBroadcasted: Bool { false }

    /// Whether this app is subscribed to it. False once the link has ended.
    open var isNotifying: Bool { shared.withLock { $0.isNotifying } }

    override var fields: [String] {
        let shown = value.map { data in
            let bytes = data.prefix(32).map { String(format: "%02x", $0) }.joined()
            return "{length = \(data.count), bytes = 0x\(bytes)\(data.count > 32 ? " ..." : "")}"
        }
        return [
            "UUID = \(uuid)", "properties = 0x\(String(properties.rawValue, radix: 16, uppercase: true))",
            "value = \(shown ?? "(null)")", "notifying = \(isNotifying ? "YES" : "NO")",
        ]
    }

    func setService(_ service: CBService?) { shared.withLock { $0.service = service } }

    func setProperties(_ properties: CBCharacteristicProperties) { shared.withLock { $0.properties = properties } }

    func setValue(_ value: Data?) { shared.withLock { $0.value = value } }

    func setNotifying(_ isNotifying: Bool) { shared.withLock { $0.isNotifying = isNotifying } }

    /// - Returns: The previous values.
    @discardableResult
    func addDiscovered(descriptors: [CBDescriptor]?) -> [CBDescriptor]? {
        shared.withLock { shared in
            defer { shared.descriptors = descriptors }
            return shared.descriptors
        }
    }
}
