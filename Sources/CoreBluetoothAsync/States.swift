import CoreBluetooth

extension EventSequence where Element == CBManagerState, Failure == Never {
    /// The first state decides, unless the system is about to change it.
    func waitUntilReady() async throws {
        for await state in self {
            switch state {
            case .poweredOn: return
            case .unknown, .resetting: continue
            default: throw BluetoothError.unavailable(state)
            }
        }
        try Task.checkCancellation()
        throw BluetoothError.managerReleased
    }

    /// What is asked of a manager that was just made waits for its first state.
    func awaitKnownState(_ current: CBManagerState) async throws {
        guard current == .unknown else { return }
        for await state in self where state != .unknown { return }
        try Task.checkCancellation()
        throw BluetoothError.managerReleased
    }
}
