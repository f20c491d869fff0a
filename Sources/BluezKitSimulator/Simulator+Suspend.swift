/// The computer sleeps and wakes: what the kernel does about Bluetooth then, as far as daemon and clients can see it. They
/// are frozen meanwhile, and their clocks with them; here everybody goes on, and finds the radio silent.
extension Simulator {
    /// The kernel keeps the radio silent and ends all links, and a connection attempt under way. Discovery,
    /// advertisements and applications stay as they are in bluetoothd. Controllers that lose power are unplugged instead.
    public func suspend() {
        sync {
            guard !isSuspended else { return }
            isSuspended = true
            scanningChanged()
            for adapter in adapters {
                adapter.endServing(reason: 0x15)
                for device in adapter.devices.values { device.suspended() }
            }
        }
    }

    /// Discovery and advertising go on; links do not come back by themselves.
    public func resume() {
        sync {
            guard isSuspended else { return }
            isSuspended = false
            for adapter in adapters { adapter.updatePresence() }
            scanningChanged()
            for peripheral in peripherals.values { airChanged(peripheral) }
        }
    }
}
