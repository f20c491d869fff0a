public import BluezKit
import Foundation

/// A notification of an iPhone. BluezKit addition.
public struct ANCSNotification: Sendable {
    /// The event that announced it.
    public let event: ANCSEvent
    /// Its texts. Those that it does not have are empty.
    public let texts: [ANCSCommand.Attribute: String]
    /// The name of its app; nil: the phone does not tell it.
    public let appName: String?
}

/// Receives the notifications of an iPhone, and performs their actions. BluezKit addition.
///
/// ```swift
/// let client = ANCSClient(phone) { event in
///     if case .notification(let notification) = event { print(notification.texts[.title] ?? "") }
/// }
/// client.start()   // the phone is connected
/// ```
///
/// It is the delegate of the peripheral. Use it only on the queue of the peripheral's manager, where it calls its
/// handler.
///
/// The phone connects to this computer, which solicits the service; `connect` to it then, as to any peripheral. A phone
/// that is not paired refuses the subscription, and BlueZ pairs with it, if `CBCentralManager.pairing` allows that.
public final class ANCSClient: NSObject, CBPeripheralDelegate {
    /// What happens. BluezKit addition.
    public enum Event {
        /// Notifications arrive from now on; those that the phone has already come first.
        case ready
        /// A notification was added or modified. One that changes before its texts are read is reported once. Of more
        /// than 1024 that wait for that the oldest are left out.
        case notification(ANCSNotification)
        /// A notification was removed.
        case removed(UInt32)
        /// What became of ``ANCSClient/perform(_:of:)``: once for each call, with nil if the phone has performed it. An
        /// ``ANCSError`` if it has refused, ``NoAnswer`` or ``SessionEnded`` if that is not known.
        case performed(ANCSCommand.Action, UInt32, (any Error)?)
        /// The phone has no ANCS, refuses it, sends what cannot be read, or does not answer. Later notifications may
        /// still arrive.
        case failed(any Error)
    }

    /// The phone has no notification center service. An iPhone shows it only to paired accessories. BluezKit addition.
    public struct Unavailable: Error, Hashable, LocalizedError, CustomStringConvertible {
        /// One sentence, without a full stop.
        public var description: String { "the device has no Apple Notification Center Service" }
        /// The same text as `description`.
        public var errorDescription: String? { description }
    }

    /// The phone has not answered a command within ``ANCS/answerTimeLimit``. An answer that comes later is ignored.
    /// BluezKit addition.
    public struct NoAnswer: Error, Hashable, LocalizedError, CustomStringConvertible {
        /// The command.
        public let command: ANCSCommand
        /// One sentence, without a full stop.
        public var description: String {
            let what =
                switch command {
                case .attributes(let notification, _): "about notification \(notification)"
                case .appName(let app): "for the name of \(app)"
                case .perform(_, let notification): "to perform an action of notification \(notification)"
                }
            return "the phone was asked \(what), and has not answered for \(ANCS.answerTimeLimit.components.seconds) s"
        }
        /// The same text as `description`.
        public var errorDescription: String? { description }
    }

    /// The link has ended, or the phone's services have changed, before an action was performed. BluezKit addition.
    public struct SessionEnded: Error, Hashable, LocalizedError, CustomStringConvertible {
        /// One sentence, without a full stop.
        public var description: String { "the phone went away before it said whether the action was performed" }
        /// The same text as `description`.
        public var errorDescription: String? { description }
    }

    /// The phone.
    public let peripheral: CBPeripheral

    private let queue: DispatchQueue
    private let handler: (Event) -> Void
    private var points: [CBUUID: CBCharacteristic] = [:]
    /// The last one that was written to.
    private var controlPoint: CBCharacteristic?
    private var session = ANCSSession()
    /// Counts the calls of ``stop()``, after which nothing that was decided before is asked of the phone.
    private var stops = 0
    private var isReady = false

    /// A client.
    /// - Parameters:
    ///   - peripheral: The phone. Its delegate is replaced.
    ///   - queue: The queue of the peripheral's manager.
    ///   - handler: Called on that queue.
    public init(_ peripheral: CBPeripheral, queue: DispatchQueue = .main, handler: @escaping (Event) -> Void) {
        (self.peripheral, self.queue, self.handler) = (peripheral, queue, handler)
        super.init()
        peripheral.delegate = self
    }

    /// Finds the service and subscribes. The phone must be connected. Begins again after a new link.
    public func start() {
        stop()
        peripheral.discoverServices([ANCS.uuid])
    }

    /// Call this when the link has ended: reports the actions of which the phone has not said what became.
    public func stop() {
        (points, isReady) = ([:], false)
        stops += 1
        handle(.ended)
    }

    /// Performs an action of a notification, and reports it as ``Event/performed(_:_:_:)``.
    public func perform(_ action: ANCSCommand.Action, of notification: UInt32) {
        handle(.perform(action, notification))
    }

    private func handle(_ event: ANCSSession.Event) {
        let before = stops
        for action in session.handle(event) {
            switch action {
            case .report(let event): handler(event)
            // The handler has called `stop()`: the command is not written.
            case .send where stops != before: break
            case .limitTime(let number) where stops != before: session.notWritten(number)
            case .send(let command):
                if let controlPoint { peripheral.writeValue(command.data, for: controlPoint, type: .withResponse) }
            case .limitTime(let number):
                // holds: the client is used on this queue only
                nonisolated(unsafe) let expire = { [weak self] in self?.handle(.expired(number)) ?? () }
                queue.asyncAfter(deadline: .now() + .seconds(Int(clamping: ANCS.answerTimeLimit.components.seconds))) {
                    expire()
                }
            }
        }
    }

    // MARK: CBPeripheralDelegate

    /// Finds the characteristics.
    public func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
        guard let service = peripheral.services?.first(where: { $0.uuid == ANCS.uuid }) else {
            return handler(.failed(error ?? Unavailable()))
        }
        peripheral.discoverCharacteristics([ANCS.controlPoint, ANCS.dataSource, ANCSEvent.uuid], for: service)
    }

    /// Subscribes to the data source, and then to events, whose attributes it brings.
    public func peripheral(
        _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
    ) {
        for characteristic in service.characteristics ?? [] { points[characteristic.uuid] = characteristic }
        guard let dataSource = points[ANCS.dataSource], points[ANCSEvent.uuid] != nil,
            let found = points[ANCS.controlPoint]
        else { return handler(.failed(error ?? Unavailable())) }
        let isNew = found !== controlPoint
        controlPoint = found
        handle(.opened(isNew: isNew))
        peripheral.setNotifyValue(true, for: dataSource)
    }

    /// Continues with the other subscription.
    public func peripheral(
        _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic,
        error: (any Error)?
    ) {
        if let error { return handler(.failed(error)) }
        guard characteristic.isNotifying else { return }
        if characteristic.uuid == ANCSEvent.uuid {
            // Once, although `start()` was called again before that.
            if !isReady {
                isReady = true
                handler(.ready)
            }
        } else if let source = points[ANCSEvent.uuid] {
            peripheral.setNotifyValue(true, for: source)
        }
    }

    /// A command has arrived, or was refused.
    public func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        if characteristic === controlPoint { handle(.written(error)) }
    }

    /// An event, or a part of an answer.
    public func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        if let error { return handler(.failed(error)) }
        guard characteristic === points[characteristic.uuid] else { return }  // of an earlier session
        if characteristic.uuid == ANCSEvent.uuid {
            do throws(CharacteristicValueError) {
                handle(.notified(try ANCSEvent(characteristic.value)))
            } catch {
                handler(.failed(error))
            }
        } else if characteristic.uuid == ANCS.dataSource {
            handle(.received(characteristic.value ?? Data()))
        }
    }

    /// The phone's services changed: ANCS comes and goes with its permission. When only others change, the session
    /// continues: the phone would not announce again what waits.
    public func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
        if points[ANCSEvent.uuid]?.isNotifying != true { start() }
    }
}
