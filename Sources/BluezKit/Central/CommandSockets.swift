/// BlueZ's sockets for writes without response of one link, by characteristic. Confined to the bus queue.
struct CommandSockets {
    private var sockets: [String: CommandSocket] = [:]
    /// Characteristics whose socket BlueZ does not give.
    private var refused: Set<String> = []

    subscript(path: String) -> CommandSocket? { sockets[path] }

    func mayAsk(for path: String) -> Bool { !refused.contains(path) }
    mutating func refuse(_ path: String) { refused.insert(path) }
    mutating func add(_ socket: CommandSocket, _ path: String) { sockets[path] = socket }

    mutating func updateMTU(_ mtuBytes: Int) {
        for socket in sockets.values { socket.updateMTU(mtuBytes) }
    }

    /// Whether all that was written to others than that of `own` has reached BlueZ.
    func areDrained(but own: String?) -> Bool { sockets.allSatisfy { $0.key == own || $0.value.isDrained } }

    mutating func close(_ path: String) {
        guard let socket = sockets.removeValue(forKey: path) else { return }
        socket.close()
    }

    mutating func closeAll() {
        for socket in sockets.values { socket.close() }
        sockets = [:]
    }
}
