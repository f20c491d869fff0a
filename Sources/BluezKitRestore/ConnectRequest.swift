/// What an app asks for with a connect: the same in its peripheral, on the bus queue and on disk.
///
/// Encoded as the options alone.
package struct ConnectRequest: Codable, Equatable, Sendable {
    /// The app's `CBConnectPeripheralOption…` values, all of them numbers.
    package var options: [String: Double]

    package init(options: [String: Double]) { self.options = options }

    package init(from decoder: any Decoder) throws {
        options = try decoder.singleValueContainer().decode([String: Double].self)
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(options)
    }
}
