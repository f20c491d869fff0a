import BluezKitSimulator

/// A simulated environment.
enum Scenario: Equatable, Sendable {
    case heartRate
    /// For `scripts/demo-keeper`.
    case counter
    case kitchenSink
    case card
    case phone
    case twoAdapters
    /// What the programs of the package in `Examples` look for.
    case examples
    /// A central that subscribes to this characteristic of ours. Only for `--simulated`.
    case subscriber(String)
    /// This many beacons.
    case crowd(Int)
    /// Recorded devices. Only for `simulate FILE`.
    case recordings([Recording], ReplayPace)

    static let largestCrowd = 10_000

    static let all: [Scenario] = [
        .heartRate, .counter, .kitchenSink, .card, .phone, .twoAdapters, .examples, .crowd(20),
    ]

    init?(name: String) {
        guard let known = Self.all.first(where: { $0.name == name }) else { return nil }
        self = known
    }

    /// The name on the command line.
    var usage: String { if case .crowd = self { "crowd [N]" } else { name } }

    var name: String { words.name }
    var summary: String { words.summary }

    private var words: (name: String, summary: String) {
        switch self {
        case .heartRate: ("heart-rate", "a heart-rate sensor that sends measurements")
        case .counter:
            ("counter", "a heart-rate sensor that numbers its measurements, ten a second, in their field for energy")
        case .kitchenSink: ("kitchen-sink", "a device with every kind of service, characteristic and descriptor")
        case .card: ("card", "a device that shares a business card")
        case .phone: ("phone", "an iPhone that shows its notifications to an accessory that asks for them")
        case .twoAdapters: ("two-adapters", "only two adapters in range of each other: hci0 and hci1")
        case .examples:
            ("examples", "what the programs in Examples look for: a sensor, a thermometer, a UART and beacons")
        case .subscriber: ("subscriber", "a central that subscribes to a characteristic of ours")
        case .crowd(let size):
            ("crowd", "a heart-rate sensor, the kitchen sink, and N other devices (default: \(size))")
        case .recordings(let recordings, _): ("recordings", "\(recordings.count) recorded devices")
        }
    }
}
