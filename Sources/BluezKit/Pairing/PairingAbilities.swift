/// Which of BlueZ's questions an app has an answer to.
struct PairingAbilities: OptionSet, Hashable, Codable, Sendable {
    let rawValue: UInt8
    /// It pairs without being asked, where there are no numbers.
    static let justWorks = PairingAbilities(rawValue: 1)
    /// It decides whether to pair, where there are no numbers.
    static let consents = PairingAbilities(rawValue: 2)
    static let entersPasskey = PairingAbilities(rawValue: 4)
    static let displaysPasskey = PairingAbilities(rawValue: 8)
    static let comparesPasskeys = PairingAbilities(rawValue: 16)

    /// The capability that is registered with BlueZ for apps with these abilities. It decides which question is asked
    /// (Core Spec 5.4, Vol 3, Part H, table 2.8), so it is no more than there are handlers for.
    static func capability(_ all: [PairingAbilities]) -> String {
        let enters = all.contains { $0.contains(.entersPasskey) }
        let displays = all.contains { $0.contains(.displaysPasskey) }
        let compares = all.contains { $0.contains(.comparesPasskeys) }
        switch (enters, compares, displays) {
        case (true, true, _), (true, _, true): return "KeyboardDisplay"
        case (true, false, false): return "KeyboardOnly"
        case (false, true, _): return "DisplayYesNo"
        case (false, false, true): return "DisplayOnly"
        case (false, false, false): return "NoInputNoOutput"
        }
    }
}
