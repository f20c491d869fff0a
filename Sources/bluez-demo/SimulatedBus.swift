import BluezKitSimulator

/// The simulator in this process: devices on a bus of their own.
final class SimulatedBus {
    struct NotAvailable: Error, CustomStringConvertible {
        let description = "it is not part of this build"
    }

    /// Where the bus is, as libdbus takes it.
    let address: String

    init(_ scenario: Scenario) throws { throw NotAvailable() }

    /// Ends the bus and removes its files.
    func stop() {}
}
