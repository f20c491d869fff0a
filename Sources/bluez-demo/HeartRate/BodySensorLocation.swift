/// The value of the Body Sensor Location characteristic, 2A38.
enum BodySensorLocation: UInt8, Sendable {
    case other, chest, wrist, finger, hand, earLobe, foot

    var name: String {
        switch self {
        case .other: "other"
        case .chest: "chest"
        case .wrist: "wrist"
        case .finger: "finger"
        case .hand: "hand"
        case .earLobe: "ear lobe"
        case .foot: "foot"
        }
    }
}
