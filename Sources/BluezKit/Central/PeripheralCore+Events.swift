import Foundation

/// What the app hears of the connection.
extension PeripheralCore {
    /// `didConnect`.
    func announceConnection() {
        guard let connectionID = request?.connectionID else { return }
        connected()
        let mtu = device?.connection?.client.table.mtuBytes
        manager.post { [self] manager in
            guard let peripheral, peripheral.enterConnected(connectionID: connectionID, mtuBytes: mtu) else { return }
            manager.preserve(peripheral)
            manager.delegate?.centralManager(manager, didConnect: peripheral)
        }
    }

    /// `didDisconnectPeripheral` with no error: the app asked for it (CN-7).
    func reportRequestedDisconnect() {
        manager.post { [self] manager in
            guard let peripheral else { return }
            peripheral.leave()
            manager.delegate?.centralManager(
                manager, didDisconnectPeripheral: peripheral, timestamp: CFAbsoluteTimeGetCurrent(),
                isReconnecting: false, error: nil)
        }
    }

    /// A link that no app asked to end has ended (CN-9 to CN-12, AR-2).
    func reportLoss(
        reason: (name: String, message: String)?, at time: CFAbsoluteTime = CFAbsoluteTimeGetCurrent()
    ) {
        guard let (request, next) = lost() else { return }
        let error = disconnectError(
            reason: reason?.name, message: reason?.message, isBonded: device?.properties.isBonded ?? false)
        manager.post { [self] manager in
            guard let peripheral, peripheral.leave(connectionID: request.connectionID, for: next) else { return }
            if request.reconnects { manager.preserve(peripheral) }
            manager.delegate?.centralManager(
                manager, didDisconnectPeripheral: peripheral, timestamp: time, isReconnecting: request.reconnects,
                error: error)
            // Not before: a process that ends inside the callback, and has not acted on it yet, gets it again.
            if !request.reconnects { manager.preserve(peripheral) }
        }
    }

    /// `didFailToConnect`: no attempt will succeed.
    func fail(_ error: any Error) {
        guard let request = failed() else { return }
        manager.post { [self] manager in
            guard let peripheral, peripheral.leave(connectionID: request.connectionID) else { return }
            manager.delegate?.centralManager(manager, didFailToConnect: peripheral, error: error)
            manager.preserve(peripheral)
        }
    }
}
