package import BluezDBus

/// How long a controller receives nothing.
public enum SimulatorDeafness: String, Sendable {
    /// It receives normally.
    case off
    /// Until this is reset.
    case on
    /// Until discovery is started again.
    case scan
    /// Until the adapter is switched on again.
    case power
}

/// Lasting failures of the daemon.
struct Failures {
    /// Addresses of peripherals that resolve without services.
    var hiddenServices: Set<String> = []
    /// Addresses of devices that stay `Connected` when their link is lost.
    var stuckConnections: Set<String> = []
    /// Addresses of devices of which a profile still counts as connected, because their link ended before bluetoothd
    /// had set it up. Since 5.73 RemoveDevice then only disconnects the profile, and is answered.
    var connectedProfiles: Set<String> = []
    /// What applications get instead of the options of a read or write.
    var malformedOptions: Value?
}

/// Failures of the daemon and of the layers below it.
extension Simulator {
    /// From its next connection on, the device resolves without services, as if discovery had failed.
    public func hideServices(of peripheral: VirtualPeripheral, _ hide: Bool = true) {
        sync {
            if hide {
                failures.hiddenServices.insert(peripheral.address)
            } else {
                failures.hiddenServices.remove(peripheral.address)
            }
        }
    }

    /// The device stays `Connected` when its link is lost, as with some controllers; also after Disconnect, which is
    /// then never answered. When this is reset, the connection ends.
    public func stickConnection(of peripheral: VirtualPeripheral, _ stick: Bool = true) {
        sync {
            if stick {
                failures.stuckConnections.insert(peripheral.address)
            } else if failures.stuckConnections.remove(peripheral.address) != nil {
                for adapter in adapters {
                    guard let device = adapter.device(at: peripheral.airAddress), device.link == nil, device.isConnected
                    else { continue }
                    device.linkEnded(reason: 0x08)
                }
            }
        }
    }

    /// The controller scans but receives nothing, without an error, as some do occasionally. Links are not affected.
    public func setDeaf(_ deafness: SimulatorDeafness, adapter index: Int = 0) {
        sync { controllers.first { $0.index == index }?.deafness = deafness }
    }

    /// bluetoothd stops, as with SIGSTOP, until ``continueDaemon()``: calls are not answered, signals are not sent, and
    /// its sockets, for notifications and for writes without response, are neither read nor written. Peripherals and
    /// the radio continue, and what they do is signalled afterwards.
    public func hangDaemon() { sync { connection?.stop() } }

    /// bluetoothd resumes, and handles everything that has accumulated.
    public func continueDaemon() { sync { connection?.goOn() } }

    /// bluetoothd restarts as by `systemctl restart bluetooth`, or after a crash.
    public func restartDaemon(crash: Bool = true) async throws {
        if crash { killDaemon() } else { stopDaemon() }
        try await startDaemon()
    }

    /// Removes a device object with all below it, as RemoveDevice of another client or a timeout does.
    public func forgetDevice(_ peripheral: VirtualPeripheral) {
        sync {
            for adapter in adapters {
                if let device = adapter.device(at: peripheral.airAddress) { adapter.remove(device) }
            }
        }
    }

    /// Adds a peripheral to those that bluetoothd knows, as if it had been connected before.
    public func remember(_ peripheral: VirtualPeripheral, bonded: Bool = false, adapter index: Int = 0) {
        sync {
            if bonded { peripheral.holdsBond = true }
            guard let adapter = adapters.first(where: { $0.controller.index == index }) else { return }
            // Another program's scan may have found it already.
            if let device = adapter.devices[peripheral.address] {
                guard device.isTemporary else { return }
                adapter.remove(device)
            }
            adapter.restore(
                StoredDevice(
                    addressType: peripheral.addressType, name: peripheral.content.localName,
                    uuids: peripheral.table.uuids,
                    isTrusted: false, isBonded: bonded),
                address: peripheral.address)
            adapter.devices[peripheral.address]?.store()
        }
    }

    /// From now on the applications that bluetoothd calls get this value instead of the options of a read or write,
    /// whatever its type. Nil: the correct options again.
    package func sendOptions(_ options: Value?) { sync { failures.malformedOptions = options } }

    /// The number of advertising reports that the controllers have sent to the kernel.
    public var reportsSent: Int { sync { reportCount } }

    /// Whether any client has started discovery on an adapter.
    public func isDiscovering(adapter index: Int = 0) -> Bool {
        sync { adapters.contains { $0.controller.index == index && !$0.sessions.isEmpty } }
    }

    /// Addresses of the devices that an adapter currently knows.
    public func knownDevices(adapter index: Int = 0) -> [String] {
        sync { adapters.first { $0.controller.index == index }?.devices.keys.sorted() ?? [] }
    }
}
