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
/// client.start()   // the phone is connected and paired
/// ```
///
/// It is the delegate of the peripheral. Use it only on the queue of the peripheral's manager, where it calls its handler.
public final class ANCSClient: NSObject, CBPeripheralDelegate {
    /// What happens. BluezKit addition.
    public enum Event {
        /// Notifications arrive from now on; those that the phone has already come first.
        case ready
        /// A notification was added or modified.
        case notification(ANCSNotification)
        /// A notification was removed.
        case removed(UInt32)
        /// The phone has no ANCS, refuses it, or sends what cannot be read. Later notifications may still arrive.
        case failed(any Error)
    }

    /// The phone has no notification center service. An iPhone shows it only to paired accessories. BluezKit addition.
    public struct Unavailable: Error, Hashable, CustomStringConvertible {
        /// One sentence, without a full stop.
        public var description: String { "the device has no Apple Notification Center Service" }
    }

    /// The phone.
    public let peripheral: CBPeripheral

    private let handler: (Event) -> Void
    private var points: [CBUUID: CBCharacteristic] = [:]
    private var appNames: [String: String] = [:]
    /// Events whose attributes have not been asked for.
    private var events: [ANCSEvent] = []
    /// Actions that wait for their turn.
    private var actions: [ANCSCommand] = []
    /// The command that has no answer yet: a phone handles one at a time.
    private var pending: (command: ANCSCommand, response: ANCSResponse)?
    private var current: (event: ANCSEvent, texts: [ANCSCommand.Attribute: String]?)?

    /// A phone can have hundreds of old notifications; more than these are not kept while they wait.
    private static let mostEvents = 1024

    /// A client.
    /// - Parameters:
    ///   - peripheral: The phone. Its delegate is replaced.
    ///   - handler: Called on the queue of the manager.
    public init(_ peripheral: CBPeripheral, handler: @escaping (Event) -> Void) {
        (self.peripheral, self.handler) = (peripheral, handler)
        super.init()
        peripheral.delegate = self
    }

    /// Finds the service and subscribes. The phone must be connected. Begins again after a new link.
    public func start() {
        (points, events, actions, pending, current) = ([:], [], [], nil, nil)
        peripheral.discoverServices([ANCS.uuid])
    }

    /// Performs an action of a notification. An error is reported as ``Event/failed(_:)``.
    public func perform(_ action: ANCSCommand.Action, of notification: UInt32) {
        actions.append(.perform(action, notification))
        proceed()
    }

    // MARK: Commands

    private func proceed() {
        guard pending == nil, let controlPoint = points[ANCS.controlPoint] else { return }
        let command: ANCSCommand
        if !actions.isEmpty {
            command = actions.removeFirst()
        } else if let current, let app = current.texts?[.appIdentifier], !app.isEmpty, appNames[app] == nil {
            command = .appName(app)
        } else if let current {
            command = .attributes(current.event.notification, ANCSCommand.Attribute.allCases)
        } else if !events.isEmpty {
            current = (events.removeFirst(), nil)
            return proceed()
        } else {
            return
        }
        pending = (command, ANCSResponse(to: command))
        peripheral.writeValue(command.data, for: controlPoint, type: .withResponse)
    }

    /// The pending command has its answer, or none will come.
    private func finish(_ response: ANCSResponse?) {
        guard let command = pending?.command else { return }
        pending = nil
        switch command {
        case .perform: break
        case .attributes:
            current?.texts = response?.texts
            if response == nil { current = nil }
        case .appName(let app):
            if appNames.count == Self.mostEvents { appNames = [:] }
            appNames[app] = response?.appName ?? ""
        }
        if let current, let texts = current.texts {
            let app = texts[.appIdentifier] ?? ""
            if app.isEmpty || appNames[app] != nil {
                self.current = nil
                let name = appNames[app].flatMap { $0.isEmpty ? nil : $0 }
                handler(.notification(ANCSNotification(event: current.event, texts: texts, appName: name)))
            }
        }
        proceed()
    }

    private func received(_ event: ANCSEvent) {
        guard event.kind != .removed else {
            events.removeAll { $0.notification == event.notification }
            return handler(.removed(event.notification))
        }
        if events.count == Self.mostEvents { events.removeFirst() }
        events.append(event)
        proceed()
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
        guard let dataSource = points[ANCS.dataSource], points[ANCSEvent.uuid] != nil, points[ANCS.controlPoint] != nil
        else { return handler(.failed(error ?? Unavailable())) }
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
            handler(.ready)
        } else if let source = points[ANCSEvent.uuid] {
            peripheral.setNotifyValue(true, for: source)
        }
    }

    /// An action was performed, or a command was refused: a notification that is gone has no attributes.
    public func peripheral(
        _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        guard let pending else { return }
        if case .perform = pending.command {
            if let error { handler(.failed(error)) }
            finish(nil)
        } else if error != nil {
            finish(nil)
        }
    }

    /// An event, or a part of an answer.
    public func peripheral(
        _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
    ) {
        if let error { return handler(.failed(error)) }
        if characteristic.uuid == ANCSEvent.uuid {
            do throws(CharacteristicValueError) {
                received(try ANCSEvent(characteristic.value))
            } catch {
                handler(.failed(error))
            }
        } else if characteristic.uuid == ANCS.dataSource, var response = pending?.response {
            do throws(ANCSResponse.Invalid) {
                try response.append(characteristic.value ?? Data())
                pending?.response = response
                if response.isComplete { finish(response) }
            } catch {
                handler(.failed(error))
                // What arrives for this command later is for another one, and is ignored as such.
                finish(nil)
            }
        }
    }

    /// The phone's services changed: ANCS comes and goes with its permission.
    public func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) { start() }
}
