import Foundation

/// Who is to get the card: one central at a time, the others in the order in which they came. Pure.
struct CardQueue {
    /// How far the card of a central was that has left.
    enum Departure: Equatable {
        /// It had everything.
        case complete
        case early(sent: Int)
        /// It never had its turn, or is not known.
        case unserved
    }

    let card: Data
    /// Whose turn it is.
    private(set) var current: UUID?
    private var sender: CardSender
    private var waiting: [UUID] = []
    private var finished: Set<UUID> = []

    init(_ card: Data) { (self.card, sender) = (card, CardSender(card)) }

    /// How much of the card the central whose turn it is has been sent.
    var sent: Int { sender.sent }

    /// How many wait for their turn.
    var waitingCount: Int { waiting.count }

    /// A central wants the card; one that had it wants it again.
    mutating func join(_ central: UUID) {
        guard current != central, !waiting.contains(central) else { return }
        finished.remove(central)
        waiting.append(central)
        if current == nil { advance() }
    }

    /// A central does not want it any more, or has gone.
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
    /// - Returns: Who was sent the last frame.
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
