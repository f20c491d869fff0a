/// BlueZ's sockets for writes without response of one link, by characteristic, and the peripherals whose apps write to
/// one of them themselves. Confined to the bus queue.
struct CommandSockets {
    private var sockets: [String: CommandSocket] = [:]
    /// Characteristics whose socket BlueZ does not give.
    private var refused: Set<String> = []
    private var borrowers: [PeripheralCore] = []

    subscript(path: String) -> CommandSocket? { sockets[path] }

    func mayAsk(for path: String) -> Bool { !refused.contains(path) }
    mutating func refuse(_ path: String) { refused.insert(path) }
    mutating func add(_ socket: CommandSocket, _ path: String) { sockets[path] = socket }

    /// The app's threads may write to the socket of the characteristic that an operation was about, as nothing waits.
    mutating func lend(_ path: String, to operation: AttributeOperation) {
        guard let socket = sockets[path], let characteristic = operation.attribute as? CBCharacteristic,
            let peripheral = operation.core.peripheral
        else { return }
        let isLent = peripheral.lend(
            socket, for: characteristic, requestsArrived: operation.core.requestsArrived,
            connectionID: operation.connectionID)
        if isLent { borrowers.append(operation.core) }
    }

    /// From now on all that is written comes through the bus queue, until ``lend(_:to:)``.
    /// - Returns: Whether any socket was lent.
    @discardableResult
    mutating func takeBack() -> Bool {
        for core in borrowers { core.peripheral?.takeBackWriter() }
        defer { borrowers = [] }
        return !borrowers.isEmpty
    }

    mutating func updateMTU(_ mtuBytes: Int) {
        takeBack()
        for socket in sockets.values { socket.updateMTU(mtuBytes) }
    }

    /// Whether all that was written to others than that of `own` has reached BlueZ.
    func areDrained(but own: String?) -> Bool { sockets.allSatisfy { $0.key == own || $0.value.isDrained } }

    mutating func close(_ path: String) {
        guard let socket = sockets.removeValue(forKey: path) else { return }
        takeBack()
        socket.close()
    }

    mutating func closeAll() {
        takeBack()
        for socket in sockets.values { socket.close() }
        sockets = [:]
    }
}
