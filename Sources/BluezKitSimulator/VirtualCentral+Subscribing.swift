import BluezDBus

/// Subscriptions, and what an app hears of them.
extension VirtualCentral {
    /// Subscribes to notifications, or to indications if the characteristic has no notifications.
    ///
    /// Returns when the app has heard of it, if it is in this process: its `didSubscribeTo` has returned, and this
    /// central gets what it updates from now on. An app in another process hears of it some moments later.
    public func subscribe(_ uuid: String) async throws {
        try await subscribeOnly(uuid)
        let full = UUIDText.full(uuid)
        guard try simulator.sync({ link?.peripheral.isAdapter == true }) else { return }
        try await simulator.clock.run { [self, clock = try simulator.clock, bus = try simulator.busAddress] in
            // One whose queue is occupied is not waited for without a limit.
            let deadline = clock.now.advanced(by: .seconds(2))
            while isConnected, clock.now < deadline {
                // Not held in between: the app may release them.
                let heard = LocalApps.parts(.manager, on: bus).compactMap {
                    $0.hasHeard(ofSubscriber: address, of: full)
                }
                if heard.isEmpty || heard.contains(true) { return }
                try await clock.sleep(for: .milliseconds(1))
            }
        }
    }

    /// Returns when the peripheral has confirmed it, as an app in another process leaves no other choice.
    package func subscribeOnly(_ uuid: String) async throws {
        let flags = try simulator.sync { try remote(uuid).definition.flags }
        try await configure(uuid, flags.contains(.indicate) && !flags.contains(.notify) ? 2 : 1)
    }
}
