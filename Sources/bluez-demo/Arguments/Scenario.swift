/// What can be simulated.
enum Scenario: Equatable, Sendable {
    case heartRate
    case kitchenSink
    case card
    /// So many beacons.
    case crowd(Int)

    static let all: [Scenario] = [.heartRate, .kitchenSink, .card, .crowd(20)]

    init?(name: String) {
        guard let known = Self.all.first(where: { $0.name == name }) else { return nil }
        self = known
    }

    var name: String {
        switch self {
        case .heartRate: "heart-rate"
        case .kitchenSink: "kitchen-sink"
        case .card: "card"
        case .crowd: "crowd"
        }
    }

    /// What to write on the command line.
    var usage: String { if case .crowd = self { "crowd [N]" } else { name } }

    var summary: String {
        switch self {
        case .heartRate: "a heart-rate sensor, beating"
        case .kitchenSink: "a device with every kind of service, characteristic and descriptor"
        case .card: "somebody who shares a business card"
        case .crowd(let size): "a heart-rate sensor, the kitchen sink, and N others to be scanned (default: \(size))"
        }
    }
}
