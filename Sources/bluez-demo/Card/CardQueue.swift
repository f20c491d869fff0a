import Foundation

/// The centrals that wait for the card: one is served at a time, in order of arrival. Pure.
struct CardQueue {
    /// How much of the card a central had received when it left.
    enum Departure: Equatable {
        /// It had everything.
        case complete
        case early(sent: Int)
        /// It was never served, or is unknown.
        case unserved
    }

    let card: Data
    /// The central that is being served.
    private(set) var current: UUID?
    private var sender: CardSender
    private var waiting: [UUID] = []
    private var finished: Set<UUID> = []

    init(_ card: Data) { (self.card, sender) = (card, CardSender(card)) }

    /// How much of the card has been sent to the current central.
    var sent: Int { sender.sent }

    /// The number of waiting centrals.
    var waitingCount: Int { waiting.count }

    /// A central requests the card, possibly again.
    mutating func join(_ central: UUID) {
        guard current != central, !waiting.contains(central) else { return }
        finished.remove(central)
        waiting.append(central)
        if current == nil { advance() }
    }

    /// A central no longer requests the card, or has disconnected.
    mutating func leave(_ central: UUID) -> Departure {
        if central == current {
            defer { advance() }
            return .early(sent: sender.sent)
        }
        waiting.removeAll { $0 == central }
        return finished.remove(central) == nil ? .unserved : .complete
    }

    /// Sends as much as there is room for, to one central after the other.
    /// - Parameters:
    ///   - length: The longest frame that a central can receive.
    ///   - send: Sends a frame; false: there is no room.
    /// - Returns: The central that was sent the last frame.
    mutating func send(upTo length: (UUID) -> Int, by send: (Data, UUID) -> Bool) -> [UUID] {
        var done: [UUID] = []
        while let current {
            sender.send(upTo: length(current)) { send($0, current) }
            guard sender.isDone else { break }
            finished.insert(current)
            done.append(current)
            advance()
        }
        return done
    }

    private mutating func advance() {
        current = waiting.isEmpty ? nil : waiting.removeFirst()
        sender = CardSender(card)
    }
}
