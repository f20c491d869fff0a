import Foundation

/// What the app hears of a peripheral.
extension PeripheralCore {
    func post(_ event: PeripheralEvent) { manager.post(.peripheral(identity, event)) }

    /// `didConnect`.
    func announceConnection() {
        guard let connectionID = request?.connectionID else { return }
        connected()
        let connection = device?.connection
        // A manager that was not there when BlueZ told it, as for a link that is up, finds it then.
        if let name = device?.properties.name { updateName(name) }
        post(
            .connected(
                connectionID, mtuBytes: connection?.client.reader.table.mtuBytes, isOurs: connection?.ownership.isOurs))
    }

    /// `didDisconnectPeripheral` with no error: the app asked for it (CN-7).
    func reportRequestedDisconnect() { post(.cancelled(lastCancel)) }

    /// A link that no app asked to end has ended (CN-9 to CN-12, AR-2).
    func reportLoss(
        reason: (name: String, message: String)?, at time: CFAbsoluteTime = CFAbsoluteTimeGetCurrent()
    ) {
        guard let (request, next) = lost() else { return }
        let error = disconnectError(
            reason: reason?.name, message: reason?.message, isBonded: device?.properties.isBonded ?? false)
        post(.lost(request.connectionID, next: next, AppError(error), at: time))
    }

    /// `didFailToConnect`: no attempt will succeed.
    func fail(_ error: any Error) {
        guard let request = failed() else { return }
        post(.failed(request.connectionID, AppError(error)))
    }

    /// A name that BlueZ knew already: no callback, unless the app is connected and knew another one.
    func updateName(_ name: String) { post(.name(name, isNews: false)) }

    func nameChanged(_ name: String) { post(.name(name, isNews: true)) }

    /// The ATT_MTU of the link is known, or has grown.
    func updateMTU(_ mtuBytes: Int) {
        if let connectionID = request?.connectionID { post(.mtu(mtuBytes, connectionID)) }
    }

    func updateBond(_ isBonded: Bool) {
        post(.bonded(isBonded, adapter: manager.central.adapter.identity?.addressText))
    }

    func updateIdentity(_ identity: DeviceIdentity) { post(.identity(identity)) }

    /// A notification or indication.
    func deliver(_ value: Data, of attribute: AttributeID, connectionID: ConnectionID) {
        manager.post(.value(value, attribute, identity, connectionID))
    }

    /// BlueZ's socket has no room for a write that waits.
    func socketIsFull(connectionID: ConnectionID) {
        manager.report(CommandProgress(isSocketFull: true), of: self, connectionID)
    }

    /// BlueZ has taken a write without response, or it was dropped.
    func commandDone(_ size: Int, connectionID: ConnectionID, isDropped: Bool = false) {
        let progress = CommandProgress(writes: 1, bytes: size, dropped: isDropped ? 1 : 0)
        manager.report(progress, of: self, connectionID)
    }
}

extension PeripheralCore: PairingPeer {
    var abilities: PairingAbilities { manager.abilities }

    func ask(_ question: PairingQuestion, ticket: Int) { post(.question(question, ticket: ticket)) }

    func questionEnded() { post(.questionEnded) }
}
