/// Sleeping and waking: what the kernel then does to Bluetooth, as far as the daemon and clients can see it. In reality
/// they are frozen, and their clocks with them; here all programs keep running, and the radio is silent.
extension Simulator {
    /// The kernel silences the radio and ends all links and a connection attempt in progress. Discovery, advertisements
    /// and applications stay registered in bluetoothd. Controllers that lose power are unplugged instead.
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

    /// Discovery and advertising resume; links do not.
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
