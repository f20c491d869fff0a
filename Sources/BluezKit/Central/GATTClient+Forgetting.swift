import BluezDBus

extension GATTClient {
    /// BlueZ has not answered some operations of the link that has ended. If it does not because of that it never will
    /// (5.67 and later, where pairing had begun), and may use freed memory when the attribute is used again: then it is
    /// made to forget the device. Not if that would cost a bond or a link, or unblock it.
    func forgetIfStuck() { forgetIfStuck(calls, attempts: 3) }

    private func forgetIfStuck(_ calls: OperationCalls, attempts: Int) {
        let (device, removals) = (device, device.removals)
        let isPending = { calls.abandoned.contains { !$0.isAnswered && !$0.isOfRemovedAttribute } }
        guard attempts > 0, isPending(), let caller = countedProxy(device.path, BlueZ.device),
            let adapter = device.path.parent
        else { return }
        // What it answers because of the end of the link comes before this answer. The next link has another client.
        caller.get("Connected") { [self, weak unanswered = central.unanswered] result in
            var reader = (try? result.get())?.reader
            let isConnected = try? reader?.readVariant { (value) throws(BusError) in try value.readBool() }
            guard isPending(), isConnected == false, !device.properties.isBonded, !device.properties.settings.isBlocked
            else { return }
            Log.debug("\(device.path): forgotten, as BlueZ has not answered an operation")
            central.store.forgetting(device)
            bus.ask(adapter, BlueZ.adapter, counting: { unanswered?.counting(device, on: $0) }) {
                $0.removeDevice(device.path, completion: $1)
            } answered: { _ in
                self.central.store.forgettingEnded(device)
                // 5.73 and later may answer and keep it, if they do not know yet that the link's services have ended.
                let now = self.central.store.known(device.identity) ?? device
                guard device.removals == removals, now.connection?.phase != .attempting else { return }
                self.forgetIfStuck(calls, attempts: attempts - 1)
            }
        }
    }
}
