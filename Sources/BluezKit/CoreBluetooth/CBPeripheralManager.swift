import BluezDBus
import BluezKitRestore
import Dispatch
public import Foundation

/// Publishes services, advertises them, and responds to requests of centrals.
///
/// ```swift
/// import CoreBluetooth
/// final class RoomSensor: NSObject, CBPeripheralManagerDelegate {
///     private var manager: CBPeripheralManager?  // releasing it withdraws everything
///
///     func start() { manager = CBPeripheralManager(delegate: self, queue: nil) }
///
///     func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
///         guard peripheral.state == .poweredOn else { return }
///         let room = CBMutableCharacteristic(
///             type: CBUUID(string: "FFF1"), properties: .read, value: Data("kitchen".utf8), permissions: .readable)
///         let service = CBMutableService(type: CBUUID(string: "FFF0"), primary: true)
///         service.characteristics = [room]
///         peripheral.removeAllServices()  // they stay while Bluetooth is switched off
///         peripheral.add(service)
///     }
///     func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
///         if error == nil { peripheral.startAdvertising([CBAdvertisementDataServiceUUIDsKey: [service.uuid]]) }
///     }
/// }
/// ```
///
/// **Queue:** All callbacks are made on the queue given to `init`, one at a time and in order, never inside a call by
/// the app. Every method may be called from any thread, and returns at once.
///
/// **Lifetime:** Keep the manager and its delegate, which it holds weakly. It keeps the services that were added.
/// Releasing the manager withdraws its services, advertisement and channels, without callbacks.
///
/// **Centrals:** There is no callback when a central connects: it becomes visible by subscribing, reading or writing.
///
/// **State:** Commands are accepted while the state is `.poweredOn`. Others are dropped with a log line, and not made
/// up for later (MIS-1). In `.poweredOff` advertising and subscriptions end, and services and published channels stay.
/// In the states below it, such as `.resetting`, these end as well and must be added again, unless the manager resumes
/// (``BluezManagerOptionResumeAfterResetKey``). The state callback is the only one that tells of it.
///
/// **Errors:** No method throws. ``add(_:)``, ``startAdvertising(_:)``, ``publishL2CAPChannel(withEncryption:)`` and
/// ``unpublishL2CAPChannel(_:)`` are answered by a callback, with a ``CBError`` or nil;
/// ``updateValue(_:for:onSubscribedCentrals:)`` returns whether there was room.
///
/// Differences from Apple's systems are documented with each method, and all of them in `Docs/COMPATIBILITY.md`. Rules
/// such as MIS-1 are in `Docs/CONTRACT.md`.
/// - SeeAlso: Apple, `CBPeripheralManager`; BlueZ doc/org.bluez.GattManager.rst,
///   doc/org.bluez.LEAdvertisingManager.rst.
open class CBPeripheralManager: CBManager, @unchecked Sendable {  // holds: what changes is under `shared`'s lock
    /// What carries out what the app asks for.
    let backend: any PublishBackend
    let mirror = PublishMirror()
    /// What is preserved, or resumes after a reset.
    let book: IntentBook?

    let shared = Protected(Shared())

    /// Receives the events of this manager. An event goes to the delegate at the time of delivery; without a delegate
    /// it is lost.
    open weak var delegate: (any CBPeripheralManagerDelegate)? {
        get { shared.withLock { $0.delegate } }
        set { shared.withLock { $0.delegate = newValue } }
    }

    /// Whether the app is advertising: true from `peripheralManagerDidStartAdvertising(_:error:)` without an error
    /// until ``stopAdvertising()`` or until Bluetooth is not powered on any more. True from `willRestoreState` on if it
    /// is restored, and during a restart of bluetoothd if it resumes after that.
    open var isAdvertising: Bool { shared.withLock { $0.isAdvertising } }

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

    /// Creates a manager. ``CBPeripheralManagerDelegate/peripheralManagerDidUpdateState(_:)`` is always called after
    /// this has returned; no command is accepted before.
    ///
    /// With a restore identifier, what the manager publishes and advertises survives the process:
    ///
    /// ```swift
    /// manager = CBPeripheralManager(
    ///     delegate: self, queue: queue, options: [CBPeripheralManagerOptionRestoreIdentifierKey: "lamp"])
    /// ```
    /// If an earlier process has left some, the first callback is
    /// ``CBPeripheralManagerDelegate/peripheralManager(_:willRestoreState:)``, and the state is the second one (RS-8).
    /// The identifiers of central managers are separate. See <doc:StateRestoration>.
    /// - Parameters:
    ///   - delegate: Held weakly.
    ///   - queue: The queue for callbacks; nil: the main queue, which the program must then run
    ///     (`RunLoop.main.run()` or `dispatchMain()`). A concurrent queue is used for one callback at a time.
    ///   - options: `CBPeripheralManagerOption…` keys, and the BluezKit additions ``BluezManagerOptionBusAddressKey``,
    ///     ``BluezManagerOptionAdapterKey``, ``BluezManagerOptionAllowSystemServicesKey``,
    ///     ``BluezManagerOptionAllowJustWorksPairingKey``, ``BluezManagerOptionStateDirectoryKey``,
    ///     ``BluezManagerOptionResumeAfterResetKey``, ``BluezManagerOptionKeeperKey``,
    ///     ``BluezManagerOptionAtMostOnceKey``, ``BluezManagerOptionKeptEventsKey`` and
    ///     ``BluezManagerOptionKeptBytesKey``. Unknown keys are ignored.
    public init(delegate: (any CBPeripheralManagerDelegate)?, queue: DispatchQueue?, options: [String: Any]? = nil) {
        func isSet(_ key: String) -> Bool { (options?[key] as? NSNumber)?.boolValue ?? false }
        let identifier = options?[CBPeripheralManagerOptionRestoreIdentifierKey] as? String
        let (book, preserved) = IntentBook.open(.peripheral, identifier: identifier, options: options)
        self.book = book
        let configuration = PeripheralManagerCore.Configuration(
            allowsSystemServices: isSet(BluezManagerOptionAllowSystemServicesKey),
            allowsJustWorks: isSet(BluezManagerOptionAllowJustWorksPairingKey))
        let place = callbackPlace(queue, options)
        var hello = KeeperHello(.peripheral, identifier: identifier, options: options, book, preserved)
        hello?.peripheral = configuration
        let key = Session.Key(options: options)
        let trace = ManagerTrace.make(.peripheral, key, identifier, isKept: hello != nil)
        let (backend, start) = PublishSide.backend(
            hello, book?.path, key, configuration, preserved, place,
            trace?.receiving(mirror.receive) { .peripheralEvent($0) } ?? mirror.receive)
        self.backend = trace?.tracing(backend) ?? backend
        super.init(state: .unknown)
        self.delegate = delegate
        mirror.manager = self
        LocalApps.add(self, .manager, on: key.address, adapter: key.adapter?.text)
        start()
    }

    deinit {
        LocalApps.remove(ObjectIdentifier(self))
        book?.end()
        mirror.end()
        backend.release()
    }

    /// **BluezKit addition.** A human-readable report of what was restored from an earlier process: nil before
    /// `willRestoreState`, and if nothing was preserved.
    public var restoration: BluezRestoration? { shared.withLock { $0.restoration } }

    // MARK: Advertising

    /// Starts advertising. Answered by ``CBPeripheralManagerDelegate/peripheralManagerDidStartAdvertising(_:error:)``:
    /// with `CBError.alreadyAdvertising` if it is already advertising, which then continues. To advertise something
    /// else, call ``stopAdvertising()`` before, which has no callback to wait for.
    ///
    /// ```swift
    /// manager.startAdvertising([
    ///     CBAdvertisementDataLocalNameKey: "Lamp", CBAdvertisementDataServiceUUIDsKey: [CBUUID(string: "FFF0")],
    /// ])
    ///
    /// func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
    ///     if let error { print("not advertised: \(error.localizedDescription)") }
    /// }
    /// ```
    /// It has no time limit. It ends when Bluetooth is switched off: start it again in the next `.poweredOn`.
    ///
    /// Advertising begins when the services that were added before are published. Centrals can connect as long as it
    /// lasts, also while others are connected. Each manager has one advertisement. The adapter has room for a few, from
    /// all programs together; if there is no room, the error `CBError.outOfSpace` says how many there are.
    /// - Parameter advertisementData: `CBAdvertisementDataLocalNameKey` and `CBAdvertisementDataServiceUUIDsKey` have
    ///   an effect, as on Apple's systems, and other keys of Apple's are ignored. There are 28 bytes for services (a
    ///   16-bit UUID takes 2 bytes, and 2 for the first; a 128-bit UUID takes 16, and 2 for the first) and 29 for the
    ///   name: a longer name is cut, and services that do not fit are left out, with a log line. The BluezKit additions
    ///   `BluezAdvertisement…Key` have an effect as well; with them nothing is left out, but data that does not fit is
    ///   the error `CBError.invalidParameters`, which lists the sizes.
    open func startAdvertising(_ advertisementData: [String: Any]?) {
        guard accepts("startAdvertising") else { return }
        do throws(CBError) {
            let request = try AdvertisementRequest(advertisementData)
            _ = try Advertisement(request)
            backend.send(.advertise(request, preserve(request), isResumed: false))
        } catch {
            let token = shared.withLock { $0.advertisingToken }
            backend.report(.notAdvertised(AppError(error), token: token))
        }
    }

    /// Stops advertising, at once and without a callback. Links stay up. In `willRestoreState`: the restored
    /// advertisement does not go on.
    open func stopAdvertising() {
        guard accepts("stopAdvertising", whileRestoring: true) else { return }
        let token = endAdvertising()
        preserveAdvertisement()
        backend.send(.stopAdvertising(token: token))
    }

    // MARK: Services

    /// Publishes a service and its contents, which must not be changed any more. Answered, in the order of the calls
    /// and with the same object, by ``CBPeripheralManagerDelegate/peripheralManager(_:didAdd:error:)``.
    ///
    /// ```swift
    /// let switching = CBMutableCharacteristic(  // its value is nil: reads and writes are requests to the app
    ///     type: CBUUID(string: "FFF1"), properties: [.read, .write, .notify], value: nil,
    ///     permissions: [.readable, .writeable])
    /// let lamp = CBMutableService(type: CBUUID(string: "FFF0"), primary: true)
    /// lamp.characteristics = [switching]
    /// manager.add(lamp)
    /// ```
    /// Services stay published while Bluetooth is off: remove the old ones before adding others in each `.poweredOn`.
    ///
    /// Errors: `CBError.uuidNotAllowed` for the system's services (1800, 1801, 1805, 180A, 180F, 1812, 181E in their
    /// short form; ``BluezManagerOptionAllowSystemServicesKey`` allows all that BlueZ allows),
    /// `CBError.invalidParameters` for the properties `.broadcast` and `.extendedProperties`, or none, for values over
    /// 512 bytes, for descriptors that the system creates (2900, 2902, 2903) or whose value is neither `Data` nor
    /// `String`, and for included services that were not added before. A service that includes others is registered
    /// together with them: they briefly disappear from BlueZ's table, and their subscribers are lost. So add it before
    /// there are any. A service that was refused is not published, and may be added again.
    /// - Precondition: It has not been added already. A characteristic with a fixed value can only be read: its
    ///   properties are `.read`, and its permissions do not allow writing.
    open func add(_ service: CBMutableService) {
        for characteristic in service.characteristics ?? [] where characteristic.value != nil {
            let permissions = (characteristic as? CBMutableCharacteristic)?.permissions ?? []
            precondition(
                characteristic.properties == .read
                    && permissions.isDisjoint(with: [.writeable, .writeEncryptionRequired]),
                "Characteristics with cached values must be read-only: give \(characteristic.uuid) the value nil, or "
                    + "the properties .read and no permission to write")
        }
        guard accepts("add") else { return }
        let place: (call: UInt64, generation: UInt64)? = shared.withLock { shared in
            guard !shared.added.contains(where: { $0.service === service }) else { return nil }
            shared.adds += 1
            shared.added.append((service, shared.adds))
            return (shared.adds, shared.servicesGeneration)
        }
        guard let place else {
            preconditionFailure(
                "Services cannot be added more than once: remove \(service.uuid) before adding it again")
        }
        preserveServices()
        backend.send(.add(published(service, call: place.call), isResumed: false), generation: place.generation)
    }

    /// Withdraws a service. Unknown ones are ignored. Its subscribers are reported with `didUnsubscribeFrom`, and
    /// connected centrals are informed that services have changed. Withdraw services that include it first. A service
    /// that is withdrawn in `willRestoreState` is not published again.
    open func remove(_ service: CBMutableService) {
        guard accepts("remove", whileRestoring: true) else { return }
        let call = shared.withLock { shared in shared.added.first { $0.service === service }?.call }
        forget { $0.service === service }
        if let call { backend.send(.remove(call: call)) }
    }

    /// Withdraws all services of this manager; see ``remove(_:)``.
    open func removeAllServices() {
        guard accepts("removeAllServices", whileRestoring: true) else { return }
        forget { _ in true }
        backend.send(.removeAll)
    }

    // MARK: Centrals

    /// Responds to a read or write request. Respond to each request once; for an array of writes, pass its first
    /// element. Call it from any thread, within 5 s: after that BlueZ reports a failure to the central, and the
    /// response is ignored, with a log line. There is no callback.
    ///
    /// ```swift
    /// func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
    ///     guard request.offset <= value.count else {
    ///         return peripheral.respond(to: request, withResult: .invalidOffset)
    ///     }
    ///     request.value = value.dropFirst(request.offset)  // a long value is read in several requests
    ///     peripheral.respond(to: request, withResult: .success)
    /// }
    ///
    /// func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
    ///     let isValid = requests.allSatisfy { $0.offset == 0 && $0.value?.count == 1 }
    ///     if isValid, let new = requests.last?.value { value = new }  // all of them, or none
    ///     peripheral.respond(to: requests[0], withResult: isValid ? .success : .invalidAttributeValueLength)
    /// }
    /// ```
    /// Nothing is sent for a write without response. BlueZ confirms each write to a characteristic that has both
    /// `.write` and `.writeWithoutResponse` before the app has seen it, so such a write cannot be refused.
    /// - Parameters:
    ///   - request: The request. For a read, `value` is the response: the bytes from `offset` on, of a value of 512 at
    ///     most; what is beyond that is cut.
    ///   - result: `.success`, or the error for the central. BlueZ cannot send every code: see `Docs/ERRORS.md`.
    open func respond(to request: CBATTRequest, withResult result: CBATTError.Code) {
        guard request.ticket != 0 else { return }
        guard request.answer() else {
            return Log.misuse("CBPeripheralManager respond: the request was answered already; ignored")
        }
        backend.send(.respond(ticket: request.ticket, Coded(result), request.value))
    }

    /// Sends a value to subscribed centrals, by notification or indication as each has requested.
    ///
    /// True means that the value was queued, false that too many updates of this characteristic, 64, are on their way
    /// to BlueZ: nothing was queued. BlueZ does not report when a value has been transmitted, except for indications,
    /// which are counted until they are confirmed.
    ///
    /// ```swift
    /// func sendMore() {  // call it to begin with, and in `peripheralManagerIsReady(toUpdateSubscribers:)`
    ///     while let next = values.first, manager.updateValue(next, for: measurement, onSubscribedCentrals: nil) {
    ///         values.removeFirst()
    ///     }
    /// }
    /// ```
    /// Updates of one characteristic reach a central in the order of the calls (UP-8), unless it has several EATT
    /// bearers (`Docs/COMPATIBILITY.md`). They do not change `characteristic.value`, and are no answer to a read: keep
    /// the value for ``respond(to:withResult:)``.
    /// - Parameters:
    ///   - value: The value. It is cut to each central's ``CBCentral/maximumUpdateValueLength``. An empty value goes to
    ///     all subscribers, regardless of `centrals`, and may overtake others, because BlueZ has no other way to send
    ///     it.
    ///   - characteristic: A characteristic that was added.
    ///   - centrals: The receivers; nil: all. Centrals that are not subscribed are ignored. BlueZ before 5.76 sends to
    ///     all subscribers in any case.
    /// - Returns: False if there is no room: send it again after
    ///   ``CBPeripheralManagerDelegate/peripheralManagerIsReady(toUpdateSubscribers:)``. Also false, with a log line
    ///   and without that callback, if Bluetooth is not on or the characteristic was not added. True if no central is
    ///   subscribed: then nothing is sent.
    @discardableResult
    open func updateValue(
        _ value: Data, for characteristic: CBMutableCharacteristic, onSubscribedCentrals centrals: [CBCentral]?
    ) -> Bool {
        guard accepts("updateValue") else { return false }
        let service = characteristic.service
        let call = shared.withLock { shared in shared.added.first { $0.service === service }?.call }
        guard let id = call.flatMap({ mirror.id(of: characteristic, call: $0) }) else {
            // The app cannot know that a restored one was not taken again: the log has said it.
            if (characteristic.service as? CBMutableService)?.isLost != true {
                Log.misuse("CBPeripheralManager updateValue: \(characteristic.uuid) is not in a service that was added")
            }
            return false
        }
        let subscribed = Set((characteristic.subscribedCentrals ?? []).map(\.identifier))
        let wanted = centrals.map { Set($0.map(\.identifier)).intersection(subscribed) }
        guard !(wanted ?? subscribed).isEmpty else { return true }
        return backend.update(id, [UInt8](value), centrals: wanted)
    }

    /// Requests a connection interval that suits this latency. It has no effect here, because BlueZ has no call for it,
    /// and the kernel's own setting needs root and applies to all links.
    open func setDesiredConnectionLatency(
        _ latency: CBPeripheralManagerConnectionLatency, for central: CBCentral
    ) { Log.debug("setDesiredConnectionLatency has no effect: BlueZ has no call for it") }

    // MARK: L2CAP channels

    /// Listens for L2CAP channels. Answered by
    /// ``CBPeripheralManagerDelegate/peripheralManager(_:didPublishL2CAPChannel:error:)``, in the order of the calls,
    /// with the PSM that the kernel has chosen (0x0080 to 0x00FF); each channel that a central opens is then reported
    /// by ``CBPeripheralManagerDelegate/peripheralManager(_:didOpen:error:)``. Several can be published.
    ///
    /// Centrals must learn the PSM, usually by reading a characteristic:
    ///
    /// ```swift
    /// manager.publishL2CAPChannel(withEncryption: false)
    ///
    /// func peripheralManager(
    ///     _ peripheral: CBPeripheralManager, didPublishL2CAPChannel PSM: CBL2CAPPSM, error: (any Error)?
    /// ) {
    ///     if let error { return print("no channel: \(error.localizedDescription)") }
    ///     let service = CBMutableService(type: CBUUID(string: "FFF0"), primary: true)
    ///     service.characteristics = [CBMutableCharacteristic(l2capPSM: PSM)]
    ///     peripheral.add(service)
    /// }
    ///
    /// func peripheralManager(
    ///     _ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?
    /// ) {
    ///     if let channel { channels.append(channel) }  // then open its streams, see CBL2CAPChannel
    /// }
    /// ```
    /// ``CBMutableCharacteristic/init(l2capPSM:permissions:)`` is a BluezKit addition. The channel is published until
    /// it is unpublished or the manager is released, also while Bluetooth is off. With a restore identifier it is
    /// published again by the next process, under the same PSM where that is still free, and the app gets the callback
    /// with the PSM again.
    ///
    /// Errors, a `CBError` with the kernel's error as the underlying one: `.operationNotSupported` where the process
    /// may not use Bluetooth sockets, with the cause and the cure, and `.outOfSpace` if no PSM is free.
    /// - Parameter encryptionRequired: Whether only a central on an encrypted link may open the channel. Others are
    ///   made to pair first; that needs an agent, or ``BluezManagerOptionAllowJustWorksPairingKey``.
    open func publishL2CAPChannel(withEncryption encryptionRequired: Bool) {
        _ = publishChannel(isEncrypted: encryptionRequired) { nil }
    }

    /// Stops listening, and closes open channels. Answered by
    /// ``CBPeripheralManagerDelegate/peripheralManager(_:didUnpublishL2CAPChannel:error:)``, with
    /// `CBError.invalidParameters` if this manager has not published the PSM. A channel that is unpublished in
    /// `willRestoreState` is not published again, and there is no answer. A restored channel can be unpublished by the
    /// PSM that it had until `didPublishL2CAPChannel` tells its new one.
    open func unpublishL2CAPChannel(_ PSM: CBL2CAPPSM) {
        guard accepts("unpublishL2CAPChannel", whileRestoring: true) else { return }
        forgetPublished(PSM)
        if isTellingRestored { return }  // those that a keeper has are taken back when the callback returns
        backend.send(.unpublishChannel(PSM))
        mirror.endChannels(PSM)
    }
}
