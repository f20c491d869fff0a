/// What BlueZ asks its agent, and what an app without a handler for it answers. Pure.
enum PairingQuestion: Equatable, Codable, Sendable {
    /// The peripheral shows a number; which?
    case passkey
    /// The number that is to be entered on the peripheral. Needs no answer.
    case display(UInt32)
    /// The peripheral should show the same number. Does it?
    case comparison(UInt32)
    /// There are no numbers.
    case consent

    enum Policy: Equatable { case accept, refuse, ask }

    func policy(_ abilities: PairingAbilities) -> Policy {
        switch self {
        case .passkey: abilities.contains(.entersPasskey) ? .ask : .refuse
        case .display: abilities.contains(.displaysPasskey) ? .ask : .refuse
        case .comparison: abilities.contains(.comparesPasskeys) ? .ask : .refuse
        case .consent:
            abilities.contains(.justWorks) ? .accept : abilities.contains(.consents) ? .ask : .refuse
        }
    }

    /// As people read it: a passkey has six digits.
    static func digits(_ passkey: UInt32) -> String {
        let text = String(passkey % 1_000_000)
        return String(repeating: "0", count: 6 - text.count) + text
    }
}
