import BluezDBus

/// Which device may attempt to connect: carries out what ``ConnectScheduler`` decides. Confined to the bus queue.
final class ConnectQueue {
    private let bus: BlueZBus
    private let store: DeviceStore
    private let discovery: DiscoveryController
    private lazy var scheduler = ConnectScheduler<DeviceIdentity>(timing: bus.timing.connect)
    private var actions: [ConnectScheduler<DeviceIdentity>.Action] = []
    private var timer: QueueTimer?

    init(_ bus: BlueZBus, _ store: DeviceStore, _ discovery: DiscoveryController) {
        (self.bus, self.store, self.discovery) = (bus, store, discovery)
    }

    /// Whether no device attempts to connect, or waits for it.
    var isEmpty: Bool { scheduler.waiting == 0 && scheduler.running == nil }

    /// - Parameter isHeard: Whether the device is in range, as far as is known.
    func request(_ device: Device, isHeard: Bool) { perform(scheduler.request(device.identity, isHeard: isHeard)) }

    /// The device has advertised.
    func hear(_ device: Device) { perform(scheduler.hear(device.identity)) }

    /// The attempt is over, or not wanted any longer.
    func end(_ device: Device) { perform(scheduler.end(device.identity)) }

    /// Whether an app scans.
    func scans(_ scans: Bool) { perform(scheduler.scan(scans)) }

    /// Bluetooth is off, or was reset.
    func reset() {
        bus.assertOnQueue()
        scheduler.reset()
        actions = []
        timer?.cancel()
        timer = nil
    }

    private func perform(_ new: [ConnectScheduler<DeviceIdentity>.Action]) {
        actions += new
        // What one of them leads to comes after the others.
        guard actions.count == new.count else { return }
        while let action = actions.first {
            perform(action)
            if !actions.isEmpty { actions.removeFirst() }
        }
    }

    private func perform(_ action: ConnectScheduler<DeviceIdentity>.Action) {
        switch action {
        case .start(let identity): send(.slot, to: identity)
        case .callOff(let identity): send(.slotOver, to: identity)
        case .look(let looks): discovery.listenForQueue(looks)
        case .startTimer(let delay):
            timer?.cancel()
            timer = bus.timer(delay) { [weak self] in
                guard let self else { return }
                perform(scheduler.timerFired())
            }
        case .stopTimer:
            timer?.cancel()
            timer = nil
        }
    }

    private func send(_ event: LinkStateMachine.Event, to identity: DeviceIdentity) {
        guard let device = store.known(identity), let connection = device.connection else {
            return perform(scheduler.end(identity))
        }
        if event == .slotOver { device.clearLastSeen() }
        connection.handle(event)
    }
}
