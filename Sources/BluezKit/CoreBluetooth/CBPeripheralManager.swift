import Dispatch
import Foundation
import Synchronization

/// Publishes services, advertises them, and answers centrals.
///
/// - Important: The peripheral role is not in this version of BluezKit. The whole class is there, so that apps compile;
///   `state` becomes `.unsupported`, and every command is answered with `CBError.operationNotSupported`.
/// - SeeAlso: Apple, `CBPeripheralManager`.
open class CBPeripheralManager: CBManager, @unchecked Sendable {  // holds: what changes is under `shared`'s lock
    // holds: weak references are safe to copy from any thread
    private struct Shared: @unchecked Sendable {
        weak var delegate: (any CBPeripheralManagerDelegate)?
    }

    private let shared = Mutex(Shared())
    private let queue: DispatchQueue

    /// Receives the events of this manager. The delegate in force when an event is delivered gets it; with none, the
    /// event is lost.
    open weak var delegate: (any CBPeripheralManagerDelegate)? {
        get { shared.withLock { $0 }.delegate }
        set {
            let new = Shared(delegate: newValue)
            shared.withLock { $0 = new }
        }
    }

    /// Whether the app's advertisement is on air.
    open var isAdvertising: Bool { false }

    /// Whether this process may use Bluetooth.
    @available(*, deprecated, message: "Use the class property CBManager.authorization")
    open class func authorizationStatus() -> CBPeripheralManagerAuthorizationStatus {
        switch authorization {
        case .notDetermined: .notDetermined
        case .restricted: .restricted
        case .denied: .denied
        case .allowedAlways: .authorized
        }
    }

    /// A manager without a delegate, on the main queue.
    public convenience init() { self.init(delegate: nil, queue: nil, options: nil) }

    /// A manager with no options.
    public convenience init(delegate: (any CBPeripheralManagerDelegate)?, queue: DispatchQueue?) {
        self.init(delegate: delegate, queue: queue, options: nil)
    }

    /// Creates a manager. `peripheralManagerDidUpdateState(_:)` follows, always, after this has returned.
    /// - Parameters:
    ///   - delegate: Held weakly.
    ///   - queue: Where callbacks run; nil: the main queue, which the program must then run
    ///     (`RunLoop.main.run()` or `dispatchMain()`). A concurrent queue is used one callback at a time.
    ///   - options: `CBPeripheralManagerOption…` keys. Unknown keys are ignored.
    public init(delegate: (any CBPeripheralManagerDelegate)?, queue: DispatchQueue?, options: [String: Any]? = nil) {
        self.queue = DispatchQueue(label: "bluezkit.delegate", target: queue ?? .main)
        super.init(state: .unknown)
        self.delegate = delegate
        Log.warning("the peripheral role is not in this version of BluezKit: CBPeripheralManager will be .unsupported")
        post { manager, delegate in
            manager.setState(.unsupported)
            delegate?.peripheralManagerDidUpdateState(manager)
        }
    }

    /// Runs `body` on the app's queue, unless the manager is gone by then (CN-15).
    private func post(_ body: @escaping @Sendable (CBPeripheralManager, (any CBPeripheralManagerDelegate)?) -> Void) {
        queue.async { [weak self] in
            guard let self else { return }
            body(self, delegate)
        }
    }

    private func unsupported() -> CBError { CBError(.operationNotSupported) }

    /// Logs a command that has neither an effect nor an answer.
    private func ignored(_ command: StaticString) {
        Log.misuse("CBPeripheralManager \(command): can only accept this command while in the powered on state")
    }

    // MARK: Advertising

    /// Starts to advertise. Answered by `peripheralManagerDidStartAdvertising(_:error:)`.
    /// - Parameter advertisementData: `CBAdvertisementDataLocalNameKey` and `CBAdvertisementDataServiceUUIDsKey` count.
    open func startAdvertising(_ advertisementData: [String: Any]?) {
        post { $1?.peripheralManagerDidStartAdvertising($0, error: $0.unsupported()) }
    }

    /// Stops to advertise, at once and without a callback.
    open func stopAdvertising() {}

    // MARK: Services

    /// Publishes a service with all that is in it. Answered by `peripheralManager(_:didAdd:error:)`.
    /// - Precondition: A characteristic with a fixed value can only be read: its properties are `.read`, and its
    ///   permissions do not let it be written.
    open func add(_ service: CBMutableService) {
        for characteristic in service.characteristics ?? [] where characteristic.value != nil {
            let permissions = (characteristic as? CBMutableCharacteristic)?.permissions ?? []
            precondition(
                characteristic.properties == .read
                    && permissions.isDisjoint(with: [.writeable, .writeEncryptionRequired]),
                "Characteristics with cached values must be read-only: give \(characteristic.uuid) the value nil, or "
                    + "the properties .read and no permission to write")
        }
        post { $1?.peripheralManager($0, didAdd: service, error: $0.unsupported()) }
    }

    /// Withdraws a service. Unknown ones are ignored.
    open func remove(_ service: CBMutableService) {}

    /// Withdraws all services of this manager.
    open func removeAllServices() {}

    // MARK: Centrals

    /// Answers a request of a central: each exactly once; a list of writes by its first.
    open func respond(to request: CBATTRequest, withResult result: CBATTError.Code) { ignored("respond") }

    /// Sends a value to subscribed centrals.
    /// - Parameters:
    ///   - value: What to send, at most `maximumUpdateValueLength` of the central.
    ///   - characteristic: Whose value it is: one that was added.
    ///   - centrals: Which of them; nil: all.
    /// - Returns: False if there is no room: send it again after
    ///   `peripheralManagerIsReady(toUpdateSubscribers:)`. In this version of BluezKit always false.
    @discardableResult
    open func updateValue(
        _ value: Data, for characteristic: CBMutableCharacteristic, onSubscribedCentrals centrals: [CBCentral]?
    ) -> Bool {
        ignored("updateValue")
        return false
    }

    /// Asks for a connection interval that suits this latency. A hint; BlueZ has no call for it, so it has no effect.
    open func setDesiredConnectionLatency(
        _ latency: CBPeripheralManagerConnectionLatency, for central: CBCentral
    ) {}

    // MARK: L2CAP channels

    /// Listens for L2CAP channels. Answered by `peripheralManager(_:didPublishL2CAPChannel:error:)` with the PSM.
    /// - Parameter encryptionRequired: Whether only encrypted links may open the channel.
    open func publishL2CAPChannel(withEncryption encryptionRequired: Bool) {
        post { $1?.peripheralManager($0, didPublishL2CAPChannel: 0, error: $0.unsupported()) }
    }

    /// Ends listening, and closes what is open. Answered by `peripheralManager(_:didUnpublishL2CAPChannel:error:)`.
    open func unpublishL2CAPChannel(_ PSM: CBL2CAPPSM) {
        post { $1?.peripheralManager($0, didUnpublishL2CAPChannel: PSM, error: $0.unsupported()) }
    }
}
