/// What BlueZ asks its agent, and what an app without a handler for it answers. Pure.
enum PairingQuestion: Equatable {
    /// The peripheral shows a number; which?
    case passkey
    /// The number that is to be entered on the peripheral. Needs no answer.
    case display(UInt32)
    /// The peripheral should show the same number. Does it?
    case comparison(UInt32)
    /// There are no numbers.
    case consent

    enum Policy: Equatable { case accept, refuse, ask }

    func policy(_ pairing: BluezPairing) -> Policy {
        switch self {
        case .passkey: pairing.enterPasskey == nil ? .refuse : .ask
        case .display: pairing.displayPasskey == nil ? .refuse : .ask
        case .comparison: pairing.comparePasskey == nil ? .refuse : .ask
        case .consent: pairing.allowsJustWorks ? .accept : pairing.consent == nil ? .refuse : .ask
        }
    }

    /// As people read it: a passkey has six digits.
    static func digits(_ passkey: UInt32) -> String {
        let text = String(passkey % 1_000_000)
        return String(repeating: "0", count: 6 - text.count) + text
    }
}

extension BluezPairing {
    /// The capability that is registered with BlueZ. It decides which question is asked (Core Spec 5.4, Vol 3, Part H,
    /// table 2.8), so it is no more than there are handlers for.
    static func capability(_ all: [BluezPairing]) -> String {
        let enters = all.contains { $0.enterPasskey != nil }
        let displays = all.contains { $0.displayPasskey != nil }
        let compares = all.contains { $0.comparePasskey != nil }
        switch (enters, compares, displays) {
        case (true, true, _), (true, _, true): return "KeyboardDisplay"
        case (true, false, false): return "KeyboardOnly"
        case (false, true, _): return "DisplayYesNo"
        case (false, false, true): return "DisplayOnly"
        case (false, false, false): return "NoInputNoOutput"
        }
    }

    /// Whether there is any pairing that this would not refuse.
    var permitsAnything: Bool {
        allowsJustWorks || consent != nil || enterPasskey != nil || displayPasskey != nil || comparePasskey != nil
    }
}
