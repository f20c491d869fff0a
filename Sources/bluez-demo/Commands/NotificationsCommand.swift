import BluezKit
import BluezKitProfiles
import Foundation

/// An accessory of iPhones: asks those that connect for their notifications, and shows them.
final class NotificationsCommand: CentralCommand, CBPeripheralManagerDelegate {
    private let options: NotificationsOptions
    /// What phones list: 8 bytes are left beside the service that is solicited.
    private static let name = "BluezKit"
    private var advertiser: CBPeripheralManager?
    /// Phones that are connected, and theirs. Kept, because a peripheral that is released is disconnected.
    private var phones: [UUID: CBPeripheral] = [:]
    private var clients: [UUID: ANCSClient] = [:]
    /// Those that show their notifications.
    private var ready: Set<UUID> = []
    /// The titles that were shown, for those that are removed.
    private var titles: [UUID: [UInt32: String]] = [:]
    private var count = 0
    /// Actions of which the phone has not said what became.
    private var unperformed = 0

    init(_ options: NotificationsOptions, common: CommonOptions, output: Output) {
        self.options = options
        super.init(common: common, output: output)
    }

    override var timeLimit: Double? { options.timeout }
    override var simulatedScenario: Scenario { .phone }

    override func makeManager(_ options: [String: Any]) {
        super.makeManager(options)
        let mayPair = [BluezManagerOptionAllowJustWorksPairingKey: true]
        advertiser = CBPeripheralManager(delegate: self, queue: .main, options: options.merging(mayPair) { $1 })
    }

    override func start() {
        super.start()
        limitWaiting()
    }

    private func limitWaiting() {
        guard let timeout = options.timeout, ending == nil else { return }
        let before = count
        after(timeout) { [self] _ in
            guard count == before, ending == nil else { return }
            timeIsUp("no notification for \(JSONValue.double(timeout)) s")
        }
    }

    override func end() -> Bool {
        if let advertiser, advertiser.state == .poweredOn { advertiser.stopAdvertising() }
        return false  // the link is the phone's
    }

    // MARK: Advertising

    func peripheralManagerDidUpdateState(_ manager: CBPeripheralManager) {
        guard manager.state == .poweredOn, ending == nil else { return }
        manager.startAdvertising([
            CBAdvertisementDataLocalNameKey: Self.name, BluezAdvertisementSolicitedServiceUUIDsKey: [ANCS.uuid],
        ])
    }

    func peripheralManagerDidStartAdvertising(_ manager: CBPeripheralManager, error: (any Error)?) {
        guard ending == nil else { return }
        if let error {
            output.complain("this machine cannot advertise: \(error.sentence). `bluez-demo doctor` may show the cause.")
            return stop(.failure)
        }
        output.report(.advertising(name: Self.name, services: []))
        output.say(Line("\(Self.name) is waiting for iPhones.", .green))
        output.say(Line("On the iPhone: Settings > Bluetooth > \(Self.name). Ctrl-C ends this.", .dim))
    }

    // MARK: Phones

    override func bluetoothIsOn(_ central: CBCentralManager) {
        central.pairing = .justWorks
        // Those that show no notifications get the reason; every device has Generic Access.
        central.registerForConnectionEvents(options: [.serviceUUIDs: [ANCS.uuid, CBUUID(string: "1800")]])
        for phone in central.retrieveConnectedPeripherals(withServices: [ANCS.uuid]) { use(phone) }
    }

    override func bluetoothWentOff() {
        for client in clients.values { client.stop() }
        (phones, clients, ready) = ([:], [:], [])
    }

    override func centralManager(
        _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral
    ) {
        if event == .peerConnected { use(peripheral) }
    }

    /// Takes part in the link that the phone has made.
    private func use(_ phone: CBPeripheral) {
        guard ending == nil, phones[phone.identifier] == nil else { return }
        phones[phone.identifier] = phone
        central?.connect(phone)
    }

    override func centralManager(_ central: CBCentralManager, didConnect phone: CBPeripheral) {
        guard ending == nil else { return }
        output.report(.connected(phone.identifier, name: phone.name))
        let client = ANCSClient(phone) { [weak self, weak phone] in if let self, let phone { take($0, of: phone) } }
        clients[phone.identifier] = client
        client.start()
    }

    override func centralManager(
        _ central: CBCentralManager, didFailToConnect phone: CBPeripheral, error: (any Error)?
    ) { forget(phone, error) }

    override func centralManager(
        _ central: CBCentralManager, didDisconnectPeripheral phone: CBPeripheral, timestamp: CFAbsoluteTime,
        isReconnecting: Bool, error: (any Error)?
    ) { forget(phone, error) }

    /// It will connect again.
    private func forget(_ phone: CBPeripheral, _ error: (any Error)?) {
        guard ending == nil else { return }
        clients[phone.identifier]?.stop()
        ready.remove(phone.identifier)
        (phones[phone.identifier], clients[phone.identifier], titles[phone.identifier]) = (nil, nil, nil)
        output.report(.disconnected(phone.identifier, reason: error?.sentence))
        output.say(Line("\(label(phone)) has gone. Waiting for it.", .yellow))
    }

    private func label(_ phone: CBPeripheral) -> String { phone.name?.harmless ?? "A phone" }

    // MARK: Notifications

    private func take(_ event: ANCSClient.Event, of phone: CBPeripheral) {
        guard ending == nil else { return }
        switch event {
        case .ready:
            ready.insert(phone.identifier)
            output.report(.ready(phone.identifier))
            output.say(Line("\(label(phone)) shows its notifications.", .green))
        case .notification(let notification): take(notification, of: phone)
        case .removed(let uid):
            output.report(.removed(phone.identifier, uid))
            if let title = titles[phone.identifier]?.removeValue(forKey: uid) {
                output.say(Line("Removed: \(title)", .dim))
            }
        case .performed(let action, let uid, let error):
            output.report(.performed(phone.identifier, action, uid, error: error?.sentence))
            if let error { output.complain("the \(action) action failed: \(error.sentence)") }
            unperformed -= 1
            stopIfDone()
        case .failed(let error):
            if error is ANCSClient.Unavailable { ready.remove(phone.identifier) }
            output.complain(
                ready.contains(phone.identifier)
                    ? "\(label(phone)): \(error.sentence)"
                    : "\(label(phone)) does not show its notifications: \(error.sentence). On an iPhone: Settings > Bluetooth, "
                        + "pair with this computer, and allow it to show notifications")
        }
    }

    private func take(_ notification: ANCSNotification, of phone: CBPeripheral) {
        if let app = options.app, notification.texts[.appIdentifier] != app { return }
        guard count != options.count else { return }
        let report = NotificationReport(notification)
        output.report(.notification(phone.identifier, report))
        output.say(report.line, indent: 7)
        let uid = notification.event.notification
        if titles[phone.identifier, default: [:]].count == 1024 { titles[phone.identifier] = [:] }
        titles[phone.identifier, default: [:]][uid] = report.summary
        if let action = options.action, notification.event.kind == .added,
            !notification.event.flags.contains(.preExisting),
            notification.event.flags.contains(action == .positive ? .positiveAction : .negativeAction)
        {
            unperformed += 1
            clients[phone.identifier]?.perform(action, of: uid)
        }
        count += 1
        limitWaiting()
        stopIfDone()
    }

    private func stopIfDone() { if count == options.count, unperformed == 0 { stop(.success) } }
}
